//! Recordings of the real engine, and what this engine answers to the same commands.

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use super::benchmark::Alfworld;
use super::episode::Episode;
use super::game::Game;
use crate::{EnvError, files};

/// The admissible commands of a recorded step.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Admissible {
    /// The list.
    List(Vec<String>),
    /// `"="`: the same as before.
    Mark(String),
}

/// How a recorded play begins.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RecordedStart {
    /// The first text.
    pub obs: String,
    /// The first admissible commands.
    pub admissible: Vec<String>,
    /// Whether the goal held already.
    pub won: bool,
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RecordedStep {
    /// The command given.
    pub cmd: String,
    /// The text it was answered with.
    pub obs: String,
    /// The reward.
    pub reward: f64,
    /// Whether the game ended.
    pub done: bool,
    /// Whether the goal held.
    pub won: bool,
    /// The commands admissible after it.
    pub admissible: Admissible,
}

/// One recorded play.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Recording {
    /// The game's name: `<split>/<task>/<trial>`.
    pub game: String,
    /// How the commands were chosen.
    pub play: String,
    /// The MD5 sum of the game's problem text, for games that are made from a seed.
    #[serde(default)]
    pub problem_md5: Option<String>,
    /// The beginning.
    pub init: RecordedStart,
    /// The steps.
    pub steps: Vec<RecordedStep>,
}

/// A difference between a recording and this engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The game.
    pub game: String,
    /// The kind of play.
    pub play: String,
    /// The step, counted from 1; 0 is the beginning.
    pub step: usize,
    /// The command given.
    pub command: String,
    /// Which field differs.
    pub field: &'static str,
    /// What was recorded.
    pub expected: String,
    /// What this engine says.
    pub found: String,
}

/// What a file of recordings came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Plays replayed.
    pub plays: usize,
    /// Steps replayed.
    pub steps: usize,
    /// All differences, in the file's order.
    pub mismatches: Vec<Mismatch>,
}

/// Reads a `.jsonl` or `.jsonl.zst` file of recordings.
pub fn read(path: &Path) -> Result<Vec<Recording>, EnvError> {
    let read_error = |source| EnvError::Read { path: path.to_owned(), source };
    let file = files::open(path)?;
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "zst") {
        Box::new(zstd::Decoder::new(file).map_err(read_error)?)
    } else {
        Box::new(file)
    };
    let mut recordings = Vec::new();
    for line in files::lines(BufReader::new(reader), path) {
        let (number, line) = line?;
        if line.trim().is_empty() {
            continue;
        }
        recordings.push(serde_json::from_str(&line).map_err(|error| EnvError::Malformed {
            path: path.display().to_string(),
            line: Some(number),
            message: format!("not a recording ({error})"),
        })?);
    }
    Ok(recordings)
}

/// Replays a file of recordings against the games of a benchmark.
pub fn replay_file(benchmark: &Alfworld, path: &Path) -> Result<Tally, EnvError> {
    let mut tally = Tally::default();
    for recording in read(path)? {
        replay(benchmark.game(&recording.game)?, &recording, &mut tally);
    }
    Ok(tally)
}

/// Replays one recording.
pub fn replay(game: Arc<Game>, recording: &Recording, tally: &mut Tally) {
    let mut episode = Episode::new(game);
    let mut compare = |step: usize,
                       command: &str,
                       field,
                       expected: &dyn std::fmt::Debug,
                       found: &dyn std::fmt::Debug| {
        let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
        if expected != found {
            tally.mismatches.push(Mismatch {
                game: recording.game.clone(),
                play: recording.play.clone(),
                step,
                command: command.to_owned(),
                field,
                expected,
                found,
            });
        }
    };
    let mut admissible = episode.commands();
    compare(0, "", "obs", &recording.init.obs, &episode.observation());
    compare(0, "", "admissible", &recording.init.admissible, &admissible);
    compare(0, "", "won", &recording.init.won, &episode.won());
    for (index, step) in recording.steps.iter().enumerate() {
        episode.step(&step.cmd);
        let number = index + 1;
        let won = episode.won();
        let before = std::mem::replace(&mut admissible, episode.commands());
        compare(number, &step.cmd, "obs", &step.obs, &episode.observation());
        compare(number, &step.cmd, "won", &step.won, &won);
        compare(number, &step.cmd, "done", &step.done, &won);
        compare(number, &step.cmd, "reward", &step.reward, &f64::from(u8::from(won)));
        let expected = match &step.admissible {
            Admissible::List(list) => list,
            Admissible::Mark(_) => &before,
        };
        compare(number, &step.cmd, "admissible", expected, &admissible);
    }
    tally.plays += 1;
    tally.steps += recording.steps.len();
}
