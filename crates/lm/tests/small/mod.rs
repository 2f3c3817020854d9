//! Small models for the inference tests.
#![allow(dead_code, reason = "each test file uses its own part")]

use lens_lm::config::{Family, ModelConfig};
use lens_lm::model::{Model, WeightFormat};
use lens_lm::tensor::{Parameters, Tensor};
use lens_opd::random::{Purpose, Stream, StreamKey};

/// A configuration small enough for tests, with odd sizes on purpose.
pub(crate) fn config(family: Family) -> ModelConfig {
    ModelConfig {
        family,
        hidden_size: 40,
        intermediate_size: 72,
        layers: 3,
        heads: 6,
        kv_heads: 2,
        head_dim: 12,
        vocab_size: 1200,
        max_position: 256,
        rms_norm_eps: 1e-6,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tied_head: family != Family::Llama,
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
    }
}

/// Random parameters; matrices are scaled so that the logits spread over a few units.
pub(crate) fn parameters(config: &ModelConfig, seed: u64) -> Parameters {
    let mut stream = StreamKey::new(seed, 0, 0, Purpose::Weights, 0).open();
    config
        .parameter_shapes()
        .into_iter()
        .map(|(name, shape)| {
            let norm = name.contains("norm");
            let scale = if shape.len() == 2 { 1.5 / (shape[1] as f64).sqrt() } else { 0.2 };
            let values = shape.iter().product::<usize>();
            let mut draw =
                || (if norm { 1.0 } else { 0.0 }) as f32 + (stream.normal() * scale) as f32;
            let data = (0..values).map(|_| draw()).collect();
            (name, Tensor { shape, data })
        })
        .collect()
}

pub(crate) fn model(config: &ModelConfig, seed: u64, format: WeightFormat) -> Model {
    Model::new(config, &parameters(config, seed), format).expect("valid parameters")
}

pub(crate) fn tokens(stream: &mut Stream, count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|_| stream.below(vocab as u64).expect("not empty") as u32).collect()
}

/// Runs `work` on a pool of its own.
pub(crate) fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(work)
}
