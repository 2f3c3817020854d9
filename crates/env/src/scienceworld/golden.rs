//! Recordings of the simulator's own Python package, and their replay.
//!
//! A recording is a zstd-compressed file of JSON lines: a line about the task, then each episode's line followed by its
//! steps. An episode names the calls that were made after each action; a replay makes the same ones, because some of
//! them draw from the game's random generator.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;

use super::gateway::GatewayError;
use super::pool::Pool;
use super::scoring;
use super::simulator::{Simulator, Standing};
use super::world::World;
use crate::environment::Status;
use crate::error::EnvError;
use crate::files;

/// One file of recordings.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What was recorded and how.
    pub meta: Meta,
    /// The episodes, in order.
    pub episodes: Vec<Episode>,
}

/// What a file of recordings says about its task.
#[derive(Debug, Clone, Deserialize)]
pub struct Meta {
    /// The task's name.
    pub task: String,
    /// The task's number in the paper that introduced the benchmark, such as `1-1`.
    pub task_id: String,
    /// How many variations it has.
    pub max_variations: i32,
    /// The moves after which an episode ends.
    pub step_limit: i32,
    /// Size, first and last variation of each fold.
    pub folds: std::collections::BTreeMap<String, [i32; 3]>,
}

/// One recorded episode.
#[derive(Debug, Clone, Deserialize)]
pub struct Episode {
    /// Its name, unique in all recordings.
    pub id: String,
    /// The task.
    pub task: String,
    /// The variation.
    pub variation: i32,
    /// What was given to `load`.
    pub simplification: String,
    /// The simplifications that were in force.
    pub simplifications_used: String,
    /// What the agent was asked to do.
    pub task_description: String,
    /// The calls made at each step.
    pub calls: Vec<Call>,
    /// The simulator's own solution, where the episode plays it.
    #[serde(default)]
    pub gold: Option<Vec<String>>,
    /// The steps; the first is always "look around".
    #[serde(skip)]
    pub steps: Vec<Step>,
}

/// A call of the simulator, by its own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names are the simulator's")]
pub enum Call {
    Step,
    GetScore,
    GetCompleted,
    GetNumMoves,
    FreeActionLook,
    FreeActionInventory,
    FreeActionTaskDesc,
    GetValidActionObjectCombinations,
    GetPossibleActions,
    GetPossibleObjects,
}

/// One recorded step.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Step {
    /// The step's number; 0 is the look around that begins an episode.
    pub t: usize,
    /// What was done.
    pub action: String,
    /// What came of it.
    pub obs: String,
    /// The score from 0 to 100 and below.
    pub score: f64,
    /// Whether the episode ended.
    pub done: bool,
    /// The simulator's own word on completion.
    pub completed_raw: bool,
    /// The simulator's own score.
    pub score_raw: f64,
    /// Time passed.
    pub moves: i32,
    /// What looking around shows, if asked.
    #[serde(default)]
    pub look: Option<String>,
    /// The inventory, if asked.
    #[serde(default)]
    pub inv: Option<String>,
    /// Valid actions, if asked.
    #[serde(default)]
    pub valid: Option<Vec<String>>,
    /// Templates, if asked.
    #[serde(default)]
    pub templates: Option<Vec<String>>,
    /// Objects, if asked.
    #[serde(default)]
    pub objects: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Meta(Meta),
    Episode(Episode),
    Step {
        id: String,
        #[serde(flatten)]
        step: Box<Step>,
    },
}

impl Recording {
    /// Reads a file of recordings (`.jsonl.zst`, or `.jsonl`).
    pub fn read(path: &Path) -> Result<Self, EnvError> {
        let read = |source| EnvError::Read { path: path.to_owned(), source };
        let file = files::open(path)?;
        if path.extension().is_some_and(|extension| extension == "zst") {
            let decoder = zstd::Decoder::new(file).map_err(read)?;
            Self::parse(BufReader::new(decoder), path)
        } else {
            Self::parse(BufReader::new(file), path)
        }
    }

    fn parse(lines: impl BufRead, path: &Path) -> Result<Self, EnvError> {
        let malformed = |line: usize, message: String| EnvError::Malformed {
            path: path.display().to_string(),
            line: Some(line),
            message,
        };
        let mut meta = None;
        let mut episodes: Vec<Episode> = Vec::new();
        for line in files::lines(lines, path) {
            let (number, line) = line?;
            let line = serde_json::from_str(&line).map_err(|error| {
                malformed(number, format!("not a line of a recording: {error}"))
            })?;
            match line {
                Line::Meta(found) => meta = Some(found),
                Line::Episode(episode) => episodes.push(episode),
                Line::Step { id, step } => match episodes.last_mut() {
                    Some(episode) if episode.id == id && episode.steps.len() == step.t => {
                        episode.steps.push(*step);
                    }
                    _ => {
                        let message = format!("step {} of {id} is out of place", step.t);
                        return Err(malformed(number, message));
                    }
                },
            }
        }
        let meta =
            meta.ok_or_else(|| malformed(1, "there is no line of type \"meta\"".to_owned()))?;
        Ok(Self { meta, episodes })
    }
}

/// A difference between a recording and its replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The episode.
    pub episode: String,
    /// The step; `None` for what is told before the first.
    pub step: Option<usize>,
    /// What differs.
    pub field: &'static str,
    /// What was recorded.
    pub recorded: String,
    /// What came instead.
    pub replayed: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.episode)?;
        if let Some(step) = self.step {
            write!(f, " step {step}")?;
        }
        write!(f, ": {} was {}, now {}", self.field, self.recorded, self.replayed)
    }
}

/// Collects what differs between one recorded step and its replay.
pub(super) struct Comparison<'a> {
    pub(super) episode: &'a str,
    pub(super) step: Option<usize>,
    pub(super) mismatches: Vec<Mismatch>,
}

impl Comparison<'_> {
    pub(super) fn check<T: PartialEq + fmt::Debug>(
        &mut self,
        field: &'static str,
        recorded: &T,
        replayed: &T,
    ) {
        if recorded != replayed {
            self.mismatches.push(Mismatch {
                episode: self.episode.to_owned(),
                step: self.step,
                field,
                recorded: excerpt(&format!("{recorded:?}")),
                replayed: excerpt(&format!("{replayed:?}")),
            });
        }
    }
}

/// The part of a long text that an error message has room for.
fn excerpt(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((cut, _)) => format!("{}… ({} bytes)", &text[..cut], text.len()),
        None => text.to_owned(),
    }
}

impl Episode {
    /// Plays the episode again in `world`, making the recorded calls, and gives every difference.
    pub fn replay(
        &self,
        world: &mut World,
        move_limit: i32,
    ) -> Result<Vec<Mismatch>, GatewayError> {
        let mut comparison = Comparison { episode: &self.id, step: None, mismatches: Vec::new() };
        world.turn(|simulator| {
            let complaint = simulator.load(&self.task, self.variation, &self.simplification)?;
            comparison.check("complaint", &None, &complaint);
            comparison.check(
                "simplifications",
                &self.simplifications_used,
                &simulator.simplifications_used()?,
            );
            comparison.check(
                "task description",
                &self.task_description,
                &simulator.task_description()?,
            );
            simulator.forget_catalog()
        })?;
        for step in &self.steps {
            comparison.step = Some(step.t);
            world.turn(|simulator| {
                step.replay(simulator, &self.calls, move_limit, &mut comparison)
            })?;
        }
        Ok(comparison.mismatches)
    }
}

impl Step {
    fn replay(
        &self,
        simulator: &mut Simulator<'_>,
        calls: &[Call],
        move_limit: i32,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), GatewayError> {
        for call in calls {
            match call {
                Call::Step => {
                    comparison.check("observation", &self.obs, &simulator.step(&self.action)?);
                }
                Call::GetScore => {
                    let standing = simulator.standing()?;
                    comparison.check("standing", &self.standing(), &standing);
                    comparison.check("score", &self.score, &scoring::score(standing));
                    let done = scoring::status(standing, move_limit) != Status::Running;
                    comparison.check("end", &self.done, &done);
                }
                // Asked together with the score, in the recorded order.
                Call::GetCompleted | Call::GetNumMoves => {}
                Call::FreeActionLook => {
                    comparison.check("look", &self.look, &Some(simulator.look()?));
                }
                Call::FreeActionInventory => {
                    comparison.check("inventory", &self.inv, &Some(simulator.inventory()?));
                }
                // Recorded calls include it, but its answer is the task description's.
                Call::FreeActionTaskDesc => drop(simulator.task_reminder()?),
                Call::GetValidActionObjectCombinations => {
                    comparison.check(
                        "valid actions",
                        &self.valid,
                        &Some(simulator.valid_actions()?),
                    );
                }
                Call::GetPossibleActions => {
                    comparison.check("templates", &self.templates, &Some(simulator.templates()?));
                }
                Call::GetPossibleObjects => {
                    comparison.check("objects", &self.objects, &Some(simulator.objects()?));
                }
            }
        }
        Ok(())
    }

    /// The simulator's own numbers.
    pub fn standing(&self) -> Standing {
        Standing { score: self.score_raw, completed: self.completed_raw, moves: self.moves }
    }
}

/// Plays episodes again, `workers` of them side by side, and gives every difference in the order of the episodes.
/// Workers share machines, so this is also a proof that worlds in one machine do not disturb each other.
pub fn replay_all(
    pool: &Arc<Pool>,
    episodes: &[&Episode],
    move_limit: i32,
    workers: usize,
) -> Result<Vec<Mismatch>, EnvError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(episode) = episodes.get(index) else { return Ok(found) };
            let mut seat = pool.seat()?;
            let mismatches = episode.replay(seat.world(), move_limit).map_err(|error| {
                pool.failed(seat.host());
                EnvError::Backend {
                    backend: "ScienceWorld",
                    message: format!("{}: {error}", episode.id),
                }
            })?;
            found.push((index, mismatches));
        }
    };
    let mut found = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        let mut found = Vec::new();
        for worker in workers {
            found.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, EnvError>(found)
    })?;
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().flat_map(|(_, mismatches)| mismatches).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#"{"type":"meta","task":"boil","task_id":"1-1","max_variations":30,"step_limit":100,"folds":{"train":[14,0,13]}}"#;
    const EPISODE: &str = r#"{"type":"episode","id":"e","task":"boil","variation":0,"simplification":"","simplifications_used":"","task_description":"","calls":["step","getScore"]}"#;
    const STEP: &str = r#"{"type":"step","id":"e","t":0,"action":"look around","obs":"A room.","score":21,"done":false,"completed_raw":false,"score_raw":0.21428571428571422,"moves":0}"#;

    fn parse(lines: &[&str]) -> Result<Recording, String> {
        let text = lines.join("\n");
        Recording::parse(text.as_bytes(), Path::new("boil.jsonl"))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_recording_is_read() {
        let recording = parse(&[META, EPISODE, STEP]).unwrap();
        let [episode] = recording.episodes.as_slice() else { panic!("one episode") };
        assert_eq!(episode.calls, [Call::Step, Call::GetScore]);
        assert_eq!(episode.steps.len(), 1);
        assert_eq!(episode.steps[0].score_raw.to_string(), "0.21428571428571422");
        assert_eq!(episode.steps[0].valid, None);
    }

    #[test]
    fn a_broken_recording_is_named_with_its_line() {
        let error = parse(&[META, EPISODE, &STEP[..40]]).unwrap_err();
        assert!(error.starts_with("boil.jsonl:3: not a line of a recording"), "{error}");
        let error = parse(&[META, EPISODE, STEP, STEP]).unwrap_err();
        assert_eq!(error, "boil.jsonl:4: step 0 of e is out of place");
        let error = parse(&[META, STEP]).unwrap_err();
        assert_eq!(error, "boil.jsonl:2: step 0 of e is out of place");
        let error = parse(&[EPISODE]).unwrap_err();
        assert_eq!(error, "boil.jsonl:1: there is no line of type \"meta\"");
    }

    #[test]
    fn differences_are_told_in_one_line() {
        let mut comparison =
            Comparison { episode: "boil/0", step: Some(3), mismatches: Vec::new() };
        comparison.check("score", &1.0, &1.0);
        comparison.check("observation", &"a", &"b");
        let [mismatch] = comparison.mismatches.as_slice() else { panic!("one mismatch") };
        assert_eq!(mismatch.to_string(), "boil/0 step 3: observation was \"a\", now \"b\"");
    }
}
