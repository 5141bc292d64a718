//! What is allowed and probably not meant, where several parts are set: who can reach us, whom we reach,
//! and whether leases outlive calls.
//!
//! Said at start-up and by `tashika doctor`. Nothing here is refused: each may be what somebody wants.

use std::time::Duration;

use tashika_domain::Lane;

use super::rules::is_local;
use super::{Config, GatewayKind, MailProvider, RenderProvider};

pub(super) fn more(config: &Config) -> Vec<String> {
    let mut doubts = exposed(config);
    doubts.extend(unreached(config));
    doubts.extend(short_leases(config));
    doubts
}

/// What others can reach and should perhaps not.
fn exposed(config: &Config) -> Vec<String> {
    let listen = config.http.listen;
    let mut doubts = Vec::new();
    if listen.ip().is_loopback() {
        return doubts;
    }
    if !config.queue.guard.enabled {
        doubts.push(format!(
            "TASHIKA_SSRF_GUARD is off and TASHIKA_LISTEN is {listen}: whoever may publish messages can \
             make this server call addresses of its own network"
        ));
    }
    if config.queue.guard.enabled && config.queue.guard.allow_loopback {
        doubts.push(format!(
            "TASHIKA_ALLOW_LOOPBACK_DESTINATIONS is on and TASHIKA_LISTEN is {listen}: whoever may \
             publish messages can make this server call services of its own machine"
        ));
    }
    if config.console.enabled && config.console.users.is_empty() {
        doubts.push(format!(
            "CONSOLE_ENABLED is on and TASHIKA_LISTEN is {listen}, but CONSOLE_USERS is empty: people log \
             in with an API token, and the audit log cannot tell them apart"
        ));
    }
    let plain = config.public_url.as_ref().filter(|url| url.scheme() == "http" && !is_local(url));
    if config.console.enabled && plain.is_some() {
        doubts.push(
            "CONSOLE_ENABLED is on and TASHIKA_PUBLIC_URL is not https: passwords travel readable for \
             others"
                .to_owned(),
        );
    }
    if config.payments.gateway == GatewayKind::Sandbox {
        doubts.push(format!(
            "PAYMENT_GATEWAY is sandbox and TASHIKA_LISTEN is {listen}: payments look real, and no money \
             moves"
        ));
    }
    doubts
}

/// Whom something is set for that never gets there.
fn unreached(config: &Config) -> Vec<String> {
    let mut doubts = Vec::new();
    if config.payments.stripe_key.is_some() && config.payments.gateway != GatewayKind::Stripe {
        doubts.push(
            "STRIPE_API_KEY is set, but PAYMENT_GATEWAY is not stripe: no payment will reach Stripe"
                .to_owned(),
        );
    }
    let sandbox = matches!(config.mail.provider, MailProvider::Sandbox);
    if !config.alerts.mail_to.is_empty() && sandbox {
        doubts.push(
            "ALERT_MAIL_TO is set, but MAIL_PROVIDER is sandbox: alerts by mail reach nobody"
                .to_owned(),
        );
    }
    if !config.alerts.mail_to.is_empty() && !config.enabled_lanes.contains(&Lane::MAIL) {
        doubts.push(
            "ALERT_MAIL_TO is set, but OUTBOX_MAIL_ENABLED is false: alerts by mail wait"
                .to_owned(),
        );
    }
    doubts
}

/// Calls that may take longer than the lease of the effect they are made for. It is renewed meanwhile,
/// but a process that is cut off from the database for a moment loses it in the middle of a call.
fn short_leases(config: &Config) -> Vec<String> {
    let payments = config.payments.gateway != GatewayKind::Sandbox;
    let mail = !matches!(config.mail.provider, MailProvider::Sandbox);
    let renders = config.renders.provider != RenderProvider::Sandbox;
    let calls: [(bool, &str, Duration, Lane); 3] = [
        (payments, "PAYMENT_GATEWAY_TIMEOUT_MS", config.payments.timeout, Lane::PAYMENTS),
        (mail, "MAIL_TIMEOUT_MS", config.mail.timeout, Lane::MAIL),
        (renders, "RENDER_TIMEOUT_MS", config.renders.timeout, Lane::RENDERS),
    ];
    let too_long = calls.into_iter().filter_map(|(made, name, timeout, lane)| {
        let lease = config.lane(&lane).lease;
        (made && timeout >= lease).then(|| {
            format!(
                "{name} is {} ms and the lease of the lane {lane} is {} s: a call may outlive the lease \
                 of its effect, and another process takes over what is still under way",
                timeout.as_millis(),
                lease.as_secs_f64(),
            )
        })
    });
    too_long.collect()
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    fn warnings(pairs: &[(&str, &str)]) -> String {
        let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let sources = Sources { file: None, environment: pairs.collect() };
        Config::from_sources(&sources).unwrap().warnings.join("\n")
    }

    #[test]
    fn what_is_probably_not_meant_is_said() {
        let open = ("TASHIKA_LISTEN", "0.0.0.0:8080");
        let token = ("TASHIKA_API_TOKENS", "a-token-of-many-letters");
        let stripe = [("PAYMENT_GATEWAY", "stripe"), ("STRIPE_API_KEY", "sk_test_4711")];
        for (pairs, said) in [
            (vec![open, token, ("TASHIKA_SSRF_GUARD", "off")], "TASHIKA_SSRF_GUARD is off"),
            (
                vec![open, token, ("TASHIKA_ALLOW_LOOPBACK_DESTINATIONS", "true")],
                "TASHIKA_ALLOW_LOOPBACK_DESTINATIONS is on",
            ),
            (vec![open, token], "CONSOLE_USERS is empty"),
            (vec![open, token], "no money moves"),
            (vec![open, token, ("TASHIKA_PUBLIC_URL", "http://t.example")], "not https"),
            (vec![stripe[1]], "PAYMENT_GATEWAY is not stripe"),
            (vec![("ALERT_MAIL_TO", "a@example.com")], "MAIL_PROVIDER is sandbox"),
            (
                vec![stripe[0], stripe[1], ("OUTBOX_PAYMENTS_LOCK_LEASE_SEC", "1")],
                "PAYMENT_GATEWAY_TIMEOUT_MS is",
            ),
        ] {
            let found = warnings(&pairs);
            assert!(found.contains(said), "{said}: {found}");
            assert!(!found.contains("a-token") && !found.contains("sk_test"), "{found}");
        }
        // What nobody else can reach may be as open as it likes.
        let here = warnings(&[("TASHIKA_SSRF_GUARD", "off")]);
        assert!(!here.contains("SSRF") && !here.contains("money"), "{here}");
    }
}
