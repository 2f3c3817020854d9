//! AdamW over the flat parameter vector.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::TrainError;
use super::moments::{MomentFormat, Moments};
use crate::kernels::train_math::{self as math, AdamRates};

/// Values one task updates; also the grain of the gradient norm's sum.
pub(super) const CHUNK: usize = 1 << 16;

/// Settings of decoupled AdamW. Weight decay applies to every parameter, norms and biases included, as
/// PyTorch's AdamW does by default.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdamWConfig {
    /// Learning rate.
    pub lr: f64,
    /// Decay rates of the first and second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Global norm the gradient is clipped to; infinity turns clipping off.
    pub clip: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { lr: 1e-6, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, clip: 1.0 }
    }
}

impl AdamWConfig {
    /// Checks that the settings make sense.
    pub(super) fn check(&self) -> Result<(), TrainError> {
        let at_least_zero = |x: f64| x.is_finite() && x >= 0.0;
        let rules = [
            ("lr", self.lr, at_least_zero(self.lr), "expected a finite value of at least 0"),
            ("betas.0", self.betas.0, (0.0..1.0).contains(&self.betas.0), "expected 0 <= beta < 1"),
            ("betas.1", self.betas.1, (0.0..1.0).contains(&self.betas.1), "expected 0 <= beta < 1"),
            (
                "eps",
                self.eps,
                self.eps.is_finite() && self.eps > 0.0,
                "expected a finite value above 0",
            ),
            (
                "weight_decay",
                self.weight_decay,
                at_least_zero(self.weight_decay),
                "expected a finite value of at least 0",
            ),
            ("clip", self.clip, self.clip > 0.0, "expected a value above 0"),
        ];
        match rules.into_iter().find(|&(_, _, holds, _)| !holds) {
            Some((name, value, _, expected)) => {
                Err(TrainError::Optimizer { name, value, expected })
            }
            None => Ok(()),
        }
    }

    /// The constants of step number `step` (from 1).
    fn rates(&self, step: u64, clip: f64) -> AdamRates {
        let power = step as f64;
        AdamRates {
            clip: clip as f32,
            beta1: self.betas.0 as f32,
            beta2: self.betas.1 as f32,
            step_size: (self.lr / (1.0 - self.betas.0.powf(power))) as f32,
            root_correction: (1.0 / (1.0 - self.betas.1.powf(power)).sqrt()) as f32,
            eps: self.eps as f32,
            keep: (1.0 - self.lr * self.weight_decay) as f32,
        }
    }
}

/// The optimizer's memory: the moments, once there are any, and the number of steps taken.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Optimizer {
    pub(super) moments: Moments,
    pub(super) step: u64,
}

impl Optimizer {
    /// Applies one step; the gradient is scaled by `clip`.
    pub(super) fn update(
        &mut self,
        weights: &mut [f32],
        gradient: &mut [f32],
        (config, format): (&AdamWConfig, MomentFormat),
        clip: f64,
    ) {
        if self.moments.len() != weights.len() {
            self.moments = Moments::new(format, weights.len());
        }
        self.step += 1;
        let rates = config.rates(self.step, clip);
        self.moments.update(weights, gradient, &rates, self.step);
    }
}

/// The norm of a vector; not finite when any value is not.
pub(super) fn norm(values: &[f32]) -> f64 {
    let parts: Vec<f64> = values.par_chunks(CHUNK).map(math::sum_of_squares).collect();
    parts.iter().sum::<f64>().sqrt()
}
