//! A train step: forward, backward and AdamW with full-vocabulary KL against a teacher.

use lens_lm::train::TrainerOptions;
use lens_lm::train::bench::{BenchShape, run};

use super::measurement::Measurement;
use super::peer::Peer;
use crate::failure::Failure;

pub(super) fn measure(
    shape: &BenchShape,
    options: TrainerOptions,
    repeats: usize,
) -> Result<Measurement, Failure> {
    let result = run(shape, options, repeats).map_err(|error| Failure::Runtime(error.into()))?;
    Ok(Measurement {
        tokens_per_second: result.tokens_per_second,
        gflops: Some(result.gflops),
        peak_rss_bytes: result.peak_rss_bytes,
    })
}

pub(super) fn peers(shape: &BenchShape, repeats: usize) -> Vec<Peer> {
    vec![Peer {
        name: "PyTorch f32",
        needs: &[&["torch"]],
        script: include_str!("../../../../../benches/peers/train_step.py"),
        arguments: ["--shape", shape.name, "--steps", &repeats.to_string()]
            .map(str::to_owned)
            .to_vec(),
    }]
}
