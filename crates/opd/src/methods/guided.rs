//! Guided-OPD: the teacher takes some turns itself, fewer and fewer as training goes on.
//!
//! Objective: one mean over all trained tokens, the run's estimator on the student's turns and negative
//! log-likelihood on the teacher's. With a share `b` of teacher turns this is the paper's mixture
//! `(1 - b) * reverse KL + b * forward KL`. `mix` set: the two kinds are averaged apart and mixed with
//! that constant share for the teacher's.
//! Needs: what OPD needs, and a teacher that can act.
//! Leaves out: curriculum over depth, hints, forks, token weights; evaluation is without the teacher.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::exposure::{Control, Exposure, Slot};
use super::state::{BatchCounter, MethodState};
use super::{FinishedFork, Located, Method, MethodKind, Needs, Refined, Setting, common};
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::objective::plan::Terms;

/// Knobs of Guided-OPD.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuidedParams {
    /// The teacher's share of turns at the beginning.
    pub share_start: f64,
    /// Its share after the decay.
    pub share_end: f64,
    /// The part of training the decay takes.
    pub decay: f64,
    /// Explorer batches of the whole training, `N`.
    pub total_batches: u64,
    /// Share of the teacher's turns in the loss; not set: by their tokens.
    pub mix: Option<f64>,
}

impl Default for GuidedParams {
    fn default() -> Self {
        Self { share_start: 1.0, share_end: 0.0, decay: 0.8, total_batches: 250, mix: None }
    }
}

impl GuidedParams {
    /// The teacher's share of turns at explorer batch `batch`: a cosine from start to end over the decay.
    pub fn teacher_share(&self, batch: u64) -> f64 {
        let span = ((self.decay * self.total_batches as f64) as u64).max(1);
        if batch >= span {
            return self.share_end;
        }
        let progress = batch as f64 / span as f64;
        let fall = f64::midpoint(1.0, (PI * progress).cos());
        self.share_end + (self.share_start - self.share_end) * fall
    }

    fn check(&self) -> Result<(), OpdError> {
        let expected = "must be between 0 and 1";
        let always = [
            ("share_start", self.share_start),
            ("share_end", self.share_end),
            ("decay", self.decay),
        ];
        for (key, value) in always.into_iter().chain(self.mix.map(|mix| ("mix", mix))) {
            if !(0.0..=1.0).contains(&value) {
                return Err(OpdError::Parameter { key, value: value.to_string(), expected });
            }
        }
        common::at_least_one("total_batches", self.total_batches as usize)
    }
}

/// Guided-OPD.
#[derive(Debug)]
pub struct Guided {
    params: GuidedParams,
    setting: Setting,
    counter: BatchCounter,
}

impl Guided {
    /// Guided-OPD for a run.
    pub fn new(params: GuidedParams, setting: Setting) -> Result<Self, OpdError> {
        params.check()?;
        Ok(Self { params, setting, counter: BatchCounter::default() })
    }
}

impl Method for Guided {
    fn kind(&self) -> MethodKind {
        MethodKind::Guided
    }

    fn needs(&self) -> Needs {
        Needs { teacher_acts: true, ..common::NEEDS }
    }

    fn terms(&self) -> Terms {
        Terms { teacher_mix: self.params.mix, ..Terms::default() }
    }

    fn exposure(&self, slot: &Slot) -> Exposure {
        let control = Control::Mixed {
            teacher_share: self.params.teacher_share(slot.batch),
            seed: self.setting.seed,
            batch: slot.batch,
            episode: slot.episode,
        };
        Exposure { horizon: self.setting.max_turns, prefix: 0, control }
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
        refined.record.teacher_share = Some(self.params.teacher_share(batch.number));
        Ok(refined)
    }

    fn state(&self) -> MethodState {
        self.counter.state(self.kind(), None)
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError> {
        self.counter.restore(MethodKind::Guided, state)
    }
}
