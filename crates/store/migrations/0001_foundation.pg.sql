-- The ledger, the outbox and what belongs to them. The SQLite twin stands beside this file; a test compares the two.

create table idempo_ledger (
    scope                 text        not null,
    idempotency_key       text        not null,
    request_digest        text        not null,
    result_digest         text,
    status                text        not null check (status in ('accepted', 'succeeded', 'failed')),
    http_status           integer     not null,
    response_payload_json jsonb       not null,
    first_seen_at         timestamptz not null,
    last_seen_at          timestamptz not null,
    expires_at            timestamptz not null,
    primary key (idempotency_key, scope)
);

-- Only settled entries expire, so only they are worth an index entry.
create index idempo_ledger_expiry on idempo_ledger (expires_at) where status <> 'accepted';

create table outbox (
    id              uuid        not null primary key,
    lane            text        not null,
    kind            text        not null,
    idempotency_key text,
    request_digest  text,
    payload         jsonb       not null,
    status          text        not null check (status in ('pending', 'sending', 'succeeded', 'failed', 'aborted')),
    attempts        integer     not null,
    in_doubt        boolean     not null,
    last_error_code text,
    last_error_msg  text        check (length(last_error_msg) <= 512),
    locked_by       text,
    locked_at       timestamptz,
    fence           bigint      not null,
    next_run_at     timestamptz not null,
    created_at      timestamptz not null,
    updated_at      timestamptz not null,
    expires_at      timestamptz not null,
    traceparent     text,
    check ((status = 'sending') = (locked_by is not null)),
    check ((locked_by is null) = (locked_at is null))
);

-- Every row is rewritten twice in its life: vacuum early, by count rather than by share of a large table.
alter table outbox set (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05
);

create unique index outbox_key on outbox (kind, idempotency_key) where idempotency_key is not null;

-- The claim's own order, and nothing that cannot be claimed.
create index outbox_due on outbox (lane, next_run_at, id) where status in ('pending', 'failed');

create table outbox_attempts (
    outbox_id   uuid        not null,
    fence       bigint      not null,
    worker      text        not null,
    started_at  timestamptz not null,
    finished_at timestamptz not null,
    outcome     text        not null,
    code        text,
    message     text,
    request     text,
    reply       text,
    reference   text,
    sent        boolean,
    primary key (outbox_id, fence)
);

create table workers (
    id           text        not null primary key,
    started_at   timestamptz not null,
    heartbeat_at timestamptz not null,
    lease_ms     bigint      not null
);

create table quotas (
    client text   not null,
    day    bigint not null,
    used   bigint not null,
    primary key (client, day)
);

create table cases (
    id           uuid        not null primary key,
    kind         text        not null,
    status       text        not null check (status in ('open', 'resolved')),
    subject_type text        not null,
    subject_id   text        not null,
    summary      text        not null,
    actions      jsonb       not null,
    details      jsonb       not null,
    opened_at    timestamptz not null,
    resolved_at  timestamptz,
    resolution   text,
    note         text,
    check ((status = 'resolved') = (resolved_at is not null))
);

create unique index cases_open on cases (kind, subject_id) where status = 'open';
create index cases_subject on cases (subject_type, subject_id);

-- The name and the columns that operators of order systems know, for reading and for their maintenance statements.
create view outbox_orders as
    select id, idempotency_key, payload as order_request_json, request_digest, status, attempts,
           last_error_code, last_error_msg, locked_by, locked_at, next_run_at, created_at, updated_at, expires_at
      from outbox
     where kind = 'order';

create function outbox_orders_update() returns trigger language plpgsql as $$
begin
    if (new.id, new.idempotency_key, new.order_request_json, new.request_digest, new.created_at)
       is distinct from (old.id, old.idempotency_key, old.order_request_json, old.request_digest, old.created_at) then
        raise exception 'outbox_orders: what was asked for cannot be changed, only how it goes on';
    end if;
    -- Their statements clear next_run_at to mean "now"; here every row has a time.
    update outbox
       set status = new.status, attempts = new.attempts,
           last_error_code = new.last_error_code, last_error_msg = left(new.last_error_msg, 512),
           locked_by = new.locked_by, locked_at = new.locked_at,
           next_run_at = coalesce(new.next_run_at, clock_timestamp()),
           -- Whoever takes an effect away from a worker cannot know whether it was sent.
           in_doubt = in_doubt or (old.status = 'sending' and new.status <> 'sending'),
           updated_at = clock_timestamp(), expires_at = new.expires_at
     where id = old.id;
    return new;
end
$$;

create trigger outbox_orders_update instead of update on outbox_orders
    for each row execute function outbox_orders_update();

create function outbox_orders_refuse() returns trigger language plpgsql as $$
begin
    raise exception 'outbox_orders: orders can be updated here, not inserted or deleted';
end
$$;

-- Without it PostgreSQL would pass these on to the table.
create trigger outbox_orders_refuse instead of insert or delete on outbox_orders
    for each row execute function outbox_orders_refuse();

-- Enqueueing from any language, inside the caller's own transaction: the effect exists exactly if that commits.
create schema if not exists tashika;

create or replace function tashika.enqueue(
    lane text, kind text, key text, payload jsonb, run_at timestamptz default null
) returns uuid language plpgsql as $$
#variable_conflict use_column
declare
    millis  bigint := floor(extract(epoch from clock_timestamp()) * 1000);
    stamp   text   := lpad(to_hex(millis), 12, '0');
    new_id  uuid   := (substr(stamp, 1, 8) || '-' || substr(stamp, 9, 4) || '-7'
                       || substr(gen_random_uuid()::text, 16))::uuid;
    -- The transaction's start: the same for all effects of one transaction, so that they share one wake-up.
    due     timestamptz := greatest(coalesce(run_at, now()), now());
    holder  uuid;
begin
    if lane is null or lane !~ '^[a-z][a-z0-9_]{0,31}$' then
        raise exception 'tashika.enqueue: lane must be 1 to 32 of a-z, 0-9 and _, starting with a letter'
            using errcode = 'invalid_parameter_value';
    end if;
    if kind is null or length(kind) not between 1 and 64 then
        raise exception 'tashika.enqueue: kind must have 1 to 64 characters'
            using errcode = 'invalid_parameter_value';
    end if;
    if length(key) not between 1 and 255 then
        raise exception 'tashika.enqueue: key must have 1 to 255 characters'
            using errcode = 'invalid_parameter_value';
    end if;
    if payload is null then
        raise exception 'tashika.enqueue: payload must not be null'
            using errcode = 'invalid_parameter_value';
    end if;
    loop
        insert into outbox (id, lane, kind, idempotency_key, payload, status, attempts, in_doubt, fence,
                            next_run_at, created_at, updated_at, expires_at)
        values (new_id, lane, kind, key, payload, 'pending', 0, false, 0,
                due, now(), now(), now() + interval '48 hours')
        -- What is settled and over does not block its key: as in `Store::commit`.
        on conflict (kind, idempotency_key) where idempotency_key is not null do update set
            id = excluded.id, lane = excluded.lane, request_digest = excluded.request_digest,
            payload = excluded.payload, status = 'pending', attempts = 0, in_doubt = excluded.in_doubt,
            last_error_code = null, last_error_msg = null, fence = 0,
            next_run_at = excluded.next_run_at, created_at = excluded.created_at,
            updated_at = excluded.updated_at, expires_at = excluded.expires_at,
            traceparent = excluded.traceparent
         where outbox.status in ('succeeded', 'aborted') and outbox.expires_at <= excluded.created_at;
        exit when found;
        -- The key is taken: the same effect again, by definition of the key.
        select o.id into holder from outbox o
         where o.kind = enqueue.kind and o.idempotency_key = enqueue.key;
        if found then
            return holder;
        end if;
        -- Pruned in between: the key is free.
    end loop;
    if due <= clock_timestamp() then
        perform pg_notify('tashika_outbox', lane || ' ' || floor(extract(epoch from due) * 1000000)::bigint);
    end if;
    return new_id;
end
$$;

-- Called with any search path, by applications that may have an outbox of their own: ours is the one beside this migration.
do $$
begin
    execute format('alter function outbox_orders_update() set search_path = %I, pg_temp', current_schema());
    execute format('alter function tashika.enqueue(text, text, text, jsonb, timestamptz) set search_path = %I, pg_temp',
                   current_schema());
end
$$;
