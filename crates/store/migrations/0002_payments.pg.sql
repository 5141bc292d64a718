-- Payments, their refunds and timelines; alerts and races. The SQLite twin stands beside this file; a test compares the two.

create table payments (
    id                     uuid        not null primary key,
    booking_id             text        not null,
    user_id                text        not null,
    amount                 bigint      not null check (amount > 0),
    currency               text        not null check (length(currency) = 3),
    payment_method         text        not null,
    customer               text,
    description            text        check (length(description) <= 200),
    capture                text        not null check (capture in ('manual', 'automatic')),
    idempotency_key        text        not null,
    request_digest         text        not null,
    gateway                text        not null,
    traceparent            text,
    created_at             timestamptz not null,
    version                bigint      not null,
    status                 text        not null check (status in ('PENDING', 'AUTHORIZED', 'CAPTURED', 'REFUNDED', 'FAILED')),
    captured_amount        bigint      not null check (captured_amount >= 0),
    refunded_amount        bigint      not null check (refunded_amount >= 0),
    -- Reserved by refunds that have not ended.
    refunding_amount       bigint      not null check (refunding_amount >= 0),
    gateway_transaction_id text,
    failure_code           text,
    failure_reason         text        check (length(failure_reason) <= 512),
    operation              text        check (operation in ('authorize', 'capture', 'void', 'undo')),
    operation_amount       bigint,
    operation_effect       uuid,
    operation_key          text,
    operation_digest       text,
    operation_asked_at     timestamptz,
    -- Captures and voids that ended without having happened: the next one gets a key of its own.
    operations_in_vain     bigint      not null,
    pending_verification   boolean     not null,
    verification_failed    boolean     not null,
    verification_code      text,
    verification_message   text,
    verification_sent_at   timestamptz,
    verification_attempts  bigint      not null,
    last_verification_at   timestamptz,
    -- The operation's own; verification_failed speaks of the refunds as well.
    operation_given_up     boolean     not null,
    -- A fence may be on its way: what the gateway shows is not to be relied on yet.
    operation_fenced       boolean     not null,
    updated_at             timestamptz not null,
    check (captured_amount <= amount),
    -- Whatever the code believes: never more back than was taken.
    check (refunded_amount + refunding_amount <= captured_amount),
    check ((operation is null) = (operation_effect is null)),
    check ((operation is null) = (operation_asked_at is null)),
    check (verification_sent_at is null or operation is not null)
);

create index payments_booking on payments (booking_id, id);
create index payments_created on payments (created_at);
create index payments_in_doubt on payments (id) where pending_verification;
create index payments_status on payments (status, id);

create table refunds (
    id                    uuid        not null primary key,
    payment_id            uuid        not null,
    number                bigint      not null,
    amount                bigint      not null check (amount > 0),
    reason                text        check (length(reason) <= 500),
    effect                uuid        not null,
    idempotency_key       text        not null,
    request_digest        text        not null,
    created_at            timestamptz not null,
    status                text        not null check (status in ('pending', 'succeeded', 'failed')),
    gateway_refund_id     text,
    failure_code          text,
    failure_reason        text,
    verification_code     text,
    verification_message  text,
    verification_sent_at  timestamptz,
    verification_attempts bigint      not null,
    last_verification_at  timestamptz,
    given_up              boolean     not null,
    updated_at            timestamptz not null
);

create unique index refunds_number on refunds (payment_id, number);

create table payment_timeline (
    payment_id uuid        not null,
    version    bigint      not null,
    number     bigint      not null,
    at         timestamptz not null,
    kind       text        not null,
    entry      jsonb       not null,
    primary key (payment_id, version, number)
);

create table alerts (
    id          uuid        not null primary key,
    rule        text        not null,
    subject     text        not null,
    severity    text        not null check (severity in ('warning', 'high', 'critical')),
    state       text        not null check (state in ('firing', 'resolved')),
    message     text        not null,
    count       bigint      not null,
    fired_at    timestamptz not null,
    resolved_at timestamptz,
    labels      jsonb       not null,
    check ((state = 'resolved') = (resolved_at is not null))
);

create unique index alerts_firing on alerts (rule, subject) where state = 'firing';

create table race_conditions (
    id           uuid        not null primary key,
    scenario     text        not null,
    subject_type text        not null,
    subject_id   text        not null,
    resolution   text        not null check (resolution in ('REFUNDED', 'VOIDED', 'RETRY', 'MANUAL_REQUIRED')),
    details      jsonb       not null,
    detected_at  timestamptz not null
);

create index race_conditions_subject on race_conditions (subject_type, subject_id);

-- What the sandbox gateway knows: its side of the world, so that it survives a restart like a real one's.
create table sandbox_payments (
    id         uuid        not null primary key,
    version    bigint      not null,
    state      text        not null,
    created_at timestamptz not null
);

create index sandbox_payments_created on sandbox_payments (created_at);

create index cases_status on cases (status, id);
