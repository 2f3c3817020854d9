//! Decoding: sixteen sequences with 512 tokens of cache, bf16 weights.

use lens_lm::bench;
use lens_lm::model::WeightFormat;
use lens_lm::train::bench::BenchShape;

use super::measurement::Measurement;
use super::peer::Peer;
use crate::failure::Failure;

const BATCH: usize = 16;
const CACHED: usize = 512;
/// Tokens of every sequence in one measurement.
const STEPS: usize = 8;

pub(super) fn measure(
    shape: &BenchShape,
    format: WeightFormat,
    repeats: usize,
) -> Result<Measurement, Failure> {
    let result = bench::decode(shape, format, BATCH, CACHED, STEPS, repeats)?;
    Ok(result.into())
}

pub(super) fn peers(shape: &BenchShape, repeats: usize) -> Vec<Peer> {
    let arguments = |more: &[&str]| {
        ["--shape", shape.name, "--repeats", &repeats.to_string()]
            .into_iter()
            .chain(more.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    let torch = |name, dtype| Peer {
        name,
        needs: &[&["torch"], &["transformers"]],
        script: include_str!("../../../../../benches/peers/decode.py"),
        arguments: arguments(&["--dtype", dtype]),
    };
    vec![
        torch("PyTorch bf16", "bfloat16"),
        torch("PyTorch f32", "float32"),
        Peer {
            name: "llama.cpp bf16",
            needs: &[&["numpy"], &["llama_cpp", "xllamacpp"]],
            script: include_str!("../../../../../benches/peers/llama_decode.py"),
            arguments: arguments(&[]),
        },
    ]
}
