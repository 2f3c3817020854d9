//! `lens data`: where official data come from, and whether what is there is right.

use std::io::Write;

use crate::failure::Failure;

/// Which benchmark's data.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Data {}

impl Data {
    pub(crate) fn run(self, _out: &mut dyn Write) -> Result<(), Failure> {
        match self {}
    }
}
