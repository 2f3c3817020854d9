//! A slow decoder model in double precision, written straight from the formulas, and small fixtures.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

pub mod reference;

use lens_lm::config::{Family, ModelConfig, RopeScaling};
use lens_lm::tensor::{Parameters, Tensor};
use lens_lm::train::{RowLoss, TrainRow};
use lens_opd::random::{Purpose, Stream, StreamKey};

pub fn stream(seed: u64) -> Stream {
    StreamKey::new(seed, 0, 0, Purpose::Data, 0).open()
}

/// A tiny model of each family, with every switch on somewhere.
pub fn tiny(family: Family) -> ModelConfig {
    let plain = ModelConfig {
        family,
        hidden_size: 12,
        intermediate_size: 20,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 6,
        vocab_size: 23,
        max_position: 64,
        rms_norm_eps: 1e-5,
        rope_theta: 100.0,
        rope_scaling: None,
        tied_head: true,
        qkv_bias: false,
        qk_norm: false,
    };
    match family {
        Family::Qwen3 => ModelConfig { qk_norm: true, ..plain },
        Family::Qwen2 => ModelConfig { qkv_bias: true, tied_head: false, ..plain },
        Family::Llama => ModelConfig {
            rope_scaling: Some(RopeScaling::Llama3 {
                factor: 4.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position: 16,
            }),
            ..plain
        },
    }
}

pub const FAMILIES: [Family; 3] = [Family::Qwen3, Family::Qwen2, Family::Llama];

/// Random parameters, norms around one.
pub fn random_parameters(config: &ModelConfig, seed: u64) -> Parameters {
    let mut stream = stream(seed);
    config
        .parameter_shapes()
        .into_iter()
        .map(|(name, shape)| {
            let center = if name.contains("norm") { 1.0 } else { 0.0 };
            let mut tensor = Tensor::zeros(&shape);
            for value in &mut tensor.data {
                *value = (center + 0.3 * stream.normal()) as f32;
            }
            (name, tensor)
        })
        .collect()
}

/// Random values.
pub fn noise(count: usize, scale: f64, stream: &mut Stream) -> Vec<f32> {
    (0..count).map(|_| (scale * stream.normal()) as f32).collect()
}

/// The kinds of loss a random row can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Reverse,
    TopK,
    Policy,
    Forward,
    Nll,
}

pub const KINDS: [Kind; 5] = [Kind::Reverse, Kind::TopK, Kind::Policy, Kind::Forward, Kind::Nll];

/// A random row over the first `vocab` tokens, with some response tokens weighted zero.
pub fn random_row(
    kind: Kind,
    vocab: usize,
    reference_width: usize,
    length: usize,
    response_start: usize,
    stream: &mut Stream,
) -> TrainRow {
    let mut draw = |bound: usize| stream.below(bound as u64).expect("positive") as u32;
    let tokens: Vec<u32> = (0..length).map(|_| draw(vocab)).collect();
    let count = length - response_start;
    let weights: Vec<f32> =
        (0..count).map(|at| if at % 4 == 2 { 0.0 } else { 0.2 + 0.1 * draw(10) as f32 }).collect();
    let loss = match kind {
        Kind::Nll => RowLoss::Nll,
        Kind::Reverse => {
            RowLoss::ReverseKl { teacher_hidden: noise(count * reference_width, 1.0, stream) }
        }
        Kind::Forward => {
            RowLoss::ForwardKl { snapshot_hidden: noise(count * reference_width, 1.0, stream) }
        }
        Kind::Policy => {
            let guess = |stream: &mut Stream| {
                (0..count).map(|_| (-3.0 + 1.5 * stream.normal()).min(-0.01) as f32).collect()
            };
            RowLoss::PolicyGradient {
                teacher_logp: guess(stream),
                rollout_logp: guess(stream),
                kl_coef: 0.7,
                clip: 0.2,
                dual_clip: 3.0,
            }
        }
        Kind::TopK => {
            let k = 4;
            let (mut ids, mut logps, mut tail_logps) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..count {
                let mut all: Vec<u32> = (0..vocab as u32).collect();
                stream.shuffle(&mut all);
                ids.extend_from_slice(&all[..k]);
                let scores: Vec<f64> = (0..=k).map(|_| stream.normal().exp()).collect();
                let total: f64 = scores.iter().sum();
                logps.extend(scores[..k].iter().map(|score| (score / total).ln() as f32));
                tail_logps.push((scores[k] / total).ln() as f32);
            }
            RowLoss::ReverseKlTopK { k, ids, logps, tail_logps }
        }
    };
    TrainRow { tokens, response_start, weights, loss }
}

/// Largest difference of two vectors over the larger one's largest value.
pub fn relative_error(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let size = want.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let difference =
        got.iter().zip(want).fold(0.0_f64, |most, (&a, &b)| most.max((f64::from(a) - b).abs()));
    if difference == 0.0 { 0.0 } else { difference / size }
}
