//! The scripted gateway, driven by Stripe's own packages: what they take for Stripe is near enough to it.
//!
//! The scripts in `stripe/` assert what a client sees; here the true ledger is asked what happened.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tashika_testkit::gate::Gate;
use tashika_testkit::gateway::localstripe::LocalStripe;
use tashika_testkit::gateway::server::GatewayServer;
use tashika_testkit::gateway::{Fault, Operation, World, sign};
use tashika_testkit::packages;
use tokio::process::Command;

const SECRET: &str = "whsec_scripted";

/// A language that has a package.
struct Language {
    program: PathBuf,
    script: &'static str,
    folder: PathBuf,
}

impl Language {
    async fn prepare(program: &str, script: &'static str) -> Self {
        let folder = tokio::task::spawn_blocking(packages::stripe).await.expect("the packages");
        Self { program: folder.join(program), script, folder }
    }

    /// Runs one part of the script, and shows what it said.
    async fn run(&self, part: &str, server: &GatewayServer, with: &[(&str, &str)]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stripe").join(self.script);
        let output = Command::new(&self.program)
            .arg(script)
            .arg(part)
            .env("GATEWAY_URL", server.base_url())
            .env("PACKAGES", &self.folder)
            .envs(with.iter().copied())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        println!("{}", String::from_utf8_lossy(&output.stdout));
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{} {part}: {}", self.script, output.status);
    }
}

/// What goes wrong with the payments that the scripts name.
fn scripted(world: &World) {
    world.script_for("limited", Operation::Create, [Fault::rate_limited()]);
    world.script_for("locked", Operation::Create, [Fault::lock_timeout()]);
    let conflict = Fault::LockTimeout { status: 409, should_retry: None };
    world.script_for("conflict", Operation::Create, [conflict]);
    for (payment, fault) in [
        ("broken", Fault::fail_after()),
        ("lost", Fault::ExecuteThenClose),
        ("lost-and-repeated", Fault::ExecuteThenClose),
        ("dropped", Fault::DropBefore),
        ("dropped-and-repeated", Fault::DropBefore),
        ("silent", Fault::ExecuteThenSilence),
    ] {
        world.script_for(payment, Operation::Confirm, [fault]);
    }
    let gate = Gate::closed();
    world.script_for("in-use", Operation::Create, [Fault::Slow(gate.clone())]);
    tokio::spawn({
        let world = world.clone();
        async move {
            let both = |world: &World| world.calls_for("in-use", Operation::Create) == 2;
            world.until("two calls with one key", both).await;
            gate.open();
        }
    });
}

/// The page that a script has opened, once it has.
async fn page(world: &World, payment: &str) -> String {
    world.until("a page", |world| !world.sessions_of(payment).is_empty()).await;
    let session = world.sessions_of(payment).swap_remove(0);
    session["id"].as_str().expect("a session has an id").to_owned()
}

/// The customers of the pages that the scripts open.
fn customers(world: &World) {
    let world = world.clone();
    tokio::spawn(async move {
        let paid = page(&world, "page-paid").await;
        assert!(world.customer_pays(&paid));
        let delayed = page(&world, "page-delayed").await;
        assert!(world.customer_pays_later(&delayed));
        let seen = |world: &World| world.calls_for("page-delayed", Operation::Checkout) >= 2;
        world.until("somebody to look at it unpaid", seen).await;
        assert!(world.money_comes(&delayed, true));
    });
}

async fn lives_with(language: Language) {
    let world = World::new();
    let server = GatewayServer::start(&world).await;
    scripted(&world);
    customers(&world);
    language.run("life", &server, &[]).await;

    assert_eq!(world.violations(), []);
    assert_eq!(world.strays(), Vec::<String>::new());
    let paid = world.ledger().total("paid");
    assert_eq!((paid.captured, paid.voided, paid.refunded), (3000, 2000, 3000));
    assert_eq!((paid.held(), paid.charged()), (0, 0));
    let cancelled = world.ledger().total("cancelled");
    assert_eq!((cancelled.authorized, cancelled.voided), (5000, 5000));
    assert_eq!(world.authorizations("declined"), 0);
    for payment in ["once", "crowd", "in-use"] {
        assert_eq!(world.intents_of(payment).len(), 1, "{payment}: one key, one intent");
    }
    for payment in ["broken", "lost-and-repeated", "dropped-and-repeated", "silent"] {
        assert_eq!(world.authorizations(payment), 1, "{payment}");
    }

    assert_eq!(world.charged("page-paid"), 0, "paid once, and given back");
    assert_eq!((world.captured("page-paid"), world.captured("page-delayed")), (1200, 1200));
    assert_eq!(world.sessions_of("page-paid").len(), 1, "one key, one page");
    for kind in [
        "payment_intent.created",
        "checkout.session.completed",
        "checkout.session.async_payment_succeeded",
        "checkout.session.expired",
    ] {
        let event = world.events().into_iter().find(|event| event["type"] == kind);
        let event = event.unwrap_or_else(|| panic!("no {kind}")).to_string();
        let signature = sign(&event, SECRET, world.now());
        let with =
            [("EVENT", &*event), ("SIGNATURE", &*signature), ("SECRET", SECRET), ("TYPE", kind)];
        language.run("webhook", &server, &with).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_package_takes_the_gateway_for_stripe() {
    lives_with(Language::prepare("venv/bin/python", "gateway.py").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_package_takes_the_gateway_for_stripe() {
    // The system's own; only the package is in the folder.
    lives_with(Language { program: "node".into(), ..Language::prepare("", "gateway.js").await })
        .await;
}

#[tokio::test]
async fn localstripe_starts_and_ends() {
    let started = LocalStripe::start().await;
    assert!(started.base_url().starts_with("http://127.0.0.1:"));
}
