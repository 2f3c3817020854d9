//! `lens play` for environments in other processes.

use std::io::Write;

use lens_train::run::prompting;

use super::Choice;
use crate::commands::env::Reach;
use crate::failure::Failure;

/// Play an environment in another process
#[derive(Debug, clap::Args)]
pub(crate) struct RemotePlay {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    reach: Reach,
}

impl RemotePlay {
    pub(crate) fn run(&self, name: &str, out: &mut dyn Write) -> Result<(), Failure> {
        let prompting = prompting(&self.reach.config()?)?;
        self.choice.play_with(&self.reach.open(name)?, prompting, out)
    }
}
