//! Token focus: inside a validated turn, weight goes to decisive conflicts.

use serde::{Deserialize, Serialize};

use crate::episode::{ScoredTurn, TopPair};
use crate::error::InputError;
use crate::locate::support::or_floor;
use crate::refine::Refine;

/// The two sides of a conflict at one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conflict {
    /// How much the student prefers its own token, `gS >= 0`.
    pub student_resistance: f64,
    /// How decided the teacher is, `rhoT` in (0, 1).
    pub teacher_decision: f64,
}

impl Conflict {
    /// Both sides of the conflict, `gS` and `rhoT` (eq. confident-disagreement-components).
    pub fn at(top: &TopPair, floor: Option<f32>, position: usize) -> Result<Self, InputError> {
        if top.agree() {
            return Ok(Self { student_resistance: 0.0, teacher_decision: 0.5 });
        }
        let student_own = or_floor(top.student_at_student, floor, "log p_S(vS)", position)?;
        let student_other = or_floor(top.student_at_teacher, floor, "log p_S(vT)", position)?;
        let teacher_own = or_floor(top.teacher_at_teacher, floor, "log p_T(vT)", position)?;
        let teacher_other = or_floor(top.teacher_at_student, floor, "log p_T(vS)", position)?;
        Ok(Self {
            student_resistance: (student_own - student_other).max(0.0),
            teacher_decision: sigmoid(teacher_own - teacher_other),
        })
    }

    /// The conflict score `s = gS * rhoT` (eq. confident-disagreement-token-weight).
    pub fn score(&self) -> f64 {
        self.student_resistance * self.teacher_decision
    }
}

/// The raw weight `min(c_tok, 1 + beta*s)`, capped before it is normalized (eq. confident-disagreement-token-weight).
pub fn raw_weight(score: f64, refine: &Refine) -> f64 {
    refine.weight_cap.min(1.0 + refine.focus_scale * score)
}

/// Where the weight of a focused turn went (figure 4d).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FocusMass {
    /// Content tokens of the turn.
    pub content_tokens: usize,
    /// Those where the two models favor different tokens.
    pub target_tokens: usize,
    /// The normalized weight of all content tokens.
    pub content_mass: f64,
    /// The normalized weight of the disagreement tokens.
    pub target_mass: f64,
}

/// A focused turn: one weight per response token, and where the weight went.
#[derive(Debug, Clone, PartialEq)]
pub struct Focused {
    /// `r`, one per response token; 1 outside the content set.
    pub weights: Vec<f64>,
    /// The share of the disagreement tokens.
    pub mass: FocusMass,
}

/// Weights `r` of a validated turn: mean 1 over its content tokens, 1 elsewhere (eq. confident-disagreement-token-weight).
pub fn focus(
    turn: &ScoredTurn,
    refine: &Refine,
    floor: Option<f32>,
) -> Result<Focused, InputError> {
    let mut weights = vec![1.0; turn.tokens.len()];
    let mut positions = Vec::new();
    for (position, token) in turn.content() {
        let top = token.top.ok_or(InputError::Missing { what: "top-1 tokens", position })?;
        let conflict = Conflict::at(&top, floor, position)?;
        weights[position] = raw_weight(conflict.score(), refine);
        positions.push((position, !top.agree()));
    }
    if positions.is_empty() {
        return Err(InputError::NoContent { what: "token focus" });
    }
    let raw_sum: f64 = positions.iter().map(|&(position, _)| weights[position]).sum();
    let scale = raw_sum / positions.len() as f64 + refine.epsilon;
    let mut mass = FocusMass {
        content_tokens: positions.len(),
        target_tokens: 0,
        content_mass: 0.0,
        target_mass: 0.0,
    };
    for (position, target) in positions {
        weights[position] /= scale;
        mass.content_mass += weights[position];
        if target {
            mass.target_tokens += 1;
            mass.target_mass += weights[position];
        }
    }
    Ok(Focused { weights, mass })
}

/// The logistic function, without overflow on either side.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}
