//! `lens env`: replay recordings against the environments, and time them.

use std::io::Write;

use crate::failure::Failure;

/// What to do with an environment.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum EnvCommand {}

impl EnvCommand {
    pub(crate) fn run(self, _out: &mut dyn Write) -> Result<(), Failure> {
        match self {}
    }
}
