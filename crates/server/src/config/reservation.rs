//! Settings of reservations, typed.

use tashika_domain::reservation::{LatePayment, ReservationRules};

use super::Reader;

pub(super) fn reservations(read: &Reader) -> ReservationRules {
    // Where this server is reached is where customers go after paying, if nothing else is said.
    let here = match read.url("TASHIKA_PUBLIC_URL") {
        Some(url) => url.to_string(),
        None => format!("http://{}/", read.address("TASHIKA_LISTEN")),
    };
    let url = |name: &str| read.url(name).map_or_else(|| here.clone(), |url| url.to_string());
    ReservationRules {
        hold: read.span("RESERVATION_HOLD_SEC"),
        slots_per_day: i64::try_from(read.int("RESERVATION_SLOTS_PER_DAY")).unwrap_or(i64::MAX),
        late_payment: LatePayment::parse(&read.text("RESERVATION_LATE_PAYMENT"))
            .unwrap_or(LatePayment::Refund),
        // Filled in by whoever opens the studio.
        render: tashika_domain::render::RenderRules::default(),
        success_url: url("CHECKOUT_SUCCESS_URL"),
        cancel_url: url("CHECKOUT_CANCEL_URL"),
    }
}
