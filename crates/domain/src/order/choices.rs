//! What a person may decide about an order that nobody answered for, in words.

use crate::case::Choice;
use crate::text::Text;

/// One for each of the actions that the case names.
#[must_use]
pub fn of_unanswered() -> Vec<Choice> {
    let choice = |action, label, consequence, confirm| Choice {
        action,
        label,
        consequence,
        confirm,
        needs_note: true,
    };
    vec![
        choice(
            "executed",
            Text::new("The broker executed it", "約定した"),
            Text::new(
                "The order succeeds with the execution that you enter, and its key answers with that for ever.",
                "入力した約定内容で注文は成功となり、以後このキーにはその結果が返ります。",
            ),
            Text::new(
                "Have you seen the execution at the broker?",
                "ブローカーで約定を確認しましたか？",
            ),
        ),
        choice(
            "not_executed",
            Text::new("The broker did not execute it", "約定していない"),
            Text::new(
                "The order fails; whoever placed it may place a new one under another key.",
                "注文は失敗となります。新しい注文には別のキーが必要です。",
            ),
            Text::new(
                "Are you certain that the broker has not executed it and will not?",
                "約定しておらず、今後も約定しないことを確認しましたか？",
            ),
        ),
        choice(
            "resend",
            Text::new("It was not executed: send it now", "約定していないので今すぐ送信する"),
            Text::new(
                "The order is sent to the broker once more: if it had been executed, this is a second order.",
                "注文をもう一度送信します。既に約定していた場合は二重注文になります。",
            ),
            Text::new(
                "Are you certain that the broker has not executed it and will not?",
                "約定しておらず、今後も約定しないことを確認しましたか？",
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_words_are_about_the_actions_of_the_case() {
        let actions: Vec<&str> =
            super::of_unanswered().iter().map(|choice| choice.action).collect();
        assert_eq!(actions, super::super::UNANSWERED_ACTIONS);
    }
}
