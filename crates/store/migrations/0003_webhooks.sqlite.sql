-- Webhooks that came in, billing, and the audit log. The PostgreSQL twin stands beside this file; a test compares the two.

create table webhook_events (
    id            blob    not null primary key,
    source        text    not null,
    event_id      text    not null,
    event_type    text    not null,
    payload       text    not null,
    -- Exactly as it came; what was signed.
    body          blob    not null,
    content_type  text,
    occurred_at   integer,
    created_at    integer not null,
    traceparent   text,
    version       integer not null,
    billing_id    blob,
    office_id     text,
    status        text    not null check (status in ('pending', 'success', 'failed', 'skipped')),
    error_message text,
    processed_at  integer,
    check ((status = 'pending') = (processed_at is null))
) strict, without rowid;

-- The heart of it: one row per event of a source, whoever sends it how often.
create unique index webhook_events_event on webhook_events (source, event_id);
create index webhook_events_status on webhook_events (status, id);
create index webhook_events_type on webhook_events (event_type, id);

create view failed_webhook_events as
    select event_id, payload, error_message as error, created_at
      from webhook_events
     where status = 'failed';

create table billings (
    id                     blob    not null primary key,
    office_id              text    not null,
    stripe_customer_id     text    not null,
    created_at             integer not null,
    version                integer not null,
    stripe_subscription_id text,
    status                 text    not null check (status in ('free', 'early_payment', 'active', 'past_due', 'canceling', 'canceled')),
    trial_end_date         integer,
    last_payment_at        integer,
    payment_as_of          integer,
    subscription_as_of     integer,
    updated_at             integer not null
) strict, without rowid;

create unique index billings_office on billings (office_id);
create unique index billings_customer on billings (stripe_customer_id);

create table audit_logs (
    id          blob    not null primary key,
    actor_id    text,
    actor_role  text    not null,
    action      text    not null,
    target_type text    not null,
    target_id   text    not null,
    office_id   text,
    details     text    not null,
    created_at  integer not null
) strict, without rowid;

create index audit_logs_target on audit_logs (target_type, target_id, id);
create index audit_logs_action on audit_logs (action, id);
create index audit_logs_office on audit_logs (office_id, id) where office_id is not null;

-- Lines before the horizon may be removed, all others never.
create table audit_retention (
    one     integer not null primary key check (one = 1),
    horizon integer not null
) strict, without rowid;

-- Which lines were sealed, with the digest that each had then.
create table audit_sealed (
    audit_id blob    not null primary key,
    seal     integer not null,
    digest   text    not null
) strict, without rowid;

create index audit_sealed_seal on audit_sealed (seal, audit_id);

-- The chain: each seal covers its lines and the seal before it.
create table audit_seals (
    number    integer not null primary key,
    lines     integer not null,
    digest    text    not null,
    sealed_at integer not null
) strict, without rowid;

create trigger audit_logs_never_changed before update on audit_logs
begin
    select raise(abort, 'audit_logs: lines are never changed, and removed only by retention');
end;

create trigger audit_logs_never_removed before delete on audit_logs
when not exists (select 1 from audit_retention where old.created_at < horizon)
begin
    select raise(abort, 'audit_logs: lines are never changed, and removed only by retention');
end;
