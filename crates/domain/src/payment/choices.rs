//! What a person may decide about a payment now, in words.

use super::resolve::{Resolution, resolve};
use super::{At, OperationKind, Payment, Subject};
use crate::case::Choice;
use crate::text::Text;

/// What may be decided about a payment whose outcome nobody could find out. Empty: nothing is open.
///
/// Each answer is tried, so that what is offered is what can be carried out.
#[must_use]
pub fn of_unknown(payment: &Payment, at: At<'_>) -> Vec<Choice> {
    let given_up = payment.doubts().find(|(_, doubt)| doubt.given_up);
    let Some((subject, _)) = given_up else { return Vec::new() };
    let fits = |resolution: &Resolution| resolve(payment, *resolution, "", "", at).is_ok();
    let all = [Resolution::Charged, Resolution::NotCharged, Resolution::Refunded];
    let mut choices: Vec<Choice> =
        all.into_iter().filter(fits).map(|resolution| choice(subject, resolution)).collect();
    choices.push(VERIFY);
    choices
}

const VERIFY: Choice = Choice {
    action: "verify",
    label: Text::new("Ask the gateway now", "今すぐゲートウェイに問い合わせる"),
    consequence: Text::new(
        "The gateway is asked once; if it answers, its answer settles the payment and closes the case.",
        "ゲートウェイに一度問い合わせます。回答があれば、それに従って決済が確定し、ケースが閉じられます。",
    ),
    confirm: Text::new("Ask the gateway?", "ゲートウェイに問い合わせますか？"),
    needs_note: false,
};

fn choice(subject: Subject, resolution: Resolution) -> Choice {
    let (label, confirm) = match resolution {
        Resolution::Charged => (
            Text::new("The money was taken", "請求された"),
            Text::new(
                "Have you seen at the gateway that the money was taken and is still there?",
                "請求され、返金されていないことをゲートウェイで確認しましたか？",
            ),
        ),
        Resolution::NotCharged => (
            Text::new("The money was not taken", "請求されていない"),
            Text::new(
                "Have you seen at the gateway that the money was not taken?",
                "請求されていないことをゲートウェイで確認しましたか？",
            ),
        ),
        Resolution::Refunded => (
            Text::new("The money was given back", "返金された"),
            Text::new(
                "Have you seen at the gateway that the money was given back?",
                "返金されたことをゲートウェイで確認しましたか？",
            ),
        ),
    };
    let consequence = consequence(subject, resolution);
    Choice { action: resolution.as_str(), label, consequence, confirm, needs_note: true }
}

fn consequence(subject: Subject, resolution: Resolution) -> Text {
    use OperationKind::{Authorize, Capture, Checkout, Undo, Void};
    use Resolution::{Charged, NotCharged, Refunded};
    use Subject::{Operation, Refund};
    match (subject, resolution) {
        (Operation(Authorize), Charged) => Text::new(
            "The payment becomes AUTHORIZED, goes on as usual, and the customer keeps the booking.",
            "決済は AUTHORIZED になり、通常どおり処理が続きます。",
        ),
        (Operation(Authorize), NotCharged) => Text::new(
            "The payment becomes FAILED; the gateway is told first not to execute it any more.",
            "決済は FAILED になります。先にゲートウェイへ今後実行しないよう指示します。",
        ),
        (Operation(Authorize), Refunded) => Text::new(
            "The payment becomes REFUNDED: it was reserved, and released again.",
            "決済は REFUNDED になります（承認後に取り消し済み）。",
        ),
        (Operation(Checkout), Charged) => Text::new(
            "The payment becomes CAPTURED: the customer has paid on the page.",
            "決済は CAPTURED になります（お客様は支払いページで支払い済みです）。",
        ),
        (Operation(Checkout), NotCharged) => Text::new(
            "The payment becomes FAILED: the customer has not paid on the page.",
            "決済は FAILED になります（支払いページでの支払いはありません）。",
        ),
        (Operation(Checkout), Refunded) => Text::new(
            "The payment becomes REFUNDED: the customer has paid on the page and got the money back.",
            "決済は REFUNDED になります（支払い後、返金済みです）。",
        ),
        (Operation(Capture), Charged) => Text::new(
            "The payment becomes CAPTURED with the amount that was asked for.",
            "決済は要求した金額で CAPTURED になります。",
        ),
        (Operation(Capture), NotCharged) => Text::new(
            "The payment stays AUTHORIZED; it can be captured again or voided.",
            "決済は AUTHORIZED のままです。再度の売上確定または取消ができます。",
        ),
        (Operation(Capture), Refunded) => Text::new(
            "The payment becomes REFUNDED: the authorization is gone.",
            "決済は REFUNDED になります（承認は失効済み）。",
        ),
        (Operation(Void), Charged) => Text::new(
            "The payment stays AUTHORIZED; it can be captured or voided again.",
            "決済は AUTHORIZED のままです。売上確定または再度の取消ができます。",
        ),
        (Operation(Void), NotCharged | Refunded) => Text::new(
            "The payment becomes REFUNDED: the reservation was released.",
            "決済は REFUNDED になります（承認は取り消し済み）。",
        ),
        (Operation(Undo), Charged) => Text::new(
            "The payment stays FAILED although money was taken: give it back at the gateway yourself.",
            "決済は FAILED のままですが、請求は残っています。ゲートウェイ側で返金してください。",
        ),
        (Operation(Undo), NotCharged | Refunded) => Text::new(
            "The payment stays FAILED, and nothing of it is left at the gateway.",
            "決済は FAILED のままで、ゲートウェイに請求は残っていません。",
        ),
        (Refund(_), Charged) => Text::new(
            "The refund counts as failed; the money can be refunded again.",
            "返金は失敗として記録され、再度返金できます。",
        ),
        (Refund(_), NotCharged | Refunded) => Text::new(
            "The refund counts as done, and its amount as given back.",
            "返金は完了として記録されます。",
        ),
    }
}

/// What may be decided where the gateway's books and ours differ.
///
/// `adoptable`: it is a payment of ours, so that the gateway can be asked about it.
#[must_use]
pub fn of_difference(adoptable: bool) -> Vec<Choice> {
    let adopt = Choice {
        action: "adopt",
        label: Text::new(
            "Compare again, and take over what the gateway says",
            "再度照合し、ゲートウェイの状態を反映する",
        ),
        consequence: Text::new(
            "The gateway is asked now; what the states allow is taken over, and the case closes only if both agree then.",
            "今すぐゲートウェイに問い合わせ、許される範囲で反映します。両者が一致した場合のみケースが閉じられます。",
        ),
        confirm: Text::new(
            "Take over what the gateway says?",
            "ゲートウェイの状態を反映しますか？",
        ),
        needs_note: false,
    };
    let settled = Choice {
        action: "settled",
        label: Text::new("Dealt with elsewhere", "別途対応済み"),
        consequence: Text::new(
            "The case closes and nothing else changes: payment and gateway stay as they are.",
            "ケースは閉じられますが、決済もゲートウェイも変更されません。",
        ),
        confirm: Text::new(
            "Has somebody put it right, at the gateway or in your books?",
            "ゲートウェイまたは帳簿側で対応済みですか？",
        ),
        needs_note: true,
    };
    if adoptable { vec![adopt, settled] } else { vec![settled] }
}
