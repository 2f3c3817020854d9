//! `lens data`: where official data come from, and whether what is there is right.

use std::io::Write;

use super::{alfworld, scienceworld, webshop};
use crate::failure::Failure;

/// Which benchmark's data.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Data {
    /// ALFWorld's games.
    Alfworld(alfworld::Data),
    /// ScienceWorld's simulator and its solutions.
    Scienceworld(scienceworld::Data),
    /// WebShop's products.
    Webshop(webshop::Data),
}

impl Data {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Alfworld(data) => data.run(out),
            Self::Scienceworld(data) => data.run(out),
            Self::Webshop(data) => data.run(out),
        }
    }
}
