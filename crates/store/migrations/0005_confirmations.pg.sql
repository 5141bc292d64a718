-- Events that nobody signed are confirmed before they are acted on. The SQLite twin stands beside this file; a test compares the two.

-- Who must be asked; null for events that were signed.
alter table webhook_events add column confirm_by text;
-- What that one answered.
alter table webhook_events add column confirmed jsonb check (confirmed is null or confirm_by is not null);
