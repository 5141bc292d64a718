//! What will happen to one request, decided when it leaves.

use std::time::Duration;

use super::dice::{Odds, Stream};
use super::trouble::{Network, TIMEOUT};

/// The fate of one request.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Nobody there: nothing leaves.
    pub unreachable: bool,
    /// After how long it arrives; `None` if it never does.
    pub arrival: Option<Duration>,
    pub decision: Decision,
    pub reply: ReplyFate,
    /// From the arrival to the reply's arrival, if all is well.
    pub answer_after: Duration,
    /// The network delivers it once more, then, with a decision of its own.
    pub copy: Option<(Duration, Decision)>,
}

/// What the other side makes of a request that it sees for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Execute,
    /// Takes it, says so, and executes it later.
    Work(Duration),
    Refuse,
    /// Turns it away at the door.
    TurnAway(Option<Duration>),
}

/// What becomes of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFate {
    Heard,
    Lost,
    Late,
    /// Something in between answers with an error instead.
    ServerError,
}

impl Plan {
    /// `faults` decides what goes wrong, `latencies` how long everything takes.
    pub fn draw(faults: &mut Stream, latencies: &mut Stream, network: &Network) -> Self {
        let unreachable = faults.hit(network.unreachable);
        let lost = faults.hit(network.request_lost);
        let late = faults.hit(network.arrives_late);
        let duplicated = faults.hit(network.duplicated);
        let decision = Decision::draw(faults, network);
        let again = Decision::draw(faults, network);
        let reply = if faults.hit(network.reply_lost) {
            ReplyFate::Lost
        } else if faults.hit(network.reply_late) {
            ReplyFate::Late
        } else if faults.hit(network.server_error) {
            ReplyFate::ServerError
        } else {
            ReplyFate::Heard
        };
        let prompt = latencies.millis(1, 200);
        // Most late ones are only a little late: that is where the races are.
        let linger = if faults.hit(Odds::percent(70)) { 4000 } else { network.linger_ms };
        let lingering = TIMEOUT + latencies.millis(1, linger.min(network.linger_ms));
        let copied_after = latencies.millis(1, network.linger_ms);
        let arrival = if late { lingering } else { prompt };
        Self {
            unreachable,
            arrival: (!lost).then_some(arrival),
            decision,
            reply,
            answer_after: latencies.millis(1, 300),
            copy: duplicated.then_some((prompt + copied_after, again)),
        }
    }

    /// What will happen, in words.
    pub fn story(&self) -> String {
        if self.unreachable {
            return "nobody is there".into();
        }
        let arrival = match self.arrival {
            None => "it is lost on the way".to_owned(),
            Some(after) => {
                let then = self.decision.story();
                format!("it arrives after {} ms and {then}", after.as_millis())
            }
        };
        let reply = match self.reply {
            ReplyFate::Heard => "",
            ReplyFate::Lost => "; the reply is lost",
            ReplyFate::Late => "; the reply comes too late",
            ReplyFate::ServerError => "; the reply is a server error",
        };
        let copy = self.copy.map_or(String::new(), |(after, _)| {
            format!("; a copy arrives after {} ms", after.as_millis())
        });
        format!("{arrival}{reply}{copy}")
    }

    /// The fate of every request once the faults are switched off.
    pub fn smooth(latencies: &mut Stream) -> Self {
        Self {
            unreachable: false,
            arrival: Some(latencies.millis(1, 200)),
            decision: Decision::Execute,
            reply: ReplyFate::Heard,
            answer_after: latencies.millis(1, 300),
            copy: None,
        }
    }

    /// After how long the caller stops listening, and whether it has then heard the other side itself.
    pub fn heard(&self) -> (Duration, Hearing) {
        let silence = (TIMEOUT, Hearing::Nothing);
        if self.unreachable {
            return (self.answer_after, Hearing::Unreachable);
        }
        let Some(arrival) = self.arrival else { return silence };
        let at = arrival + self.answer_after;
        match self.reply {
            _ if at >= TIMEOUT => silence,
            ReplyFate::Lost | ReplyFate::Late => silence,
            ReplyFate::ServerError => (at, Hearing::ServerError),
            ReplyFate::Heard => (at, Hearing::Reply),
        }
    }
}

/// What a caller hears in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    Reply,
    ServerError,
    Nothing,
    Unreachable,
}

impl Decision {
    fn story(self) -> String {
        match self {
            Self::Execute => "is executed".to_owned(),
            Self::Work(span) => format!("is worked on for {} ms", span.as_millis()),
            Self::Refuse => "is refused".to_owned(),
            Self::TurnAway(None) => "is turned away".to_owned(),
            Self::TurnAway(Some(wait)) => {
                format!("is turned away for {} ms", wait.as_millis())
            }
        }
    }

    fn draw(faults: &mut Stream, network: &Network) -> Self {
        let (busy, refused) = (faults.hit(network.busy), faults.hit(network.refused));
        let working = faults.hit(network.working);
        let (work, wait) = (faults.millis(500, 120_000), faults.below(30));
        if busy {
            Self::TurnAway((wait > 5).then(|| Duration::from_secs(wait)))
        } else if refused {
            Self::Refuse
        } else if working {
            Self::Work(work)
        } else {
            Self::Execute
        }
    }
}
