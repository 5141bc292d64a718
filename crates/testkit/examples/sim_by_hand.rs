//! Temporary: runs the simulator by hand.
use tashika_testkit::sim::{Options, main as sim};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let verbose = std::env::args().any(|a| a == "-v");
    let options = Options {
        seed: args[0],
        steps: args[1],
        runs: args.get(2).copied().unwrap_or(1),
        verbose,
        ..Options::default()
    };
    std::process::exit(sim(&options, &mut std::io::stdout()));
}
