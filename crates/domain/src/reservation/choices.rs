//! What a person may decide about money that could not be given back, in words.

use crate::case::Choice;
use crate::text::Text;

/// One for each of the actions that the case names.
#[must_use]
pub fn of_refused_refund() -> Vec<Choice> {
    vec![Choice {
        action: "settled",
        label: Text::new("The money has gone back", "返金済みにする"),
        consequence: Text::new(
            "The case is closed and nothing else happens: the refund was made by hand.",
            "ケースを閉じます。返金は手動で行われたものとし、他の処理は行いません。",
        ),
        confirm: Text::new(
            "Have you given the money back, or seen that it has gone back?",
            "返金を行ったか、返金されたことを確認しましたか？",
        ),
        needs_note: true,
    }]
}
