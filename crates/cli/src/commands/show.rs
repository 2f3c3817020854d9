//! `lens show`: one episode or fork in the terminal.

use std::io::Write;
use std::path::PathBuf;

use lens_report::text;

use super::figures::load;
use crate::failure::Failure;

/// Print one episode of a run, or one of its turns with its fork and tokens
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens show runs/laboratory/seed-42 --episode 12/3
  lens show runs/laboratory/seed-42 --episode 12/3 --turn 4")]
pub(crate) struct Show {
    /// The run's folder.
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The explorer batch and the episode inside it, such as 12/3.
    #[arg(long, value_name = "BATCH/EPISODE", value_parser = place)]
    episode: (u64, u64),
    /// Only this turn, token by token.
    #[arg(long)]
    turn: Option<u64>,
}

fn place(text: &str) -> Result<(u64, u64), String> {
    let parsed = text
        .split_once('/')
        .and_then(|(batch, episode)| Some((batch.parse().ok()?, episode.parse().ok()?)));
    parsed.ok_or_else(|| "expected BATCH/EPISODE, such as 12/3".to_owned())
}

impl Show {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let (batch, episode) = self.episode;
        let runs = load(std::slice::from_ref(&self.run))?;
        let [run] = runs.as_slice() else {
            return Err(Failure::user(format!(
                "{} holds {} runs; give one of them",
                self.run.display(),
                runs.len()
            )));
        };
        let batches = run.folder.episode_batches();
        if batches.binary_search(&batch).is_err() {
            let range = match (batches.first(), batches.last()) {
                (Some(first), Some(last)) => format!("it has {first} to {last}"),
                _ => "it has none".to_owned(),
            };
            return Err(Failure::user(format!(
                "the run has no episodes of batch {batch}; {range}"
            )));
        }
        let line =
            run.folder.episode(batch, episode).map_err(|problem| Failure::User(problem.into()))?;
        let Some(line) = line else {
            return Err(Failure::user(format!("batch {batch} has no episode {episode}")));
        };
        if let Some(turn) = self.turn
            && !line.turns.iter().any(|known| known.turn == turn)
        {
            return Err(Failure::user(format!(
                "the episode has no turn {turn}; it has {}",
                line.turns.len()
            )));
        }
        write!(out, "{}", text::episode(&line, self.turn))?;
        Ok(())
    }
}
