//! Everything at once while things break: the whole product under a mixed load (`load.rs`), against an outside with true
//! ledgers (`town.rs`), and afterwards the books (`books.rs`): nothing acknowledged is lost, nothing has happened twice,
//! and what we say is what the others say.
//!
//! What breaks is in the other files, one for each kind of fault.

mod books;
mod load;
mod town;

mod mails;
mod messages;
mod orders;
mod payments;
mod reservations;
mod webhooks;

mod clocks;
mod disks;
mod kills;
mod locks;
mod network;
mod pauses;
mod postgres;
mod soak;

/// A number from the environment, for runs that are longer than those of every day.
fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"))
    })
}

/// How many effects are in the hands of a process.
async fn held_by(url: &str, pid: u32) -> usize {
    let sql = format!(
        "select count(*) from outbox where status = 'sending' and locked_by like '%:{pid}:%'"
    );
    crate::support::rows(url, &sql).await[0][0].parse().unwrap()
}

/// How many effects of a database were taken over from a process that was not heard of.
async fn taken_over(url: &str) -> usize {
    let sql = "select (select count(*) from outbox_attempts where outcome = 'lapsed')
                    + (select count(*) from message_log where what = 'lapsed')";
    crate::support::rows(url, sql).await[0][0].parse().unwrap()
}

fn seed() -> u64 {
    number("TASHIKA_FAULT_SEED", 1).try_into().unwrap()
}
