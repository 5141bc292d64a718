-- Renders: the videos of paid reservations. The SQLite twin stands beside this file; a test compares the two.

create table renders (
    id                uuid        not null primary key,
    reservation_id    uuid        not null,
    video_id          bigint      not null,
    provider          text        not null,
    traceparent       text,
    created_at        timestamptz not null,
    version           bigint      not null,
    status            text        not null check (status in ('queued', 'processing', 'done', 'failed')),
    attempts          bigint      not null check (attempts >= 1),
    allowed           bigint      not null,
    step              bigint      not null,
    provider_id       text,
    submitted_at      timestamptz,
    output_url        text,
    output_expires_at timestamptz,
    output_path       text,
    error_code        text,
    error_message     text,
    closed_at         timestamptz,
    closed_why        text        check (closed_why in ('given_up', 'cancelled')),
    updated_at        timestamptz not null,
    check ((closed_at is null) = (closed_why is null)),
    check (closed_at is null or status = 'failed'),
    check ((error_code is null) = (error_message is null)),
    check (status <> 'processing' or submitted_at is not null)
);

create index renders_status on renders (status, id);
create index renders_reservation on renders (reservation_id, id);
-- A callback names a render as its provider does.
create index renders_provider on renders (provider, provider_id) where provider_id is not null;
