//! What every method needs around it: order of batches, pairing of forks, records, saved state.

use super::exposure::{EpisodeSlot, Exposure};
use super::record::BatchRecord;
use super::rows::{BatchShape, RowKind, TrainRow};
use super::state::MethodState;
use super::{ForkPair, Located, Method, MethodName, MethodSections, Needs, RunFacts, build};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::objective::plan::LossTerms;
use crate::parameter::count;
use crate::validate::Validate;
use crate::validate::fork::{FinishedFork, ForkRequest};

/// Refine's answer to a batch and its finished forks.
#[derive(Debug, Clone, PartialEq)]
pub struct Refined {
    /// The rows to train on, by episode and turn; shuffle them before they are queued.
    pub rows: Vec<TrainRow>,
    /// What to log.
    pub record: BatchRecord,
}

/// A method in a run: refuses batches out of order and owns the saved state.
pub struct Driver {
    method: Box<dyn Method>,
    name: MethodName,
    batches: u64,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .field("batches", &self.batches)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// The method called `name`, at its first batch.
    pub fn new(
        name: MethodName,
        sections: &MethodSections,
        facts: RunFacts,
    ) -> Result<Self, OpdError> {
        count("task.turn_limit", facts.max_turns as u64, 1..=crate::parameter::MANY)?;
        count("train.steps", facts.steps, 1..=u64::MAX)?;
        sections.check(&facts)?;
        Ok(Self { method: build(name, sections, facts), name, batches: 0 })
    }

    /// Which method it is.
    pub fn name(&self) -> MethodName {
        self.name
    }

    /// What the method needs.
    pub fn needs(&self) -> Needs {
        self.method.needs()
    }

    /// How its kinds of rows are put together in the loss.
    pub fn terms(&self) -> LossTerms {
        self.method.terms()
    }

    /// How its forks are judged; `None` for a method without forks.
    pub fn validation(&self) -> Option<&Validate> {
        self.method.validation()
    }

    /// Turns at most in explorer batch `batch`, as far as the method knows now.
    pub fn horizon(&self, batch: u64) -> usize {
        self.method.horizon(batch)
    }

    /// How to play the episode in `slot`.
    pub fn exposure(&self, slot: &EpisodeSlot) -> Exposure {
        self.method.exposure(slot)
    }

    /// Takes in the next scored batch and says which forks to run.
    pub fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        let expected = self.batches + 1;
        if batch.number != expected {
            return Err(OpdError::OutOfOrder { expected, found: batch.number });
        }
        batch.check()?;
        let located = self.method.locate(batch)?;
        self.batches = expected;
        Ok(located)
    }

    /// Turns a batch and its finished forks into rows. Every fork asked for must be among `forks`, in any order.
    pub fn refine(
        &self,
        batch: &ScoredBatch,
        located: &Located,
        forks: &[FinishedFork],
    ) -> Result<Refined, OpdError> {
        let pairs = paired(located, forks)?;
        let mut supervised = self.method.refine(batch, &pairs)?;
        let internalized =
            supervised.rows.iter().filter(|row| row.kind == RowKind::Internalize).count();
        let shape = BatchShape {
            rows: supervised.rows.len(),
            trajectories: batch.episodes.len(),
            internalized,
        };
        for row in &mut supervised.rows {
            row.shape = shape;
        }
        let record = BatchRecord::new(batch, located, &supervised, self.needs());
        Ok(Refined { rows: supervised.rows, record })
    }

    /// What must be saved to resume later.
    pub fn state(&self) -> MethodState {
        MethodState::new(self.name, self.batches, self.method.state())
    }

    /// Resumes from a saved state; a state that is refused changes nothing.
    pub fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        self.method.restore(&state.memory(self.name)?)?;
        self.batches = state.batches;
        Ok(())
    }
}

/// The forks asked for, each with its outcome. A missing, repeated or unknown fork is an error.
fn paired<'a>(
    located: &'a Located,
    forks: &'a [FinishedFork],
) -> Result<Vec<ForkPair<'a>>, OpdError> {
    let refuse = |episode, turn, message| Err(OpdError::Fork { episode, turn, message });
    for fork in forks {
        let asked =
            |request: &ForkRequest| (request.episode, request.turn) == (fork.episode, fork.turn);
        if !located.forks.iter().any(asked) {
            return refuse(fork.episode, fork.turn, "it was not asked for");
        }
    }
    let mut pairs = Vec::with_capacity(located.forks.len());
    for request in &located.forks {
        let mut outcomes =
            forks.iter().filter(|f| (f.episode, f.turn) == (request.episode, request.turn));
        let Some(outcome) = outcomes.next() else {
            return refuse(request.episode, request.turn, "its outcome is missing");
        };
        if outcomes.next().is_some() {
            return refuse(request.episode, request.turn, "it has two outcomes");
        }
        pairs.push((request, outcome));
    }
    Ok(pairs)
}
