//! The sampled-token estimator of the TCOD lineage: policy gradient with PPO's clipped ratio.

use super::distribution::{entry, log_softmax};
use super::{Loss, TokenLoss};
use crate::error::{InputError, measured};

/// Beyond this the log-ratio carries no gradient: `exp` of it is no longer a usable number.
const LOG_RATIO_LIMIT: f64 = 20.0;

/// The sampled advantage `kl_coef * (log T - log mu)`, a constant for the gradient (eq. agent-opd).
pub fn advantage(
    teacher: Option<f32>,
    rollout: Option<f32>,
    kl_coef: f64,
) -> Result<f64, InputError> {
    let teacher = measured(teacher, "teacher log-probability", 0)?;
    let rollout = measured(rollout, "rollout log-probability", 0)?;
    Ok(kl_coef * (teacher - rollout))
}

/// The clipped policy-gradient loss on the sampled token, with its gradient (eq. agent-opd).
///
/// At ratio 1 its expected gradient over the student's samples is that of
/// [`rkl_full`](super::reverse_kl::rkl_full).
pub fn k1_pg(
    student_logits: &[f32],
    token: u32,
    teacher: Option<f32>,
    rollout: Option<f32>,
    loss: &Loss,
) -> Result<TokenLoss, InputError> {
    let advantage = advantage(teacher, rollout, loss.kl_coef)?;
    let log_s = log_softmax(student_logits, 1.0, "student logit")?;
    let log_ratio = entry(&log_s, token)? - measured(rollout, "rollout log-probability", 0)?;
    let (value, slope) = clipped(advantage, log_ratio, loss);
    let mut gradient: Vec<f64> = log_s.iter().map(|s| -slope * s.exp()).collect();
    gradient[token as usize] += slope;
    Ok(TokenLoss { value, gradient })
}

/// PPO's clipped loss and its derivative by the log-ratio.
fn clipped(advantage: f64, log_ratio: f64, loss: &Loss) -> (f64, f64) {
    let ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp();
    let bounded = ratio.clamp(1.0 - loss.clip, 1.0 + loss.clip);
    let (free, held) = (-advantage * ratio, -advantage * bounded);
    let bound = -loss.dual_clip * advantage;
    if advantage < 0.0 && free.max(held) > bound {
        return (bound, 0.0);
    }
    let inside = log_ratio.abs() <= LOG_RATIO_LIMIT;
    if free >= held { (free, if inside { free } else { 0.0 }) } else { (held, 0.0) }
}
