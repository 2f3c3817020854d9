//! `lens play`: a person plays a benchmark in the terminal.

use std::io::Write;

use crate::failure::Failure;

/// Which benchmark to play. One variant a benchmark.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Play {}

impl Play {
    pub(crate) fn run(self, _out: &mut dyn Write) -> Result<(), Failure> {
        match self {}
    }
}
