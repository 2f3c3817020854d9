//! `KL(target || student)` and its sampled form: for guidance internalization and teacher turns.

use super::TokenLoss;
use super::buckets::{Buckets, TopToken};
use super::distribution::{entry, log_softmax};
use crate::error::InputError;

/// A token of a target given by its top tokens.
pub type TopTarget = TopToken;

/// `KL(target || student)` over the full vocabulary with its gradient (eq. gi-objective).
pub fn forward_kl(target_logits: &[f32], student_logits: &[f32]) -> Result<TokenLoss, InputError> {
    if student_logits.len() != target_logits.len() {
        let (student, teacher) = (student_logits.len(), target_logits.len());
        return Err(InputError::Vocabulary { student, teacher });
    }
    let log_q = log_softmax(target_logits, 1.0, "target logit")?;
    let log_p = log_softmax(student_logits, 1.0, "student logit")?;
    let value = log_q.iter().zip(&log_p).map(|(q, p)| q.exp() * (q - p)).sum();
    let gradient = log_q.iter().zip(&log_p).map(|(q, p)| p.exp() - q.exp()).collect();
    Ok(TokenLoss { value, gradient })
}

/// `KL(target || student)` over the target's top tokens and one tail bucket (eq. gi-objective).
pub fn forward_kl_topk(
    target_top: &[TopTarget],
    student_logits: &[f32],
) -> Result<TokenLoss, InputError> {
    let log_p = log_softmax(student_logits, 1.0, "student logit")?;
    let buckets = Buckets::new(target_top, &log_p)?;
    let pairs = buckets.listed.iter().zip(&buckets.known);
    let value = pairs.map(|(q, p)| q.exp() * (q - p)).sum();
    let mass: f64 = buckets.listed.iter().map(|q| q.exp()).sum();
    // Within a bucket the target says nothing: its pull is spread as the student spreads its own mass.
    let gradient = log_p
        .iter()
        .zip(&buckets.bucket_of)
        .map(|(p, &b)| p.exp() * mass - (p + buckets.listed[b] - buckets.known[b]).exp())
        .collect();
    Ok(TokenLoss { value, gradient })
}

/// `-log p(token)`: the sampled form of `KL(teacher || student)` on the teacher's own text.
pub fn nll(student_logits: &[f32], token: u32) -> Result<TokenLoss, InputError> {
    let log_p = log_softmax(student_logits, 1.0, "student logit")?;
    let value = -entry(&log_p, token)?;
    let mut gradient: Vec<f64> = log_p.iter().map(|p| p.exp()).collect();
    gradient[token as usize] -= 1.0;
    Ok(TokenLoss { value, gradient })
}
