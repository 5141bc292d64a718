-- Reservations, and payments that customers make on a page of the gateway. The SQLite twin stands beside this file; a test compares the two.

alter table payments
    drop constraint payments_operation_check,
    add constraint payments_operation_check check (operation in ('authorize', 'capture', 'void', 'undo', 'checkout')),
    -- The page on which the customer pays: when we close it, and as the gateway knows it.
    add column checkout_closes_at timestamptz,
    add column session_id         text,
    add column session_url        text,
    add column session_expires_at timestamptz,
    add check (operation <> 'checkout' or checkout_closes_at is not null),
    add check (session_id is null or checkout_closes_at is not null),
    add check ((session_id is null) = (session_expires_at is null));

create table reservations (
    id              uuid        not null primary key,
    user_id         text        not null,
    user_email      text        not null,
    locale          text        not null check (locale in ('ja', 'en')),
    video_id        bigint      not null,
    -- YYYY-MM-DD: a day of the place where the film is shown, of no time zone.
    projection_date text        not null check (length(projection_date) = 10),
    slot_number     bigint      not null check (slot_number >= 1),
    amount          bigint      not null check (amount > 0),
    currency        text        not null check (length(currency) = 3),
    idempotency_key text        not null check (length(idempotency_key) <= 64),
    request_digest  text        not null,
    hold_expires_at timestamptz not null,
    traceparent     text,
    created_at      timestamptz not null,
    version         bigint      not null,
    status          text        not null check (status in ('hold', 'confirmed', 'expired', 'cancelled')),
    -- Of the last checkout.
    payment_id      uuid,
    confirmed_at    timestamptz,
    expired_at      timestamptz,
    cancelled_at    timestamptz,
    updated_at      timestamptz not null,
    check (status <> 'confirmed' or confirmed_at is not null),
    check (status <> 'expired' or expired_at is not null),
    check ((status = 'cancelled') = (cancelled_at is not null))
);

-- The slot has one owner, whoever else believes so: not a check before the insert, but the insert itself.
create unique index reservations_slot_unique on reservations (projection_date, slot_number) where status not in ('expired', 'cancelled');
create unique index reservations_idempotency_key_idx on reservations (idempotency_key);
create index reservations_user on reservations (user_id, id);
create index reservations_day on reservations (projection_date, id);
create index reservations_status on reservations (status, id);

create index race_conditions_scenario on race_conditions (scenario, resolution, detected_at);
