//! From logits to a token.

use lens_opd::random::Stream;

use crate::kernels::dispatch::Isa;
use crate::kernels::elementwise;
use crate::model::{CHUNK, RowSummary, chunk_stats, keep_leaders};

/// How the next token is chosen. The filters apply in the order top-k, top-p, min-p, each to what the one before left.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Logits are divided by this; 0 means greedy.
    pub temperature: f32,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the fewest most likely tokens that together reach this probability; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Take the most likely token (the lowest id of equals).
    pub greedy: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false }
    }
}

impl Sampling {
    /// The most likely token every time.
    pub fn greedy() -> Self {
        Self { greedy: true, ..Self::default() }
    }

    /// Plain sampling at a temperature.
    pub fn at_temperature(temperature: f32) -> Self {
        Self { temperature, ..Self::default() }
    }

    /// What is wrong with the settings, if anything.
    pub fn problem(&self) -> Option<String> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Some(format!("temperature {} is not a number from 0 up", self.temperature));
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Some(format!("top_p {} is not above 0 and at most 1", self.top_p));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return Some(format!("min_p {} is not between 0 and 1", self.min_p));
        }
        None
    }

    fn is_greedy(&self) -> bool {
        self.greedy || self.temperature == 0.0
    }

    fn filters(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0
    }
}

/// A chosen token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub(crate) token: u32,
    pub(crate) log_probability: f32,
    pub(crate) log_probability_t1: f32,
    /// The softmax at temperature 1.
    pub(crate) plain: RowSummary,
}

/// Chooses a token from a row of logits. Takes one draw from the stream unless greedy. `None` if a logit is not finite.
pub(crate) fn choose(
    isa: Isa,
    logits: &[f32],
    sampling: &Sampling,
    stream: &mut Stream,
) -> Option<Choice> {
    let plain = RowSummary::of_row(isa, logits)?;
    if sampling.is_greedy() && (sampling.temperature == 0.0 || sampling.temperature == 1.0) {
        let log_probability = plain.log_probability(plain.top_logit);
        return Some(Choice {
            token: plain.top,
            log_probability,
            log_probability_t1: log_probability,
            plain,
        });
    }
    let mut divided = Vec::new();
    let (scaled, summary) = if sampling.temperature == 1.0 {
        (logits, plain)
    } else {
        divided.extend_from_slice(logits);
        elementwise::divide(isa, &mut divided, sampling.temperature);
        let summary = RowSummary::of_row(isa, &divided)?;
        (&divided[..], summary)
    };
    let token = if sampling.is_greedy() {
        plain.top
    } else if sampling.filters() {
        filtered(scaled, &summary, sampling, stream.uniform())
    } else {
        unfiltered(isa, scaled, &summary, stream.uniform())
    };
    Some(Choice {
        token,
        log_probability: summary.log_probability(scaled[token as usize]),
        log_probability_t1: plain.log_probability(logits[token as usize]),
        plain,
    })
}

/// Walks the cumulative distribution in the order of ids: first by chunks, then inside one.
fn unfiltered(isa: Isa, logits: &[f32], summary: &RowSummary, draw: f64) -> u32 {
    let top = f64::from(summary.top_logit);
    let target = draw * (summary.log_sum - top).exp();
    let mut passed = 0.0;
    let mut last_possible = summary.top;
    for (chunk, stats) in chunk_stats(isa, logits).into_iter().enumerate() {
        let mass = f64::from(stats.sum) * (f64::from(stats.max) - top).exp();
        if passed + mass > target {
            let first = chunk * CHUNK;
            for (offset, &logit) in logits[first..].iter().take(CHUNK).enumerate() {
                let probability = (f64::from(logit) - top).exp();
                passed += probability;
                if probability > 0.0 {
                    last_possible = (first + offset) as u32;
                }
                if passed > target {
                    return (first + offset) as u32;
                }
            }
            // The chunk's mass was rounded up: its last possible id stands for the difference.
            return last_possible;
        }
        passed += mass;
        if mass > 0.0 {
            last_possible = stats.argmax;
        }
    }
    last_possible
}

/// Walks the cumulative distribution of the tokens the filters keep, most likely first.
fn filtered(logits: &[f32], summary: &RowSummary, sampling: &Sampling, draw: f64) -> u32 {
    let mut kept = leading(logits, summary, sampling);
    let weight = |logit: f32| f64::from(logit - summary.top_logit).exp();
    if sampling.min_p > 0.0 {
        let floor = f64::from(sampling.min_p);
        kept.retain(|&(logit, _)| weight(logit) >= floor);
    }
    let total: f64 = kept.iter().map(|&(logit, _)| weight(logit)).sum();
    let target = draw * total;
    let mut passed = 0.0;
    for &(logit, id) in &kept {
        passed += weight(logit);
        if passed > target {
            return id;
        }
    }
    kept.last().map_or(summary.top, |&(_, id)| id)
}

/// The tokens that top-k and top-p keep, most likely first, the lowest id of equals first.
fn leading(logits: &[f32], summary: &RowSummary, sampling: &Sampling) -> Vec<(f32, u32)> {
    let mut ranked: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
    let limit = if sampling.top_k == 0 { ranked.len() } else { sampling.top_k.min(ranked.len()) };
    if sampling.top_p >= 1.0 {
        keep_leaders(&mut ranked, limit);
        return ranked;
    }
    let weight = |logit: f32| f64::from(logit - summary.top_logit).exp();
    // The nucleus is nearly always small: rank a growing number of leaders until they reach the mass.
    let mut count = limit.min(256);
    loop {
        let mut leaders = ranked.clone();
        keep_leaders(&mut leaders, count);
        let mass = if limit == logits.len() {
            (summary.log_sum - f64::from(summary.top_logit)).exp()
        } else {
            if count < limit {
                count = limit;
                continue;
            }
            leaders.iter().map(|&(logit, _)| weight(logit)).sum()
        };
        let target = f64::from(sampling.top_p) * mass;
        let mut passed = 0.0;
        for index in 0..leaders.len() {
            passed += weight(leaders[index].0);
            if passed >= target {
                leaders.truncate(index + 1);
                return leaders;
            }
        }
        if count == limit {
            return leaders;
        }
        count = (count * 8).min(limit);
    }
}
