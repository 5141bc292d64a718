//! The list of commands in `docs/command-line.md`, compared with the definitions.

use clap::{Command, CommandFactory as _};

use super::Cli;
use crate::testing::same_as_file;

const PATH: &str = "docs/command-line.md";
/// What stands after this line is made from the definitions; what stands before is prose.
const FROM_HERE: &str = "## Every command\n";

/// How a command is typed: its arguments, without the options that it may do without.
fn usage(command: &Command, name: &str) -> String {
    let mut words = vec![name.to_owned()];
    for argument in command.get_arguments().filter(|argument| !argument.is_global_set()) {
        let value = argument.get_value_names().and_then(|names| names.first());
        let value = value.map_or_else(String::new, ToString::to_string);
        let many = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
        let dots = if many { "…" } else { "" };
        match argument.get_long() {
            None if argument.is_positional() && argument.is_required_set() => {
                words.push(format!("{value}{dots}"));
            }
            None if argument.is_positional() => words.push(format!("[{value}{dots}]")),
            Some(long) if argument.is_required_set() => words.push(format!("--{long} {value}")),
            _ => {}
        }
    }
    words.join(" ")
}

fn rows(command: &Command, name: &str, table: &mut String) {
    let below: Vec<&Command> =
        command.get_subcommands().filter(|below| below.get_name() != "help").collect();
    if below.is_empty() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let options: Vec<String> = command
            .get_arguments()
            .filter(|argument| !argument.is_required_set() && !argument.is_global_set())
            .filter_map(|argument| argument.get_long())
            .filter(|long| !["help", "version"].contains(long))
            .map(|long| format!("`--{long}`"))
            .collect();
        let usage = usage(command, name).replace('|', "\\|");
        table.extend(["| `", &usage, "` | ", &about, " | ", &options.join(" "), " |\n"]);
    }
    for command in below {
        rows(command, &format!("{name} {}", command.get_name()), table);
    }
}

#[test]
fn the_documentation_has_every_command() {
    let mut whole = Cli::command();
    whole.build();
    let mut table = String::from("\n| Command | Does | May say |\n|---|---|---|\n");
    rows(&whole, "tashika", &mut table);
    let full = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PATH);
    let found = std::fs::read_to_string(full).unwrap();
    let (prose, _) = found.split_once(FROM_HERE).unwrap_or_else(|| panic!("{FROM_HERE:?} is gone"));
    same_as_file(PATH, &format!("{prose}{FROM_HERE}{table}"));
}
