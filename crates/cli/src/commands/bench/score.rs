//! Scoring: unrelated prompts of 1,000 tokens, 30 response positions each, f32 weights.

use lens_lm::bench;
use lens_lm::model::WeightFormat;
use lens_lm::train::bench::BenchShape;

use super::measurement::Measurement;
use super::peer::Peer;
use crate::failure::Failure;

const PROMPT: usize = 1000;
const RESPONSE: usize = 30;

/// Prompts of one measurement, so that each takes seconds, not minutes.
fn rows(shape: &BenchShape) -> usize {
    match shape.name {
        "laboratory" => 16,
        "smollm2-135m" => 4,
        _ => 2,
    }
}

pub(super) fn measure(shape: &BenchShape, repeats: usize) -> Result<Measurement, Failure> {
    let format = WeightFormat::F32;
    let result = bench::score_rows(shape, format, rows(shape), PROMPT, RESPONSE, repeats)?;
    Ok(result.into())
}

pub(super) fn peers(shape: &BenchShape, repeats: usize) -> Vec<Peer> {
    let arguments = [
        "--shape",
        shape.name,
        "--rows",
        &rows(shape).to_string(),
        "--repeats",
        &repeats.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    vec![Peer {
        name: "PyTorch f32",
        needs: &[&["torch"], &["transformers"]],
        script: include_str!("../../../../../benches/peers/score.py"),
        arguments,
    }]
}
