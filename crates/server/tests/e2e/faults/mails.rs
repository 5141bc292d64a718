//! Mails to a server that takes some, refuses some and hangs up on some. The oracle is what the server has taken.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tashika_engine::Dice;

use super::books::Books;
use super::load::Load;
use crate::support::mail::{letter, post};

pub const CLIENTS: usize = 2;

#[derive(Default)]
pub struct Notes {
    /// Acknowledged mails that nobody has looked at yet.
    open: Mutex<Vec<String>>,
    /// How those ended that somebody has looked at.
    ended: Mutex<Vec<Value>>,
}

/// Who the mail is to: the server's script goes by the name.
fn recipient(dice: &mut Dice, key: &str) -> String {
    let word = match dice.below(16) {
        0 => "drop+",
        1 => "dropbefore+",
        2 => "closeafter+",
        3 => "nouser+",
        4 => "greylist+",
        5 => "tempfail+",
        _ => "",
    };
    format!("{word}{key}@example.com")
}

pub async fn client(load: Arc<Load>, number: usize) {
    let (mut dice, mut waiting) = (load.dice(6, number), VecDeque::new());
    let mut count = 0;
    while load.goes_on().await {
        let key = format!("mail-{number}-{count:06}");
        count += 1;
        let body = letter(&recipient(&mut dice, &key));
        let request = post("/mail", &body).header("idempotency-key", format!("\"{key}\""));
        let answer = load.ask(number, &request).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        load.acknowledged("mails");
        waiting.push_back(answer.json()["id"].as_str().unwrap().to_owned());
        if waiting.len() > load.lag {
            let id = waiting.pop_front().unwrap();
            look(&load, &id).await;
        }
    }
    if load.forgets() {
        for id in waiting.drain(..) {
            look(&load, &id).await;
        }
    }
    load.mails.open.lock().unwrap().extend(waiting);
}

/// Waits for the end of a mail, and notes what we say about it.
async fn look(load: &Load, id: &str) {
    let mail =
        load.look(&format!("/mail/deliveries/{id}"), |mail| mail["status"] != "queued").await;
    load.mails.ended.lock().unwrap().push(mail);
}

/// Each was taken once, or is told as in doubt, or was certainly not taken.
pub async fn balance(load: &Load, books: &mut Books) {
    let open = std::mem::take(&mut *load.mails.open.lock().unwrap());
    for id in open {
        look(load, &id).await;
    }
    let copies: BTreeMap<String, usize> = load.town.office.copies().await;
    let (mut taken_twice, mut ended) = (0, 0);
    for mail in &*load.mails.ended.lock().unwrap() {
        let copies = copies.get(mail["to"].as_str().unwrap()).copied().unwrap_or_default();
        let doubtful = mail["possiblyDuplicate"] == true;
        let status = mail["status"].as_str().unwrap();
        let fits = match status {
            "sent" => copies == 1 || (copies > 1 && doubtful),
            "failed" => copies == 0,
            "possiblySent" => doubtful,
            _ => false,
        };
        if !fits {
            books.wrong(format!("{copies} copies of {mail}"));
        }
        ended += 1;
        taken_twice += usize::from(copies > 1);
        let marked =
            if doubtful && status == "sent" { ", marked as a possible duplicate" } else { "" };
        books.count("mails", &format!("{status}{marked}"));
    }
    books.figure("mails looked at", ended);
    books.figure("mails taken more than once, all of them marked", taken_twice);
}
