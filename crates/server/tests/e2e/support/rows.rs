//! A look past everything of ours, at the rows.

use tokio_postgres::{NoTls, SimpleQueryMessage};

/// The result of a query, every value as text; NULL is empty.
pub async fn rows(url: &str, sql: &str) -> Vec<Vec<String>> {
    match url.strip_prefix("sqlite:") {
        Some(path) => sqlite(path, sql),
        None => postgres(url, sql).await,
    }
}

fn sqlite(path: &str, sql: &str) -> Vec<Vec<String>> {
    use rusqlite::types::Value;
    let db = rusqlite::Connection::open(path).unwrap();
    db.busy_timeout(tashika_testkit::gate::PATIENCE).unwrap();
    let mut statement = db.prepare(sql).unwrap();
    let columns = statement.column_count();
    let text = |value: Value| match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{bytes:02x?}"),
    };
    let rows = statement
        .query_map([], |row| (0..columns).map(|column| row.get(column).map(text)).collect());
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

async fn postgres(url: &str, sql: &str) -> Vec<Vec<String>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let messages = client.simple_query(sql).await.unwrap();
    drop(client);
    connection.await.unwrap().unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        (0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect()
    })
    .collect()
}
