//! Prefill: one prompt of 8,192 tokens, f32 weights.

use lens_lm::bench;
use lens_lm::model::WeightFormat;
use lens_lm::train::bench::BenchShape;

use super::measurement::Measurement;
use super::peer::Peer;
use super::score;
use crate::failure::Failure;

const PROMPT: usize = 8192;

pub(super) fn measure(
    shape: &BenchShape,
    format: WeightFormat,
    repeats: usize,
) -> Result<Measurement, Failure> {
    Ok(bench::prefill_prompt(shape, format, PROMPT, repeats)?.into())
}

pub(super) fn peers(shape: &BenchShape, repeats: usize) -> Vec<Peer> {
    // One token is judged, by the position before it.
    let mut peers = score::torch(shape, 1, PROMPT - 1, 1, repeats);
    let arguments = ["--shape", shape.name, "--repeats", &repeats.to_string()];
    let arguments = arguments.into_iter().map(str::to_owned);
    peers.push(Peer {
        name: "llama.cpp bf16",
        needs: &[&["numpy"], &["llama_cpp", "xllamacpp"]],
        script: include_str!("../../../../../benches/peers/llama_decode.py"),
        arguments: arguments.chain(["--prefill".to_owned(), PROMPT.to_string()]).collect(),
    });
    peers
}
