//! The losses that need the logits of single tokens only, in double precision.

use super::row::RowLoss;

/// `log sum of sum * e^max` over parts.
pub(super) fn log_sum_exp(parts: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let max = parts
        .clone()
        .map(|(max, _)| max)
        .fold(f64::NEG_INFINITY, |a, b| if b <= a { a } else { b });
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + parts.map(|(part, sum)| sum * (part - max).exp()).sum::<f64>().ln()
}

/// A label loss and its derivatives by logits, before the token's coefficient.
pub(super) struct LabelLoss {
    pub(super) loss: f64,
    /// Log-sum-exp over all real tokens.
    pub(super) lse: f64,
    /// Derivative by a logit that was not asked for, per unit of probability.
    pub(super) dense: f64,
    /// Derivatives by the logits asked for.
    pub(super) sparse: Vec<f64>,
}

/// The losses that need single tokens only. `logits` are those of the tokens asked for, `tail` is the log-sum-exp of
/// all others.
pub(super) fn label_loss(loss: &RowLoss, at: usize, logits: &[f64], tail: f64) -> LabelLoss {
    let asked = logits.iter().map(|&logit| (logit, 1.0));
    let lse = log_sum_exp(asked.chain([(tail, 1.0)]));
    // The probability of everything not asked for, from its own sum: one minus the rest would lose its digits.
    let tail_logp = tail - lse;
    let tail_mass = tail_logp.exp();
    let on_token = |loss: f64, slope: f64| LabelLoss {
        loss,
        lse,
        dense: -slope,
        sparse: vec![slope * tail_mass],
    };
    match loss {
        RowLoss::PolicyGradient { teacher_logp, rollout_logp, kl_coef, clip, dual_clip } => {
            let (teacher, rollout) = (f64::from(teacher_logp[at]), f64::from(rollout_logp[at]));
            let settings = (f64::from(*kl_coef), f64::from(*clip), f64::from(*dual_clip));
            let (loss, slope) = policy_gradient(logits[0] - lse, teacher, rollout, settings);
            on_token(loss, slope)
        }
        RowLoss::ReverseKlTopK { k, logps, tail_logps, .. } => {
            let logps = &logps[at * k..(at + 1) * k];
            let excess: Vec<f64> =
                logits.iter().zip(logps).map(|(&s, &q)| s - lse - f64::from(q)).collect();
            let tail_excess =
                if tail_mass > 0.0 { tail_logp - f64::from(tail_logps[at]) } else { 0.0 };
            let masses: Vec<f64> = logits.iter().map(|&s| (s - lse).exp()).collect();
            let loss = masses.iter().zip(&excess).map(|(p, g)| p * g).sum::<f64>()
                + tail_mass * tail_excess;
            let sparse = masses.iter().zip(&excess).map(|(p, g)| p * (g - loss)).collect();
            LabelLoss { loss, lse, dense: tail_excess - loss, sparse }
        }
        RowLoss::Nll | RowLoss::ReverseKl { .. } | RowLoss::ForwardKl { .. } => {
            on_token(lse - logits[0], -1.0)
        }
    }
}

/// The clipped policy-gradient loss of one token and its derivative by the token's log-probability.
fn policy_gradient(
    logp: f64,
    teacher: f64,
    rollout: f64,
    (kl_coef, clip, dual_clip): (f64, f64, f64),
) -> (f64, f64) {
    /// Bound of the log-ratio, so that its exponential stays finite.
    const MOST: f64 = 20.0;
    let advantage = kl_coef * (teacher - rollout);
    let log_ratio = logp - rollout;
    let ratio = log_ratio.clamp(-MOST, MOST).exp();
    let ratio_slope = if log_ratio.abs() <= MOST { ratio } else { 0.0 };
    let plain = -advantage * ratio;
    let clipped = -advantage * ratio.clamp(1.0 - clip, 1.0 + clip);
    let (loss, slope) =
        if plain >= clipped { (plain, -advantage * ratio_slope) } else { (clipped, 0.0) };
    let bound = -dual_clip * advantage;
    if advantage < 0.0 && loss > bound { (bound, 0.0) } else { (loss, slope) }
}
