//! Every code an answer can carry: its status, its sentences, and what to do about it.
//!
//! One table, read by [`super::Problem`] when it answers, by `/docs/errors` and by `docs/errors.md`,
//! which a test compares with it. A code is part of the contract: it is never renamed or reused.

use std::fmt::Write as _;

use http::StatusCode;

/// A sentence in both languages.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub en: &'static str,
    pub ja: &'static str,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub code: Code,
    pub name: &'static str,
    pub status: StatusCode,
    pub title: Text,
    /// What happened; the answer's `detail` unless the handler knows better.
    pub detail: Text,
    /// What to do about it.
    pub advice: Text,
    /// Seconds for `Retry-After`, where waiting helps.
    pub retry_after: Option<u64>,
}

macro_rules! codes {
    ($($variant:ident $name:literal $status:ident $(retry $retry:literal)?
        title $title_en:literal $title_ja:literal
        detail $detail_en:literal $detail_ja:literal
        advice $advice_en:literal $advice_ja:literal)*) => {
        /// A stable name for what went wrong, for programs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($variant),* }

        /// The table, in the order of the enum.
        pub const ENTRIES: &[Entry] = &[$(Entry {
            code: Code::$variant,
            name: $name,
            status: StatusCode::$status,
            title: Text { en: $title_en, ja: $title_ja },
            detail: Text { en: $detail_en, ja: $detail_ja },
            advice: Text { en: $advice_en, ja: $advice_ja },
            retry_after: codes!(@retry $($retry)?),
        }),*];
    };
    (@retry) => { None };
    (@retry $seconds:literal) => { Some($seconds) };
}

codes! {
    BadRequest "BAD_REQUEST" BAD_REQUEST
        title "Bad request" "不正なリクエスト"
        detail "The request could not be understood." "リクエストを解釈できませんでした。"
        advice "Compare the path, the query and the headers with the API description at `/docs`." "パス、クエリ、ヘッダーを `/docs` の API 仕様と見比べてください。"
    InvalidJson "INVALID_JSON" BAD_REQUEST
        title "Invalid JSON" "JSON が不正です"
        detail "The body is not valid JSON." "本文が正しい JSON ではありません。"
        advice "The detail names the line and the column. The body must be UTF-8, must not repeat a key within an object, and must not be nested deeper than 32 levels. Nothing was stored." "詳細に行と桁が示されています。本文は UTF-8 で、同じオブジェクト内でキーを繰り返さず、入れ子は 32 段までにしてください。何も保存されていません。"
    InvalidSignature "INVALID_SIGNATURE" BAD_REQUEST
        title "Invalid signature" "署名が不正です"
        detail "Invalid signature" "署名が不正です"
        advice "The signature is missing, is not the sender's, or is too old. Compare the secret (`STRIPE_WEBHOOK_SECRET`, `WEBHOOK_SECRETS`), the clock, and whether something in between changes the body. The log has the reason. Nothing was stored." "署名がないか、送信元のものでないか、古すぎます。シークレット（`STRIPE_WEBHOOK_SECRET`、`WEBHOOK_SECRETS`）、時計、途中で本文が変更されていないかを確認してください。理由はログにあります。何も保存されていません。"
    InvalidPayload "INVALID_PAYLOAD" BAD_REQUEST
        title "Invalid payload" "ペイロードが不正です"
        detail "Invalid payload" "ペイロードが不正です"
        advice "The signature is right, but the body is no event of this source: not JSON, or without an id. Nothing was stored." "署名は正しいものの、本文がこの送信元のイベントではありません（JSON でない、または ID がない）。何も保存されていません。"
    IdempotencyKeyMissing "IDEMPOTENCY_KEY_MISSING" BAD_REQUEST
        title "Idempotency key missing" "冪等キーがありません"
        detail "This request needs an Idempotency-Key header." "このリクエストには Idempotency-Key ヘッダーが必要です。"
        advice "Send `Idempotency-Key` with a value that you made for this one action, and send the same value when you repeat it." "この操作のために生成した値を `Idempotency-Key` に入れて送り、再送時も同じ値を使ってください。"
    IdempotencyKeyInvalid "IDEMPOTENCY_KEY_INVALID" BAD_REQUEST
        title "Idempotency key invalid" "冪等キーが不正です"
        detail "The Idempotency-Key header cannot be used." "Idempotency-Key ヘッダーの値を使用できません。"
        advice "Use printable ASCII characters (8 to 64 for orders, up to 255 for payments), bare or in double quotes, and send the header once. A card number is no key." "印字可能な ASCII 文字（注文は 8〜64 文字、決済は 255 文字まで）を、そのまま、または二重引用符で囲んで、1 回だけ送ってください。カード番号はキーに使えません。"
    BrokerRejected "BROKER_REJECTED" BAD_REQUEST
        title "Broker rejected the order" "ブローカーが注文を拒否しました"
        detail "The broker looked at the order and refused it." "ブローカーが注文を確認し、拒否しました。"
        advice "The order was not executed and will not be tried again. Correct it and send it under a new key. This code also appears as `reason_code` of a settled order." "注文は約定しておらず、再試行もされません。内容を直し、新しいキーで送ってください。確定した注文の `reason_code` としても現れます。"
    Unauthorized "UNAUTHORIZED" UNAUTHORIZED
        title "Unauthorized" "認証が必要です"
        detail "A valid API token is needed." "有効な API トークンが必要です。"
        advice "Send `Authorization: Bearer <token>` with one of the tokens in `TASHIKA_API_TOKENS`." "`TASHIKA_API_TOKENS` に設定されたトークンを `Authorization: Bearer <token>` で送ってください。"
    LoginFailed "LOGIN_FAILED" UNAUTHORIZED
        title "Login failed" "ログインできません"
        detail "The name, the password or the token is wrong." "名前、パスワード、またはトークンが正しくありません。"
        advice "Users are named in `CONSOLE_USERS`; `tashika console hash` makes the hash of a new password. Failed logins are limited per address." "利用者は `CONSOLE_USERS` で指定します。新しいパスワードのハッシュは `tashika console hash` で作成します。失敗したログインはアドレスごとに制限されます。"
    CheckoutDeclined "CHECKOUT_DECLINED" PAYMENT_REQUIRED
        title "Declined" "支払いが拒否されました"
        detail "The customer's bank said no." "カード会社に拒否されました。"
        advice "Nothing was paid, and the page is still open: try another means of payment." "支払いは行われていません。ページはまだ有効です。別の支払い方法を試してください。"
    Forbidden "FORBIDDEN" FORBIDDEN
        title "Forbidden" "許可されていません"
        detail "You may not do this." "この操作は許可されていません。"
        advice "The token is valid, but what it asks for belongs to somebody else." "トークンは有効ですが、対象は別の所有者のものです。"
    RoleNotAllowed "ROLE_NOT_ALLOWED" FORBIDDEN
        title "Role not allowed" "権限がありません"
        detail "A viewer looks at things and changes nothing." "閲覧者は参照のみで、変更はできません。"
        advice "Log in to the console as an operator (`CONSOLE_USERS`). Nothing was done." "運用者としてコンソールにログインしてください（`CONSOLE_USERS`）。何も行われていません。"
    CsrfTokenInvalid "CSRF_TOKEN_INVALID" FORBIDDEN
        title "CSRF token invalid" "CSRF トークンが不正です"
        detail "A request with the console's cookie that changes something needs the session's token." "コンソールの Cookie を伴う変更リクエストには、セッションのトークンが必要です。"
        advice "Reload the console. Programs use `Authorization: Bearer` instead of the cookie. Nothing was done." "コンソールを再読み込みしてください。プログラムからは Cookie ではなく `Authorization: Bearer` を使います。何も行われていません。"
    CrossSiteRequest "CROSS_SITE_REQUEST" FORBIDDEN
        title "Cross-site request" "別サイトからのリクエスト"
        detail "A browser sent this request on behalf of another site." "別のサイトを開いているブラウザーから送られたリクエストです。"
        advice "Call the API from a program, or from a page of the same origin. A proxy in front must pass `Host` and `Origin` on unchanged." "プログラムから、または同一オリジンのページから呼び出してください。前段のプロキシは `Host` と `Origin` をそのまま渡す必要があります。"
    EffectNotFound "EFFECT_NOT_FOUND" NOT_FOUND
        title "Effect not found" "エフェクトが見つかりません"
        detail "No effect has this id." "この ID のエフェクトはありません。"
        advice "Look it up with `GET /outbox?key=…`. Settled effects go after `OUTBOX_KEEP_HOURS`." "`GET /outbox?key=…` で探してください。確定したエフェクトは `OUTBOX_KEEP_HOURS` 後に削除されます。"
    NotFound "NOT_FOUND" NOT_FOUND
        title "Not found" "見つかりません"
        detail "There is nothing under this path." "このパスには何もありません。"
        advice "The paths that exist are listed at `/docs`." "存在するパスは `/docs` にあります。"
    OrderNotFound "ORDER_NOT_FOUND" NOT_FOUND
        title "Order not found" "注文が見つかりません"
        detail "No order is known under this idempotency key." "この冪等キーの注文はありません。"
        advice "The order was never accepted, or its key has expired (`IDEMPO_TTL_HOURS`)." "注文は受け付けられていないか、キーの有効期限（`IDEMPO_TTL_HOURS`）が切れています。"
    PaymentNotFound "PAYMENT_NOT_FOUND" NOT_FOUND
        title "Payment not found" "決済が見つかりません"
        detail "No payment has this id." "この ID の決済はありません。"
        advice "Use the `id` that creating the payment answered, or look it up with `GET /payments?bookingId=…`." "作成時に返された `id` を使うか、`GET /payments?bookingId=…` で探してください。"
    ReservationNotFound "RESERVATION_NOT_FOUND" NOT_FOUND
        title "Reservation not found" "予約が見つかりません"
        detail "No reservation has this id." "この ID の予約はありません。"
        advice "Use the `reservationId` that holding the slot answered, or look it up with `GET /reservations?userId=…`." "仮押さえ時に返された `reservationId` を使うか、`GET /reservations?userId=…` で探してください。"
    CheckoutNotFound "CHECKOUT_NOT_FOUND" NOT_FOUND
        title "Checkout not found" "決済ページが見つかりません"
        detail "The sandbox has no checkout session with this id." "この ID のチェックアウトセッションはサンドボックスにありません。"
        advice "Use the `sessionId` or the `url` that opening the checkout answered. There are such pages only with `PAYMENT_GATEWAY=sandbox`." "チェックアウト作成時に返された `sessionId` または `url` を使ってください。このページがあるのは `PAYMENT_GATEWAY=sandbox` のときだけです。"
    SourceNotFound "SOURCE_NOT_FOUND" NOT_FOUND
        title "Source not found" "送信元が見つかりません"
        detail "No sender of webhooks is configured under this name." "この名前の Webhook 送信元は設定されていません。"
        advice "`stripe` needs `STRIPE_WEBHOOK_SECRET`; others are named in `WEBHOOK_SOURCES`." "`stripe` には `STRIPE_WEBHOOK_SECRET` が必要です。その他は `WEBHOOK_SOURCES` で指定します。"
    RenderNotFound "RENDER_NOT_FOUND" NOT_FOUND
        title "Render not found" "レンダリングが見つかりません"
        detail "No render has this id." "この ID のレンダリングはありません。"
        advice "Look it up with `GET /renders?reservationId=…`." "`GET /renders?reservationId=…` で探してください。"
    WebhookEventNotFound "WEBHOOK_EVENT_NOT_FOUND" NOT_FOUND
        title "Event not found" "イベントが見つかりません"
        detail "No event has this id." "この ID のイベントはありません。"
        advice "Use the `id` of `GET /webhook-events`; the sender's own id is `eventId`." "`GET /webhook-events` の `id` を使ってください。送信元の ID は `eventId` です。"
    BillingNotFound "BILLING_NOT_FOUND" NOT_FOUND
        title "Billing not found" "課金情報が見つかりません"
        detail "No billing has this id." "この ID の課金情報はありません。"
        advice "Look it up with `GET /billings?officeId=…`." "`GET /billings?officeId=…` で探してください。"
    CaseNotFound "CASE_NOT_FOUND" NOT_FOUND
        title "Case not found" "ケースが見つかりません"
        detail "No case has this id." "この ID のケースはありません。"
        advice "Use the `id` of `GET /cases`." "`GET /cases` の `id` を使ってください。"
    AlertNotFound "ALERT_NOT_FOUND" NOT_FOUND
        title "Alert not found" "アラートが見つかりません"
        detail "No alert has this id." "この ID のアラートはありません。"
        advice "Use the `id` of `GET /alerts`. Alerts that are over are forgotten after `ALERT_KEEP_DAYS`." "`GET /alerts` の `id` を使ってください。解消したアラートは `ALERT_KEEP_DAYS` 後に削除されます。"
    MailNotFound "MAIL_NOT_FOUND" NOT_FOUND
        title "Mail not found" "メールが見つかりません"
        detail "No mail or batch has this id." "この ID のメールまたは一括送信はありません。"
        advice "Look it up with `GET /mail/deliveries?to=…` or `GET /mail/batches`. What has ended is forgotten after `MAIL_KEEP_DAYS`." "`GET /mail/deliveries?to=…` または `GET /mail/batches` で探してください。終わったものは `MAIL_KEEP_DAYS` の後に消えます。"
    MailNoInbox "MAIL_NO_INBOX" NOT_FOUND
        title "No inbox" "受信箱はありません"
        detail "Mails leave this server: there is no inbox to look into." "メールは外部に送信されるため、受信箱はありません。"
        advice "The inbox belongs to `MAIL_PROVIDER=sandbox`. What became of a mail is at `GET /mail/deliveries`." "受信箱は `MAIL_PROVIDER=sandbox` のときだけあります。送信状況は `GET /mail/deliveries` で確認できます。"
    MethodNotAllowed "METHOD_NOT_ALLOWED" METHOD_NOT_ALLOWED
        title "Method not allowed" "許可されていないメソッド"
        detail "This path does not take this method." "このパスではこのメソッドを使えません。"
        advice "The `Allow` header lists the methods that it takes." "使えるメソッドは `Allow` ヘッダーにあります。"
    RequestTimeout "REQUEST_TIMEOUT" REQUEST_TIMEOUT
        title "Request timeout" "リクエストの時間切れ"
        detail "The body did not arrive in time." "本文が時間内に届きませんでした。"
        advice "Nothing was stored. Send the request again, with the same idempotency key." "何も保存されていません。同じ冪等キーで再送してください。"
    IdempotencyConflict "IDEMPOTENCY_CONFLICT" CONFLICT
        title "Idempotency conflict" "冪等キーの競合"
        detail "This idempotency key was used with another body." "この冪等キーは別の内容で使われています。"
        advice "A key stands for one request. Send the original body to see its result, or use a new key for a new request." "キーは 1 つのリクエストを表します。元の本文を送れば結果が返ります。新しいリクエストには新しいキーを使ってください。"
    IdempotencyInProgress "IDEMPOTENCY_IN_PROGRESS" CONFLICT retry 1
        title "Still in progress" "処理中です"
        detail "A request with this idempotency key is being processed." "この冪等キーのリクエストは処理中です。"
        advice "Repeat the request after the seconds in `Retry-After`; it will answer with the result." "`Retry-After` の秒数だけ待って再送すると、結果が返ります。"
    SlotAlreadyTaken "SLOT_ALREADY_TAKEN" CONFLICT
        title "Slot already taken" "スロットは予約済みです"
        detail "This slot is already reserved" "このスロットは既に予約されています"
        advice "Nothing was stored. Choose another slot (`GET /slots?date=…`), or ask again when the hold that has it is over." "何も保存されていません。別のスロットを選ぶか（`GET /slots?date=…`）、仮押さえの期限が過ぎてから再度お試しください。"
    CannotCancel "CANNOT_CANCEL" CONFLICT
        title "Cannot cancel" "キャンセルできません"
        detail "The reservation cannot be cancelled" "予約をキャンセルできません"
        advice "It has expired already: there is nothing to give up. Money that came too late has been given back, or will be." "すでに期限切れのため、取り消すものがありません。期限後に届いた支払いは自動的に返金されます。"
    CannotCheckOut "CANNOT_CHECK_OUT" CONFLICT
        title "Cannot check out" "決済に進めません"
        detail "The reservation is not waiting for a payment." "この予約は決済待ちではありません。"
        advice "Look at its `status`: it is paid, or its time is over and the slot must be held again." "`status` を確認してください。支払い済みか、期限切れで再度の仮押さえが必要です。"
    PaymentBusy "PAYMENT_BUSY" CONFLICT retry 1
        title "Operation under way" "別の操作を処理中です"
        detail "Another operation of this payment has not ended yet." "この決済の別の操作がまだ終わっていません。"
        advice "Look at `operation` and `verification` of the payment, and ask again when it has ended. A payment whose verification has failed waits for a person (`POST /payments/{id}/resolve`)." "決済の `operation` と `verification` を確認し、終わってから再試行してください。確認に失敗した決済は担当者の判断（`POST /payments/{id}/resolve`）を待っています。"
    CheckoutClosed "CHECKOUT_CLOSED" CONFLICT
        title "Checkout closed" "決済ページは終了しました"
        detail "Nobody can pay on this page any more." "このページではもう支払えません。"
        advice "The session has expired or was closed. Nothing was paid; open a new checkout." "セッションは期限切れか、終了しています。支払いは行われていません。新しいチェックアウトを作成してください。"
    NoOpenCase "NO_OPEN_CASE" CONFLICT
        title "No open case" "未解決のケースがありません"
        detail "No case of this payment waits for a decision." "この決済に判断待ちのケースはありません。"
        advice "A decision is taken only after verification has failed. Until then Tashika asks the gateway by itself; `POST /payments/{id}/verify` asks at once." "判断できるのは確認が失敗した後だけです。それまでは Tashika がゲートウェイに問い合わせます。`POST /payments/{id}/verify` ですぐに問い合わせられます。"
    CaseAlreadyResolved "CASE_ALREADY_RESOLVED" CONFLICT
        title "Case already resolved" "ケースは解決済みです"
        detail "Somebody else has decided this case, or it has answered itself." "このケースは他の担当者が判断したか、自動的に解決しました。"
        advice "Look at `resolution`, `note` and `resolvedBy` of `GET /cases/{id}`. Nothing was done." "`GET /cases/{id}` の `resolution`、`note`、`resolvedBy` を確認してください。何も行われていません。"
    CaseActionNotAllowed "CASE_ACTION_NOT_ALLOWED" CONFLICT
        title "Not possible now" "現在はできない操作です"
        detail "This is not among what may be done about the case now." "このケースで現在可能な操作に含まれていません。"
        advice "`choices` of `GET /cases/{id}` says what may be done now. Nothing was done." "現在可能な操作は `GET /cases/{id}` の `choices` にあります。何も行われていません。"
    CaseStillDiffers "CASE_STILL_DIFFERS" CONFLICT
        title "Still different" "まだ一致していません"
        detail "The gateway's books and ours still differ." "ゲートウェイと記録がまだ一致していません。"
        advice "What the states allow was taken over. Put the rest right at the gateway and compare again, or close the case with `settled` and a note." "反映できるものは反映しました。残りはゲートウェイ側で修正して再度照合するか、`settled` とメモでケースを閉じてください。"
    ResolutionContradicted "RESOLUTION_CONTRADICTED" CONFLICT
        title "The gateway says otherwise" "ゲートウェイの回答と矛盾しています"
        detail "The gateway was asked to make sure that nothing is charged, and says that money has moved: its answer was taken over." "請求されないよう確認したところ、ゲートウェイは入出金があったと回答しました。その回答を反映しました。"
        advice "Look at the payment as it is now. If the money must not be kept, void or refund the payment." "決済の現在の状態を確認してください。受け取るべきでない場合は、取消または返金してください。"
    AlertNotFiring "ALERT_NOT_FIRING" CONFLICT
        title "Alert is over" "アラートは解消済みです"
        detail "The alert is not firing any more." "このアラートは既に解消しています。"
        advice "There is nothing to acknowledge. `GET /alerts?state=firing` lists what is going on." "確認すべきものはありません。発生中のものは `GET /alerts?state=firing` にあります。"
    EffectNotAborted "EFFECT_NOT_ABORTED" CONFLICT
        title "Effect was not given up" "中止されたエフェクトではありません"
        detail "Only effects that were given up can be requeued." "再投入できるのは中止されたエフェクトだけです。"
        advice "An effect that is pending or failed is tried again by itself; one that succeeded has had its effect, once." "待機中・失敗のエフェクトは自動的に再試行されます。成功したエフェクトは一度だけ実行されています。"
    RenderNotFailed "RENDER_NOT_FAILED" CONFLICT
        title "Render has not failed" "失敗したレンダリングではありません"
        detail "Only a render that has failed and is not over can be helped." "対応できるのは、失敗していてまだ終了していないレンダリングだけです。"
        advice "Look at `status` and `closed`: one that is done needs no help, one that was given up or cancelled is over and its customer has been refunded." "`status` と `closed` を確認してください。完了したものに対応は不要です。打ち切り・キャンセルされたものは終了し、返金されています。"
    WebhookEventNotFailed "WEBHOOK_EVENT_NOT_FAILED" CONFLICT
        title "Event has not failed" "失敗したイベントではありません"
        detail "Only events that failed can be processed again." "再処理できるのは失敗したイベントだけです。"
        advice "A pending event is being processed; one that succeeded has had its effect, once." "処理待ちのイベントは処理中です。成功したイベントは一度だけ反映されています。"
    BillingExists "BILLING_EXISTS" CONFLICT
        title "Billing exists" "課金情報は既にあります"
        detail "The office or the customer has a billing already." "この事業所または顧客の課金情報は既にあります。"
        advice "There is one billing per office and per customer: `GET /billings?officeId=…`." "課金情報は事業所・顧客ごとに 1 つです: `GET /billings?officeId=…`"
    MailBatchState "MAIL_BATCH_STATE" CONFLICT
        title "Not possible now" "現在の状態ではできません"
        detail "The batch is not in a state that allows this." "一括送信の状態がこの操作に対応していません。"
        advice "Look at its `status`: a batch that was aborted sent nothing and is sent anew; one that was cancelled can only be retried." "`status` を確認してください。中断されたものは何も送信していないため、新たに送信してください。取り消したものは再試行のみ可能です。"
    MisdirectedRequest "MISDIRECTED_REQUEST" MISDIRECTED_REQUEST
        title "Misdirected request" "宛先の誤り"
        detail "Without API tokens this server answers only under a loopback name." "API トークンが未設定のため、ループバックの名前でのみ応答します。"
        advice "Use `localhost` or the loopback address in the URL, or set `TASHIKA_API_TOKENS`. Without this, any page in a local browser could reach the API under a name of its own." "URL に `localhost` かループバックアドレスを使うか、`TASHIKA_API_TOKENS` を設定してください。この制限がないと、ローカルのブラウザーで開いた任意のページが独自の名前で API に到達できてしまいます。"
    PayloadTooLarge "PAYLOAD_TOO_LARGE" PAYLOAD_TOO_LARGE
        title "Payload too large" "本文が大きすぎます"
        detail "The body is longer than this server takes." "本文がこのサーバーの上限を超えています。"
        advice "The limit is `TASHIKA_BODY_LIMIT_BYTES`, counted after decompression. Nothing was stored." "上限は `TASHIKA_BODY_LIMIT_BYTES`（展開後）です。何も保存されていません。"
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" UNSUPPORTED_MEDIA_TYPE
        title "Unsupported media type" "未対応のメディアタイプ"
        detail "The body must be JSON." "本文は JSON である必要があります。"
        advice "Send `Content-Type: application/json` (or a type that ends in `+json`) in UTF-8, uncompressed or with `Content-Encoding: gzip`." "UTF-8 の `Content-Type: application/json`（または `+json` で終わる型）を、無圧縮か `Content-Encoding: gzip` で送ってください。"
    IdempotencyMismatch "IDEMPOTENCY_MISMATCH" UNPROCESSABLE_ENTITY
        title "Idempotency keys differ" "冪等キーが一致しません"
        detail "The Idempotency-Key header and the key in the body differ." "Idempotency-Key ヘッダーと本文のキーが異なります。"
        advice "Send the same key in both places. Nothing was stored." "両方に同じキーを入れてください。何も保存されていません。"
    MailTemplateUnknown "MAIL_TEMPLATE_UNKNOWN" UNPROCESSABLE_ENTITY
        title "Unknown template" "テンプレートがありません"
        detail "There is no such template in this language." "指定された言語のテンプレートはありません。"
        advice "`tashika mail preview` lists the templates; your own come from `MAIL_TEMPLATES_DIR`." "テンプレートの一覧は `tashika mail preview` で確認できます。独自のものは `MAIL_TEMPLATES_DIR` に置きます。"
    MailTemplateData "MAIL_TEMPLATE_DATA" UNPROCESSABLE_ENTITY
        title "Data does not fit the template" "データがテンプレートに合いません"
        detail "A variable that the template needs is missing or unfit." "テンプレートに必要な変数が足りないか、正しくありません。"
        advice "Send everything that the template needs in `data`; nothing was stored." "必要な変数をすべて `data` に入れてください。何も保存されていません。"
    ValidationError "VALIDATION_ERROR" UNPROCESSABLE_ENTITY
        title "Validation error" "入力エラー"
        detail "The request breaks rules of the contract." "リクエストが契約の規則に反しています。"
        advice "`errors` lists every field that is wrong and why. Nothing was stored, and the key is still free." "`errors` に誤りのある項目と理由がすべて示されています。何も保存されておらず、キーは未使用のままです。"
    PaymentStateConflict "PAYMENT_STATE_CONFLICT" UNPROCESSABLE_ENTITY
        title "State does not allow it" "この状態では操作できません"
        detail "The payment's state does not allow this." "決済の状態がこの操作を許していません。"
        advice "AUTHORIZED can be captured or voided, CAPTURED can be refunded. The states are described in `docs/states/payment.md`. Nothing was done." "AUTHORIZED は売上確定か取消、CAPTURED は返金ができます。状態は `docs/states/payment.md` にあります。何も行われていません。"
    AmountTooHigh "AMOUNT_TOO_HIGH" UNPROCESSABLE_ENTITY
        title "Amount too high" "金額が大きすぎます"
        detail "The amount is higher than what is left." "金額が残額を超えています。"
        advice "A capture takes at most what is authorized, a refund at most what was captured and is neither given back nor reserved by another refund. Nothing was done." "売上確定は承認額まで、返金は売上額から返金済みと処理中の返金を除いた額までです。何も行われていません。"
    ResolutionDoesNotFit "RESOLUTION_DOES_NOT_FIT" UNPROCESSABLE_ENTITY
        title "Decision does not fit" "判断が当てはまりません"
        detail "This decision does not answer what is in doubt." "この判断は不明な点への答えになっていません。"
        advice "Where a refund is in doubt, say `refunded` or `charged`." "返金が不明な場合は `refunded` か `charged` を指定してください。"
    RateLimited "RATE_LIMITED" TOO_MANY_REQUESTS retry 1
        title "Too many requests" "リクエストが多すぎます"
        detail "This client has sent more than it may." "このクライアントの上限を超えました。"
        advice "Wait for the seconds in `Retry-After`. The limits are `RL_RATE_PER_MIN`, `RL_BURST` and `DAILY_QUOTA`; repeats of a known key are not counted. Wrong API tokens are limited too, per address." "`Retry-After` の秒数だけ待ってください。上限は `RL_RATE_PER_MIN`、`RL_BURST`、`DAILY_QUOTA` で、既知のキーの再送は数えません。誤った API トークンもアドレスごとに制限されます。"
    HeadersTooLarge "HEADERS_TOO_LARGE" REQUEST_HEADER_FIELDS_TOO_LARGE
        title "Headers too large" "ヘッダーが大きすぎます"
        detail "The request has too many or too long headers." "ヘッダーが多すぎるか、長すぎます。"
        advice "The limits are `TASHIKA_MAX_HEADERS` and `TASHIKA_MAX_HEADER_BYTES`." "上限は `TASHIKA_MAX_HEADERS` と `TASHIKA_MAX_HEADER_BYTES` です。"
    InternalError "INTERNAL_ERROR" INTERNAL_SERVER_ERROR
        title "Internal error" "内部エラー"
        detail "Something went wrong on this server." "サーバーで問題が発生しました。"
        advice "Repeat the request with the same idempotency key: it is safe whatever had happened. The log has the cause under the `request_id`." "同じ冪等キーで再送してください。何が起きていても安全です。原因は `request_id` でログから探せます。"
    CheckoutRefused "CHECKOUT_REFUSED" BAD_GATEWAY
        title "Checkout refused" "決済ページを作成できません"
        detail "The gateway would not open a payment page." "決済代行会社が決済ページの作成を拒否しました。"
        advice "The slot is still held, and no money has moved. The payment's timeline has the gateway's answer; when its cause is gone, ask for a checkout again." "スロットは仮押さえのままで、支払いは発生していません。決済のタイムラインに応答が記録されています。原因を取り除いてから再度お試しください。"
    BrokerDown "BROKER_DOWN" SERVICE_UNAVAILABLE
        title "Broker down" "ブローカーが停止しています"
        detail "The broker could not take the order within all attempts." "すべての試行で、ブローカーが注文を受け付けられませんでした。"
        advice "The order was given up (`aborted`). An operator can requeue it; a new order needs a new key. This code also appears as `reason_code` of a settled order." "注文は中止（`aborted`）されました。運用者が再投入できます。新しい注文には新しいキーが必要です。確定した注文の `reason_code` としても現れます。"
    StoreUnavailable "STORE_UNAVAILABLE" SERVICE_UNAVAILABLE retry 1
        title "Store unavailable" "保存先を利用できません"
        detail "The database cannot be written right now." "現在データベースに書き込めません。"
        advice "It is not known whether the request was stored. Repeat it after `Retry-After` with the same idempotency key: it is accepted at most once." "保存されたかどうかは不明です。`Retry-After` の後、同じ冪等キーで再送してください。受け付けられるのは一度だけです。"
    ServerBusy "SERVER_BUSY" SERVICE_UNAVAILABLE retry 1
        title "Server busy" "混雑しています"
        detail "This server has as much to do as it can take." "サーバーが処理できる上限に達しています。"
        advice "Nothing was stored. Try again after `Retry-After`. The limit on connections is `TASHIKA_MAX_CONNECTIONS`." "何も保存されていません。`Retry-After` の後に再試行してください。接続数の上限は `TASHIKA_MAX_CONNECTIONS` です。"
    ProcessingTimeout "PROCESSING_TIMEOUT" SERVICE_UNAVAILABLE retry 1
        title "Processing timeout" "処理の時間切れ"
        detail "The request was not finished in time." "リクエストの処理が時間内に終わりませんでした。"
        advice "It is not known whether it took effect. Repeat it with the same idempotency key: it takes effect at most once. The limit is `TASHIKA_REQUEST_TIMEOUT_MS`." "効果があったかどうかは不明です。同じ冪等キーで再送してください。効果は一度だけです。上限は `TASHIKA_REQUEST_TIMEOUT_MS` です。"
    BrokerTimeout "BROKER_TIMEOUT" GATEWAY_TIMEOUT
        title "Broker timeout" "ブローカーの応答なし"
        detail "The broker did not answer within all attempts." "すべての試行で、ブローカーから応答がありませんでした。"
        advice "The order may have been executed: a case was opened for a person to decide. This code also appears as `reason_code` of a settled order." "注文は約定している可能性があります。担当者が判断するためのケースが開かれました。確定した注文の `reason_code` としても現れます。"
}

impl Code {
    #[must_use]
    pub fn entry(self) -> &'static Entry {
        &ENTRIES[self as usize]
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.entry().name
    }

    #[must_use]
    pub fn status(self) -> StatusCode {
        self.entry().status
    }

    /// The code for a bare status that no handler explained, e.g. from a library.
    #[must_use]
    pub fn of_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            405 => Self::MethodNotAllowed,
            408 => Self::RequestTimeout,
            413 => Self::PayloadTooLarge,
            415 => Self::UnsupportedMediaType,
            422 => Self::ValidationError,
            429 => Self::RateLimited,
            431 => Self::HeadersTooLarge,
            503 => Self::ServerBusy,
            500.. => Self::InternalError,
            _ => Self::BadRequest,
        }
    }
}

const INTRODUCTION: &str = "\
# Errors

<!-- Written from crates/server/src/http/problem/codes.rs; a test compares. -->

Every error is answered as `application/problem+json` (RFC 9457):

```json
{
  \"type\": \"/docs/errors#IDEMPOTENCY_CONFLICT\",
  \"title\": \"Idempotency conflict\",
  \"status\": 409,
  \"detail\": \"This idempotency key was used with another body.\",
  \"code\": \"IDEMPOTENCY_CONFLICT\",
  \"request_id\": \"0198a1b2-…\"
}
```

Programs should look at `code`, which never changes its meaning. `title` and `detail` are for people, in
English or Japanese (`Accept-Language: ja`). `errors`, where present, lists each field that is wrong.
`request_id` finds the request in the log. A request head that is too large or is no HTTP at all is answered
by the bare status, before there is a request to explain.
";

/// `docs/errors.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    for entry in ENTRIES {
        // Writing to a String cannot fail.
        write!(
            text,
            "\n## {}\n\n**{}** · {}\n\n{}\n\n{}\n\n> {} {}\n",
            entry.name,
            entry.status.as_u16(),
            entry.title.en,
            entry.detail.en,
            entry.advice.en,
            entry.detail.ja,
            entry.advice.ja,
        )
        .unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_names_are_unique() {
        for (index, entry) in ENTRIES.iter().enumerate() {
            assert_eq!(entry.code as usize, index, "{}", entry.name);
            let same = ENTRIES.iter().filter(|other| other.name == entry.name);
            assert_eq!(same.count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn the_documentation_is_the_table() {
        crate::testing::same_as_file("docs/errors.md", &markdown());
    }

    #[test]
    fn every_error_status_has_a_code_of_its_own_class() {
        for status in 400..600 {
            let code = Code::of_status(StatusCode::from_u16(status).unwrap());
            assert_eq!(code.status().as_u16() / 100, status / 100, "{status}");
        }
    }
}
