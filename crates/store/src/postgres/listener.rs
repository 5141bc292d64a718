//! Telling other processes that there is work, and hearing it from them.
//!
//! A notification is sent after the commit, outside of it (inside, NOTIFY makes commits queue up one
//! behind the other), and at most once per interval and lane. It carries the earliest time at which
//! something is due, so that a listener whose floor has risen above it looks there again. Nothing
//! depends on a notification arriving.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use deadpool_postgres::Pool;
use futures_util::stream::{self, StreamExt as _};
use tashika_domain::{Lane, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, NoTls, Socket};

use super::{Connector, Job};
use crate::claim::{BOTTOM, Floors};
use crate::wakeups::Wakeups;

const CHANNEL: &str = "tashika_outbox";
/// Between two notifications. The first after a pause goes out at once.
const INTERVAL: Duration = Duration::from_millis(20);
const RECONNECT: Duration = Duration::from_secs(1);

/// Sends notifications, in the background.
#[derive(Clone)]
pub(crate) struct Announcer(Arc<Pending>);

#[derive(Default)]
struct Pending {
    lanes: Mutex<BTreeMap<Lane, Timestamp>>,
    notify: Notify,
}

impl Announcer {
    pub fn start(pool: Pool) -> Self {
        let pending = Arc::new(Pending::default());
        tokio::spawn(announce(pool, Arc::downgrade(&pending)));
        Self(pending)
    }

    pub fn tell(&self, lane: &Lane, first_due: Timestamp) {
        {
            let mut lanes = self.0.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            let known = lanes.entry(lane.clone()).or_insert(first_due);
            *known = (*known).min(first_due);
        }
        self.0.notify.notify_one();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.notify.notify_one();
    }
}

async fn announce(pool: Pool, pending: Weak<Pending>) {
    loop {
        let lanes = {
            let Some(pending) = pending.upgrade() else { return };
            // Bounded, so that a store that was dropped does not leave this task behind.
            drop(tokio::time::timeout(RECONNECT, pending.notify.notified()).await);
            std::mem::take(&mut *pending.lanes.lock().unwrap_or_else(PoisonError::into_inner))
        };
        if lanes.is_empty() {
            continue;
        }
        let payloads: Vec<String> =
            lanes.iter().map(|(lane, due)| format!("{lane} {}", due.as_micros())).collect();
        let sent = async {
            let client = pool.get().await.map_err(|error| error.to_string())?;
            let sql = "select pg_notify($1, payload) from unnest($2::text[]) as t (payload)";
            let statement = client.prepare_cached(sql).await.map_err(|e| e.to_string())?;
            client.query(&statement, &[&CHANNEL, &payloads]).await.map_err(|e| e.to_string())
        };
        if let Err(error) = sent.await {
            // The others will find the work when they poll.
            tracing::debug!(%error, "could not notify other processes");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Listens for as long as the store lives.
pub(crate) fn start(
    connector: Connector,
    wakeups: Arc<Wakeups>,
    floors: Arc<Floors>,
    store: &mpsc::Sender<Job>,
) {
    let alive = store.downgrade();
    tokio::spawn(async move {
        while alive.upgrade().is_some() {
            let result = match connector.tls.clone() {
                Some(tls) => listen(&connector, tls, &wakeups, &floors, &alive).await,
                None => listen(&connector, NoTls, &wakeups, &floors, &alive).await,
            };
            if let Err(error) = result {
                tracing::debug!(%error, "the listening connection ended, will connect again");
            }
            tokio::time::sleep(RECONNECT).await;
        }
    });
}

async fn listen<T>(
    connector: &Connector,
    tls: T,
    wakeups: &Wakeups,
    floors: &Floors,
    alive: &mpsc::WeakSender<Job>,
) -> Result<(), tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket> + Send,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = connector.config.connect(tls).await?;
    let mut messages =
        Box::pin(stream::poll_fn(move |context| connection.poll_message(context)).fuse());
    let mut subscribe = Box::pin(client.batch_execute("listen tashika_outbox"));
    let mut subscribed = false;
    // Asked each time: others may have so much to tell that the pause below never comes.
    while alive.upgrade().is_some() {
        tokio::select! {
            biased;
            result = &mut subscribe, if !subscribed => {
                result?;
                subscribed = true;
                // What was announced while nobody listened is found by looking, from the bottom.
                for lane in floors.announce_everywhere(BOTTOM).iter().chain(&Lane::OWN) {
                    wakeups.mark(lane);
                }
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notification))) => {
                    hear(notification.payload(), wakeups, floors);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            () = tokio::time::sleep(RECONNECT) => {}
        }
    }
    Ok(())
}

fn hear(payload: &str, wakeups: &Wakeups, floors: &Floors) {
    let (lane, due) = payload.split_once(' ').unwrap_or((payload, ""));
    let Some(lane) = Lane::parse(lane) else { return };
    if let Ok(due) = due.parse() {
        floors.announce(&lane, Timestamp::from_micros(due));
    }
    wakeups.mark(&lane);
}
