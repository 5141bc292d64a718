-- What people look for among a million rows: effects that were given up, dead letters in their order, the payments of one customer.

create index outbox_aborted on outbox (id) where status = 'aborted';
create index messages_dead_id on messages (id) where dlq_id is not null;
create index payments_user on payments (user_id, id);
