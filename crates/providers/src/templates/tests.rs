use serde_json::json;

use super::*;

const OURS: [&str; 4] =
    ["alert", "deadline-alert", "render-failed-refunded", "reservation-expired-refunded"];

fn ours() -> Templates {
    Templates::load(None).unwrap()
}

fn reservation() -> Value {
    json!({"reservationId": "res_1", "refundAmount": 3000, "currency": "JPY"})
}

#[test]
fn ours_are_there_in_both_languages_and_their_samples_fit() {
    let templates = ours();
    assert_eq!(templates.names().collect::<Vec<_>>(), OURS);
    for name in OURS {
        assert_eq!(templates.locales(name).collect::<Vec<_>>(), Locale::ALL);
        let sample = templates.sample(name).unwrap();
        for locale in Locale::ALL {
            let mail = templates.render(name, locale, sample).unwrap();
            for words in [&mail.subject, &mail.html, &mail.text] {
                assert!(!words.contains("{{") && !words.contains("{%"), "{name} {locale}: {words}");
            }
            assert!(mail.html.contains(&format!("<html lang=\"{locale}\">")));
        }
    }
}

/// What is documented is what is used, by each language.
#[test]
fn our_variables_are_those_that_are_used() {
    let templates = ours();
    for built_in in built_in::ALL {
        let declared: BTreeSet<_> = built_in.variables.iter().map(|(name, _)| *name).collect();
        for locale in Locale::ALL {
            for body in ["html", "text"] {
                let used = templates.used(built_in.name, locale, body);
                let used: BTreeSet<_> = used.iter().map(String::as_str).collect();
                assert_eq!(used, declared, "{} {locale}.{body}", built_in.name);
            }
        }
        let told = templates.variables(built_in.name).unwrap();
        assert!(told.iter().all(|variable| variable.meaning.is_some()));
    }
}

#[test]
fn our_variables_are_documented() {
    let page = include_str!("../../../../docs/mail-templates.md");
    for built_in in built_in::ALL {
        let rows =
            built_in.variables.iter().map(|(name, means)| format!("| `{name}` | {means} |\n"));
        let table = format!("| Variable | Meaning |\n|---|---|\n{}\n", rows.collect::<String>());
        let (_, section) = page.split_once(&format!("\n`{}`: ", built_in.name)).unwrap();
        let (_, after) = section.split_once("\n\n").unwrap();
        assert!(after.starts_with(&table), "{} should have\n{table}", built_in.name);
    }
}

#[test]
fn every_missing_variable_is_named() {
    let templates = ours();
    for name in OURS {
        let sample = templates.sample(name).unwrap();
        for variable in templates.variables(name).unwrap() {
            for locale in Locale::ALL {
                let mut absent = sample.clone();
                absent.as_object_mut().unwrap().remove(&variable.name);
                let mut null = sample.clone();
                null[&variable.name] = Value::Null;
                let expected = missing_variable(name, &variable.name);
                assert_eq!(templates.check(name, locale, &absent), Err(expected.clone()));
                assert_eq!(templates.check(name, locale, &null), Err(expected));
            }
        }
    }
}

#[test]
fn the_refund_is_told_in_the_words_of_the_contract() {
    let templates = ours();
    let name = "reservation-expired-refunded";
    let ja = templates.render(name, Locale::Ja, &reservation()).unwrap();
    for words in [
        "予約の仮押さえ期限が切れたため、お支払いは自動的に返金されました。",
        "再度スロットを選択し、予約をお試しください。",
        "3,000円",
        "res_1",
    ] {
        assert!(ja.text.contains(words) && ja.html.contains(words), "{words}");
    }
    let en = templates.render(name, Locale::En, &reservation()).unwrap();
    assert!(en.text.contains("Refund: ¥3,000\n"), "{}", en.text);
}

#[test]
fn deadlines_are_counted_and_listed() {
    let templates = ours();
    let mut data = templates.sample("deadline-alert").unwrap().clone();
    let mail = templates.render("deadline-alert", Locale::En, &data).unwrap();
    let subject = "Deadlines at みどり事業所: 2 renewals, 1 assessments";
    assert_eq!(mail.subject, subject);
    assert!(
        mail.text.contains("Renewals (2):\n- 佐藤 花子, due 2026-12-10, days left: 25\n- 鈴木"),
        "{}",
        mail.text
    );
    assert!(mail.html.contains("href=\"https:"), "{}", mail.html);
    data["renewalAlerts"] = json!([]);
    data["assessmentAlerts"] = json!([{"name": "A"}]);
    let mail = templates.render("deadline-alert", Locale::En, &data).unwrap();
    assert!(!mail.text.contains("Renewals") && mail.text.contains("- A\n"), "{}", mail.text);
    // What is missing inside of a list is missed, too.
    data["assessmentAlerts"] = json!([{"daysLeft": 3}]);
    let missed = templates.check("deadline-alert", Locale::En, &data).unwrap_err();
    assert!(matches!(&missed, TemplateError::Data { why, .. } if why.contains("en.")), "{missed}");
}

#[test]
fn html_is_escaped_and_text_is_not() {
    let data = json!({
        "reservationId": "<script>alert(\"x\")</script>&", "refundAmount": 1, "currency": "JPY"
    });
    let mail = ours().render("reservation-expired-refunded", Locale::En, &data).unwrap();
    assert!(!mail.html.contains("<script>"), "{}", mail.html);
    assert!(mail.html.contains("&lt;script&gt;"));
    assert!(mail.text.contains("<script>alert(\"x\")</script>&"));
}

#[test]
fn a_subject_is_one_line() {
    let data = json!({"reservationId": "a\r\nBcc: b", "refundAmount": 1, "currency": "JPY"});
    let mail = ours().render("reservation-expired-refunded", Locale::En, &data).unwrap();
    assert_eq!(mail.subject, "Refunded: your reservation a Bcc: b was no longer held");
}

#[test]
fn data_of_the_wrong_kind_is_refused() {
    let templates = ours();
    for (field, value) in [
        ("refundAmount", json!("3000")),
        ("refundAmount", json!(30.5)),
        ("currency", json!("YEN!")),
        ("currency", json!(7)),
    ] {
        let mut data = reservation();
        data[field] = value;
        let refused = templates.check("reservation-expired-refunded", Locale::Ja, &data);
        assert!(matches!(refused, Err(TemplateError::Data { .. })), "{field}: {refused:?}");
    }
    let mut data = templates.sample("deadline-alert").unwrap().clone();
    data["dashboardUrl"] = json!("javascript:alert(1)");
    let refused = templates.check("deadline-alert", Locale::Ja, &data);
    assert!(matches!(refused, Err(TemplateError::Data { .. })), "{refused:?}");
    let list = templates.check("deadline-alert", Locale::Ja, &json!([]));
    assert!(matches!(list, Err(TemplateError::Data { .. })));
    let unknown = templates.check("no-such", Locale::Ja, &json!({}));
    assert_eq!(unknown, Err(TemplateError::UnknownTemplate { name: "no-such".into() }));
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn refusal(files: &[(&str, &str)]) -> String {
    let folder = folder(files);
    let error = Templates::load(Some(folder.path())).expect_err("the folder is refused");
    error.to_string().replace(folder.path().to_str().unwrap(), "DIR")
}

#[test]
fn templates_are_read_from_a_folder() {
    let folder = folder(&[
        ("README.md", "not a template"),
        (".git/config", "not a template either"),
        ("welcome/en.subject", "Hello {{ user.name }}\n"),
        ("welcome/en.html", "<p>{{ user.name }}{% if note is defined %}{{ note }}{% endif %}</p>"),
        ("welcome/en.text", "{% for i in range(2) %}{{ user.name }}{% endfor %}"),
        ("welcome/sample.json", r#"{"user": {"name": "Hanako"}}"#),
    ]);
    let templates = Templates::load(Some(folder.path())).unwrap();
    assert_eq!(templates.names().count(), OURS.len() + 1);
    let used = templates.variables("welcome").unwrap();
    assert_eq!(used.iter().map(|used| used.name.as_str()).collect::<Vec<_>>(), ["note", "user"]);
    let mail = templates.render("welcome", Locale::En, &json!({"user": {"name": "<b>"}})).unwrap();
    assert_eq!((mail.subject.as_str(), mail.text.as_str()), ("Hello <b>", "<b><b>"));
    assert_eq!(mail.html, "<p>&lt;b&gt;</p>");
    let ja = templates.check("welcome", Locale::Ja, &json!({}));
    assert!(matches!(ja, Err(TemplateError::UnknownLocale { .. })));
    let missing = templates.check("welcome", Locale::En, &json!({}));
    assert_eq!(missing, Err(missing_variable("welcome", "user")));
    let inner = templates.check("welcome", Locale::En, &json!({"user": {}}));
    assert!(matches!(inner, Err(TemplateError::Data { .. })), "{inner:?}");
}

#[test]
fn ours_can_be_replaced_in_one_language() {
    let name = "reservation-expired-refunded";
    let folder = folder(&[
        ("reservation-expired-refunded/en.subject", "Refund"),
        ("reservation-expired-refunded/en.html", "<p>{{ reservationId }}</p>"),
        ("reservation-expired-refunded/en.text", "{{ refundAmount | money(currency) }}"),
    ]);
    let templates = Templates::load(Some(folder.path())).unwrap();
    assert_eq!(templates.render(name, Locale::En, &reservation()).unwrap().text, "¥3,000");
    assert!(templates.render(name, Locale::Ja, &reservation()).unwrap().text.contains("3,000円"));
}

#[test]
fn what_cannot_be_used_refuses_to_start_and_says_where() {
    let whole = [("a/en.subject", "s"), ("a/en.text", "t"), ("a/sample.json", r#"{"x": 1}"#)];
    let with = |file: &'static str, text: &'static str| {
        let mut files = whole.to_vec();
        files.push((file, text));
        refusal(&files)
    };
    let broken = with("a/en.html", "<p>\n{% if x %}\n");
    assert!(broken.starts_with("DIR/a/en.html, line 2: syntax error"), "{broken}");
    let filter = with("a/en.html", "<p>\n\n{{ x | no_such_filter }}");
    assert!(filter.starts_with("DIR/a/en.html, line 3: "), "{filter}");
    let unfit = with("a/en.html", "<p>\n{{ y }}");
    assert_eq!(unfit, "DIR/a/en.html, line 2: `y` is not in its sample.json");
    let inner = with("a/en.html", "{{ x.y.z }}");
    assert!(inner.starts_with("DIR/a/en.html, line 1: undefined value"), "{inner}");
    let empty = refusal(&[
        ("a/en.subject", "{# none #}"),
        ("a/en.html", "h"),
        ("a/en.text", "t"),
        ("a/sample.json", "{}"),
    ]);
    assert!(empty.contains("the subject is empty"), "{empty}");
    assert_eq!(refusal(&whole), "DIR/a/en.html: this file is missing");
    let without = [("a/en.subject", "s"), ("a/en.html", "h"), ("a/en.text", "t")];
    let missing = refusal(&without);
    assert!(missing.starts_with("DIR/a/sample.json: this file is missing"), "{missing}");
    let unknown = with("a/fr.html", "");
    assert!(unknown.starts_with("DIR/a/fr.html: a template has {ja,en}."), "{unknown}");
    let sample = with("a/sample.json", "{\n\"x\": }");
    assert!(sample.starts_with("DIR/a/sample.json, line 2: "), "{sample}");
    assert!(refusal(&[("A b/en.html", "")]).starts_with("DIR/A b: a template's name"));
    assert!(refusal(&[("a/.keep", "")]).starts_with("DIR/a: a template has ja."));
    let strange = refusal(&[
        ("deadline-alert/en.subject", "s"),
        ("deadline-alert/en.html", "{{ surprise }}"),
        ("deadline-alert/en.text", "t"),
    ]);
    assert!(strange.starts_with("DIR/deadline-alert/en.html: it replaces"), "{strange}");
    let nowhere = Templates::load(Some(Path::new("/no/such/folder"))).unwrap_err();
    assert!(matches!(nowhere, TemplateError::File { .. }));
}
