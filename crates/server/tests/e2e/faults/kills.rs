//! `kill -9` under the whole load, at moments that a seed chooses.
//!
//! `TASHIKA_KILL_ROUNDS` says how often (each night 1,000), `TASHIKA_FAULT_SEED` with which seed.

use std::sync::Arc;
use std::time::Duration;

use tashika_engine::Dice;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tokio::time::Instant;

use super::load::Load;
use super::town::Town;
use super::{books, number, seed};
use crate::support::Setup;

on_both!(killed_again_and_again_under_mixed_load);

/// Together with those of the other crash tests more than thirty on each database.
const ROUNDS: usize = 12;

async fn killed_again_and_again_under_mixed_load(db: TestDb) {
    let (rounds, seed) = (number("TASHIKA_KILL_ROUNDS", ROUNDS), seed());
    // A killed process does not wake up: even a broker without keys must see each order once.
    let load = Arc::new(Load::new(Town::without_keys(seed).await, seed));
    let setup = load.town.setup(Setup::of(&db));
    let mut dice = Dice::new(seed);
    let mut server = setup.start().await;
    Load::prepare(&server).await;
    let mut clients = load.begin();
    let mut recoveries = Vec::new();
    load.served_by([&server]);
    clients.until_more(20).await;
    for _ in 0..rounds {
        // Between the first moment of a process and its busiest.
        clients.until_more(usize::try_from(dice.below(60)).unwrap()).await;
        tokio::time::sleep(Duration::from_millis(dice.below(80))).await;
        server.kill().await;
        let died = Instant::now();
        server = setup.start().await;
        load.served_by([&server]);
        clients.until_more(1).await;
        recoveries.push(died.elapsed());
    }
    clients.finish().await;
    recoveries.sort();
    let median = recoveries[recoveries.len() / 2];
    let title = format!(
        "{:?}, seed {seed}: {rounds} kills; from the kill to the next acknowledgement {median:.0?} in the median, \
         {:.0?} at most",
        db.dialect(),
        recoveries.last().unwrap(),
    );
    books::balance(&title, &load, &db.url(), &server).await;
    server.stop().await;
    let verdict = setup.print(&["audit", "verify"]).await;
    assert!(verdict.starts_with("intact"), "{verdict}");
}
