-- Mail. The SQLite twin stands beside this file; a test compares the two.

create table mail_batches (
    id         uuid        not null primary key,
    template   text        not null,
    created_at timestamptz not null,
    version    bigint      not null,
    status     text        not null check (status in ('scheduled', 'receiving', 'accepted', 'cancelled', 'aborted')),
    key        text,
    digest     text,
    total      bigint      not null,
    -- What its driver has to do.
    work       jsonb       not null,
    run        bigint      not null,
    updated_at timestamptz not null,
    check (status <> 'aborted' or key is null)
);

-- One batch per key, whoever sends it how often.
create unique index mail_batches_key on mail_batches (key) where key is not null;

create table mail_deliveries (
    id                 uuid        not null primary key,
    batch_id           uuid,
    recipient          text        not null,
    -- In lower case, for those who search.
    recipient_key      text        not null,
    template           text        not null,
    locale             text        not null check (locale in ('ja', 'en')),
    data               jsonb       not null,
    key                text,
    digest             text,
    on_sent            jsonb,
    created_at         timestamptz not null,
    traceparent        text,
    version            bigint      not null,
    status             text        not null check (status in ('queued', 'sent', 'failed', 'possibly_sent', 'cancelled')),
    effect_id          uuid,
    attempts           bigint      not null,
    possibly_duplicate boolean     not null,
    -- While it is being sent: since when, and under which lease.
    sending_since      timestamptz,
    sending_fence      bigint,
    sent_at            timestamptz,
    ended_at           timestamptz,
    fault_class        text,
    fault_text         text,
    history            jsonb       not null,
    check ((key is null) = (digest is null)),
    check ((sending_since is null) = (sending_fence is null)),
    check ((fault_class is null) = (fault_text is null)),
    check ((status = 'sent') = (sent_at is not null)),
    check ((status = 'queued') = (ended_at is null))
);

create unique index mail_deliveries_key on mail_deliveries (key) where key is not null;
-- Counts of a batch come from this alone.
create index mail_deliveries_batch on mail_deliveries (batch_id, status, id) where batch_id is not null;
create index mail_deliveries_recipient on mail_deliveries (recipient_key, id);
create index mail_deliveries_status on mail_deliveries (status, id);

-- The state of the lane: one row, which is also the lock under which permits are given.
create table mail_control (
    id         uuid        not null primary key,
    version    bigint      not null,
    state      text        not null check (state in ('open', 'parked', 'stopped')),
    until      timestamptz,
    reason     text,
    slow_until timestamptz,
    updated_at timestamptz not null
);

insert into mail_control (id, version, state, updated_at)
values ('00000000-0000-0000-0000-000000000000', 1, 'open', '1970-01-01T00:00:00Z');

-- Who may be sending, or was a moment ago.
create table mail_permits (
    id       uuid        not null primary key,
    worker   text        not null,
    taken_at timestamptz not null,
    -- When it counts no more.
    ends_at  timestamptz not null
);

-- Mails by the minute.
create table mail_quota (
    minute bigint not null primary key,
    used   bigint not null check (used >= 0)
);
