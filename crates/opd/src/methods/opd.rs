//! On-policy distillation as it is: full-length episodes, every turn trained, every token alike.
//!
//! Objective: `sum(m*l) / (sum(m) + eps)` over the train batch, `l` the run's token estimator.
//! Needs: a student to roll out and a teacher that scores the student's tokens.
//! Leaves out: curriculum, hints, forks, token weights.

use serde::{Deserialize, Serialize};

use super::exposure::{Exposure, Slot};
use super::state::{BatchCounter, MethodState};
use super::{FinishedFork, Located, Method, MethodKind, Needs, Refined, Setting, common};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::objective::plan::Terms;

/// Vanilla OPD has no knobs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpdParams {}

/// Vanilla OPD.
#[derive(Debug)]
pub struct Opd {
    setting: Setting,
    counter: BatchCounter,
}

impl Opd {
    /// Vanilla OPD for a run.
    pub fn new(_params: OpdParams, setting: Setting) -> Self {
        Self { setting, counter: BatchCounter::default() }
    }
}

impl Method for Opd {
    fn kind(&self) -> MethodKind {
        MethodKind::Opd
    }

    fn needs(&self) -> Needs {
        common::NEEDS
    }

    fn terms(&self) -> Terms {
        Terms::default()
    }

    fn exposure(&self, _slot: &Slot) -> Exposure {
        Exposure::student(self.setting.max_turns)
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        self.counter.expect(batch)?;
        self.counter.advance();
        Ok(Located { forks: Vec::new(), horizon: self.setting.max_turns, tick: None })
    }

    fn refine(
        &self,
        batch: &ScoredBatch,
        located: &Located,
        forks: &[FinishedFork],
    ) -> Result<Refined, OpdError> {
        common::refine_without_forks(batch, located, forks)
    }

    fn state(&self) -> MethodState {
        self.counter.state(self.kind(), None)
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        self.counter.restore(MethodKind::Opd, state)
    }
}
