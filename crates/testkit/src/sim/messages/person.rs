//! The person: looks at dead letters, sends some again, and buries some.

use std::sync::Arc;

use tashika_domain::message::spec::Spec;
use tashika_engine::commands::message::QueueError;
use tashika_store::MessageFilter;

use super::dice::{Odds, Stream};
use super::process::Process;
use super::tally::Tally;

/// Dead letters that a person looks at in one go.
const PAGE: i64 = 10;

pub(crate) fn look(process: &Arc<Process>, dice: &mut Stream) {
    let (process, mut dice) = (Arc::clone(process), dice.clone());
    process.scene.book().act(true);
    tokio::spawn(async move {
        let decided = decide(&process, &mut dice).await;
        process.fate.alive().await;
        process.scene.book().act(false);
        if let Err(error) = decided {
            process.broken("answers as agreed", "", &format!("a person was told: {error}"));
        }
    });
}

async fn decide(process: &Process, dice: &mut Stream) -> Result<(), QueueError> {
    process.fate.alive().await;
    let letters = process.elsewhere.dead_letters(&MessageFilter::default(), PAGE).await?;
    for letter in letters {
        if dice.hit(Odds::percent(50)) {
            continue;
        }
        let (scene, id) = (&process.scene, letter.id);
        let again = dice.hit(Odds::percent(60));
        if again {
            scene.book().asks_to_resend(id);
            let resent = process.elsewhere.resend(&letter, &Spec::default()).await?;
            process.fate.alive().await;
            if let Some(resent) = resent {
                scene.log.count(Tally::Resent);
                scene.log.note(process.clock.now(), &format!("person resends {id}: {resent}"));
                scene.book().is_resent(resent);
                scene.memory().touch(resent);
            }
        } else {
            scene.book().asks_to_bury(id);
            let buried = process.elsewhere.bury(&letter).await?;
            process.fate.alive().await;
            if buried {
                scene.log.count(Tally::Buried);
            }
        }
        scene.memory().touch(id);
    }
    Ok(())
}
