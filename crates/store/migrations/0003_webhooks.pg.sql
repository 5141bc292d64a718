-- Webhooks that came in, billing, and the audit log. The SQLite twin stands beside this file; a test compares the two.

create table webhook_events (
    id            uuid        not null primary key,
    source        text        not null,
    event_id      text        not null,
    event_type    text        not null,
    payload       jsonb       not null,
    -- Exactly as it came; what was signed.
    body          bytea       not null,
    content_type  text,
    occurred_at   timestamptz,
    created_at    timestamptz not null,
    traceparent   text,
    version       bigint      not null,
    billing_id    uuid,
    office_id     text,
    status        text        not null check (status in ('pending', 'success', 'failed', 'skipped')),
    error_message text,
    processed_at  timestamptz,
    check ((status = 'pending') = (processed_at is null))
);

-- The heart of it: one row per event of a source, whoever sends it how often.
create unique index webhook_events_event on webhook_events (source, event_id);
create index webhook_events_status on webhook_events (status, id);
create index webhook_events_type on webhook_events (event_type, id);

create view failed_webhook_events as
    select event_id, payload, error_message as error, created_at
      from webhook_events
     where status = 'failed';

create table billings (
    id                     uuid        not null primary key,
    office_id              text        not null,
    stripe_customer_id     text        not null,
    created_at             timestamptz not null,
    version                bigint      not null,
    stripe_subscription_id text,
    status                 text        not null check (status in ('free', 'early_payment', 'active', 'past_due', 'canceling', 'canceled')),
    trial_end_date         timestamptz,
    last_payment_at        timestamptz,
    payment_as_of          timestamptz,
    subscription_as_of     timestamptz,
    updated_at             timestamptz not null
);

create unique index billings_office on billings (office_id);
create unique index billings_customer on billings (stripe_customer_id);

create table audit_logs (
    id          uuid        not null primary key,
    actor_id    text,
    actor_role  text        not null,
    action      text        not null,
    target_type text        not null,
    target_id   text        not null,
    office_id   text,
    details     jsonb       not null,
    created_at  timestamptz not null
);

create index audit_logs_target on audit_logs (target_type, target_id, id);
create index audit_logs_action on audit_logs (action, id);
create index audit_logs_office on audit_logs (office_id, id) where office_id is not null;

-- Lines before the horizon may be removed, all others never.
create table audit_retention (
    one     bigint      not null primary key check (one = 1),
    horizon timestamptz not null
);

-- Which lines were sealed, with the digest that each had then.
create table audit_sealed (
    audit_id uuid   not null primary key,
    seal     bigint not null,
    digest   text   not null
);

create index audit_sealed_seal on audit_sealed (seal, audit_id);

-- The chain: each seal covers its lines and the seal before it.
create table audit_seals (
    number    bigint      not null primary key,
    lines     bigint      not null,
    digest    text        not null,
    sealed_at timestamptz not null
);

create function audit_logs_refuse() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and exists (select 1 from audit_retention where old.created_at < horizon) then
        return old;
    end if;
    raise exception 'audit_logs: lines are never changed, and removed only by retention';
end
$$;

create trigger audit_logs_append_only before update or delete on audit_logs
    for each row execute function audit_logs_refuse();

do $$
begin
    execute format('alter function audit_logs_refuse() set search_path = %I, pg_temp', current_schema());
end
$$;
