//! Successful episodes that methods with a backward curriculum replay.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use lens_agent::{Plan, RolloutConfig, play};
use lens_engine::{Policy, Sampling};
use lens_env::{Benchmark, Task};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;
use crate::files::write_atomically;

/// What `task.references` says if the benchmark's own expert plans are to be used.
pub const EXPERT_PLANS: &str = "expert-plans";

/// Where the actions of successful episodes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum References {
    /// There are none: `task.references` is not set.
    None,
    /// The benchmark's planner or gold paths: shorter than what a model plays.
    ExpertPlans,
    /// What the run's own teacher played, by task.
    Collected(BTreeMap<String, Vec<String>>),
}

/// One line of a file of references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The task's name.
    pub task: String,
    /// The actions that solved it.
    pub actions: Vec<String>,
    /// Which try it was, from 1.
    pub attempt: u32,
}

impl References {
    /// Reads what `task.references` names: nothing, the expert's plans, or a file of collected episodes.
    pub fn open(name: &str) -> Result<Self, TrainError> {
        match name {
            "" => Ok(Self::None),
            EXPERT_PLANS => Ok(Self::ExpertPlans),
            path => Self::read(Path::new(path)),
        }
    }

    fn read(path: &Path) -> Result<Self, TrainError> {
        let references = read_lines(path)?.into_iter();
        Ok(Self::Collected(references.map(|one| (one.task, one.actions)).collect()))
    }

    /// The actions that solve `task`, where they are known.
    pub fn actions(
        &self,
        benchmark: &dyn Benchmark,
        task: &Task,
    ) -> Result<Option<Vec<String>>, TrainError> {
        match self {
            Self::None => Ok(None),
            Self::ExpertPlans => Ok(benchmark.reference_actions(task)?),
            Self::Collected(references) => Ok(references.get(&task.id).cloned()),
        }
    }

    /// What results say was used.
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ExpertPlans => EXPERT_PLANS,
            Self::Collected(_) => "collected from the teacher",
        }
    }
}

/// The lines of a file of references.
fn read_lines(path: &Path) -> Result<Vec<Reference>, TrainError> {
    let file = std::fs::File::open(path).map_err(TrainError::file("read", path))?;
    let mut references = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(TrainError::file("read", path))?;
        let reference = serde_json::from_str(&line).map_err(|error| TrainError::References {
            path: path.to_owned(),
            line: number,
            message: error.to_string(),
        })?;
        references.push(reference);
    }
    Ok(references)
}

/// How references are collected.
#[derive(Clone)]
pub struct Collection {
    /// The environments and their limits.
    pub config: RolloutConfig,
    /// How the teacher's tokens are drawn.
    pub sampling: Sampling,
    /// The seed of the draws.
    pub seed: u64,
    /// How often each task is tried.
    pub attempts: u32,
    /// Episodes played side by side.
    pub workers: usize,
}

impl Collection {
    /// Lets `teacher` play every task until it is solved or has been tried often enough, and keeps the successes in
    /// `path`. Tasks that the file holds already are not played again. `progress` is told how many tasks are settled
    /// and how many of them are solved.
    pub fn collect(
        &self,
        teacher: &dyn Policy,
        tasks: &[Task],
        path: &Path,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Vec<Reference>, TrainError> {
        let known = if path.exists() { read_lines(path)? } else { Vec::new() };
        let mut found: BTreeMap<String, Reference> =
            known.into_iter().map(|reference| (reference.task.clone(), reference)).collect();
        for attempt in 1..=self.attempts {
            let open: Vec<(usize, &Task)> = tasks
                .iter()
                .enumerate()
                .filter(|(_, task)| !found.contains_key(&task.id))
                .collect();
            for chunk in open.chunks(self.workers.max(1)) {
                for reference in self.attempt(teacher, chunk, attempt)? {
                    found.insert(reference.task.clone(), reference);
                }
                write_lines(path, tasks, &found)?;
                progress(
                    if attempt == self.attempts { tasks.len() } else { found.len() },
                    found.len(),
                );
            }
        }
        Ok(in_order(tasks, &found))
    }

    /// One try at some tasks; what was solved.
    fn attempt(
        &self,
        teacher: &dyn Policy,
        tasks: &[(usize, &Task)],
        attempt: u32,
    ) -> Result<Vec<Reference>, TrainError> {
        let config = self.config.starting_now();
        // A draw is named by the task and the try, so that an interrupted collection goes on as it would have.
        let plans = tasks.iter().map(|(index, task)| Plan {
            key: *index as u64,
            task: (*task).clone(),
            exposure: Exposure::student(config.turn_limit),
            reference: None,
            seed: self.seed,
            batch: u64::from(attempt),
            purpose: Purpose::Teacher,
            sampling: self.sampling,
        });
        let episodes = play(&config, teacher, None, plans.collect(), false, &mut |_, _| {})?;
        let solved = episodes.into_iter().filter(|episode| episode.success);
        let references = solved.map(|episode| Reference {
            task: episode.plan.task.id.clone(),
            actions: episode.past.into_iter().map(|step| step.action).collect(),
            attempt,
        });
        Ok(references.collect())
    }
}

/// What was found, in the order of the tasks; tasks of other splits after them.
fn in_order(tasks: &[Task], found: &BTreeMap<String, Reference>) -> Vec<Reference> {
    let asked = tasks.iter().filter_map(|task| found.get(&task.id).cloned());
    let others = found.values().filter(|one| !tasks.iter().any(|task| task.id == one.task));
    asked.chain(others.cloned()).collect()
}

fn write_lines(
    path: &Path,
    tasks: &[Task],
    found: &BTreeMap<String, Reference>,
) -> Result<(), TrainError> {
    let mut text = String::new();
    for reference in in_order(tasks, found) {
        let line = serde_json::to_string(&reference).map_err(|error| TrainError::References {
            path: path.to_owned(),
            line: 0,
            message: error.to_string(),
        })?;
        text.push_str(&line);
        text.push('\n');
    }
    write_atomically(path, text.as_bytes())
}
