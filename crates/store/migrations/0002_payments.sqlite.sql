-- Payments, their refunds and timelines; alerts and races. The PostgreSQL twin stands beside this file; a test compares the two.

create table payments (
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
    operation              text    check (operation in ('authorize', 'capture', 'void', 'undo')),
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
    check (captured_amount <= amount),
    -- Whatever the code believes: never more back than was taken.
    check (refunded_amount + refunding_amount <= captured_amount),
    check ((operation is null) = (operation_effect is null)),
    check ((operation is null) = (operation_asked_at is null)),
    check (verification_sent_at is null or operation is not null)
) strict, without rowid;

create index payments_booking on payments (booking_id, id);
create index payments_created on payments (created_at);
create index payments_in_doubt on payments (id) where pending_verification;
create index payments_status on payments (status, id);

create table refunds (
    id                    blob    not null primary key,
    payment_id            blob    not null,
    number                integer not null,
    amount                integer not null check (amount > 0),
    reason                text    check (length(reason) <= 500),
    effect                blob    not null,
    idempotency_key       text    not null,
    request_digest        text    not null,
    created_at            integer not null,
    status                text    not null check (status in ('pending', 'succeeded', 'failed')),
    gateway_refund_id     text,
    failure_code          text,
    failure_reason        text,
    verification_code     text,
    verification_message  text,
    verification_sent_at  integer,
    verification_attempts integer not null,
    last_verification_at  integer,
    given_up              integer not null,
    updated_at            integer not null
) strict, without rowid;

create unique index refunds_number on refunds (payment_id, number);

create table payment_timeline (
    payment_id blob    not null,
    version    integer not null,
    number     integer not null,
    at         integer not null,
    kind       text    not null,
    entry      text    not null,
    primary key (payment_id, version, number)
) strict, without rowid;

create table alerts (
    id          blob    not null primary key,
    rule        text    not null,
    subject     text    not null,
    severity    text    not null check (severity in ('warning', 'high', 'critical')),
    state       text    not null check (state in ('firing', 'resolved')),
    message     text    not null,
    count       integer not null,
    fired_at    integer not null,
    resolved_at integer,
    labels      text    not null,
    check ((state = 'resolved') = (resolved_at is not null))
) strict, without rowid;

create unique index alerts_firing on alerts (rule, subject) where state = 'firing';

create table race_conditions (
    id           blob    not null primary key,
    scenario     text    not null,
    subject_type text    not null,
    subject_id   text    not null,
    resolution   text    not null check (resolution in ('REFUNDED', 'VOIDED', 'RETRY', 'MANUAL_REQUIRED')),
    details      text    not null,
    detected_at  integer not null
) strict, without rowid;

create index race_conditions_subject on race_conditions (subject_type, subject_id);

-- What the sandbox gateway knows: its side of the world, so that it survives a restart like a real one's.
create table sandbox_payments (
    id         blob    not null primary key,
    version    integer not null,
    state      text    not null,
    created_at integer not null
) strict, without rowid;

create index sandbox_payments_created on sandbox_payments (created_at);

create index cases_status on cases (status, id);
