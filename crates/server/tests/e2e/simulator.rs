//! `tashika sim`: the same seed, the same run.

use tashika_testkit::database::TestDb;

use crate::support::Setup;

#[tokio::test]
async fn the_same_seed_prints_the_same_run_sqlite() {
    let setup = Setup::of(&TestDb::sqlite());
    let one = setup.print(&["sim", "--seed", "1", "--steps", "50"]).await;
    let two = setup.print(&["sim", "--seed", "1", "--steps", "50"]).await;
    let last = one.lines().last().unwrap();
    let trace = last.strip_prefix("trace ").unwrap_or_else(|| panic!("{one}"));
    assert!(trace.len() >= 16 && trace.bytes().all(|byte| byte.is_ascii_hexdigit()), "{last}");
    assert_eq!(one, two);
    let other = setup.print(&["sim", "--seed", "2", "--steps", "50"]).await;
    assert_ne!(other.lines().last(), Some(last));
}

#[tokio::test]
async fn payments_have_a_world_of_their_own_sqlite() {
    let setup = Setup::of(&TestDb::sqlite());
    let run = ["sim", "--profile", "payments", "--seed", "1", "--steps", "20"];
    let one = setup.print(&run).await;
    assert!(one.contains("the gateway"), "{one}");
    assert_eq!(one, setup.print(&run).await);
}

#[tokio::test]
async fn reservations_have_a_world_of_their_own_sqlite() {
    let setup = Setup::of(&TestDb::sqlite());
    let run = ["sim", "--profile", "reservations", "--seed", "1", "--steps", "20"];
    let one = setup.print(&run).await;
    assert!(one.contains("slots on"), "{one}");
    assert_eq!(one, setup.print(&run).await);
}
