//! `tashika migrate`, and databases of other versions.

use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::support::{KEY, Setup, order, rows};

on_both!(
    a_database_is_migrated_once,
    several_processes_start_at_once_on_an_empty_database,
    a_newer_database_is_refused,
);

async fn a_database_is_migrated_once(db: TestDb) {
    let setup = Setup::of(&db);
    let first = setup.print(&["migrate"]).await;
    assert!(first.contains("applied"), "{first}");
    let second = setup.print(&["migrate"]).await;
    assert!(second.contains("up to date"), "{second}");
    let server = setup.start().await;
    server.accepted(&order(KEY)).await;
    server.executed(KEY).await;
    server.stop().await;
}

async fn several_processes_start_at_once_on_an_empty_database(db: TestDb) {
    let mut starting = JoinSet::new();
    for _ in 0..4 {
        let setup = Setup::of(&db);
        starting.spawn(async move { setup.start().await });
    }
    for server in starting.join_all().await {
        assert_eq!(server.get("/readyz").await.status, 200);
        server.stop().await;
    }
    let applied = "select count(*), count(distinct version) from tashika_migrations";
    let applied = &rows(&db.url(), applied).await[0];
    assert_eq!(applied[0], applied[1]);
}

async fn a_newer_database_is_refused(db: TestDb) {
    let setup = Setup::of(&db);
    setup.print(&["migrate"]).await;
    db.sql("insert into tashika_migrations (version, name) values (999, 'from the future')").await;
    for command in [&["serve"][..], &["migrate"], &["outbox", "stats"]] {
        let (code, message) = setup.fail(command).await;
        assert_eq!(code, 1, "{command:?}");
        assert!(message.contains("999") && message.contains("newer"), "{command:?}: {message}");
    }
    let doctor = setup.run(&["doctor"]).await;
    assert!(!doctor.status.success());
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("999"));
    assert_eq!(rows(&db.url(), "select max(version) from tashika_migrations").await, [["999"]]);
}
