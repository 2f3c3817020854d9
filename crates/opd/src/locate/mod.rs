//! Locate: how deep the student may go, and which of its turns deserves a look.

pub mod fixed;
pub mod horizon;
pub mod proposal;
pub mod support;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::OpdError;
use crate::methods::RunFacts;
use crate::parameter::{MANY, count, number, positive, require};
use proposal::Proposal;

/// What sets the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The pace follows how much of the entry gap has closed (the paper).
    #[default]
    GapAdaptive,
    /// TCOD-F2B's fixed pace (ablation of table 3).
    FixedF2b,
    /// No curriculum: always the full length (diagnostics of section 3).
    Full,
}

/// Locate: how deep episodes go, and which turn is audited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Locate {
    /// What sets the horizon.
    pub clock: Clock,
    /// Batches spent at each depth while the pace is 1 (the paper's eta).
    pub residence: u32,
    /// The deepest horizon (K_max); 0 means the task's turn limit.
    pub max_horizon: usize,
    /// The slowest pace.
    pub pace_min: f64,
    /// The fastest pace; at most `residence`, because one batch advances at most one turn.
    pub pace_max: f64,
    /// Guards the ratio of gaps.
    pub epsilon: f64,
    /// How the candidate turn is chosen.
    pub proposal: Proposal,
    /// Turns audited per episode.
    pub proposals_per_episode: usize,
    /// Log-probability that stands in for a favorite token an engine did not return. Unset: such a position is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<f32>,
}

impl Default for Locate {
    fn default() -> Self {
        Self {
            clock: Clock::GapAdaptive,
            residence: 5,
            max_horizon: 0,
            pace_min: 0.5,
            pace_max: 1.5,
            epsilon: 1e-6,
            proposal: Proposal::TopKl,
            proposals_per_episode: 1,
            floor: None,
        }
    }
}

impl Locate {
    /// Refuses values with which the clock could not run.
    pub fn check(&self, facts: &RunFacts) -> Result<(), OpdError> {
        count("locate.residence", self.residence.into(), 1..=MANY)?;
        let (horizon, limit) = (self.max_horizon, facts.max_turns);
        require("locate.max_horizon", horizon, horizon <= limit, || {
            format!("0 or at most the turn limit, {limit}")
        })?;
        positive("locate.pace_min", self.pace_min, 1e3)?;
        number("locate.pace_max", self.pace_max, self.pace_min..=1e3)?;
        // The remainder would pile up if one batch could advance more than one turn.
        require(
            "locate.residence",
            self.residence,
            self.pace_max <= f64::from(self.residence),
            || format!("at least locate.pace_max, {}", self.pace_max),
        )?;
        positive("locate.epsilon", self.epsilon, 1.0)?;
        count("locate.proposals_per_episode", self.proposals_per_episode as u64, 1..=1000)?;
        match self.floor {
            Some(floor) => number("locate.floor", floor.into(), -1e4..=-1e-6),
            None => Ok(()),
        }
    }

    /// The deepest horizon, `K_max`.
    pub fn deepest(&self, facts: &RunFacts) -> usize {
        if self.max_horizon == 0 { facts.max_turns } else { self.max_horizon }
    }
}
