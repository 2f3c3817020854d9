//! On-policy distillation as it is: full-length episodes, every turn trained, every token alike.
//!
//! Objective: `sum(m*l) / (sum(m) + epsilon)` over the train batch, `l` the run's token estimator.
//! Needs: a student to roll out and a teacher that scores the student's tokens.
//! Leaves out: curriculum, hints, forks, token weights. All of it is the trait's defaults.

use super::{Method, MethodSections, RunFacts};

/// Plain OPD.
#[derive(Debug)]
pub struct Opd {
    facts: RunFacts,
}

impl Opd {
    /// Plain OPD has no parameters of its own.
    pub(super) fn new(_sections: &MethodSections, facts: RunFacts) -> Self {
        Self { facts }
    }
}

impl Method for Opd {
    fn horizon(&self, _batch: u64) -> usize {
        self.facts.max_turns
    }
}
