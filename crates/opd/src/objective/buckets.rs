//! A vocabulary cut into the tokens one model listed and a bucket for all others.
//!
//! Without the bucket, mass outside the list would be free, and a divergence over the list alone can
//! be lowered by moving mass out of it.

use serde::{Deserialize, Serialize};

use super::distribution::log_sum_exp;
use crate::error::{InputError, log_probability};

/// The least probability the bucket of unlisted tokens is given when the listed ones round to one.
pub const TAIL_FLOOR: f64 = 1e-9;

/// One of a model's most likely tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TopToken {
    /// Its id.
    pub token: u32,
    /// Its log-probability over the full vocabulary.
    pub logprob: f32,
}

/// Both models' log-probabilities of every bucket, and which bucket each token is in.
pub(super) struct Buckets {
    /// By the model that listed its tokens.
    pub(super) listed: Vec<f64>,
    /// By the model whose whole distribution is known.
    pub(super) known: Vec<f64>,
    /// The bucket of each vocabulary entry; the last bucket holds what was not listed.
    pub(super) bucket_of: Vec<usize>,
}

impl Buckets {
    pub(super) fn new(top: &[TopToken], log_probabilities: &[f64]) -> Result<Self, InputError> {
        if top.is_empty() {
            return Err(InputError::Empty { what: "the list of top tokens" });
        }
        let vocabulary = log_probabilities.len();
        let tail = top.len();
        let mut bucket_of = vec![tail; vocabulary];
        let (mut listed, mut known) = (Vec::with_capacity(tail + 1), Vec::with_capacity(tail + 1));
        let mut listed_mass = 0.0;
        for (bucket, entry) in top.iter().enumerate() {
            let token = entry.token;
            let slot = bucket_of
                .get_mut(token as usize)
                .ok_or(InputError::UnknownToken { token, vocabulary })?;
            if *slot != tail {
                return Err(InputError::RepeatedToken { token, what: "the list of top tokens" });
            }
            *slot = bucket;
            let logprob = log_probability(entry.logprob, "top token log-probability", bucket)?;
            listed_mass += logprob.exp();
            listed.push(logprob);
            known.push(log_probabilities[token as usize]);
        }
        if listed_mass > 1.01 {
            let (what, expected) = ("mass of the top tokens", "at most 1");
            return Err(InputError::OutOfRange {
                what,
                position: tail,
                value: listed_mass,
                expected,
            });
        }
        let unlisted: Vec<f64> = (0..vocabulary)
            .filter(|&v| bucket_of[v] == tail)
            .map(|v| log_probabilities[v])
            .collect();
        if !unlisted.is_empty() {
            listed.push((1.0 - listed_mass).max(TAIL_FLOOR).ln());
            known.push(log_sum_exp(&unlisted));
        }
        Ok(Self { listed, known, bucket_of })
    }
}
