//! Guided-OPD: the teacher takes some turns itself, fewer and fewer as training goes on.
//!
//! Objective: one mean over all trained tokens, the run's estimator on the student's turns and negative
//! log-likelihood on the teacher's. With a share `b` of teacher turns this is the paper's mixture
//! `(1 - b) * reverse KL + b * forward KL`. `guided.mix` set: the two kinds are averaged apart and mixed with
//! that constant share for the teacher's.
//! Needs: what OPD needs, and a teacher that can act.
//! Leaves out: curriculum over depth, hints, forks, token weights; evaluation is without the teacher.
//!
//! The share follows training progress, optimizer steps done over optimizer steps of the run, so it reaches its end
//! whatever the number of steps per explorer batch. In the paper's runs both counts are the same.

use std::f64::consts::PI;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exposure::{Control, EpisodeSlot, Exposure};
use super::{ForkPair, Method, MethodSections, Needs, RunFacts, Supervised};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::methods::rows::plain_rows;
use crate::objective::plan::LossTerms;
use crate::parameter::number;

/// Guided-OPD's decay of teacher control.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Guided {
    /// Probability of a teacher turn at the start.
    pub start: f64,
    /// Probability at the end of the decay.
    pub end: f64,
    /// Share of training over which it decays.
    pub decay_share: f64,
    /// Share of the teacher's turns in the loss. Unset: by their tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<f64>,
}

impl Default for Guided {
    fn default() -> Self {
        Self { start: 1.0, end: 0.0, decay_share: 0.8, mix: None }
    }
}

impl Guided {
    /// The teacher's share of turns after `done` of `steps` optimizer steps: a cosine from start to end over the decay.
    pub fn teacher_share(&self, done: u64, steps: u64) -> f64 {
        let span = ((self.decay_share * steps as f64) as u64).max(1);
        if done >= span {
            return self.end;
        }
        let progress = done as f64 / span as f64;
        let fall = f64::midpoint(1.0, (PI * progress).cos());
        self.end + (self.start - self.end) * fall
    }

    /// Refuses shares that are none, and a share that grows.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        number("guided.start", self.start, 0.0..=1.0)?;
        number("guided.end", self.end, 0.0..=self.start)?;
        number("guided.decay_share", self.decay_share, 0.0..=1.0)?;
        self.mix.map_or(Ok(()), |mix| number("guided.mix", mix, 0.0..=1.0))
    }
}

/// Guided-OPD.
#[derive(Debug)]
pub struct GuidedOpd {
    guided: Guided,
    facts: RunFacts,
}

impl GuidedOpd {
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Self {
        Self { guided: sections.guided, facts }
    }
}

impl Method for GuidedOpd {
    fn needs(&self) -> Needs {
        Needs { teacher_acts: true, ..Needs::LEAST }
    }

    fn terms(&self) -> LossTerms {
        LossTerms { teacher_mix: self.guided.mix, ..LossTerms::default() }
    }

    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }

    fn exposure(&self, slot: &EpisodeSlot) -> Exposure {
        let control = Control::Mixed {
            teacher_share: self.guided.teacher_share(slot.version, self.facts.steps),
            seed: self.facts.seed,
            batch: slot.batch,
            episode: slot.episode,
        };
        Exposure { horizon: self.facts.max_turns, prefix: 0, control }
    }

    fn refine(&self, batch: &ScoredBatch, _: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        let version = batch.episodes.first().map_or(0, |episode| episode.version);
        let share = self.guided.teacher_share(version, self.facts.steps);
        let measures = [("teacher_share", share)].into();
        Ok(Supervised { rows: plain_rows(batch), measures, ..Supervised::default() })
    }
}
