-- Mail. The PostgreSQL twin stands beside this file; a test compares the two.

create table mail_batches (
    id         blob    not null primary key,
    template   text    not null,
    created_at integer not null,
    version    integer not null,
    status     text    not null check (status in ('scheduled', 'receiving', 'accepted', 'cancelled', 'aborted')),
    key        text,
    digest     text,
    total      integer not null,
    -- What its driver has to do.
    work       text    not null,
    run        integer not null,
    updated_at integer not null,
    check (status <> 'aborted' or key is null)
) strict, without rowid;

-- One batch per key, whoever sends it how often.
create unique index mail_batches_key on mail_batches (key) where key is not null;

create table mail_deliveries (
    id                 blob    not null primary key,
    batch_id           blob,
    recipient          text    not null,
    -- In lower case, for those who search.
    recipient_key      text    not null,
    template           text    not null,
    locale             text    not null check (locale in ('ja', 'en')),
    data               text    not null,
    key                text,
    digest             text,
    on_sent            text,
    created_at         integer not null,
    traceparent        text,
    version            integer not null,
    status             text    not null check (status in ('queued', 'sent', 'failed', 'possibly_sent', 'cancelled')),
    effect_id          blob,
    attempts           integer not null,
    possibly_duplicate integer not null,
    -- While it is being sent: since when, and under which lease.
    sending_since      integer,
    sending_fence      integer,
    sent_at            integer,
    ended_at           integer,
    fault_class        text,
    fault_text         text,
    history            text    not null,
    check ((key is null) = (digest is null)),
    check ((sending_since is null) = (sending_fence is null)),
    check ((fault_class is null) = (fault_text is null)),
    check ((status = 'sent') = (sent_at is not null)),
    check ((status = 'queued') = (ended_at is null))
) strict, without rowid;

create unique index mail_deliveries_key on mail_deliveries (key) where key is not null;
-- Counts of a batch come from this alone.
create index mail_deliveries_batch on mail_deliveries (batch_id, status, id) where batch_id is not null;
create index mail_deliveries_recipient on mail_deliveries (recipient_key, id);
create index mail_deliveries_status on mail_deliveries (status, id);

-- The state of the lane: one row, which is also the lock under which permits are given.
create table mail_control (
    id         blob    not null primary key,
    version    integer not null,
    state      text    not null check (state in ('open', 'parked', 'stopped')),
    until      integer,
    reason     text,
    slow_until integer,
    updated_at integer not null
) strict, without rowid;

insert into mail_control (id, version, state, updated_at)
values (zeroblob(16), 1, 'open', 0);

-- Who may be sending, or was a moment ago.
create table mail_permits (
    id       blob    not null primary key,
    worker   text    not null,
    taken_at integer not null,
    -- When it counts no more.
    ends_at  integer not null
) strict, without rowid;

-- Mails by the minute.
create table mail_quota (
    minute integer not null primary key,
    used   integer not null check (used >= 0)
) strict, without rowid;
