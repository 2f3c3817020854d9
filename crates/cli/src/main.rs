//! `lens`: trains small LLM agents by on-policy distillation from large ones.
#![forbid(unsafe_code)]

mod assemble;
mod commands;
mod cpu_time;
mod engines;
mod failure;
mod help;
mod interrupt;
mod launch;
mod memory;
mod plot;
mod progress;
mod results;
mod run_seed;
mod terminal;
mod values;
mod wording;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};

/// Train a small LLM agent by on-policy distillation from a large one
#[derive(Debug, Parser)]
#[command(name = "lens", version, max_term_width = 100, after_help = AFTER_HELP)]
struct Lens {
    #[command(subcommand)]
    command: commands::Command,
}

const AFTER_HELP: &str = "\
Run `lens help COMMAND` for options and examples of a command.

Exit codes: 0 done; 1 something to mend in the arguments, the configuration or the input files;
2 a failure while running; 3 interrupted (training, sweeps and collections can be resumed).";

fn main() -> ExitCode {
    let parsed = help::grouped(Lens::command())
        .try_get_matches()
        .and_then(|matches| Lens::from_arg_matches(&matches));
    let lens = match parsed {
        Ok(lens) => lens,
        Err(usage) => {
            let code = u8::from(usage.use_stderr());
            return match usage.print() {
                Ok(()) => ExitCode::from(code),
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    ExitCode::from(code)
                }
                Err(_) => ExitCode::from(2),
            };
        }
    };
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    let result = interrupt::install()
        .and_then(|()| lens.command.run(&mut out))
        .and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands at the ends of the tree, each with its words.
    fn leaves(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
        found.push((words.to_owned(), command.clone()));
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            leaves(verb, &format!("{words} {}", verb.get_name()), found);
        }
    }

    #[test]
    fn every_verb_has_two_examples_and_they_parse() {
        let command = Lens::command();
        for verb in command.get_subcommands() {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> =
                help.lines().filter_map(|line| line.trim().strip_prefix("lens ")).collect();
            assert!(examples.len() >= 2, "`lens {}` has no two examples", verb.get_name());
            for example in examples {
                let words = std::iter::once("lens").chain(example.split_whitespace());
                let words = words.map(|word| word.trim_matches('"'));
                if let Err(error) = Lens::command().try_get_matches_from(words) {
                    panic!("`lens {example}`: {error}");
                }
            }
        }
    }

    #[test]
    fn headlines_fit_in_one_line_and_start_with_an_imperative() {
        let mut found = Vec::new();
        leaves(&Lens::command(), "lens", &mut found);
        for (words, command) in found {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty(), "{words} has no headline");
            assert!(about.chars().count() <= 86, "{words}: {about}");
            let first = about.split(' ').next().unwrap_or_default();
            assert!(
                first.starts_with(char::is_uppercase) && !first.ends_with('s'),
                "{words}: {about}"
            );
            assert!(!["The", "Which", "What", "Where", "How"].contains(&first), "{words}: {about}");
        }
    }
}
