//! TCOD, backward to forward: the student starts near the end of a solved episode and then ever earlier.
//!
//! Objective: that of OPD, on the turns after a replayed prefix of `max(0, (L - 1) - floor(n / eta))`
//! reference actions, held below `T_max` so that the student always acts.
//! Needs: what OPD needs, and for each task the `L` actions of a successful episode. A task without them
//! is played in full.
//! Leaves out: loss on the replayed turns, hints, forks, token weights.

use serde::{Deserialize, Serialize};

use super::exposure::{Control, Exposure, Slot};
use super::state::{BatchCounter, MethodState};
use super::{FinishedFork, Located, Method, MethodKind, Needs, Refined, Setting, common};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::fixed::backward_prefix;
use crate::objective::plan::Terms;

/// Knobs of TCOD-B2F.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcodB2fParams {
    /// Explorer batches per turn taken off the prefix.
    pub eta: u32,
}

impl Default for TcodB2fParams {
    fn default() -> Self {
        Self { eta: 5 }
    }
}

/// TCOD-B2F.
#[derive(Debug)]
pub struct TcodB2f {
    params: TcodB2fParams,
    setting: Setting,
    counter: BatchCounter,
}

impl TcodB2f {
    /// TCOD-B2F for a run.
    pub fn new(params: TcodB2fParams, setting: Setting) -> Result<Self, OpdError> {
        common::at_least_one("eta", params.eta as usize)?;
        Ok(Self { params, setting, counter: BatchCounter::default() })
    }
}

/// How an episode of a B2F curriculum is played.
pub(super) fn backward_exposure(slot: &Slot, eta: u32, max_turns: usize) -> Exposure {
    let reference = slot.reference_actions.unwrap_or(0);
    let prefix = backward_prefix(slot.batch, reference, eta, max_turns);
    Exposure { horizon: max_turns, prefix, control: Control::Student }
}

impl Method for TcodB2f {
    fn kind(&self) -> MethodKind {
        MethodKind::TcodB2f
    }

    fn needs(&self) -> Needs {
        Needs { reference_actions: true, ..common::NEEDS }
    }

    fn terms(&self) -> Terms {
        Terms::default()
    }

    fn exposure(&self, slot: &Slot) -> Exposure {
        backward_exposure(slot, self.params.eta, self.setting.max_turns)
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
        let mut refined = common::refine_without_forks(batch, located, forks)?;
        refined.record.mean_prefix = common::mean_prefix(batch);
        Ok(refined)
    }

    fn state(&self) -> MethodState {
        self.counter.state(self.kind(), None)
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        self.counter.restore(MethodKind::TcodB2f, state)
    }
}
