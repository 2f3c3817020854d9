//! `lens data`: where official data come from, and whether what is there is right.

use std::io::Write;

use super::alfworld;
use crate::failure::Failure;

/// Which benchmark's data.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Data {
    /// ALFWorld's games.
    Alfworld(alfworld::Data),
}

impl Data {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Alfworld(data) => data.run(out),
        }
    }
}
