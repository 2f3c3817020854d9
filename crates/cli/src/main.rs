//! `lens`: teaches small language-model agents from large ones.
#![forbid(unsafe_code)]

mod assemble;
mod commands;
mod cpu_time;
mod failure;
mod interrupt;
mod plot;
mod progress;
mod run_seed;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// Teach a small language-model agent from a large one, on the small one's own long episodes.
///
/// Exit codes: 0 done, 1 user or configuration error, 2 runtime failure, 3 interrupted but resumable.
#[derive(Debug, Parser)]
#[command(name = "lens", version, propagate_version = true, max_term_width = 110)]
struct Lens {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let lens = match Lens::try_parse() {
        Ok(lens) => lens,
        Err(usage) => {
            let code = u8::from(usage.use_stderr());
            return match usage.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::from(2),
            };
        }
    };
    let mut out = anstream::AutoStream::auto(std::io::stdout());
    let result = lens.command.run(&mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
