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

pub(super) fn measure(
    shape: &BenchShape,
    format: WeightFormat,
    repeats: usize,
) -> Result<Measurement, Failure> {
    let result = bench::score_rows(shape, format, rows(shape), PROMPT, RESPONSE, repeats)?;
    Ok(result.into())
}

pub(super) fn peers(shape: &BenchShape, repeats: usize) -> Vec<Peer> {
    torch(shape, rows(shape), PROMPT, RESPONSE, repeats)
}

/// PyTorch in both precisions.
pub(super) fn torch(
    shape: &BenchShape,
    rows: usize,
    prompt: usize,
    response: usize,
    repeats: usize,
) -> Vec<Peer> {
    let numbers = [("--rows", rows), ("--prompt", prompt), ("--response", response)];
    let sizes = numbers.into_iter().chain([("--repeats", repeats)]);
    let sizes: Vec<String> =
        sizes.flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect();
    let peer = |name, dtype: &str| Peer {
        name,
        needs: &[&["torch"], &["transformers"]],
        script: include_str!("../../../../../benches/peers/score.py"),
        arguments: ["--shape", shape.name, "--dtype", dtype]
            .map(str::to_owned)
            .into_iter()
            .chain(sizes.clone())
            .collect(),
    };
    vec![peer("PyTorch f32", "float32"), peer("PyTorch bf16", "bfloat16")]
}
