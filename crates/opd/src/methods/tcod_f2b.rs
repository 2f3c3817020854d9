//! TCOD, forward to backward: episodes grow from their first turn by a fixed clock.
//!
//! Objective: that of OPD, on episodes cut after `K(n) = min(start + floor(n / eta), T_max)` turns,
//! `n` the explorer batch from 1.
//! Needs: what OPD needs.
//! Leaves out: any look at the student; the clock follows the batch number alone. No hints, no forks,
//! no token weights.

use serde::{Deserialize, Serialize};

use super::exposure::{Exposure, Slot};
use super::state::{BatchCounter, MethodState};
use super::{FinishedFork, Located, Method, MethodKind, Needs, Refined, Setting, common};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::fixed::forward_horizon;
use crate::objective::plan::Terms;

/// Knobs of TCOD-F2B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TcodF2bParams {
    /// The first horizon.
    pub start: usize,
    /// Explorer batches per added turn.
    pub eta: u32,
}

impl Default for TcodF2bParams {
    fn default() -> Self {
        Self { start: 1, eta: 5 }
    }
}

/// TCOD-F2B.
#[derive(Debug)]
pub struct TcodF2b {
    params: TcodF2bParams,
    setting: Setting,
    counter: BatchCounter,
}

impl TcodF2b {
    /// TCOD-F2B for a run.
    pub fn new(params: TcodF2bParams, setting: Setting) -> Result<Self, OpdError> {
        common::at_least_one("eta", params.eta as usize)?;
        common::at_least_one("start", params.start)?;
        Ok(Self { params, setting, counter: BatchCounter::default() })
    }

    fn horizon(&self, batch: u64) -> usize {
        forward_horizon(batch, self.params.start, self.params.eta, self.setting.max_turns)
    }
}

impl Method for TcodF2b {
    fn kind(&self) -> MethodKind {
        MethodKind::TcodF2b
    }

    fn needs(&self) -> Needs {
        common::NEEDS
    }

    fn terms(&self) -> Terms {
        Terms::default()
    }

    fn exposure(&self, slot: &Slot) -> Exposure {
        Exposure::student(self.horizon(slot.batch))
    }

    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        self.counter.expect(batch)?;
        self.counter.advance();
        Ok(Located { forks: Vec::new(), horizon: self.horizon(batch.number), tick: None })
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
        self.counter.restore(MethodKind::TcodF2b, state)
    }
}
