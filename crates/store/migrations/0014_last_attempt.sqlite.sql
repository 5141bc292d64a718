-- The attempt that ends a message is told by the message's own row, and has no line in the log. The PostgreSQL twin stands beside this file; a
-- test compares the two.

alter table messages add column last_attempt_id blob;
alter table messages add column last_started_at integer;
alter table messages add column last_retried integer check (
    (last_attempt_id is null) = (last_started_at is null) and (last_attempt_id is null) = (last_retried is null)
    and (last_attempt_id is null or state = 'delivered' or state = 'failed'));

-- Its place among the lines of the log.
create index messages_last_attempt on messages (last_attempt_id) where last_attempt_id is not null;
