//! The gateway's way of saying no: `{"error": {…}}` with the statuses and codes of Stripe's first API.

use std::time::Duration;

use serde_json::{Value, json};

/// A reply as the gateway makes it, before faults get at it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub status: u16,
    pub body: Value,
    pub headers: Vec<(&'static str, String)>,
    /// Whether the request's key remembers it. What was turned away before it was executed is not remembered.
    pub kept: bool,
}

impl Answer {
    pub fn ok(body: Value) -> Self {
        Self { status: 200, body, headers: Vec::new(), kept: true }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Tells the client when to come back. Rounded up: whoever comes too early is turned away again.
    pub fn retry_after(self, span: Option<Duration>) -> Self {
        match span {
            Some(span) => self.with("Retry-After", span.as_millis().div_ceil(1000).to_string()),
            None => self,
        }
    }

    /// Tells the client whether to try again; `None` leaves it to guess.
    pub fn should_retry(self, should: Option<bool>) -> Self {
        match should {
            Some(should) => self.with("Stripe-Should-Retry", should.to_string()),
            None => self,
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    status: u16,
    error: Value,
    kept: bool,
}

impl Refusal {
    fn new(status: u16, kind: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, error: json!({"type": kind, "message": message}), kept: false }
    }

    /// The parameters are wrong: nothing was executed, and the key may be used again.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// The parameters are fine and the state of things is not: the key remembers this.
    pub fn state(message: impl Into<String>) -> Self {
        Self { kept: true, ..Self::invalid(message) }
    }

    pub fn missing(what: &str, id: &str) -> Self {
        let refusal = Self::new(404, "invalid_request_error", format!("No such {what}: '{id}'"));
        refusal.code("resource_missing").param("id")
    }

    /// A parameter names something that there is not.
    pub fn missing_param(what: &str, id: &str, param: &str) -> Self {
        Self { status: 400, ..Self::missing(what, id).param(param) }
    }

    pub fn unknown_route(method: &str, path: &str) -> Self {
        let message = format!("Unrecognized request URL ({method}: {path}).");
        Self::new(404, "invalid_request_error", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "invalid_request_error", "Invalid API Key provided.")
    }

    pub fn declined(code: &str, decline_code: Option<&str>, message: &str) -> Self {
        let mut refusal = Self::new(402, "card_error", message).code(code);
        if let Some(decline_code) = decline_code {
            refusal.error["decline_code"] = json!(decline_code);
        }
        refusal.kept = true;
        refusal
    }

    pub fn other_parameters(key: &str) -> Self {
        let message = format!(
            "Keys for idempotent requests can only be used with the same parameters they were first used with. \
             Try using a key other than '{key}' if you meant to execute a different request."
        );
        Self::new(400, "idempotency_error", message)
    }

    pub fn key_in_use(key: &str) -> Self {
        let message = format!("There is currently another in-progress request using '{key}'.");
        Self::new(409, "invalid_request_error", message).code("idempotency_key_in_use")
    }

    pub fn lock_timeout(status: u16) -> Self {
        let message = "This object cannot be accessed right now because another API request or Stripe process is \
                       currently accessing it.";
        Self::new(status, "invalid_request_error", message).code("lock_timeout")
    }

    pub fn rate_limited() -> Self {
        let message = "Request rate limit exceeded.";
        Self::new(429, "invalid_request_error", message).code("rate_limit")
    }

    /// Broke down in the middle of it: the key remembers that too.
    pub fn broken() -> Self {
        let message = "An unknown error occurred.";
        Self { kept: true, ..Self::new(500, "api_error", message) }
    }

    /// Never reached whatever executes requests.
    pub fn unavailable() -> Self {
        Self::new(503, "api_error", "The service is temporarily unavailable.")
    }

    pub fn code(mut self, code: &str) -> Self {
        self.error["code"] = json!(code);
        self
    }

    pub fn param(mut self, param: &str) -> Self {
        self.error["param"] = json!(param);
        self
    }

    /// With the intent as it stands now.
    pub fn about(mut self, intent: Value) -> Self {
        self.error["payment_intent"] = intent;
        self
    }

    /// The refusal as an intent carries it in `last_payment_error`.
    pub fn as_last_error(&self) -> Value {
        self.error.clone()
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let body = json!({"error": refusal.error});
        Self { status: refusal.status, body, headers: Vec::new(), kept: refusal.kept }
    }
}
