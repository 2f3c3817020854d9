//! One running episode: a world, and the history from which it can be made again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::benchmark::ScienceWorld;
use super::catalog::TaskType;
use super::episode::{self, Episode, FIRST_ACTION, Record};
use super::gateway::GatewayError;
use super::pool::Seat;
use super::world::World;
use crate::benchmark::Task;
use crate::environment::{Environment, Snapshot, Status, View};
use crate::error::EnvError;

/// How often an action is tried in machines that die of it before it is given up.
const ATTEMPTS: usize = 3;

/// How a state is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replay {
    /// Carries out the actions with the random generator put into its recorded state before each; compares the
    /// observation and the standing at every step, and everything else at the state restored. If anything differs,
    /// falls back to [`Replay::Exact`].
    #[default]
    Fast,
    /// Repeats every question as well, and compares everything at every step.
    Exact,
}

/// A ScienceWorld episode.
#[derive(Debug)]
pub struct ScienceWorldEnvironment {
    benchmark: Arc<ScienceWorld>,
    seat: Option<Seat>,
    episode: Option<Episode>,
}

/// Why a world could not be brought to a state.
enum Trouble {
    /// The machine failed; another may do.
    Machine(GatewayError),
    /// What came is not what was recorded.
    Differs(String),
    /// No other machine would help.
    Env(EnvError),
}

impl From<GatewayError> for Trouble {
    fn from(error: GatewayError) -> Self {
        Self::Machine(error)
    }
}

impl From<EnvError> for Trouble {
    fn from(error: EnvError) -> Self {
        Self::Env(error)
    }
}

impl ScienceWorldEnvironment {
    pub(super) fn new(benchmark: Arc<ScienceWorld>) -> Self {
        Self { benchmark, seat: None, episode: None }
    }

    /// Complete actions that would be understood now, sorted; during a question about an ambiguous action, the numbers
    /// that answer it. An agent's prompt does not show them, so they stay in the simulator until they are asked for.
    pub fn valid_actions(&mut self) -> Result<Vec<String>, EnvError> {
        self.persist("its valid actions", |world| {
            world.turn(|simulator| {
                let valid = simulator.asked_valid_actions()?;
                Ok(valid)
            })
        })
    }

    /// The episode so far.
    pub fn episode(&self) -> Option<&Episode> {
        self.episode.as_ref()
    }

    /// The process in which the episode runs now.
    pub fn pid(&self) -> Option<u32> {
        self.seat.as_ref().map(|seat| seat.host().jvm().pid())
    }

    /// Puts a saved state back in the way asked for.
    pub fn restore_by(&mut self, snapshot: &Snapshot, replay: Replay) -> Result<View, EnvError> {
        let wanted: &Episode = snapshot.get()?;
        let restored = match self.bring_to(wanted, replay) {
            Err(EnvError::Restore(difference)) if replay == Replay::Fast => {
                self.benchmark.counters.fast_replays_refused.fetch_add(1, Ordering::Relaxed);
                self.forget();
                self.bring_to(wanted, Replay::Exact).map_err(|error| match error {
                    EnvError::Restore(again) if again != difference => EnvError::Restore(format!(
                        "{again}; before that, a faster replay failed because {difference}"
                    )),
                    other => other,
                })
            }
            other => other,
        };
        if restored.is_err() {
            self.forget();
        }
        restored?;
        self.view()
    }

    fn forget(&mut self) {
        self.seat = None;
        self.episode = None;
    }

    /// Makes this environment's world reach the state of `wanted`, in as many machines as it takes.
    fn bring_to(&mut self, wanted: &Episode, replay: Replay) -> Result<(), EnvError> {
        let mut attempt = 0;
        loop {
            let Err(trouble) = self.try_to_reach(wanted, replay) else {
                self.episode = Some(wanted.clone());
                return Ok(());
            };
            match trouble {
                Trouble::Env(error) => return Err(error),
                Trouble::Differs(difference) => {
                    return Err(EnvError::Restore(format!("{}: {difference}", wanted.name())));
                }
                Trouble::Machine(error) => {
                    self.lose_machine(&error);
                    attempt += 1;
                    if attempt == ATTEMPTS || !error.is_fatal() {
                        return Err(backend(wanted, "its replay", &error));
                    }
                }
            }
        }
    }

    /// One attempt. A world that is already on the way to the state goes on from where it is.
    fn try_to_reach(&mut self, wanted: &Episode, replay: Replay) -> Result<(), Trouble> {
        let on_the_way = match (&self.seat, &self.episode) {
            (Some(_), Some(current)) if current.begins(wanted) => current.records.len(),
            _ => 0,
        };
        if on_the_way == 0 {
            self.forget();
            let seat = self.benchmark.pool().seat()?;
            let world = self.seat.insert(seat).world();
            load(&self.benchmark, world, wanted.kind, wanted.variation)??;
        }
        let Some(seat) = &mut self.seat else { return Err(Trouble::Env(EnvError::NotReset)) };
        let world = seat.world();
        let last = wanted.records.len().saturating_sub(1);
        for index in on_the_way..wanted.records.len() {
            let recorded = &wanted.records[index];
            let differs = |difference: String| {
                Trouble::Differs(format!("step {index}, {:?}: {difference}", recorded.action))
            };
            if replay == Replay::Exact || index == last {
                if replay == Replay::Fast && index > 0 {
                    world.set_shared(wanted.records[index - 1].shared)?;
                }
                let record = act(world, &recorded.action)?;
                if let Some(difference) = episode::full_difference(recorded, &record) {
                    return Err(differs(difference));
                }
            } else {
                if index > 0 {
                    world.set_shared(wanted.records[index - 1].shared)?;
                }
                let (observation, standing) =
                    world.turn(|simulator| simulator.act(&recorded.action))?;
                if let Some(difference) = episode::difference(recorded, &observation, standing) {
                    return Err(differs(difference));
                }
            }
        }
        self.benchmark
            .counters
            .replayed_steps
            .fetch_add(wanted.records.len() - on_the_way, Ordering::Relaxed);
        Ok(())
    }

    /// Takes the machine's failure down and lets go of the world. The episode stays.
    fn lose_machine(&mut self, error: &GatewayError) {
        if let Some(seat) = self.seat.take()
            && error.is_fatal()
        {
            let host = Arc::clone(seat.host());
            drop(seat);
            self.benchmark.pool().failed(&host);
        }
    }

    /// Works in the world, making the world again first where its machine has been lost.
    fn persist<T>(
        &mut self,
        what: &str,
        mut work: impl FnMut(&mut World) -> Result<T, GatewayError>,
    ) -> Result<T, EnvError> {
        let mut attempt = 0;
        loop {
            let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
            let outcome = match &mut self.seat {
                Some(seat) => work(seat.world()),
                None => Err(GatewayError::Closed),
            };
            let error = match outcome {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let failed = backend(episode, what, &error);
            let episode = episode.clone();
            self.lose_machine(&error);
            attempt += 1;
            if attempt == ATTEMPTS || !error.is_fatal() {
                return Err(failed);
            }
            self.bring_to(&episode, Replay::Fast)?;
            self.benchmark.counters.episodes_resumed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin(&mut self, kind: &'static TaskType, variation: i32) -> Result<Episode, Trouble> {
        let seat = match self.seat.take() {
            Some(seat) if self.benchmark.pool().keeps(seat.host()) => seat,
            _ => self.benchmark.pool().seat()?,
        };
        let world = self.seat.insert(seat).world();
        let (description, templates) = load(&self.benchmark, world, kind, variation)??;
        let record = act(world, FIRST_ACTION)?;
        Ok(Episode {
            kind,
            variation,
            description: description.into(),
            templates: templates.into(),
            records: vec![Arc::new(record)],
        })
    }
}

impl Environment for ScienceWorldEnvironment {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        let (kind, variation) = TaskType::of_task(&task.id)?;
        self.episode = None;
        let mut attempt = 0;
        loop {
            match self.begin(kind, variation) {
                Ok(episode) => {
                    self.episode = Some(episode);
                    return self.view();
                }
                Err(Trouble::Env(error)) => return Err(error),
                Err(Trouble::Differs(difference)) => return Err(EnvError::Restore(difference)),
                Err(Trouble::Machine(error)) => {
                    self.lose_machine(&error);
                    attempt += 1;
                    if attempt == ATTEMPTS || !error.is_fatal() {
                        return Err(EnvError::Backend {
                            backend: "ScienceWorld",
                            message: format!("{}: the task does not load: {error}", task.id),
                        });
                    }
                }
            }
        }
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        let view = self.view()?;
        if view.status != Status::Running {
            return Ok(view);
        }
        let record = self.persist(&format!("{action:?}"), |world| act(world, action))?;
        self.episode.as_mut().ok_or(EnvError::NotReset)?.records.push(Arc::new(record));
        self.view()
    }

    fn view(&self) -> Result<View, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        episode.view(self.benchmark.rules().move_limit).ok_or(EnvError::NotReset)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        Ok(Snapshot::new(episode.clone()))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        self.restore_by(snapshot, self.benchmark.rules().replay)
    }
}

/// Loads a task; gives its description and action templates.
fn load(
    benchmark: &ScienceWorld,
    world: &mut World,
    kind: &TaskType,
    variation: i32,
) -> Result<Result<(String, Vec<String>), EnvError>, GatewayError> {
    world.turn(|simulator| {
        let simplifications = &benchmark.rules().simplifications;
        let complaint = simulator.load(kind.name, variation, simplifications)?;
        if let Some(complaint) = complaint {
            return Ok(Err(EnvError::Backend { backend: "ScienceWorld", message: complaint }));
        }
        let description = simulator.task_description()?;
        let templates = simulator.templates()?;
        simulator.forget_catalog()?;
        Ok(Ok((description, templates)))
    })
}

/// Carries out an action and asks what the reference asks, as far as it draws random numbers, in its order.
fn act(world: &mut World, action: &str) -> Result<Record, GatewayError> {
    let (observation, standing, valid, objects) = world.turn(|simulator| {
        let (observation, standing) = simulator.act(action)?;
        let valid = simulator.ask_valid_actions()?;
        let objects = simulator.objects()?;
        Ok((observation, standing, valid, objects))
    })?;
    let shared = world.shared().ok_or(GatewayError::Closed)?;
    Ok(Record { action: action.to_owned(), observation, standing, objects, valid, shared })
}

fn backend(episode: &Episode, what: &str, error: &GatewayError) -> EnvError {
    EnvError::Backend {
        backend: "ScienceWorld",
        message: format!("{}, turn {}: {what}: {error}", episode.name(), episode.records.len()),
    }
}
