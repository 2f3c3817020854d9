//! Softmax in log space.

use crate::error::InputError;

/// `log softmax(logits / temperature)`, in `f64`. `what` names the logits in errors.
pub fn log_softmax(
    logits: &[f32],
    temperature: f64,
    what: &'static str,
) -> Result<Vec<f64>, InputError> {
    if logits.is_empty() {
        return Err(InputError::Empty { what });
    }
    if let Some((position, &bad)) = logits.iter().enumerate().find(|(_, z)| !z.is_finite()) {
        return Err(InputError::NotFinite { what, position, value: f64::from(bad) });
    }
    let scaled: Vec<f64> = logits.iter().map(|&z| f64::from(z) / temperature).collect();
    let normalizer = log_sum_exp(&scaled);
    Ok(scaled.into_iter().map(|z| z - normalizer).collect())
}

/// `log(sum(exp(x)))` without overflow; minus infinity for an empty slice.
pub(crate) fn log_sum_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + values.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

/// The student's log-probability of `token`.
pub(crate) fn entry(log_probabilities: &[f64], token: u32) -> Result<f64, InputError> {
    log_probabilities
        .get(token as usize)
        .copied()
        .ok_or(InputError::UnknownToken { token, vocabulary: log_probabilities.len() })
}
