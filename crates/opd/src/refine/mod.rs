//! Refine: what an accepted fork changes in training.

pub mod focus;
pub mod internalize;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::OpdError;
use crate::methods::RunFacts;
use crate::objective::plan::InternalizeAggregation;
use crate::parameter::{number, positive};

/// Refine: internalization and token focus.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Refine {
    /// Whether accepted hints become internalization rows.
    pub internalize: bool,
    /// Whether accepted hints that did not change the student's action are left out of internalization.
    pub skip_unchanged: bool,
    /// Weight of the internalization loss (lambda_GI).
    pub internalize_weight: f64,
    /// What one internalization row weighs in a train batch.
    pub internalize_aggregation: InternalizeAggregation,
    /// Whether tokens of an accepted turn are reweighted.
    pub focus: bool,
    /// Scale of the conflict score (beta).
    pub focus_scale: f64,
    /// Cap on raw token weights (c_tok).
    pub weight_cap: f64,
    /// Guards the mean weight of a focused turn.
    pub epsilon: f64,
    /// What the turns weigh that no accepted fork validated.
    pub unvalidated: UnvalidatedTurns,
}

/// What the turns weigh that no accepted fork validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnvalidatedTurns {
    /// As much as validated ones on average (the paper).
    #[default]
    Equal,
    /// By SOD's rule, with the parameters of `[sod]`: less where the student strays further from the teacher than at its
    /// first turn, a little more where it is closer. The loss is divided by the number of tokens, as SOD's is.
    Stepwise,
}

impl Default for Refine {
    fn default() -> Self {
        Self {
            internalize: true,
            skip_unchanged: false,
            internalize_weight: 1.0,
            internalize_aggregation: InternalizeAggregation::Trajectory,
            focus: true,
            focus_scale: 1.0,
            weight_cap: 5.0,
            epsilon: 1e-6,
            unvalidated: UnvalidatedTurns::Equal,
        }
    }
}

impl Refine {
    /// Refuses weights that mean nothing.
    pub fn check(&self, _facts: &RunFacts) -> Result<(), OpdError> {
        number("refine.internalize_weight", self.internalize_weight, 0.0..=1e6)?;
        number("refine.focus_scale", self.focus_scale, 0.0..=1e6)?;
        // A raw weight is never below 1, so a smaller cap would cut agreement tokens too.
        number("refine.weight_cap", self.weight_cap, 1.0..=1e6)?;
        positive("refine.epsilon", self.epsilon, 1.0)
    }
}
