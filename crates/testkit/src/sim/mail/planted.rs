//! Deliberate mistakes with mails, made outside of the product.

use std::sync::Arc;

use tashika_domain::mail::{MailFault, MailResult};
use tashika_providers::mail::{Parcel, Posted, Postman};
use tashika_providers::reply::BoxFuture;

use super::Planted;
use super::dice::Odds;
use super::swarm::Swarm;

/// Makes a mistake possible: one in a world in which it cannot show proves nothing.
pub(crate) fn arrange(swarm: &mut Swarm, planted: Planted) {
    match planted {
        Planted::SilenceIsRefused | Planted::SilenceIsSent => {
            swarm.server.reply_lost = Odds::percent(20);
            swarm.server.request_lost = Odds::percent(20);
        }
        _ => {}
    }
}

impl Swarm {
    /// The pace that the product is told, which is not the one that is checked.
    pub fn told(&self, planted: Option<Planted>) -> tashika_engine::MailRules {
        let mut rules = self.rules.clone();
        if planted == Some(Planted::SendsTooFast) {
            rules.limits.rate_per_sec = rules.limits.rate_per_sec.max(1.0) * 4.0;
        }
        rules
    }
}

/// Puts a mistake between the engine and the server, if that is where it belongs.
pub(crate) fn postman(planted: Option<Planted>, postman: Arc<dyn Postman>) -> Arc<dyn Postman> {
    match planted {
        Some(mistake @ (Planted::SilenceIsRefused | Planted::SilenceIsSent)) => {
            Arc::new(BadPostman { postman, mistake })
        }
        _ => postman,
    }
}

/// A postman that is sure of what it does not know.
struct BadPostman {
    postman: Arc<dyn Postman>,
    mistake: Planted,
}

impl Postman for BadPostman {
    fn name(&self) -> &str {
        self.postman.name()
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(async move {
            let mut posted = self.postman.send(parcel).await;
            if let MailResult::Refused { class: class @ MailFault::PossiblySent, .. } =
                &mut posted.result
            {
                match self.mistake {
                    Planted::SilenceIsRefused => *class = MailFault::Recipient,
                    _ => posted.result = MailResult::Sent { response: "surely".into() },
                }
            }
            posted
        })
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        self.postman.probe()
    }
}
