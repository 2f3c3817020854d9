//! The help of the program: its commands in groups.

use clap::Command;

/// The groups and their commands. A command of no group stands in the last one.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Train",
        &["quickstart", "train", "sweep", "eval", "diagnose", "audit", "estimate", "references"],
    ),
    ("Look", &["view", "figures", "doctor", "show"]),
    ("Models", &["engine", "model", "sft", "generate", "score", "lab"]),
    ("Benchmarks", &["play", "env", "data"]),
    ("Other", &[]),
];

/// The command with its subcommands listed by group.
pub(crate) fn grouped(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut listing = String::new();
    for (heading, names) in GROUPS {
        listing.push_str(&format!("{header}{heading}:{header:#}\n"));
        for verb in members(&command, names) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            listing.push_str(&format!("  {literal}{:<12}{literal:#}{about}\n", verb.get_name()));
        }
        listing.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listing}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// The visible commands with these names in this order; without names, those that no group names.
fn members<'c>(command: &'c Command, names: &[&str]) -> Vec<&'c Command> {
    let visible = || command.get_subcommands().filter(|verb| !verb.is_hide_set());
    if names.is_empty() {
        let named = |verb: &Command| GROUPS.iter().any(|(_, all)| all.contains(&verb.get_name()));
        return visible().filter(|verb| !named(verb)).collect();
    }
    names.iter().filter_map(|name| visible().find(|verb| verb.get_name() == *name)).collect()
}
