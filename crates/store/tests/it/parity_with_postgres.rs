//! The two schemas say the same, as far as two databases can.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::*;

/// A column: its kind in SQLite's words, and whether it may be null.
type Columns = Vec<(String, &'static str, bool)>;

#[derive(Debug, Default, PartialEq)]
struct Table {
    columns: Columns,
    primary_key: Vec<String>,
    /// Name, uniqueness, columns and condition.
    indexes: BTreeSet<(String, bool, Vec<String>, String)>,
    checks: BTreeSet<String>,
}

type Schema = BTreeMap<String, Table>;

#[tokio::test]
async fn the_schemas_are_equal() {
    let (sqlite, postgres) = (Db::sqlite(), Db::postgres());
    sqlite.open().await;
    postgres.open().await;
    let (sqlite, postgres) = (sqlite_schema(&sqlite).await, postgres_schema(&postgres).await);
    let names = |schema: &Schema| schema.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&sqlite), names(&postgres));
    assert!(sqlite.contains_key("outbox") && sqlite.contains_key("outbox_orders"));
    assert!(sqlite["outbox"].checks.len() >= 4, "{:?}", sqlite["outbox"].checks);
    for (name, table) in &sqlite {
        assert_eq!(table, &postgres[name], "{name}: SQLite on the left");
    }
}

type Rows = Vec<Vec<Option<String>>>;

fn cell(row: &[Option<String>], column: usize) -> &str {
    row[column].as_deref().unwrap_or_default()
}

async fn rows(db: &Db, sql: &str) -> Rows {
    db.sql(sql).await.expect("the catalogue is readable")
}

async fn sqlite_schema(db: &Db) -> Schema {
    let mut schema = Schema::new();
    let listed = "select name, sql from sqlite_schema
                   where type in ('table', 'view') and name not like 'sqlite_%'";
    for found in rows(db, listed).await {
        let name = cell(&found, 0);
        let mut table = Table { checks: checks_in(cell(&found, 1)), ..Table::default() };
        let mut key = BTreeMap::new();
        let view = cell(&found, 1).starts_with("create view");
        for column in rows(db, &format!("select * from pragma_table_info('{name}')")).await {
            let kind = match cell(&column, 2).to_lowercase().as_str() {
                "text" => "text",
                "blob" => "blob",
                "integer" => "integer",
                other => panic!("{name}: a column of type {other:?}"),
            };
            // A view knows nothing about nulls.
            let nullable = view || cell(&column, 3) == "0";
            table.columns.push((cell(&column, 1).to_owned(), kind, nullable));
            if cell(&column, 5) != "0" {
                key.insert(cell(&column, 5).to_owned(), cell(&column, 1).to_owned());
            }
        }
        table.primary_key = key.into_values().collect();
        schema.insert(name.to_owned(), table);
    }
    let indexes = "select l.name, l.\"unique\", m.tbl_name, m.sql
                     from sqlite_schema m, pragma_index_list(m.tbl_name) l
                    where m.type = 'index' and m.name = l.name and m.sql is not null";
    for index in rows(db, indexes).await {
        let name = cell(&index, 0);
        let columns = rows(db, &format!("select name from pragma_index_info('{name}')")).await;
        let columns = columns.iter().map(|column| cell(column, 0).to_owned()).collect();
        let condition = condition_of(cell(&index, 3));
        let table = schema.get_mut(cell(&index, 2)).expect("the index's table");
        table.indexes.insert((name.to_owned(), cell(&index, 1) == "1", columns, condition));
    }
    schema
}

async fn postgres_schema(db: &Db) -> Schema {
    let mut schema = Schema::new();
    let columns = "select c.table_name, c.column_name, c.data_type, c.is_nullable, t.table_type
                     from information_schema.columns c
                     join information_schema.tables t using (table_schema, table_name)
                    where c.table_schema = 'public' order by c.table_name, c.ordinal_position";
    for column in rows(db, columns).await {
        let kind = match cell(&column, 2) {
            // When a migration ran is for people to read, and written by the database itself.
            "timestamp with time zone" if cell(&column, 0) == "tashika_migrations" => "text",
            "text" | "jsonb" => "text",
            "uuid" | "bytea" => "blob",
            "integer" | "bigint" | "boolean" | "timestamp with time zone" => "integer",
            other => panic!("{}: a column of type {other:?}", cell(&column, 0)),
        };
        let table = schema.entry(cell(&column, 0).to_owned()).or_default();
        table.columns.push((cell(&column, 1).to_owned(), kind, cell(&column, 3) == "YES"));
    }
    let indexes = "select t.relname, i.relname, x.indisunique, x.indisprimary,
                          pg_get_indexdef(i.oid),
                          (select string_agg(a.attname, ' ' order by k.n)
                             from unnest(x.indkey) with ordinality k (attnum, n)
                             join pg_attribute a
                               on a.attrelid = t.oid and a.attnum = k.attnum)
                     from pg_index x join pg_class i on i.oid = x.indexrelid
                     join pg_class t on t.oid = x.indrelid
                    where t.relnamespace = 'public'::regnamespace";
    for index in rows(db, indexes).await {
        let table = schema.get_mut(cell(&index, 0)).expect("the index's table");
        let columns: Vec<String> = cell(&index, 5).split(' ').map(ToOwned::to_owned).collect();
        if cell(&index, 3) == "t" {
            table.primary_key = columns;
        } else {
            let (name, unique) = (cell(&index, 1).to_owned(), cell(&index, 2) == "t");
            table.indexes.insert((name, unique, columns, condition_of(cell(&index, 4))));
        }
    }
    let checks = "select t.relname, pg_get_constraintdef(c.oid) from pg_constraint c
                    join pg_class t on t.oid = c.conrelid
                   where c.contype = 'c' and t.relnamespace = 'public'::regnamespace";
    for check in rows(db, checks).await {
        let table = schema.get_mut(cell(&check, 0)).expect("the check's table");
        table.checks.extend(checks_in(cell(&check, 1)));
    }
    schema
}

/// The conditions of all `check (…)` in a text.
fn checks_in(sql: &str) -> BTreeSet<String> {
    let lower = sql.to_lowercase();
    let mut found = BTreeSet::new();
    for (at, word) in lower.match_indices("check (") {
        let start = at + word.len();
        let mut depth = 1;
        let end = lower[start..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        found.insert(plain(&lower[start..start + end.expect("balanced parentheses")]));
    }
    found
}

fn condition_of(index: &str) -> String {
    let lower = index.to_lowercase();
    lower.split_once(" where ").map(|(_, condition)| plain(condition)).unwrap_or_default()
}

/// PostgreSQL rewrites conditions: this takes the rewriting back, and all that means nothing.
fn plain(condition: &str) -> String {
    let stripped: String = condition
        .replace("::text", "")
        .replace("= any (array[", "in (")
        .replace("<> all (array[", "not in (")
        .replace("])", ")")
        .chars()
        .filter(|c| !c.is_whitespace() && !"()".contains(*c))
        .collect();
    listed(stripped)
}

/// Where SQLite would build a tree for a list, its checks spell the list out: `x='a'orx='b'`.
fn listed(condition: String) -> String {
    let Some((_, rest)) = condition.split_once("'or") else { return condition };
    let Some((column, _)) = rest.split_once("='") else { return condition };
    let joined = condition.replace(&format!("'or{column}='"), "','");
    joined.replacen(&format!("{column}='"), &format!("{column}in'"), 1)
}
