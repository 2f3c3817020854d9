//! LENS+: LENS-OPD that trusts what was validated more, and the rest of an episode less.
//!
//! Objective: `sum(m*r*w*l) / (number of trained tokens + epsilon)` and the internalization term of LENS-OPD with a larger
//! weight. `r` is LENS-OPD's; `w` is 1 on a validated turn and SOD's turn weight on any other, so that a turn where the
//! student strays further from the teacher than at its first one counts less unless a fork showed that advice helps there.
//! Needs: what LENS-OPD needs.
//! Leaves out: internalization of hints that left the action as it was. Both branches of a pair draw from the same stream,
//! so a hint that changes nothing has gain exactly 0.
//!
//! `[lens_plus]` holds what differs; everything else is read from `[locate]`, `[validate]`, `[refine]` and `[sod]`. Several
//! pairs per fork, longer futures and the outcome of the episode are keys of it as well.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lens::Lens;
use super::{MethodSections, RunFacts};
use crate::error::OpdError;
use crate::refine::{Refine, UnvalidatedTurns};
use crate::validate::Validate;
use crate::validate::fork::Coupling;
use crate::validate::gate::Terminal;
use crate::validate::value::BranchValue;

/// What LENS+ does differently; each key stands in for the one of the same name in `[validate]` or `[refine]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LensPlus {
    /// Which random draws the two branches are made of.
    pub coupling: Coupling,
    /// Pairs of branches per fork.
    pub pairs: usize,
    /// How far above 0 the mean gain must be, in its standard errors.
    pub margin: f64,
    /// What a continuation is worth.
    pub evaluator: BranchValue,
    /// What a branch that ends the task counts for.
    pub terminal: Terminal,
    /// Turns each branch plays after the fork turn.
    pub continuation_turns: usize,
    /// Whether branches are played to the end of the episode.
    pub play_on: bool,
    /// Whether accepted hints that did not change the student's action are left out of internalization.
    pub skip_unchanged: bool,
    /// Weight of the internalization loss.
    pub internalize_weight: f64,
    /// What the turns weigh that no accepted fork validated.
    pub unvalidated: UnvalidatedTurns,
}

impl Default for LensPlus {
    fn default() -> Self {
        Self {
            coupling: Coupling::Common,
            pairs: 1,
            margin: 0.0,
            evaluator: BranchValue::TeacherLikelihood,
            terminal: Terminal::Exclude,
            continuation_turns: 3,
            play_on: false,
            skip_unchanged: true,
            internalize_weight: 3.0,
            unvalidated: UnvalidatedTurns::Stepwise,
        }
    }
}

impl LensPlus {
    /// Refuses values with which no pair could be judged; an error names the key of `[lens_plus]`.
    pub fn check(&self, facts: &RunFacts) -> Result<(), OpdError> {
        let sections = self.sections(&MethodSections::default());
        let checked = sections.validate.check(facts).and_then(|()| sections.refine.check(facts));
        checked.map_err(|error| match error {
            OpdError::Parameter { key, value, expected } => {
                OpdError::Parameter { key: own_key(key), value, expected }
            }
            other => other,
        })
    }

    /// `[validate]` with what LENS+ does differently.
    fn validate(&self, validate: &Validate) -> Validate {
        Validate {
            coupling: self.coupling,
            pairs: self.pairs,
            margin: self.margin,
            evaluator: self.evaluator,
            terminal: self.terminal,
            continuation_turns: self.continuation_turns,
            play_on: self.play_on,
            ..*validate
        }
    }

    /// The sections with which LENS-OPD is LENS+.
    pub fn sections(&self, sections: &MethodSections) -> MethodSections {
        MethodSections {
            validate: self.validate(&sections.validate),
            refine: Refine {
                skip_unchanged: self.skip_unchanged,
                internalize_weight: self.internalize_weight,
                unvalidated: self.unvalidated,
                ..sections.refine
            },
            ..sections.clone()
        }
    }

    /// The method: LENS-OPD with those sections.
    #[expect(
        clippy::new_ret_no_self,
        reason = "the method is LENS-OPD; what differs is parameters"
    )]
    pub(super) fn new(sections: &MethodSections, facts: RunFacts) -> Lens {
        Lens::new(&sections.lens_plus.sections(sections), facts)
    }
}

/// The key of `[lens_plus]` that stands in for one of `[validate]`.
fn own_key(key: &'static str) -> &'static str {
    match key {
        "validate.pairs" => "lens_plus.pairs",
        "validate.margin" => "lens_plus.margin",
        "validate.continuation_turns" => "lens_plus.continuation_turns",
        "refine.internalize_weight" => "lens_plus.internalize_weight",
        other => other,
    }
}
