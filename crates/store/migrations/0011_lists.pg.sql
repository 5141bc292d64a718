-- Every filter of a list that people use has an index in the list's own order, so that a page among a million rows reads a page.

create index race_conditions_by_scenario on race_conditions (scenario, id);
create index race_conditions_by_resolution on race_conditions (resolution, id);
create index race_conditions_by_subject on race_conditions (subject_id, id);

create index cases_of_kind on cases (kind, id);
create index cases_of_type on cases (subject_type, id);
create index cases_of_subject on cases (subject_id, id);

create index alerts_severity on alerts (severity, id);

create index webhook_events_office on webhook_events (office_id, id) where office_id is not null;

-- A target's id alone finds its lines; the type is compared in the few rows that it leaves.
drop index audit_logs_target;
create index audit_logs_target on audit_logs (target_id, id);

create index webhook_events_source on webhook_events (source, id);

create index mail_deliveries_to_status on mail_deliveries (recipient_key, status, id);
create index mail_deliveries_of_batch on mail_deliveries (batch_id, id) where batch_id is not null;
