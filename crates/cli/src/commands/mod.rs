//! One file per verb.

use std::io::Write;

use crate::failure::Failure;

pub(crate) mod alfworld;
pub(crate) mod data;
pub(crate) mod env;
pub(crate) mod expert;
pub(crate) mod play;
pub(crate) mod webshop;

/// The verbs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Play a benchmark yourself in the terminal.
    #[command(subcommand)]
    Play(play::Play),
    /// Check and time the environments.
    #[command(subcommand)]
    Env(env::EnvCommand),
    /// Say where a benchmark's official data come from, and verify what is there.
    #[command(subcommand)]
    Data(data::Data),
}

impl Command {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Play(play) => play.run(out),
            Self::Env(command) => command.run(out),
            Self::Data(data) => data.run(out),
        }
    }
}
