//! The mail API over the wire: what is taken, what is refused, what is shown, and what reaches a real mail server.

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::mail::{Post, batch, letter, post};
use crate::support::{Request, Setup};

on_both!(
    a_mail_reaches_a_real_server,
    the_sandbox_has_an_inbox,
    bad_requests_are_told_what_is_wrong,
    a_key_stands_for_one_mail,
    a_wrong_login_stops_the_lane_until_somebody_says_so,
    a_certificate_that_nobody_knows_stops_the_lane,
    the_servers_quota_parks_the_lane,
    notifications_go_out_and_are_audited,
);

async fn a_mail_reaches_a_real_server(db: TestDb) {
    let office = Post::start(json!({})).await;
    let server = office.setup(Setup::of(&db)).start().await;
    let sent = server.send_mail(&letter("Taro@example.com")).await;
    let mail = server.mail_ended(&sent["id"]).await;
    assert_eq!((mail["status"].as_str(), mail["attempts"].as_u64()), (Some("sent"), Some(1)));
    let id = mail["id"].as_str().unwrap().replace('-', "");
    let copies = office.server.mails(&format!("{id}@mail.example.com")).await;
    let [copy] = &copies[..] else { panic!("{copies:?}") };
    assert_eq!((copy.to.as_str(), &copy.defects[..]), ("Taro@example.com", &[][..]));
    assert!(copy.text.is_some() && copy.html.is_some());
    // The support question, in one call.
    let found = server.get("/mail/deliveries?to=taro@example.com").await.json();
    assert_eq!(found["items"][0]["history"][0]["outcome"], "sent");
    let audited = server.get("/audit-logs?action=mail.sent").await;
    assert!(!audited.body.contains("Taro@"), "masked: {audited:?}");
    assert_eq!(audited.json()["items"][0]["targetId"], mail["id"]);
    // Logs have the masked address only.
    server.log.until("the log line", |event| event["message"] == "a mail was attempted").await;
    let log = server.log.text();
    assert!(log.contains("T***@example.com") && !log.contains("Taro@"), "{log}");
    server.get("/mail/inbox").await.is_problem(404, "MAIL_NO_INBOX");
    let metrics = server.get("/metrics").await.body;
    for line in
        ["mail_sent_total 1", "mail_attempts_total{outcome=\"sent\"} 1", "mail_quota_left 49999"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    server.stop().await;
}

async fn the_sandbox_has_an_inbox(db: TestDb) {
    let server = Setup::of(&db).set("MAIL_BACKOFF_SEC", "0.01").start().await;
    let fine = server.send_mail(&letter("hanako@example.com")).await;
    let refused = server.send_mail(&letter("refused@example.com")).await;
    assert_eq!(server.mail_ended(&fine["id"]).await["status"], "sent");
    let mail = server.mail_ended(&refused["id"]).await;
    assert_eq!(
        (&mail["status"], &mail["failure"]["class"]),
        (&json!("failed"), &json!("recipient"))
    );
    let inbox = server.get("/mail/inbox").await.json();
    assert_eq!(inbox["items"].as_array().unwrap().len(), 1);
    assert!(inbox["items"][0]["html"].as_str().unwrap().contains("3,000"), "{inbox}");
    assert_eq!(server.get("/mail/lane").await.json()["state"], "open");
    server.stop().await;
}

async fn bad_requests_are_told_what_is_wrong(db: TestDb) {
    let server = Setup::of(&db).start().await;
    let wrong = server.ask(post("/mail", &json!({"to": "nobody", "locale": "fr"}))).await;
    wrong.is_problem(422, "VALIDATION_ERROR");
    let fields: Vec<Value> =
        wrong.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!(json!(fields), json!(["template", "to", "locale"]));
    let mut unknown = letter("a@example.com");
    unknown["template"] = json!("no-such");
    server.ask(post("/mail", &unknown)).await.is_problem(422, "MAIL_TEMPLATE_UNKNOWN");
    let mut missing = letter("a@example.com");
    missing["data"].as_object_mut().unwrap().remove("currency");
    let answer = server.ask(post("/mail", &missing)).await;
    answer.is_problem(422, "MAIL_TEMPLATE_DATA");
    assert!(answer.json()["detail"].as_str().unwrap().contains("currency"));
    server.get("/mail/deliveries/x").await.is_problem(404, "MAIL_NOT_FOUND");
    server.get("/mail/batches/x").await.is_problem(404, "MAIL_NOT_FOUND");
    server.get("/mail/deliveries?status=sending").await.is_problem(400, "BAD_REQUEST");
    let empty = json!({"template": "deadline-alert", "recipients": []});
    server.ask(post("/mail/batches", &empty)).await.is_problem(422, "VALIDATION_ERROR");
    let one_wrong = batch(&["a@example.com".into(), "nobody".into()]);
    let answer = server.ask(post("/mail/batches", &one_wrong)).await;
    answer.is_problem(422, "VALIDATION_ERROR");
    assert_eq!(answer.json()["errors"][0]["field"], "recipients[1].to");
    let plain = Request::new("POST", "/mail/batches").header("content-type", "text/plain");
    server.ask(plain.body("x")).await.is_problem(415, "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(server.get("/mail/batches").await.json(), json!({"items": []}), "nothing is left");
    let ours = server.send_batch(&batch(&["a@example.com".into()])).await;
    let wish = json!({"statuses": ["sent"]});
    let retry = format!("/mail/batches/{ours}/retry");
    server.ask(post(&retry, &wish)).await.is_problem(422, "VALIDATION_ERROR");
    server.stop().await;
}

async fn a_key_stands_for_one_mail(db: TestDb) {
    let server = Setup::of(&db).start().await;
    let keyed = |body: &Value| post("/mail", body).header("idempotency-key", "\"k-1\"");
    let first = server.ask(keyed(&letter("a@example.com"))).await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = server.ask(keyed(&letter("a@example.com"))).await;
    assert!(again.status == 200 && again.replayed(), "{again:?}");
    assert_eq!(again.json()["id"], first.json()["id"]);
    server.ask(keyed(&letter("b@example.com"))).await.is_problem(409, "IDEMPOTENCY_CONFLICT");
    let mut both = letter("a@example.com");
    both["idempotencyKey"] = json!("k-2");
    server.ask(keyed(&both)).await.is_problem(422, "IDEMPOTENCY_MISMATCH");
    let mut many = batch(&["a@example.com".into()]);
    many["idempotencyKey"] = json!("k-1");
    let batch = server.send_batch(&many).await;
    let again = server.ask(post("/mail/batches", &many)).await;
    assert!(again.status == 200 && again.replayed(), "{again:?}");
    assert_eq!(again.json()["id"], json!(batch));
    server.stop().await;
}

async fn a_wrong_login_stops_the_lane_until_somebody_says_so(db: TestDb) {
    let office = Post::start(json!({"login": "bad"})).await;
    let server = office.setup(Setup::of(&db)).set("MAIL_PROBE_SEC", 3600).start().await;
    let sent = server.send_mail(&letter("a@example.com")).await;
    let closed = until("a stopped lane", async || {
        let lane = server.get("/mail/lane").await.json();
        (lane["state"] == "stopped").then_some(lane)
    })
    .await;
    assert!(closed["reason"].is_string(), "{closed}");
    let mail = server.mail(sent["id"].as_str().unwrap()).await;
    assert_eq!((&mail["status"], &mail["attempts"]), (&json!("queued"), &json!(0)));
    let alerts = server.get("/alerts").await.json();
    assert_eq!(alerts["items"][0]["rule"], "mail_lane_stopped", "{alerts}");
    office.server.set(json!({"login": "required"})).await;
    let resumed = server.ask(Request::new("POST", "/mail/resume")).await;
    assert_eq!((resumed.status, &resumed.json()["resumed"]), (200, &json!(true)), "{resumed:?}");
    let mail = server.mail_ended(&sent["id"]).await;
    assert_eq!((&mail["status"], &mail["attempts"]), (&json!("sent"), &json!(1)));
    server.stop().await;
}

async fn a_certificate_that_nobody_knows_stops_the_lane(db: TestDb) {
    let office = Post::start(json!({})).await;
    let server = office.setup(Setup::of(&db)).set("SMTP_CA_FILE", "").start().await;
    let sent = server.send_mail(&letter("a@example.com")).await;
    until("a stopped lane", async || {
        (server.get("/mail/lane").await.json()["state"] == "stopped").then_some(())
    })
    .await;
    let mail = server.mail(sent["id"].as_str().unwrap()).await;
    assert_eq!(mail["history"][0]["outcome"], "configuration", "{mail}");
    assert_eq!(office.server.stats().await.accepted, 0);
    server.stop().await;
}

async fn the_servers_quota_parks_the_lane(db: TestDb) {
    let office = Post::start(json!({"quota": "all"})).await;
    let setup = office.setup(Setup::of(&db)).set("MAIL_PARK_SEC", "0.3");
    let server = setup.start().await;
    let sent = server.send_mail(&letter("a@example.com")).await;
    until("a parked lane", async || {
        (server.get("/alerts?state=firing").await.json()["items"][0]["rule"]
            == "mail_quota_used_up")
            .then_some(())
    })
    .await;
    office.server.set(json!({"quota": "off"})).await;
    // Its time is over soon, and nobody has to say so.
    let mail = server.mail_ended(&sent["id"]).await;
    assert_eq!((&mail["status"], &mail["attempts"]), (&json!("sent"), &json!(1)));
    until("no alert", async || {
        let firing = server.get("/alerts?state=firing").await.json();
        (firing["items"] == json!([])).then_some(())
    })
    .await;
    server.stop().await;
}

async fn notifications_go_out_and_are_audited(db: TestDb) {
    let server = Setup::of(&db).start().await;
    let body = json!({
        "dashboardUrl": "https://app.example.com/dashboard",
        "offices": [{
            "id": "office-1", "name": "ひまわり",
            "staff": [
                {"id": "s1", "email": "a@example.com", "lastName": "山田", "firstName": "太郎", "emailThresholdDays": 30},
                {"id": "s2", "email": "b@example.com", "lastName": "佐藤", "firstName": "花子", "emailThresholdDays": 7},
            ],
            "renewalAlerts": [{"name": "利用者A", "daysLeft": 20}],
        }],
    });
    let answer = server.ask(post("/notifications/deadlines", &body)).await;
    assert_eq!(answer.status, 202, "{answer:?}");
    let notified = answer.json();
    assert_eq!((&notified["mails"], &notified["skipped"]), (&json!(1), &json!(1)));
    let id = notified["id"].as_str().unwrap();
    server.until_batch(id, "the mail", |batch| batch["sent"] == 1).await;
    let lines = server.get("/audit-logs?action=deadline_notification_sent").await.json();
    let line = &lines["items"][0];
    assert_eq!(
        (&line["targetType"], &line["targetId"]),
        (&json!("email_notification"), &json!("s1"))
    );
    assert_eq!(line["details"]["recipient_email"], "a***@example.com");
    assert_eq!(line["details"]["email_threshold_days"], 30);
    let inbox = server.get("/mail/inbox").await.json();
    assert!(inbox["items"][0]["text"].as_str().unwrap().contains("利用者A"), "{inbox}");
    let wrong = json!({"dashboardUrl": "x", "offices": [{"id": "o", "name": "n", "staff": [{}]}]});
    let refused = server.ask(post("/notifications/deadlines", &wrong)).await;
    refused.is_problem(422, "VALIDATION_ERROR");
    assert!(refused.body.contains("offices[0].staff[0].email"), "{refused:?}");
    server.stop().await;
}
