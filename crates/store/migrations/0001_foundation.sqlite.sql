-- The ledger, the outbox and what belongs to them. The PostgreSQL twin stands beside this file; a test compares the two.
-- Times are microseconds since 1970 in UTC, ids are 16 bytes, JSON is text, booleans are 0 and 1.

create table idempo_ledger (
    scope                 text    not null,
    idempotency_key       text    not null,
    request_digest        text    not null,
    result_digest         text,
    status                text    not null check (status in ('accepted', 'succeeded', 'failed')),
    http_status           integer not null,
    response_payload_json text    not null,
    first_seen_at         integer not null,
    last_seen_at          integer not null,
    expires_at            integer not null,
    primary key (idempotency_key, scope)
) strict, without rowid;

-- Only settled entries expire, so only they are worth an index entry.
create index idempo_ledger_expiry on idempo_ledger (expires_at) where status <> 'accepted';

create table outbox (
    id              blob    not null primary key,
    lane            text    not null,
    kind            text    not null,
    idempotency_key text,
    request_digest  text,
    payload         text    not null,
    status          text    not null check (status in ('pending', 'sending', 'succeeded', 'failed', 'aborted')),
    attempts        integer not null,
    in_doubt        integer not null,
    last_error_code text,
    last_error_msg  text    check (length(last_error_msg) <= 512),
    locked_by       text,
    locked_at       integer,
    fence           integer not null,
    next_run_at     integer not null,
    created_at      integer not null,
    updated_at      integer not null,
    expires_at      integer not null,
    traceparent     text,
    check ((status = 'sending') = (locked_by is not null)),
    check ((locked_by is null) = (locked_at is null))
) strict, without rowid;

create unique index outbox_key on outbox (kind, idempotency_key) where idempotency_key is not null;

-- The claim's own order, and nothing that cannot be claimed.
create index outbox_due on outbox (lane, next_run_at, id) where status in ('pending', 'failed');

create table outbox_attempts (
    outbox_id   blob    not null,
    fence       integer not null,
    worker      text    not null,
    started_at  integer not null,
    finished_at integer not null,
    outcome     text    not null,
    code        text,
    message     text,
    request     text,
    reply       text,
    reference   text,
    sent        integer,
    primary key (outbox_id, fence)
) strict, without rowid;

create table workers (
    id           text    not null primary key,
    started_at   integer not null,
    heartbeat_at integer not null,
    lease_ms     integer not null
) strict, without rowid;

create table quotas (
    client text    not null,
    day    integer not null,
    used   integer not null,
    primary key (client, day)
) strict, without rowid;

create table cases (
    id           blob    not null primary key,
    kind         text    not null,
    status       text    not null check (status in ('open', 'resolved')),
    subject_type text    not null,
    subject_id   text    not null,
    summary      text    not null,
    actions      text    not null,
    details      text    not null,
    opened_at    integer not null,
    resolved_at  integer,
    resolution   text,
    note         text,
    check ((status = 'resolved') = (resolved_at is not null))
) strict, without rowid;

create unique index cases_open on cases (kind, subject_id) where status = 'open';
create index cases_subject on cases (subject_type, subject_id);

-- The name and the columns that operators of order systems know, for reading and for their maintenance statements.
create view outbox_orders as
    select id, idempotency_key, payload as order_request_json, request_digest, status, attempts,
           last_error_code, last_error_msg, locked_by, locked_at, next_run_at, created_at, updated_at, expires_at
      from outbox
     where kind = 'order';

create trigger outbox_orders_update instead of update on outbox_orders
begin
    select raise(abort, 'outbox_orders: what was asked for cannot be changed, only how it goes on')
     where new.id is not old.id or new.idempotency_key is not old.idempotency_key
        or new.order_request_json is not old.order_request_json
        or new.request_digest is not old.request_digest or new.created_at is not old.created_at;
    -- Their statements clear next_run_at to mean "now"; here every row has a time.
    update outbox
       set status = new.status, attempts = new.attempts,
           last_error_code = new.last_error_code, last_error_msg = substr(new.last_error_msg, 1, 512),
           locked_by = new.locked_by, locked_at = new.locked_at,
           next_run_at = coalesce(new.next_run_at, cast(unixepoch('subsec') * 1000000 as integer)),
           -- Whoever takes an effect away from a worker cannot know whether it was sent.
           in_doubt = in_doubt or (old.status = 'sending' and new.status <> 'sending'),
           updated_at = cast(unixepoch('subsec') * 1000000 as integer), expires_at = new.expires_at
     where id = old.id;
end;
