//! What the verbs do for ALFWorld.

mod bench;
mod data;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use bench::Bench;
pub(crate) use data::Data;
use lens_env::Benchmark;
use lens_env::alfworld::generator::BUILT_IN_SEED;
use lens_env::alfworld::{Alfworld, Options, replay};

use super::expert;
use super::play::Choice;
use crate::failure::Failure;

/// Which games.
#[derive(Debug, clap::Args)]
pub(crate) struct Games {
    /// The official games: a folder, a .zip or a .tar.zst; the built-in generated games by default.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The folder with TCOD's task lists; a folder named "tcod" beside the games by default.
    #[arg(long, value_name = "FOLDER", requires = "data")]
    lists: Option<PathBuf>,
    /// Generate the games from another seed.
    #[arg(long, default_value_t = BUILT_IN_SEED, conflicts_with = "data")]
    seed: u64,
}

impl Games {
    /// Loads the splits asked for; all of them when `splits` is empty.
    fn open(&self, splits: &[String]) -> Result<Arc<Alfworld>, Failure> {
        let options =
            Options { splits: splits.to_vec(), lists: self.lists.clone(), turn_limit: None };
        let alfworld = match &self.data {
            Some(path) => Alfworld::open(path, &options)?,
            None => Alfworld::generated(self.seed, &options)?,
        };
        Ok(Arc::new(alfworld))
    }
}

/// Play household tasks in text: fetch, clean, heat, cool, put away
#[derive(Debug, clap::Args)]
pub(crate) struct Play {
    #[command(flatten)]
    games: Games,
    #[command(flatten)]
    choice: Choice,
}

impl Play {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let splits: Vec<String> = self.choice.split.iter().cloned().collect();
        let benchmark: Arc<dyn Benchmark> = self.games.open(&splits)?;
        self.choice.play(&benchmark, out)
    }
}

/// Replay recordings of TextWorld's engine and print every difference
///
/// A recording is a JSON line per game: its name, the first observation with the admissible commands, and every step.
/// crates/env/tests/alfworld/generated.jsonl.zst is one of the built-in games.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    games: Games,
    /// Files of recordings (.jsonl or .jsonl.zst).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    golden: Vec<PathBuf>,
    /// Print at most this many differences of each file.
    #[arg(long, default_value_t = 10)]
    show: usize,
}

impl Replay {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let alfworld = self.games.open(&[])?;
        let mut differences = 0;
        for path in &self.golden {
            let tally = replay::replay_file(&alfworld, path)?;
            let found = tally.mismatches.len();
            writeln!(
                out,
                "{}: {} plays, {} steps, {found} mismatches",
                path.display(),
                tally.plays,
                tally.steps
            )?;
            for mismatch in tally.mismatches.iter().take(self.show) {
                writeln!(
                    out,
                    "  {} ({}), step {}, after \"{}\": {}\n    recorded {}\n    here     {}",
                    mismatch.game,
                    mismatch.play,
                    mismatch.step,
                    mismatch.command,
                    mismatch.field,
                    mismatch.expected,
                    mismatch.found
                )?;
            }
            differences += found;
        }
        if differences > 0 {
            return Err(Failure::user(format!("{differences} mismatches with the recordings")));
        }
        Ok(())
    }
}

/// Run the ALFWorld expert, which decides from the agent's prompt alone
#[derive(Debug, clap::Args)]
pub(crate) struct Expert {
    #[command(flatten)]
    games: Games,
    #[command(flatten)]
    trial: expert::Trial,
}

impl Expert {
    pub(crate) fn run(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let benchmark: Arc<dyn Benchmark> = self.games.open(&self.trial.split)?;
        self.trial.run(&benchmark, out)
    }
}
