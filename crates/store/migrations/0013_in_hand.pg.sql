-- A message in the hands of the process that took it carries the lease itself: it gets a row in the outbox only if its first attempt does not
-- end it. The SQLite twin stands beside this file; a test compares the two.

alter table messages
    add column held_by text,
    add column held_at timestamptz,
    add constraint messages_held check ((held_by is null) = (held_at is null));

-- Whose holder is gone. Few at a time, so that nobody has to read all messages for them.
create index messages_in_hand on messages (id) where held_by is not null;
