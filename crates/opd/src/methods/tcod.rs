//! TCOD: curricula over depth whose clocks follow the batch number alone.
//!
//! Forward to backward (F2B): episodes are cut after `K(n) = min(start + floor(n / eta), T_max)` turns, `n` the explorer
//! batch from 1. Backward to forward (B2F): the student starts after a replayed prefix of
//! `max(0, (L - 1) - floor(n / eta))` reference actions, held below `T_max` so that the student always acts.
//!
//! Objective: that of OPD on the turns that are played; replayed turns carry no loss.
//! Needs: what OPD needs; B2F also needs, for each task, the `L` actions of a successful episode. A task without them is
//! played in full.
//! Leaves out: any look at the student, hints, forks, token weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exposure::{Control, EpisodeSlot, Exposure};
use super::{Method, MethodSections, Needs, RunFacts};
use crate::error::OpdError;
use crate::locate::fixed::{backward_prefix, forward_horizon};
use crate::parameter::{MANY, count};

/// TCOD's fixed clocks, also used by FutureBridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tcod {
    /// Batches per turn that is added (F2B) or taken off the prefix (B2F): eta.
    pub residence: u32,
    /// The first horizon of F2B (k_start).
    pub start: usize,
}

impl Default for Tcod {
    fn default() -> Self {
        Self { residence: 5, start: 1 }
    }
}

impl Tcod {
    /// Refuses clocks that cannot run.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        count("tcod.residence", self.residence.into(), 1..=MANY)?;
        count("tcod.start", self.start as u64, 1..=MANY)
    }
}

/// TCOD, forward to backward.
#[derive(Debug)]
pub struct TcodF2b {
    tcod: Tcod,
    facts: RunFacts,
}

impl TcodF2b {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        Self { tcod: sections.tcod, facts }
    }
}

impl Method for TcodF2b {
    fn horizon(&self, batch: u64) -> usize {
        forward_horizon(batch, self.tcod.start, self.tcod.residence, self.facts.max_turns)
    }
}

/// TCOD, backward to forward.
#[derive(Debug)]
pub struct TcodB2f {
    tcod: Tcod,
    facts: RunFacts,
}

impl TcodB2f {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        Self { tcod: sections.tcod, facts }
    }
}

impl Method for TcodB2f {
    fn needs(&self) -> Needs {
        Needs { reference_actions: true, ..Needs::LEAST }
    }

    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }

    fn exposure(&self, slot: &EpisodeSlot) -> Exposure {
        backward_exposure(slot, &self.tcod, self.facts.max_turns)
    }
}

/// How an episode of a B2F curriculum is played.
pub(super) fn backward_exposure(slot: &EpisodeSlot, tcod: &Tcod, max_turns: usize) -> Exposure {
    let reference = slot.reference_actions.unwrap_or(0);
    let prefix = backward_prefix(slot.batch, reference, tcod.residence, max_turns);
    Exposure { horizon: max_turns, prefix, control: Control::Student }
}
