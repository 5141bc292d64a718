-- What people were told about an alert and what they did about it; who closed a case. The PostgreSQL twin stands beside this file; a test compares the two.

alter table alerts add column version integer not null default 1;
-- When the cause was last seen.
alter table alerts add column seen_at integer not null default 0;
alter table alerts add column announced text not null default 'nothing' check (announced in ('nothing', 'firing', 'resolved'));
alter table alerts add column acknowledged_at integer;
alter table alerts add column acknowledged_by text check ((acknowledged_by is null) = (acknowledged_at is null));
alter table alerts add column silenced_until integer;
alter table alerts add column silenced_by text check ((silenced_by is null) = (silenced_until is null));
alter table alerts add column silence_reason text check ((silence_reason is null) = (silenced_until is null));

-- What fired before the watchman told people about it is told as it is.
update alerts set seen_at = fired_at, announced = state;
-- One alert per rule is about all payments together: the watchman fires it again if it must.
update alerts set state = 'resolved', announced = 'resolved', resolved_at = fired_at
    where state = 'firing' and rule in ('payment_verification_failed', 'queue_dead_letters', 'queue_dead_letters_old');

-- What the watchman looks at: what fires, and what people were not told yet.
create index alerts_open on alerts (id) where state = 'firing' or announced <> state;
create index alerts_silenced on alerts (silenced_until) where silenced_until is not null;
create index alerts_state on alerts (state, id);
create index alerts_rule on alerts (rule, id);

-- Who decided.
alter table cases add column resolved_by text check (resolved_by is null or status = 'resolved');
create index cases_kind on cases (kind, status, id);
