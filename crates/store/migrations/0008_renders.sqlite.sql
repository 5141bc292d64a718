-- Renders: the videos of paid reservations. The PostgreSQL twin stands beside this file; a test compares the two.

create table renders (
    id                blob    not null primary key,
    reservation_id    blob    not null,
    video_id          integer not null,
    provider          text    not null,
    traceparent       text,
    created_at        integer not null,
    version           integer not null,
    status            text    not null check (status in ('queued', 'processing', 'done', 'failed')),
    attempts          integer not null check (attempts >= 1),
    allowed           integer not null,
    step              integer not null,
    provider_id       text,
    submitted_at      integer,
    output_url        text,
    output_expires_at integer,
    output_path       text,
    error_code        text,
    error_message     text,
    closed_at         integer,
    closed_why        text    check (closed_why in ('given_up', 'cancelled')),
    updated_at        integer not null,
    check ((closed_at is null) = (closed_why is null)),
    check (closed_at is null or status = 'failed'),
    check ((error_code is null) = (error_message is null)),
    check (status <> 'processing' or submitted_at is not null)
) strict, without rowid;

create index renders_status on renders (status, id);
create index renders_reservation on renders (reservation_id, id);
-- A callback names a render as its provider does.
create index renders_provider on renders (provider, provider_id) where provider_id is not null;
