//! The forward pass of one block over packed rows, keeping what the backward pass needs.

use rayon::prelude::*;

use super::attention::{self, AttentionInput, AttentionShape, RopeTable};
use super::batch::{MicroBatch, Span};
use super::layout::{LayerLayout, Layout};
use super::scratch::{fit, with_scratch};
use crate::config::ModelConfig;
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef, gemm};

/// Tokens a thread takes through the chain of products at a time.
pub(super) const TOKEN_BLOCK: usize = 256;

/// A model's shape and weights.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) layout: &'a Layout,
    pub(super) weights: &'a [f32],
    pub(super) rope: &'a RopeTable,
}

/// The tokens of a micro-batch whose output a layer has to compute: all of them, except in the last layer, where
/// only the loss positions matter (the others serve as keys and values).
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
    /// Token index of each query; `None` when every token asks.
    pub(super) tokens: Option<&'a [u32]>,
    /// Position in its row of each query.
    pub(super) positions: &'a [u32],
    /// The rows.
    pub(super) spans: &'a [Span],
}

impl<'a> Queries<'a> {
    pub(super) fn all(batch: &'a MicroBatch, full_spans: &'a [Span]) -> Self {
        Self { tokens: None, positions: &batch.positions, spans: full_spans }
    }

    pub(super) fn losses(batch: &'a MicroBatch) -> Self {
        Self {
            tokens: Some(&batch.loss_tokens),
            positions: &batch.loss_positions,
            spans: &batch.spans,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.positions.len()
    }

    /// The token index of a query.
    pub(super) fn token(&self, query: usize) -> usize {
        self.tokens.map_or(query, |tokens| tokens[query] as usize)
    }
}

/// One block's weights.
pub(super) struct LayerWeights<'a> {
    pub(super) input_norm: &'a [f32],
    pub(super) q: &'a [f32],
    pub(super) kv: &'a [f32],
    pub(super) q_bias: Option<&'a [f32]>,
    pub(super) kv_bias: Option<&'a [f32]>,
    pub(super) qk_norm: Option<(&'a [f32], &'a [f32])>,
    pub(super) o: &'a [f32],
    pub(super) post_norm: &'a [f32],
    pub(super) gate_up: &'a [f32],
    pub(super) down: &'a [f32],
}

impl<'a> Model<'a> {
    pub(super) fn layer(&self, layer: usize) -> LayerWeights<'a> {
        let LayerLayout { input_norm, qkv, qkv_bias, qk_norm, o, post_norm, gate_up, down } =
            &self.layout.layers[layer];
        let at = |range: &std::ops::Range<usize>| &self.weights[range.clone()];
        let q_width = self.config.q_width();
        let (q, kv) = at(qkv).split_at(q_width * self.config.hidden_size);
        let bias = qkv_bias.as_ref().map(|range| at(range).split_at(q_width));
        LayerWeights {
            input_norm: at(input_norm),
            q,
            kv,
            q_bias: bias.map(|(q, _)| q),
            kv_bias: bias.map(|(_, kv)| kv),
            qk_norm: qk_norm.as_ref().map(|(q, k)| (at(q), at(k))),
            o: at(o),
            post_norm: at(post_norm),
            gate_up: at(gate_up),
            down: at(down),
        }
    }

    pub(super) fn attention_shape(&self) -> AttentionShape<'a> {
        AttentionShape {
            heads: self.config.heads,
            kv_heads: self.config.kv_heads,
            head_dim: self.config.head_dim,
            eps: self.config.rms_norm_eps,
            rope: self.rope,
        }
    }
}

/// What one block keeps for its backward pass, besides its input.
#[derive(Debug, Default)]
pub(super) struct LayerActivations {
    /// Raw queries.
    pub(super) q: Vec<f32>,
    /// Raw keys and values.
    pub(super) kv: Vec<f32>,
    /// Attention's output before the output projection.
    pub(super) mixed: Vec<f32>,
    /// Log-sum-exp of the score rows.
    pub(super) lse: Vec<f32>,
    /// The residual stream between attention and feed-forward.
    pub(super) middle: Vec<f32>,
    /// gate and up projections.
    pub(super) gate_up: Vec<f32>,
}

/// `out = x * weight^T (+ bias)`.
fn linear(out: &mut [f32], x: &[f32], weight: &[f32], width: usize, bias: Option<&[f32]>) {
    let out_width = weight.len() / width;
    let rows = x.len() / width;
    if let Some(bias) = bias {
        for row in out.chunks_exact_mut(out_width) {
            row.copy_from_slice(bias);
        }
    }
    gemm(
        &mut MatMut::new(out, rows, out_width),
        MatRef::new(x, rows, width),
        MatRef::new(weight, out_width, width).t(),
        bias.is_some(),
    );
}

/// Norms the rows of `x` into `out`.
pub(super) fn norm_rows<'x>(
    out: &mut [f32],
    x: impl Iterator<Item = &'x [f32]>,
    weight: &[f32],
    eps: f32,
) {
    for (out, x) in out.chunks_exact_mut(weight.len()).zip(x) {
        math::rms_norm(out, x, weight, eps);
    }
}

/// Runs one block. `x` is its input (tokens x hidden); `next` receives its output (queries x hidden), unless only
/// the activations are wanted.
pub(super) fn layer_forward(
    model: Model<'_>,
    layer: usize,
    queries: Queries<'_>,
    x: &[f32],
    acts: &mut LayerActivations,
    next: Option<&mut [f32]>,
) {
    let config = model.config;
    let weights = model.layer(layer);
    let (hidden, ff, eps) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps);
    let (q_width, kv_width) = (config.q_width(), 2 * config.kv_width());
    let (tokens, count) = (x.len() / hidden, queries.count());
    let q = fit(&mut acts.q, count * q_width);
    let kv = fit(&mut acts.kv, tokens * kv_width);

    let x_blocks = x.par_chunks(TOKEN_BLOCK * hidden);
    let kv_blocks = kv.par_chunks_mut(TOKEN_BLOCK * kv_width);
    let q_blocks = q.par_chunks_mut(TOKEN_BLOCK * q_width);
    match queries.tokens {
        None => x_blocks.zip(kv_blocks).zip(q_blocks).with_max_len(1).for_each(|((x, kv), q)| {
            with_scratch([x.len()], |[normed]| {
                norm_rows(normed, x.chunks_exact(hidden), weights.input_norm, eps);
                linear(q, normed, weights.q, hidden, weights.q_bias);
                linear(kv, normed, weights.kv, hidden, weights.kv_bias);
            });
        }),
        Some(wanted) => {
            x_blocks.zip(kv_blocks).with_max_len(1).for_each(|(x, kv)| {
                with_scratch([x.len()], |[normed]| {
                    norm_rows(normed, x.chunks_exact(hidden), weights.input_norm, eps);
                    linear(kv, normed, weights.kv, hidden, weights.kv_bias);
                });
            });
            let wanted = wanted.par_chunks(TOKEN_BLOCK);
            q_blocks.zip(wanted).with_max_len(1).for_each(|(q, wanted)| {
                with_scratch([wanted.len() * hidden], |[normed]| {
                    let rows = wanted.iter().map(|&token| row(x, token as usize, hidden));
                    norm_rows(normed, rows, weights.input_norm, eps);
                    linear(q, normed, weights.q, hidden, weights.q_bias);
                });
            });
        }
    }

    let mixed = fit(&mut acts.mixed, count * q_width);
    let lse = fit(&mut acts.lse, count * config.heads);
    let input = AttentionInput {
        q,
        kv,
        norms: weights.qk_norm,
        spans: queries.spans,
        positions: queries.positions,
    };
    attention::forward(model.attention_shape(), input, mixed, lse);

    let middle = fit(&mut acts.middle, count * hidden);
    let gate_up = fit(&mut acts.gate_up, count * 2 * ff);
    let mut next_blocks = next.map(|next| next.chunks_mut(TOKEN_BLOCK * hidden));
    let work: Vec<_> = mixed
        .chunks(TOKEN_BLOCK * q_width)
        .zip(middle.chunks_mut(TOKEN_BLOCK * hidden))
        .zip(gate_up.chunks_mut(TOKEN_BLOCK * 2 * ff))
        .enumerate()
        .map(|(block, parts)| {
            (block * TOKEN_BLOCK, parts, next_blocks.as_mut().and_then(Iterator::next))
        })
        .collect();
    work.into_par_iter().with_max_len(1).for_each(|(first, ((mixed, middle), gate_up), next)| {
        for (at, middle) in middle.chunks_exact_mut(hidden).enumerate() {
            middle.copy_from_slice(row(x, queries.token(first + at), hidden));
        }
        let rows = mixed.len() / q_width;
        gemm(
            &mut MatMut::new(middle, rows, hidden),
            MatRef::new(mixed, rows, q_width),
            MatRef::new(weights.o, hidden, q_width).t(),
            true,
        );
        with_scratch([rows * hidden, rows * ff], |[normed, activated]| {
            norm_rows(normed, middle.chunks_exact(hidden), weights.post_norm, eps);
            linear(gate_up, normed, weights.gate_up, hidden, None);
            if let Some(next) = next {
                for (out, both) in activated.chunks_exact_mut(ff).zip(gate_up.chunks_exact(2 * ff))
                {
                    math::swiglu(out, &both[..ff], &both[ff..]);
                }
                next.copy_from_slice(middle);
                gemm(
                    &mut MatMut::new(next, rows, hidden),
                    MatRef::new(activated, rows, ff),
                    MatRef::new(weights.down, hidden, ff).t(),
                    true,
                );
            }
        });
    });
}

/// One row of a row-major matrix.
pub(super) fn row(data: &[f32], at: usize, width: usize) -> &[f32] {
    &data[at * width..(at + 1) * width]
}
