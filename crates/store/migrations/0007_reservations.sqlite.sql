-- Reservations, and payments that customers make on a page of the gateway. The PostgreSQL twin stands beside this file; a test compares the two.

-- SQLite cannot change a check: the table is made anew.
create table payments_next (
    id                     blob    not null primary key,
    booking_id             text    not null,
    user_id                text    not null,
    amount                 integer not null check (amount > 0),
    currency               text    not null check (length(currency) = 3),
    payment_method         text    not null,
    customer               text,
    description            text    check (length(description) <= 200),
    capture                text    not null check (capture in ('manual', 'automatic')),
    idempotency_key        text    not null,
    request_digest         text    not null,
    gateway                text    not null,
    traceparent            text,
    created_at             integer not null,
    version                integer not null,
    status                 text    not null check (status in ('PENDING', 'AUTHORIZED', 'CAPTURED', 'REFUNDED', 'FAILED')),
    captured_amount        integer not null check (captured_amount >= 0),
    refunded_amount        integer not null check (refunded_amount >= 0),
    -- Reserved by refunds that have not ended.
    refunding_amount       integer not null check (refunding_amount >= 0),
    gateway_transaction_id text,
    failure_code           text,
    failure_reason         text    check (length(failure_reason) <= 512),
    operation              text    check (operation in ('authorize', 'capture', 'void', 'undo', 'checkout')),
    operation_amount       integer,
    operation_effect       blob,
    operation_key          text,
    operation_digest       text,
    operation_asked_at     integer,
    -- Captures and voids that ended without having happened: the next one gets a key of its own.
    operations_in_vain     integer not null,
    pending_verification   integer not null,
    verification_failed    integer not null,
    verification_code      text,
    verification_message   text,
    verification_sent_at   integer,
    verification_attempts  integer not null,
    last_verification_at   integer,
    -- The operation's own; verification_failed speaks of the refunds as well.
    operation_given_up     integer not null,
    -- A fence may be on its way: what the gateway shows is not to be relied on yet.
    operation_fenced       integer not null,
    updated_at             integer not null,
    -- The page on which the customer pays: when we close it, and as the gateway knows it.
    checkout_closes_at     integer,
    session_id             text,
    session_url            text,
    session_expires_at     integer,
    check (captured_amount <= amount),
    -- Whatever the code believes: never more back than was taken.
    check (refunded_amount + refunding_amount <= captured_amount),
    check ((operation is null) = (operation_effect is null)),
    check ((operation is null) = (operation_asked_at is null)),
    check (verification_sent_at is null or operation is not null),
    check (operation <> 'checkout' or checkout_closes_at is not null),
    check (session_id is null or checkout_closes_at is not null),
    check ((session_id is null) = (session_expires_at is null))
) strict, without rowid;

insert into payments_next (
    id, booking_id, user_id, amount, currency, payment_method, customer, description, capture, idempotency_key,
    request_digest, gateway, traceparent, created_at, version, status, captured_amount, refunded_amount,
    refunding_amount, gateway_transaction_id, failure_code, failure_reason, operation, operation_amount,
    operation_effect, operation_key, operation_digest, operation_asked_at, operations_in_vain,
    pending_verification, verification_failed, verification_code, verification_message, verification_sent_at,
    verification_attempts, last_verification_at, operation_given_up, operation_fenced, updated_at)
select
    id, booking_id, user_id, amount, currency, payment_method, customer, description, capture, idempotency_key,
    request_digest, gateway, traceparent, created_at, version, status, captured_amount, refunded_amount,
    refunding_amount, gateway_transaction_id, failure_code, failure_reason, operation, operation_amount,
    operation_effect, operation_key, operation_digest, operation_asked_at, operations_in_vain,
    pending_verification, verification_failed, verification_code, verification_message, verification_sent_at,
    verification_attempts, last_verification_at, operation_given_up, operation_fenced, updated_at
from payments;

drop table payments;
alter table payments_next rename to payments;

create index payments_booking on payments (booking_id, id);
create index payments_created on payments (created_at);
create index payments_in_doubt on payments (id) where pending_verification;
create index payments_status on payments (status, id);

create table reservations (
    id              blob    not null primary key,
    user_id         text    not null,
    user_email      text    not null,
    locale          text    not null check (locale in ('ja', 'en')),
    video_id        integer not null,
    -- YYYY-MM-DD: a day of the place where the film is shown, of no time zone.
    projection_date text    not null check (length(projection_date) = 10),
    slot_number     integer not null check (slot_number >= 1),
    amount          integer not null check (amount > 0),
    currency        text    not null check (length(currency) = 3),
    idempotency_key text    not null check (length(idempotency_key) <= 64),
    request_digest  text    not null,
    hold_expires_at integer not null,
    traceparent     text,
    created_at      integer not null,
    version         integer not null,
    status          text    not null check (status in ('hold', 'confirmed', 'expired', 'cancelled')),
    -- Of the last checkout.
    payment_id      blob,
    confirmed_at    integer,
    expired_at      integer,
    cancelled_at    integer,
    updated_at      integer not null,
    check (status <> 'confirmed' or confirmed_at is not null),
    check (status <> 'expired' or expired_at is not null),
    check ((status = 'cancelled') = (cancelled_at is not null))
) strict, without rowid;

-- The slot has one owner, whoever else believes so: not a check before the insert, but the insert itself.
create unique index reservations_slot_unique on reservations (projection_date, slot_number) where status not in ('expired', 'cancelled');
create unique index reservations_idempotency_key_idx on reservations (idempotency_key);
create index reservations_user on reservations (user_id, id);
create index reservations_day on reservations (projection_date, id);
create index reservations_status on reservations (status, id);

create index race_conditions_scenario on race_conditions (scenario, resolution, detected_at);
