//! `lens data`: where official data come from, and whether what is there is right.

use std::io::Write;

use super::{alfworld, scienceworld, webshop};
use crate::failure::Failure;

/// Show where to download a benchmark's official data, and verify a local copy
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens data alfworld --data json_2.1.2_tw-pddl.zip
  lens data webshop statistics")]
pub(crate) enum Data {
    /// Show where to download ALFWorld's games, verify a local copy and count it
    Alfworld(alfworld::Data),
    /// Show where to get ScienceWorld's simulator, and verify a local copy
    Scienceworld(scienceworld::Data),
    /// Show where to download WebShop's products, and describe a local copy
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
