//! `KL(student || teacher)`: the divergence of on-policy distillation.

use super::TokenLoss;
use super::buckets::{Buckets, TopToken};
use super::distribution::log_softmax;
use crate::error::InputError;

/// `KL(student || teacher)` over the full vocabulary with its gradient (eq. agent-opd).
pub fn rkl_full(student_logits: &[f32], teacher_logits: &[f32]) -> Result<TokenLoss, InputError> {
    if student_logits.len() != teacher_logits.len() {
        let (student, teacher) = (student_logits.len(), teacher_logits.len());
        return Err(InputError::Vocabulary { student, teacher });
    }
    let log_s = log_softmax(student_logits, 1.0, "student logit")?;
    let log_t = log_softmax(teacher_logits, 1.0, "teacher logit")?;
    let value: f64 = log_s.iter().zip(&log_t).map(|(s, t)| s.exp() * (s - t)).sum();
    let gradient = log_s.iter().zip(&log_t).map(|(s, t)| s.exp() * (s - t - value)).collect();
    Ok(TokenLoss { value, gradient })
}

/// `KL(student || teacher)` over the teacher's top tokens and one tail bucket (eq. agent-opd).
pub fn rkl_topk(student_logits: &[f32], teacher_top: &[TopToken]) -> Result<TokenLoss, InputError> {
    let log_s = log_softmax(student_logits, 1.0, "student logit")?;
    let buckets = Buckets::new(teacher_top, &log_s)?;
    let log_ratio: Vec<f64> =
        buckets.known.iter().zip(&buckets.listed).map(|(s, t)| s - t).collect();
    let value: f64 = buckets.known.iter().zip(&log_ratio).map(|(s, ratio)| s.exp() * ratio).sum();
    let gradient = log_s
        .iter()
        .zip(&buckets.bucket_of)
        .map(|(s, &bucket)| s.exp() * (log_ratio[bucket] - value))
        .collect();
    Ok(TokenLoss { value, gradient })
}
