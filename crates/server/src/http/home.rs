//! The first page a newcomer sees: what runs here, and lines to copy that work.
//!
//! Made from the API's description, so it never shows a path that is not there.

use std::fmt::Write as _;

use http::HeaderMap;
use http::header::HOST;
use utoipa::openapi::{OpenApi, RefOr, Required, path::Operation};

use super::language::Language;

/// What the page needs to know about this server.
pub(super) struct Home {
    operations: Vec<Listed>,
    needs_token: bool,
}

struct Listed {
    method: &'static str,
    path: String,
    summary: String,
    /// Following the path is all it takes.
    is_link: bool,
}

/// The first order's key: repeating the line shows what a repeat does.
const FIRST_KEY: &str = "my-first-order-1";

impl Home {
    pub(super) fn new(api: &OpenApi, needs_token: bool) -> Self {
        let operations = api.paths.paths.iter().flat_map(|(path, item)| {
            let methods = [
                ("GET", &item.get),
                ("POST", &item.post),
                ("PUT", &item.put),
                ("PATCH", &item.patch),
                ("DELETE", &item.delete),
            ];
            methods.into_iter().filter_map(move |(method, operation)| {
                let operation = operation.as_ref()?;
                let is_link = method == "GET" && !path.contains('{') && !needs_parameter(operation);
                Some(Listed { method, path: path.clone(), summary: summary(operation), is_link })
            })
        });
        Self { operations: operations.collect(), needs_token }
    }

    fn has(&self, method: &str, path: &str) -> bool {
        self.operations.iter().any(|listed| listed.method == method && listed.path == path)
    }

    pub(super) fn render(&self, language: Language, headers: &HeaderMap) -> String {
        let base = format!("http://{}", host(headers));
        let mut body = format!(
            "<p class=\"lead\">{}</p>\n",
            language.pick(
                "This server makes every call to somebody else's API end in a known state: written down before it is attempted, attempted only as often as is safe, asked about when the answer is lost.",
                "他社の API への呼び出しを、必ず既知の状態で終わらせるサーバーです。実行前に記録し、安全な回数だけ試行し、応答が失われたら相手に確認します。",
            )
        );
        if self.has("POST", "/do/order") {
            body.push_str(&self.first_order(language, &base));
        }
        body.push_str(&self.list(language));
        frame(language, language.pick("Tashika is running", "Tashika は稼働中です"), &body)
    }

    fn first_order(&self, language: Language, base: &str) -> String {
        let token = if self.needs_token {
            " \\\n  -H \"Authorization: Bearer $TASHIKA_TOKEN\""
        } else {
            ""
        };
        let send = format!(
            "curl -i {base}/do/order{token} \\\n  -H 'Content-Type: application/json' \\\n  \
             -H 'Idempotency-Key: {FIRST_KEY}' \\\n  -d '{{\"instrument\": \"USDJPY\", \"side\": \"BUY\", \
             \"qty\": 1, \"idempotency_key\": \"{FIRST_KEY}\"}}'"
        );
        let ask = format!("curl -i {base}/do/order/{FIRST_KEY}{token}");
        let steps = [
            (
                language.pick(
                    "Send an order. It is accepted (201) once it is safely written down; the built-in paper broker fills it.",
                    "注文を送ります。安全に記録された時点で受け付け（201）となり、内蔵のペーパーブローカーが約定させます。",
                ),
                send.as_str(),
            ),
            (
                language.pick("Ask what became of it.", "結果を確認します。"),
                ask.as_str(),
            ),
        ];
        let mut html = String::new();
        if self.needs_token {
            let note = language.pick(
                "This server needs a token: put yours into TASHIKA_TOKEN first.",
                "このサーバーにはトークンが必要です。先に TASHIKA_TOKEN に設定してください。",
            );
            push(
                &mut html,
                &format!("<p>{note}</p>\n<pre><code>export TASHIKA_TOKEN=…</code></pre>"),
            );
        }
        for (text, command) in steps {
            let command = escape(command);
            push(&mut html, &format!("<p>{text}</p>\n<pre data-copy><code>{command}</code></pre>"));
        }
        let again = language.pick(
            "Send the first line again: the same key and body are answered 200 with the result, and nothing is executed twice. Change the quantity under the same key, and the answer is 409.",
            "最初の行をもう一度送ってみてください。同じキーと内容なら 200 で結果が返り、二重に実行されることはありません。同じキーのまま数量を変えると 409 になります。",
        );
        push(&mut html, &format!("<p>{again}</p>"));
        html
    }

    fn list(&self, language: Language) -> String {
        let mut html = format!("<h2>{}</h2>\n", language.pick("What is here", "使えるもの"));
        html.push_str("<ul class=\"paths\">\n");
        for Listed { method, path, summary, is_link } in &self.operations {
            let entry = entry(method, path, *is_link);
            push(&mut html, &format!("<li>{entry} {}</li>", with_code(summary)));
        }
        for (path, english, japanese) in [
            ("/docs", "browse and try the API", "API を閲覧・試行"),
            ("/docs/errors", "what each error means", "エラーの意味と対処"),
            ("/openapi.json", "the API's description for programs", "プログラム向けの API 記述"),
        ] {
            let text = language.pick(english, japanese);
            push(&mut html, &format!("<li>{} {text}</li>", entry("GET", path, true)));
        }
        html.push_str("</ul>\n");
        html
    }
}

fn needs_parameter(operation: &Operation) -> bool {
    let mut parameters = operation.parameters.iter().flatten();
    parameters.any(|known| {
        matches!(known, RefOr::T(parameter) if matches!(parameter.required, Required::True))
    })
}

/// Method and path.
fn entry(method: &str, path: &str, is_link: bool) -> String {
    let path = escape(path);
    let code = format!("<code><b>{method}</b> {path}</code>");
    if is_link { format!("<a href=\"{path}\">{code}</a>") } else { code }
}

fn summary(operation: &Operation) -> String {
    let text = operation.summary.as_ref().or(operation.description.as_ref());
    text.and_then(|text| text.lines().next()).unwrap_or_default().to_owned()
}

/// The name under which the reader reached us, if it is one that can stand in a command line.
fn host(headers: &HeaderMap) -> &str {
    headers
        .get(HOST)
        .and_then(|value| value.to_str().ok())
        .filter(|host| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte))
        })
        .unwrap_or("127.0.0.1:8080")
}

/// A page with the common head and navigation.
pub(super) fn frame(language: Language, title: &str, body: &str) -> String {
    let lang = language.tag();
    let errors = language.pick("Errors", "エラー");
    format!(
        "<!doctype html>\n<html lang=\"{lang}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · Tashika</title>\n<link rel=\"stylesheet\" href=\"/docs/style.css\">\n\
         <script src=\"/docs/app.js\" defer></script>\n</head>\n<body>\n\
         <nav><a href=\"/\"><b>Tashika</b> 確か</a> <a href=\"/docs\">API</a> \
         <a href=\"/docs/errors\">{errors}</a></nav>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(c),
        }
    }
    html
}

/// Text as HTML, with what stands between backticks as code.
pub(super) fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| {
        let part = escape(part);
        if index % 2 == 1 { format!("<code>{part}</code>") } else { part }
    });
    parts.collect()
}

fn push(html: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(html, "{line}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_host_names_reach_the_page() {
        for (sent, shown) in [
            ("tashika.example:8080", "tashika.example:8080"),
            ("[::1]:8080", "[::1]:8080"),
            ("x\"><script>", "127.0.0.1:8080"),
            ("a;rm", "127.0.0.1:8080"),
            ("", "127.0.0.1:8080"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, sent.parse().unwrap());
            assert_eq!(host(&headers), shown, "{sent}");
        }
    }

    #[test]
    fn markup_is_escaped_and_backticks_are_code() {
        assert_eq!(escape("<a href='x'>&"), "&lt;a href=&#39;x&#39;&gt;&amp;");
        assert_eq!(with_code("set `A<B` now"), "set <code>A&lt;B</code> now");
    }

    #[test]
    fn orders_are_shown_only_where_there_are_orders() {
        let home = Home { operations: vec![], needs_token: false };
        let page = home.render(Language::English, &HeaderMap::new());
        assert!(!page.contains("/do/order"));
        let home = Home {
            operations: vec![Listed {
                method: "POST",
                path: "/do/order".into(),
                summary: "Send an order".into(),
                is_link: false,
            }],
            needs_token: true,
        };
        let page = home.render(Language::Japanese, &HeaderMap::new());
        assert!(page.contains("curl -i http://127.0.0.1:8080/do/order"));
        assert!(page.contains("Authorization: Bearer"));
        assert!(page.contains("稼働中"));
    }
}
