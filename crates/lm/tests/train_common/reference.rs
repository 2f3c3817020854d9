//! The model and the losses by their definitions, one value at a time, in f64.

use std::collections::BTreeMap;

use lens_lm::config::ModelConfig;
use lens_lm::tensor::Parameters;
use lens_lm::train::{Head, Heads, RowLoss, TrainRow};

/// Parameters in double precision.
pub type Weights = BTreeMap<String, Vec<f64>>;

pub fn weights(parameters: &Parameters) -> Weights {
    parameters
        .iter()
        .map(|(name, tensor)| (name.clone(), tensor.data.iter().map(|&x| f64::from(x)).collect()))
        .collect()
}

fn linear(x: &[f64], weight: &[f64], bias: Option<&Vec<f64>>) -> Vec<f64> {
    weight
        .chunks(x.len())
        .enumerate()
        .map(|(out, row)| {
            let product: f64 = row.iter().zip(x).map(|(w, x)| w * x).sum();
            product + bias.map_or(0.0, |bias| bias[out])
        })
        .collect()
}

fn norm(x: &[f64], weight: &[f64], eps: f64) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    x.iter().zip(weight).map(|(x, w)| x / (mean + eps).sqrt() * w).collect()
}

fn rotate(x: &[f64], position: usize, frequencies: &[f64]) -> Vec<f64> {
    let half = frequencies.len();
    let mut out = vec![0.0; x.len()];
    for (i, frequency) in frequencies.iter().enumerate() {
        let (sin, cos) = (position as f64 * frequency).sin_cos();
        out[i] = x[i] * cos - x[i + half] * sin;
        out[i + half] = x[i + half] * cos + x[i] * sin;
    }
    out
}

/// Last hidden states of every position of one row, after the final norm.
pub fn hidden_states(config: &ModelConfig, w: &Weights, tokens: &[u32]) -> Vec<Vec<f64>> {
    let (hidden, dim, ff) = (config.hidden_size, config.head_dim, config.intermediate_size);
    let eps = f64::from(config.rms_norm_eps);
    let frequencies = config.rope_inverse_frequencies();
    let embedding = &w["model.embed_tokens.weight"];
    let mut stream: Vec<Vec<f64>> = tokens
        .iter()
        .map(|&token| embedding[token as usize * hidden..(token as usize + 1) * hidden].to_vec())
        .collect();
    for layer in 0..config.layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let at = |part: &str| &w[&name(part)];
        let maybe = |part: &str| w.get(&name(part));
        let mut heads: [Vec<Vec<f64>>; 3] = Default::default();
        for (position, x) in stream.iter().enumerate() {
            let x = norm(x, at("input_layernorm.weight"), eps);
            for (slot, which) in ["q", "k", "v"].iter().enumerate() {
                let weight = at(&format!("self_attn.{which}_proj.weight"));
                let bias = maybe(&format!("self_attn.{which}_proj.bias"));
                let mut all = linear(&x, weight, bias);
                if slot < 2 {
                    all = all
                        .chunks(dim)
                        .flat_map(|head| {
                            let head = match maybe(&format!("self_attn.{which}_norm.weight")) {
                                Some(weight) => norm(head, weight, eps),
                                None => head.to_vec(),
                            };
                            rotate(&head, position, &frequencies)
                        })
                        .collect();
                }
                heads[slot].push(all);
            }
        }
        let [q, k, v] = heads;
        for position in 0..tokens.len() {
            let mut mixed = vec![0.0; config.heads * dim];
            for head in 0..config.heads {
                let shared = head / (config.heads / config.kv_heads);
                let query = &q[position][head * dim..(head + 1) * dim];
                let scores: Vec<f64> = (0..=position)
                    .map(|key| {
                        let key = &k[key][shared * dim..(shared + 1) * dim];
                        let product: f64 = query.iter().zip(key).map(|(a, b)| a * b).sum();
                        product / (dim as f64).sqrt()
                    })
                    .collect();
                for (key, p) in log_softmax(&scores).iter().map(|x| x.exp()).enumerate() {
                    for i in 0..dim {
                        mixed[head * dim + i] += p * v[key][shared * dim + i];
                    }
                }
            }
            let out = linear(&mixed, at("self_attn.o_proj.weight"), None);
            for (x, out) in stream[position].iter_mut().zip(out) {
                *x += out;
            }
            let normed = norm(&stream[position], at("post_attention_layernorm.weight"), eps);
            let gate = linear(&normed, at("mlp.gate_proj.weight"), None);
            let up = linear(&normed, at("mlp.up_proj.weight"), None);
            let activated: Vec<f64> =
                (0..ff).map(|i| gate[i] / (1.0 + (-gate[i]).exp()) * up[i]).collect();
            let out = linear(&activated, at("mlp.down_proj.weight"), None);
            for (x, out) in stream[position].iter_mut().zip(out) {
                *x += out;
            }
        }
    }
    stream.iter().map(|x| norm(x, &w["model.norm.weight"], eps)).collect()
}

pub fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let lse = max + logits.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
    logits.iter().map(|x| x - lse).collect()
}

fn reference_logp(head: &Head<'_>, stored: &[f32], at: usize, real: usize) -> Vec<f64> {
    let hidden: Vec<f64> =
        stored[at * head.hidden..(at + 1) * head.hidden].iter().map(|&x| f64::from(x)).collect();
    let mut weight = vec![0.0; real * head.hidden];
    head.weight.read(0, &mut weight);
    let weight: Vec<f64> = weight.into_iter().map(f64::from).collect();
    log_softmax(&linear(&hidden, &weight, None))
}

/// One token's loss from the student's log-probabilities of the real tokens.
pub fn token_loss(row: &TrainRow, at: usize, logp: &[f64], heads: &Heads<'_>) -> f64 {
    let sampled = row.tokens[row.response_start + at] as usize;
    match &row.loss {
        RowLoss::ReverseKl { teacher_hidden } => {
            let teacher =
                reference_logp(&heads.teacher.expect("teacher"), teacher_hidden, at, logp.len());
            logp.iter().zip(&teacher).map(|(s, t)| s.exp() * (s - t)).sum()
        }
        RowLoss::ForwardKl { snapshot_hidden } => {
            let target =
                reference_logp(&heads.snapshot.expect("snapshot"), snapshot_hidden, at, logp.len());
            logp.iter().zip(&target).map(|(s, t)| t.exp() * (t - s)).sum()
        }
        RowLoss::ReverseKlTopK { k, ids, logps, tail_logps } => {
            let ids = &ids[at * k..(at + 1) * k];
            let mut loss = 0.0;
            for (i, &id) in ids.iter().enumerate() {
                let s = logp[id as usize];
                loss += s.exp() * (s - f64::from(logps[at * k + i]));
            }
            let tail: f64 = (0..logp.len())
                .filter(|&id| !ids.contains(&(id as u32)))
                .map(|id| logp[id].exp())
                .sum();
            if tail > 0.0 {
                loss += tail * (tail.ln() - f64::from(tail_logps[at]));
            }
            loss
        }
        RowLoss::PolicyGradient { teacher_logp, rollout_logp, kl_coef, clip, dual_clip } => {
            let (teacher, rollout) = (f64::from(teacher_logp[at]), f64::from(rollout_logp[at]));
            let advantage = f64::from(*kl_coef) * (teacher - rollout);
            let ratio = (logp[sampled] - rollout).clamp(-20.0, 20.0).exp();
            let clip = f64::from(*clip);
            let clipped = ratio.clamp(1.0 - clip, 1.0 + clip);
            let loss = (-advantage * ratio).max(-advantage * clipped);
            if advantage < 0.0 { loss.min(-f64::from(*dual_clip) * advantage) } else { loss }
        }
        RowLoss::Nll => -logp[sampled],
    }
}

/// The batch loss: the sum of coefficient times token loss.
pub fn loss(
    config: &ModelConfig,
    w: &Weights,
    rows: &[TrainRow],
    heads: &Heads<'_>,
    real: usize,
) -> f64 {
    let head = if config.tied_head { "model.embed_tokens.weight" } else { "lm_head.weight" };
    let head = &w[head][..real * config.hidden_size];
    let mut total = 0.0;
    for row in rows {
        let hidden = hidden_states(config, w, &row.tokens);
        for (at, &weight) in row.weights.iter().enumerate() {
            if weight != 0.0 {
                let logits = linear(&hidden[row.response_start + at - 1], head, None);
                total += f64::from(weight) * token_loss(row, at, &log_softmax(&logits), heads);
            }
        }
    }
    total
}
