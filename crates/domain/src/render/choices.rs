//! What a person may decide about a render that has failed for good, in words.

use crate::case::Choice;
use crate::text::Text;

/// One for each of the actions that the case names.
#[must_use]
pub fn of_failed() -> Vec<Choice> {
    vec![
        Choice {
            action: "retry",
            label: Text::new("Try again", "再試行する"),
            consequence: Text::new(
                "The render service is asked again, as often as the first time; the customer keeps the reservation meanwhile.",
                "レンダリングを最初と同じ回数まで再試行します。その間、予約は維持されます。",
            ),
            confirm: Text::new("Have the video made again?", "動画の生成を再試行しますか？"),
            needs_note: false,
        },
        Choice {
            action: "resolve",
            label: Text::new("It is taken care of", "対応済みにする"),
            consequence: Text::new(
                "The render counts as done and nothing is refunded: the customer has the video some other way.",
                "レンダリングは完了として扱われ、返金は行われません（お客様には別の方法で動画を提供済み）。",
            ),
            confirm: Text::new(
                "Does the customer have the video, or will certainly get it?",
                "お客様は動画を受け取りましたか（または確実に受け取れますか）？",
            ),
            needs_note: true,
        },
    ]
}
