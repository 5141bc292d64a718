//! Deadline notifications: one mail to each member of staff for whom something is due.
//!
//! What is due follows from each one's own threshold: an alert whose deadline is further away than that
//! is left out, and whoever has nothing left gets no mail. An alert that names no deadline is always
//! due. Where alerts name dates, the days are counted when the mails are made, not when they were
//! asked for.

use serde_json::{Map, Value, json};

use crate::audit::Actor;
use crate::changes::{Changes, Write};
use crate::check::{Check, Violation, whole};
use crate::effect::{EffectId, NewEffect};
use crate::lane::Lane;
use crate::time::Timestamp;

use super::batch::{self, Batch, IllegalBatchTransition, Recipient};
use super::{Address, Delivery, Locale, OnSent};

/// The effect kind of a notification that is to be made later.
pub const KIND: &str = "mail.deadlines";

pub const TEMPLATE: &str = "deadline-alert";

/// The audit's word for a notification that was sent.
pub const ACTION: &str = "deadline_notification_sent";

/// Where days begin, unless a request says otherwise.
const TIME_ZONE: &str = "Asia/Tokyo";

/// Notifications that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlines {
    pub dashboard_url: String,
    pub time_zone: String,
    pub run_at: Option<Timestamp>,
    pub key: Option<String>,
    pub offices: Vec<Office>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Office {
    pub id: String,
    pub name: String,
    pub staff: Vec<Staff>,
    pub renewal_alerts: Vec<Map<String, Value>>,
    pub assessment_alerts: Vec<Map<String, Value>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Staff {
    pub id: String,
    pub email: String,
    pub last_name: String,
    pub first_name: String,
    pub threshold_days: i64,
    pub locale: Locale,
}

/// A mail that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    pub recipient: Recipient,
    pub on_sent: OnSent,
}

/// What is to be sent, and to how many there is nothing to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Notifications {
    pub due: Vec<Due>,
    pub skipped: usize,
}

impl Deadlines {
    pub fn parse(body: &Value) -> Result<Self, Vec<Violation>> {
        let mut check = Check::of(body)?;
        let dashboard_url = check.text("dashboardUrl", 1..=2048, true).unwrap_or_default();
        let web = ["https://", "http://"].iter().any(|start| dashboard_url.starts_with(start));
        if !web && !dashboard_url.is_empty() {
            check.wrong("dashboardUrl", "must start with https:// or http://");
        }
        let time_zone = check.text("timeZone", 1..=100, false);
        let time_zone = time_zone.unwrap_or_else(|| TIME_ZONE.to_owned());
        if jiff::tz::TimeZone::get(&time_zone).is_err() {
            check.wrong("timeZone", "must be a name like Asia/Tokyo");
        }
        let run_at = check.text("runAt", 1..=64, false).and_then(|text| {
            text.parse().map_err(|_| check.wrong("runAt", "must be a moment as in RFC 3339")).ok()
        });
        let key = check.text("idempotencyKey", 1..=super::request::KEY_MAX, false);
        let offices = items(&mut check, "offices", true);
        let mut read = Vec::with_capacity(offices.len());
        for (nth, office) in offices.iter().enumerate() {
            match office_of(office) {
                Ok(office) => read.push(office),
                Err(wrong) => check.violations.extend(wrong.into_iter().map(|violation| {
                    let field = format!("offices[{nth}].{}", violation.field);
                    Violation { field, problem: violation.problem }
                })),
            }
        }
        check.finish(Self { dashboard_url, time_zone, run_at, key, offices: read })
    }

    /// The mails that are due at a moment.
    #[must_use]
    pub fn notifications(&self, now: Timestamp) -> Notifications {
        let today = today(&self.time_zone, now);
        let mut found = Notifications { due: Vec::new(), skipped: 0 };
        for office in &self.offices {
            for staff in &office.staff {
                let within = |alerts: &[Map<String, Value>]| -> Vec<Value> {
                    alerts.iter().filter_map(|alert| due(alert, staff, today)).collect()
                };
                let renewals = within(&office.renewal_alerts);
                let assessments = within(&office.assessment_alerts);
                if renewals.is_empty() && assessments.is_empty() {
                    found.skipped += 1;
                    continue;
                }
                found.due.push(notification(self, office, staff, &renewals, &assessments));
            }
        }
        found
    }
}

fn notification(
    asked: &Deadlines,
    office: &Office,
    staff: &Staff,
    renewals: &[Value],
    assessments: &[Value],
) -> Due {
    let name = format!("{} {}", staff.last_name, staff.first_name);
    let (renewal_count, assessment_count) = (renewals.len(), assessments.len());
    let details = json!({
        "recipient_email": staff.email,
        "office_name": office.name,
        "renewal_alert_count": renewal_count,
        "assessment_alert_count": assessment_count,
        "staff_name": name,
        "email_threshold_days": staff.threshold_days,
    });
    let data = json!({
        "staffName": name,
        "officeName": office.name,
        "renewalAlerts": renewals,
        "assessmentAlerts": assessments,
        "dashboardUrl": asked.dashboard_url,
    });
    Due {
        recipient: Recipient { to: staff.email.clone(), locale: staff.locale, data },
        on_sent: OnSent {
            action: ACTION.to_owned(),
            target_id: staff.id.clone(),
            office_id: Some(office.id.clone()),
            details,
        },
    }
}

/// The mails of a batch that was waiting for its moment, and the batch with them.
pub fn fill(
    batch: &Batch,
    digest: String,
    found: Notifications,
    actor: Actor,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<(Batch, Changes), IllegalBatchTransition> {
    let (recipients, lines): (Vec<_>, Vec<_>) =
        found.due.into_iter().map(|due| (due.recipient, due.on_sent)).unzip();
    let mut changes = Changes::new();
    let total = i64::try_from(recipients.len()).unwrap_or(0);
    for (delivery, on_sent) in batch::deliveries(batch, recipients).zip(lines) {
        let delivery = Delivery { on_sent: Some(on_sent), created_at: now, ..delivery };
        changes.push(Write::MailInsert(Box::new(delivery)));
    }
    let filled = Batch { total, ..batch.clone() };
    let (after, completion) = batch::complete(&filled, digest, actor, now, expires_at)?;
    changes.extend(completion);
    Ok((after, changes))
}

/// The effect that makes the notifications of a batch at their moment.
#[must_use]
pub fn timer(batch: &Batch, body: &Value, run_at: Timestamp, expires_at: Timestamp) -> Write {
    Write::Enqueue(NewEffect {
        id: EffectId(batch.id),
        lane: Lane::TIMERS,
        kind: KIND.into(),
        key: None,
        digest: None,
        payload: json!({"batch": batch.id, "body": body}).to_string(),
        run_at,
        created_at: batch.created_at,
        expires_at,
        traceparent: None,
        held_by: None,
    })
}

/// An alert as one member of staff is told of it; `None` if it is not due for them.
fn due(alert: &Map<String, Value>, staff: &Staff, today: jiff::civil::Date) -> Option<Value> {
    let days = days_left(alert, today);
    if days.is_some_and(|days| days > staff.threshold_days) {
        return None;
    }
    let mut told = alert.clone();
    // Templates ask whether something is there, and null would be.
    told.retain(|_, value| !value.is_null());
    if let Some(days) = days {
        told.insert("daysLeft".to_owned(), json!(days));
    }
    Some(Value::Object(told))
}

/// From its date, or else as the caller has counted.
fn days_left(alert: &Map<String, Value>, today: jiff::civil::Date) -> Option<i64> {
    let date = alert.get("deadline").and_then(Value::as_str);
    if let Some(date) = date.and_then(|text| text.parse::<jiff::civil::Date>().ok()) {
        let span = today.until((jiff::Unit::Day, date)).ok()?;
        return Some(i64::from(span.get_days()));
    }
    alert.get("daysLeft").and_then(whole)
}

fn today(time_zone: &str, now: Timestamp) -> jiff::civil::Date {
    let zone = jiff::tz::TimeZone::get(time_zone).unwrap_or(jiff::tz::TimeZone::UTC);
    let at = jiff::Timestamp::from_microsecond(now.as_micros()).unwrap_or_default();
    at.to_zoned(zone).date()
}

fn office_of(body: &Value) -> Result<Office, Vec<Violation>> {
    let mut check = Check::of(body)?;
    let id = check.text("id", 1..=255, true).unwrap_or_default();
    let name = check.text("name", 1..=255, true).unwrap_or_default();
    let renewal_alerts = alerts(&mut check, "renewalAlerts");
    let assessment_alerts = alerts(&mut check, "assessmentAlerts");
    let mut staff = Vec::new();
    for (nth, member) in items(&mut check, "staff", true).iter().enumerate() {
        match staff_of(member) {
            Ok(member) => staff.push(member),
            Err(wrong) => check.violations.extend(wrong.into_iter().map(|violation| {
                let field = format!("staff[{nth}].{}", violation.field);
                Violation { field, problem: violation.problem }
            })),
        }
    }
    check.finish(Office { id, name, staff, renewal_alerts, assessment_alerts })
}

fn staff_of(body: &Value) -> Result<Staff, Vec<Violation>> {
    let mut check = Check::of(body)?;
    let id = check.text("id", 1..=255, true).unwrap_or_default();
    let email = check.text("email", 1..=1000, true).unwrap_or_default();
    let email = match email.parse::<Address>() {
        Ok(address) => address.as_str().to_owned(),
        Err(_) if email.is_empty() => email,
        Err(error) => {
            check.wrong("email", error.to_string());
            email
        }
    };
    let last_name = check.text("lastName", 1..=255, true).unwrap_or_default();
    let first_name = check.text("firstName", 1..=255, true).unwrap_or_default();
    let threshold_days = match check.map.get("emailThresholdDays").map(whole) {
        Some(Some(days)) if (0..=36_500).contains(&days) => days,
        None => {
            check.wrong("emailThresholdDays", "is required");
            0
        }
        Some(_) => {
            check.wrong("emailThresholdDays", "must be a whole number from 0 to 36500");
            0
        }
    };
    let locale = match check.text("locale", 1..=16, false).map(|text| text.parse()) {
        None => Locale::Ja,
        Some(Ok(locale)) => locale,
        Some(Err(_)) => {
            check.wrong("locale", "must be `ja` or `en`");
            Locale::Ja
        }
    };
    check.finish(Staff { id, email, last_name, first_name, threshold_days, locale })
}

fn items(check: &mut Check<'_>, field: &str, required: bool) -> Vec<Value> {
    match check.map.get(field) {
        Some(Value::Array(items)) => items.clone(),
        None | Some(Value::Null) if !required => Vec::new(),
        None => {
            check.wrong(field, "is required");
            Vec::new()
        }
        Some(_) => {
            check.wrong(field, "must be a list");
            Vec::new()
        }
    }
}

fn alerts(check: &mut Check<'_>, field: &str) -> Vec<Map<String, Value>> {
    let mut read = Vec::new();
    for (nth, item) in items(check, field, false).into_iter().enumerate() {
        let named = |name: &str| format!("{field}[{nth}].{name}");
        let Value::Object(alert) = item else {
            check.wrong(&format!("{field}[{nth}]"), "must be an object");
            continue;
        };
        // Whatever an alert says reaches its template, and PostgreSQL on the way.
        if json!(alert).to_string().contains("\\u0000") {
            check.wrong(&format!("{field}[{nth}]"), "must not contain NUL");
        }
        if alert.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            check.wrong(&named("name"), "is required");
        }
        if let Some(date) = alert.get("deadline").filter(|date| !date.is_null())
            && date.as_str().is_none_or(|text| text.parse::<jiff::civil::Date>().is_err())
        {
            check.wrong(&named("deadline"), "must be a date, YYYY-MM-DD");
        }
        if let Some(days) = alert.get("daysLeft").filter(|days| !days.is_null())
            && whole(days).is_none()
        {
            check.wrong(&named("daysLeft"), "must be a whole number");
        }
        read.push(alert);
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        // The first of December in Tokyo, still November in London.
        "2026-11-30T16:00:00Z".parse().unwrap()
    }

    fn body() -> Value {
        json!({
            "dashboardUrl": "https://app.example.com/dashboard",
            "offices": [{
                "id": "office-1", "name": "ひまわり",
                "staff": [
                    {"id": "s1", "email": "a@example.com", "lastName": "山田", "firstName": "太郎", "emailThresholdDays": 30},
                    {"id": "s2", "email": "b@example.com", "lastName": "佐藤", "firstName": "花子", "emailThresholdDays": 7},
                ],
                "renewalAlerts": [
                    {"name": "利用者A", "deadline": "2026-12-31"},
                    {"name": "利用者B", "daysLeft": 31},
                ],
                "assessmentAlerts": [],
            }],
        })
    }

    #[test]
    fn each_is_told_of_what_is_within_their_own_threshold() {
        let asked = Deadlines::parse(&body()).unwrap();
        let found = asked.notifications(now());
        assert_eq!((found.due.len(), found.skipped), (1, 1));
        let due = &found.due[0];
        assert_eq!(due.recipient.to, "a@example.com");
        assert_eq!(due.recipient.data["renewalAlerts"][0]["daysLeft"], 30);
        assert_eq!(
            due.on_sent.details,
            json!({
                "recipient_email": "a@example.com", "office_name": "ひまわり",
                "renewal_alert_count": 1, "assessment_alert_count": 0,
                "staff_name": "山田 太郎", "email_threshold_days": 30,
            })
        );
        assert_eq!(due.on_sent.office_id.as_deref(), Some("office-1"));
    }

    #[test]
    fn what_names_no_deadline_is_always_due_and_days_are_counted_when_it_runs() {
        let mut body = body();
        body["offices"][0]["assessmentAlerts"] = json!([{"name": "利用者C"}]);
        let asked = Deadlines::parse(&body).unwrap();
        assert_eq!(asked.notifications(now()).due.len(), 2);
        let later = now().plus(std::time::Duration::from_secs(25 * 86_400));
        let found = Deadlines::parse(&body).unwrap().notifications(later);
        assert_eq!(found.due[1].recipient.data["renewalAlerts"][0]["daysLeft"], 5);
    }

    #[test]
    fn everything_that_is_wrong_is_said_with_its_place() {
        let mut body = body();
        body["offices"][0]["staff"][1]["email"] = json!("nobody");
        body["offices"][0]["renewalAlerts"][0]["deadline"] = json!("soon");
        body["dashboardUrl"] = json!("javascript:alert(1)");
        let wrong: Vec<String> =
            Deadlines::parse(&body).unwrap_err().into_iter().map(|v| v.field).collect();
        assert_eq!(
            wrong,
            ["dashboardUrl", "offices[0].renewalAlerts[0].deadline", "offices[0].staff[1].email"]
        );
    }
}
