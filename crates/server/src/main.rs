//! The `tashika` binary: reads the command line and the configuration, and runs the command.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use tashika_server::cli::{Cli, Command, ConfigArgs};
use tashika_server::config::{Config, DEFAULTS, documentation};
use tashika_server::run;

const _: () = assert!(
    !tashika_domain::mutant::COMPILED_IN,
    "the feature `mutants` is for the mutation check: no binary is built with it"
);

/// A server of many small requests on several threads: the system's allocator took a seventh of its
/// time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        // Whoever reads our output may stop reading: `tashika config | head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tashika: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout();
    let config = || Config::load(cli.config.as_deref());
    let healthy = match cli.command {
        Command::Config(args) => show_config(cli.config.as_deref(), args, out).map(|()| true),
        Command::Completions(args) => run::completions(args, out).map(|()| true),
        Command::Man(args) => run::man(&args, out).map(|()| true),
        Command::Mail(args) => block_on(run::mail(config, args, out)).map(|()| true),
        Command::Sim(args) => Ok(run::sim(args, out)),
        Command::Bench(args) => block_on(run::bench(&args, out)).map(|()| true),
        Command::Demo(args) => block_on(run::demo(&args, out)),
        Command::Serve(args) => block_on(run::serve(&config()?, args)).map(|()| true),
        Command::Migrate => block_on(run::migrate(&config()?, out)).map(|()| true),
        Command::Outbox(args) => block_on(run::outbox(&config()?, args, out)).map(|()| true),
        Command::Top(args) => block_on(run::top(&config()?, args, out)).map(|()| true),
        Command::Cases(args) => block_on(run::cases(&config()?, args, out)).map(|()| true),
        Command::Payments(args) => block_on(run::payments(&config()?, args, out)),
        Command::Dlq(args) => block_on(run::dlq(&config()?, args, out)),
        Command::Webhooks(args) => block_on(run::webhooks(&config()?, args, out)),
        Command::Alerts(args) => block_on(run::alerts(&config()?, args, out)).map(|()| true),
        Command::Console(args) => run::console(args, &mut io::stdin().lock(), out).map(|()| true),
        Command::Audit(args) => block_on(run::audit(&config()?, args, out)),
        Command::Doctor(args) => block_on(run::doctor(config(), args.json, out)),
    }?;
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

fn show_config(file: Option<&Path>, args: ConfigArgs, out: &mut impl Write) -> anyhow::Result<()> {
    // These two say what can be set, not what is set: they work with a broken configuration too.
    if args.defaults {
        return Ok(out.write_all(DEFAULTS.as_bytes())?);
    }
    if args.markdown {
        return Ok(out.write_all(documentation::markdown().as_bytes())?);
    }
    let config = Config::load(file)?;
    let lines = config.effective();
    if args.json {
        let settings: Vec<serde_json::Value> = lines
            .iter()
            .map(|line| {
                serde_json::json!({"name": line.name, "value": line.value, "origin": line.origin})
            })
            .collect();
        let document = serde_json::json!({"settings": settings, "warnings": config.warnings});
        writeln!(out, "{document:#}")?;
        return Ok(());
    }
    for line in &lines {
        writeln!(out, "{} = {}  # {}", line.name, line.value, line.origin)?;
    }
    for warning in &config.warnings {
        eprintln!("warning: {warning}");
    }
    Ok(())
}
