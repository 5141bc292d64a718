-- The message queue. The SQLite twin stands beside this file; a test compares the two.

create table messages (
    id          uuid        not null primary key,
    url         text        not null,
    host        text        not null,
    path        text        not null,
    asked       jsonb       not null,
    body        bytea       not null,
    topic_name  text,
    queue_name  text,
    schedule_id text,
    flow_key    text,
    caller_ip   text,
    -- Each between line feeds, so that one of them can be searched for.
    labels      text,
    slot        text,
    not_before  timestamptz not null,
    created_at  timestamptz not null,
    traceparent text,
    version     bigint      not null,
    state       text        not null check (state in ('queued', 'throttled', 'ready', 'delivered', 'failed', 'cancelled')),
    due_at      timestamptz not null,
    dedup_key   text,
    dlq_id      text,
    ended_at    timestamptz,
    response    jsonb,
    check ((state in ('delivered', 'failed', 'cancelled')) = (ended_at is not null)),
    check (dlq_id is null or state = 'failed')
);

-- One message per key, whoever sends it how often.
create unique index messages_dedup on messages (dedup_key) where dedup_key is not null;
-- Who waits at a gate, in order, and who is through it and not done. A plain message is in none of these.
create index messages_queued on messages (slot, due_at, id) where state = 'queued';
create index messages_throttled on messages (flow_key, due_at, id) where state = 'throttled';
create index messages_in_slot on messages (slot) where slot is not null and state in ('throttled', 'ready');
create index messages_in_flow on messages (flow_key) where flow_key is not null and state = 'ready';
create index messages_dead on messages (dlq_id) where dlq_id is not null;

create table message_log (
    id         uuid        not null primary key,
    message_id uuid        not null,
    at         timestamptz not null,
    what       text        not null check (what in ('delivered', 'error', 'failed', 'lapsed', 'cancelled')),
    started_at timestamptz not null,
    retried    bigint      not null,
    next_at    timestamptz,
    response   jsonb
);

create index message_log_message on message_log (message_id);

create table queues (
    id          uuid        not null primary key,
    name        text        not null,
    created_at  timestamptz not null,
    version     bigint      not null,
    parallelism bigint      not null,
    paused      boolean     not null,
    updated_at  timestamptz not null,
    deleted_at  timestamptz
);

create unique index queues_name on queues (name) where deleted_at is null;

create table flow_controls (
    id                 uuid        not null primary key,
    key                text        not null,
    created_at         timestamptz not null,
    version            bigint      not null,
    parallelism        bigint,
    rate               bigint,
    period_ms          bigint      not null,
    period_start       timestamptz not null,
    period_count       bigint      not null,
    paused             boolean     not null,
    pinned_parallelism boolean     not null,
    pinned_rate        boolean     not null,
    updated_at         timestamptz not null,
    deleted_at         timestamptz
);

create unique index flow_controls_key on flow_controls (key) where deleted_at is null;

create table url_groups (
    id         uuid        not null primary key,
    name       text        not null,
    created_at timestamptz not null,
    version    bigint      not null,
    endpoints  jsonb       not null,
    headers    jsonb       not null,
    updated_at timestamptz not null,
    deleted_at timestamptz
);

create unique index url_groups_name on url_groups (name) where deleted_at is null;

create table schedules (
    id            uuid        not null primary key,
    name          text        not null,
    created_at    timestamptz not null,
    version       bigint      not null,
    cron          text        not null,
    destination   text        not null,
    asked         jsonb       not null,
    body          bytea       not null,
    delay_ms      bigint,
    paused        boolean     not null,
    updated_at    timestamptz not null,
    last_at       timestamptz,
    next_at       timestamptz,
    last_messages jsonb       not null,
    error         text,
    deleted_at    timestamptz
);

create unique index schedules_name on schedules (name) where deleted_at is null;

create table signing_keys (
    id          uuid   not null primary key,
    version     bigint not null,
    current_key text   not null,
    next_key    text   not null
);
