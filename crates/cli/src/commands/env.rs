//! `lens env`: replay recordings against the environments, watch their experts, time, check and serve them.

mod bench;
mod check;
mod init;
mod serve;
mod source;

use std::io::Write;

pub(crate) use source::Reach;

use super::{alfworld, scienceworld, webshop};
use crate::failure::Failure;

/// Replay, watch and time the environments
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens env expert alfworld --split valid_unseen --show 0
  lens env bench webshop --steps 10000
  lens env bench openenv --url http://127.0.0.1:8000 --sessions 1,64 --against alfworld")]
pub(crate) enum EnvCommand {
    /// Replay recordings of the real environment; the exit code is 1 if anything differs
    #[command(subcommand)]
    Replay(Replay),
    /// Run the expert on whole splits and print its success rate and turns
    #[command(subcommand)]
    Expert(Expert),
    /// Time resets, steps and snapshots
    #[command(subcommand)]
    Bench(Bench),
    /// Write a starting configuration for an environment and play one episode with it
    #[command(subcommand)]
    Init(init::Init),
    /// Play random episodes, fork each in the middle and count how often both agree
    Check(check::Check),
    /// Serve an environment by OpenEnv's protocol, for trainers in other languages.
    Serve(serve::Serve),
}

/// Replay recordings of the real environment
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Replay {
    /// Replay recordings of TextWorld's engine
    Alfworld(alfworld::Replay),
    /// Replay recordings of ScienceWorld's own Python package
    Scienceworld(scienceworld::Replay),
    /// Replay recordings of the original shop: pages, searches, goals, rewards
    Webshop(webshop::Replay),
}

/// Run a benchmark's expert
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Expert {
    /// Run the ALFWorld expert, which decides from the agent's prompt alone
    Alfworld(alfworld::Expert),
    /// Run the WebShop expert, which decides from the agent's prompt alone
    Webshop(webshop::Expert),
}

/// Time an environment
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// Time the native engine
    Alfworld(alfworld::Bench),
    /// Time the real simulator behind our client, against its own Python package
    Scienceworld(scienceworld::Bench),
    /// Time the native shop
    Webshop(webshop::Bench),
    /// Time an OpenEnv server, with many sessions at once
    Openenv(bench::RemoteBench),
    /// Time an AgentGym server, with many environments at once
    Agentgym(bench::RemoteBench),
    /// Time a program that speaks JSON lines, with many processes at once
    Stdio(bench::RemoteBench),
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
            Self::Bench(Bench::Openenv(bench)) => bench.run("openenv", out),
            Self::Bench(Bench::Agentgym(bench)) => bench.run("agentgym", out),
            Self::Bench(Bench::Stdio(bench)) => bench.run("stdio", out),
            Self::Init(init) => init.run(out),
            Self::Check(check) => check.run(out),
            Self::Serve(serve) => serve.run(out),
        }
    }
}
