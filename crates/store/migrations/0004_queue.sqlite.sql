-- The message queue. The PostgreSQL twin stands beside this file; a test compares the two.

create table messages (
    id          blob    not null primary key,
    url         text    not null,
    host        text    not null,
    path        text    not null,
    asked       text    not null,
    body        blob    not null,
    topic_name  text,
    queue_name  text,
    schedule_id text,
    flow_key    text,
    caller_ip   text,
    -- Each between line feeds, so that one of them can be searched for.
    labels      text,
    slot        text,
    not_before  integer not null,
    created_at  integer not null,
    traceparent text,
    version     integer not null,
    state       text    not null check (state in ('queued', 'throttled', 'ready', 'delivered', 'failed', 'cancelled')),
    due_at      integer not null,
    dedup_key   text,
    dlq_id      text,
    ended_at    integer,
    response    text,
    check ((state in ('delivered', 'failed', 'cancelled')) = (ended_at is not null)),
    check (dlq_id is null or state = 'failed')
) strict, without rowid;

-- One message per key, whoever sends it how often.
create unique index messages_dedup on messages (dedup_key) where dedup_key is not null;
-- Who waits at a gate, in order, and who is through it and not done. A plain message is in none of these.
create index messages_queued on messages (slot, due_at, id) where state = 'queued';
create index messages_throttled on messages (flow_key, due_at, id) where state = 'throttled';
create index messages_in_slot on messages (slot) where slot is not null and state in ('throttled', 'ready');
create index messages_in_flow on messages (flow_key) where flow_key is not null and state = 'ready';
create index messages_dead on messages (dlq_id) where dlq_id is not null;

create table message_log (
    id         blob    not null primary key,
    message_id blob    not null,
    at         integer not null,
    what       text    not null check (what in ('delivered', 'error', 'failed', 'lapsed', 'cancelled')),
    started_at integer not null,
    retried    integer not null,
    next_at    integer,
    response   text
) strict, without rowid;

create index message_log_message on message_log (message_id);

create table queues (
    id          blob    not null primary key,
    name        text    not null,
    created_at  integer not null,
    version     integer not null,
    parallelism integer not null,
    paused      integer not null,
    updated_at  integer not null,
    deleted_at  integer
) strict, without rowid;

create unique index queues_name on queues (name) where deleted_at is null;

create table flow_controls (
    id                 blob    not null primary key,
    key                text    not null,
    created_at         integer not null,
    version            integer not null,
    parallelism        integer,
    rate               integer,
    period_ms          integer not null,
    period_start       integer not null,
    period_count       integer not null,
    paused             integer not null,
    pinned_parallelism integer not null,
    pinned_rate        integer not null,
    updated_at         integer not null,
    deleted_at         integer
) strict, without rowid;

create unique index flow_controls_key on flow_controls (key) where deleted_at is null;

create table url_groups (
    id         blob    not null primary key,
    name       text    not null,
    created_at integer not null,
    version    integer not null,
    endpoints  text    not null,
    headers    text    not null,
    updated_at integer not null,
    deleted_at integer
) strict, without rowid;

create unique index url_groups_name on url_groups (name) where deleted_at is null;

create table schedules (
    id            blob    not null primary key,
    name          text    not null,
    created_at    integer not null,
    version       integer not null,
    cron          text    not null,
    destination   text    not null,
    asked         text    not null,
    body          blob    not null,
    delay_ms      integer,
    paused        integer not null,
    updated_at    integer not null,
    last_at       integer,
    next_at       integer,
    last_messages text    not null,
    error         text,
    deleted_at    integer
) strict, without rowid;

create unique index schedules_name on schedules (name) where deleted_at is null;

create table signing_keys (
    id          blob    not null primary key,
    version     integer not null,
    current_key text    not null,
    next_key    text    not null
) strict, without rowid;
