//! `tashika serve`: the API, the workers, or both, until it is told to stop.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use secrecy::SecretString;
use tashika_domain::Lane;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::cli::args::{Role, ServeArgs};
use crate::config::Config;
use crate::http::health::{self, Readiness};
use crate::http::{
    RequestIds, Shell, alerts, audit, billings, cases, console, listener, mail, orders, outbox,
    payments, qstash, races, renders, reservations, sandbox, webhooks,
};
use crate::signals;
use crate::telemetry::{self, Metrics};

pub async fn serve(config: &Config, args: ServeArgs) -> anyhow::Result<()> {
    let development;
    let config = if args.dev {
        development = for_development(config)?;
        &development
    } else {
        config
    };
    let telemetry = telemetry::init(&config.logs, config.traces.as_ref())?;
    let metrics = Metrics::install();
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let stop = signals::watch()?;
    let app = App::open(config).await?;
    let listener = TcpListener::bind(config.http.listen)
        .await
        .with_context(|| format!("TASHIKA_LISTEN: cannot listen on {}", config.http.listen))?;
    serve_until(config, args.role, &app, &metrics, listener, stop, greet).await?;
    telemetry.shutdown().await;
    Ok(())
}

/// A process from its first request to its orderly end, which `stop` asks for. `ready` is told
/// where it listens, and whether there is a console.
pub(super) async fn serve_until(
    config: &Config,
    role: Role,
    app: &App,
    metrics: &Metrics,
    listener: TcpListener,
    stop: CancellationToken,
    ready: impl FnOnce(SocketAddr, bool),
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let public_url = match &config.public_url {
        Some(url) => url.to_string(),
        None => format!("http://{address}"),
    };
    if let Some(sandbox) = &app.sandbox {
        sandbox.show_pages_at(&public_url);
    }

    let engine = app.engine(config, role.works()).metered(metrics.meter()).start();
    if let (Some(interval), true) = (config.payments.reconcile_interval, role.works()) {
        app.till.schedule_reconciliation(interval).await?;
    }
    let ids = app.ids.clone();
    let mut shell = Shell::new(config, RequestIds::new(move || ids.uuid()))
        .open(health::open_routes(Arc::new(Readiness::new(app.store.clone(), app.clock))))
        .protected(health::protected_routes(metrics.clone()));
    if role.takes_requests() {
        let payments = Arc::new(app.payments(config, engine.engine()));
        let ask_again = config.payments.rules.verify_interval;
        let orders = Arc::new(app.orders(config));
        shell = shell
            .protected(cases::routes(Arc::new(app.desk(config, &orders, &payments))))
            .protected(alerts::routes(Arc::new(app.alerts(config))))
            .protected(orders::routes(orders))
            .protected(payments::routes(Arc::new(payments::Face { payments, ask_again })))
            .protected(reservations::routes(Arc::new(app.reservations(config, engine.engine()))))
            .protected(races::routes(app.store.clone()))
            .protected(renders::routes(Arc::new(app.renders())))
            .protected(billings::routes(Arc::new(app.billings())))
            .protected(audit::routes(app.store.clone()))
            .protected(mail::routes(&Arc::new(app.mails())))
            .protected(outbox::routes(Arc::new(outbox::Face {
                store: app.store.clone(),
                clock: app.clock,
                engine: Arc::clone(engine.engine()),
                lanes: config.lanes.clone(),
            })));
        let queue = qstash::Face {
            messages: Arc::clone(&app.messages),
            parallelism: config.lane(&Lane::DELIVERIES).concurrency,
        };
        shell = shell.queue(Arc::new(queue));
        let webhooks = Arc::new(app.webhooks(config)?);
        shell = shell
            .open(webhooks::open_routes(Arc::clone(&webhooks)))
            .protected(webhooks::protected_routes(Arc::clone(&webhooks)));
        if let Some(gateway) = app.sandbox.clone() {
            let face = sandbox::Face { gateway, webhooks, clock: app.clock };
            shell = shell.open(sandbox::routes(Arc::new(face)));
        }
    }
    if role.takes_requests() && config.console.enabled {
        let parts = console::Parts {
            store: app.store.clone(),
            clock: app.clock,
            ids: app.ids.clone(),
            engine: Arc::clone(engine.engine()),
            stop: stop.clone(),
        };
        let face = console::Face::new(config, shell.auth(), parts);
        shell = shell.open(console::open_routes(&face)).protected(console::protected_routes(&face));
    }
    let (router, _) = shell.build();
    let upkeep = tokio::spawn(metrics.clone().upkeep(stop.clone()));
    tracing::info!(%address, ?role, version = env!("CARGO_PKG_VERSION"), "tashika is ready");
    ready(address, role.takes_requests() && config.console.enabled);

    // Both stop at the same moment: while the last requests are answered, nothing new is claimed.
    let working = async {
        stop.cancelled().await;
        if !engine.stop(config.shutdown).await {
            tracing::warn!("some effects did not end in time; another process takes them over");
        }
    };
    let serving = listener::serve(listener, router, &config.http, config.shutdown, stop.clone());
    let (ended, ()) = tokio::join!(serving, working);
    if let Err(error) = app.limits.close(&app.store).await {
        tracing::warn!(%error, "unused quota could not be given back");
    }
    upkeep.await.context("the upkeep of metrics")?;
    tracing::info!(cut_off = ended.cut_off, "tashika has stopped");
    Ok(())
}

/// The keys that the SDK expects of a server for development. Everybody knows them.
const DEV_KEYS: [&str; 2] =
    ["sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r", "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs"];

/// The configuration under `--dev`. Nobody else may reach a server whose keys everybody knows.
fn for_development(config: &Config) -> anyhow::Result<Config> {
    let listen = config.http.listen;
    anyhow::ensure!(
        listen.ip().is_loopback(),
        "--dev: TASHIKA_LISTEN is {listen}, expected a loopback address"
    );
    anyhow::ensure!(
        config.tokens.is_empty(),
        "--dev: TASHIKA_API_TOKENS is set, expected none: the SDK brings a token that everybody knows"
    );
    anyhow::ensure!(
        config.queue.keys.is_none(),
        "--dev: QSTASH_CURRENT_SIGNING_KEY is set, expected none: the SDK knows the keys for development"
    );
    let mut config = config.clone();
    config.queue.keys = Some(DEV_KEYS.map(SecretString::from).into());
    Ok(config)
}

/// For a person at a terminal: where to look.
fn greet(address: SocketAddr, console: bool) {
    if std::io::stdout().is_terminal() {
        let place = if console { "console" } else { "" };
        println!("\n  Tashika is ready: http://{address}/{place}  (Ctrl-C stops it)\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let pairs = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Config::from_sources(&Sources { file: None, environment: pairs.collect() }).unwrap()
    }

    #[test]
    fn keys_that_everybody_knows_are_for_this_machine_only() {
        assert!(for_development(&config(&[])).unwrap().queue.keys.is_some());
        let token = ("TASHIKA_API_TOKENS", "a-token-of-many-letters");
        for pairs in [
            &[token][..],
            &[("TASHIKA_LISTEN", "0.0.0.0:8080"), token],
            &[("QSTASH_CURRENT_SIGNING_KEY", "a"), ("QSTASH_NEXT_SIGNING_KEY", "b")],
        ] {
            let error = for_development(&config(pairs)).unwrap_err().to_string();
            assert!(error.starts_with("--dev: ") && error.contains(pairs[0].0), "{error}");
        }
    }
}
