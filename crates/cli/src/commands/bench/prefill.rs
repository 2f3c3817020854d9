//! Prefill: one prompt of 2,048 tokens, f32 weights.

use lens_lm::bench;
use lens_lm::model::WeightFormat;
use lens_lm::train::bench::BenchShape;

use super::measurement::Measurement;
use crate::failure::Failure;

const PROMPT: usize = 2048;

pub(super) fn measure(shape: &BenchShape, repeats: usize) -> Result<Measurement, Failure> {
    Ok(bench::prefill_prompt(shape, WeightFormat::F32, PROMPT, repeats)?.into())
}
