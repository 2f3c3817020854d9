//! `lens env`: replay recordings against the environments, watch their experts, time, check and serve them.

mod check;
mod init;
mod serve;
mod source;

use std::io::Write;

use super::{alfworld, scienceworld, webshop};
use crate::failure::Failure;

/// What to do with an environment.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EnvCommand {
    /// Replay recordings of the real environment and print every difference; exit code 1 if there is one.
    #[command(subcommand)]
    Replay(Replay),
    /// Let the expert play whole splits and print how often it succeeds and how long it takes.
    #[command(subcommand)]
    Expert(Expert),
    /// Time resets, steps and snapshots, in CPU time.
    #[command(subcommand)]
    Bench(Bench),
    /// Ask an environment what it is, write a starting configuration and play one episode with it.
    #[command(subcommand)]
    Init(init::Init),
    /// Play random episodes, fork each in the middle, and report how often both forks see the same.
    Check(check::Check),
    /// Serve an environment by OpenEnv's protocol, for trainers in other languages.
    Serve(serve::Serve),
}

/// Which environment's recordings.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Replay {
    /// Recordings of TextWorld's engine.
    Alfworld(alfworld::Replay),
    /// Recordings of ScienceWorld's own Python package.
    Scienceworld(scienceworld::Replay),
    /// Recordings of the original shop: pages, searches, goals, rewards.
    Webshop(webshop::Replay),
}

/// Whose expert.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Expert {
    /// The ALFWorld expert, which decides from the agent's prompt alone.
    Alfworld(alfworld::Expert),
    /// The WebShop expert, which decides from the agent's prompt alone.
    Webshop(webshop::Expert),
}

/// Which environment to time.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// The native engine.
    Alfworld(alfworld::Bench),
    /// The real simulator driven by us, against its own Python package.
    Scienceworld(scienceworld::Bench),
    /// The native shop.
    Webshop(webshop::Bench),
}

impl EnvCommand {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Replay(Replay::Alfworld(replay)) => replay.run(out),
            Self::Replay(Replay::Scienceworld(replay)) => replay.run(out),
            Self::Replay(Replay::Webshop(replay)) => replay.run(out),
            Self::Expert(Expert::Alfworld(expert)) => expert.run(out),
            Self::Expert(Expert::Webshop(expert)) => expert.run(out),
            Self::Bench(Bench::Alfworld(bench)) => bench.run(out),
            Self::Bench(Bench::Scienceworld(bench)) => bench.run(out),
            Self::Bench(Bench::Webshop(bench)) => bench.run(out),
            Self::Init(init) => init.run(out),
            Self::Check(check) => check.run(out),
            Self::Serve(serve) => serve.run(out),
        }
    }
}
