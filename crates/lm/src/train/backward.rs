//! The backward pass of one block.

use rayon::prelude::*;

use super::attention::{self, AttentionGrads, AttentionInput};
use super::forward::{LayerActivations, Model, Queries, TOKEN_BLOCK, norm_rows, row};
use super::layout::LayerLayout;
use super::scratch::{fit, with_scratch};
use crate::config::ModelConfig;
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef, gemm, gemm_tiles, run_tiles};

/// Buffers of the backward pass, shared by all layers.
#[derive(Debug, Default)]
pub(super) struct BackwardBuffers {
    activated: Vec<f32>,
    normed: Vec<f32>,
    normed_queries: Vec<f32>,
    d_middle: Vec<f32>,
    d_mixed: Vec<f32>,
    dq: Vec<f32>,
    dkv: Vec<f32>,
    d_from_q: Vec<f32>,
    partial_norm: Vec<f32>,
    partial_bias: Vec<f32>,
    query_of: Vec<u32>,
}

/// One block's gradients.
pub(super) struct LayerGrads<'a> {
    input_norm: &'a mut [f32],
    q: &'a mut [f32],
    kv: &'a mut [f32],
    qkv_bias: Option<&'a mut [f32]>,
    qk_norm: Option<(&'a mut [f32], &'a mut [f32])>,
    o: &'a mut [f32],
    post_norm: &'a mut [f32],
    gate_up: &'a mut [f32],
    down: &'a mut [f32],
}

impl<'a> LayerGrads<'a> {
    /// Cuts one block's gradients out of the flat vector.
    pub(super) fn cut(layout: &LayerLayout, config: &ModelConfig, flat: &'a mut [f32]) -> Self {
        let mut rest = &mut flat[layout.input_norm.start..layout.down.end];
        let mut take = |length: usize| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(length);
            rest = tail;
            part
        };
        let q_values = config.q_width() * config.hidden_size;
        Self {
            input_norm: take(layout.input_norm.len()),
            q: take(q_values),
            kv: take(layout.qkv.len() - q_values),
            qkv_bias: layout.qkv_bias.as_ref().map(|range| take(range.len())),
            qk_norm: layout.qk_norm.as_ref().map(|(q, k)| (take(q.len()), take(k.len()))),
            o: take(layout.o.len()),
            post_norm: take(layout.post_norm.len()),
            gate_up: take(layout.gate_up.len()),
            down: take(layout.down.len()),
        }
    }
}

/// Adds the parts of a sum, each `sum.len()` long, in order.
fn add_parts(sum: &mut [f32], parts: &[f32]) {
    for part in parts.chunks_exact(sum.len()) {
        math::add(sum, part);
    }
}

/// Sums of the columns of each block of rows.
fn column_sums(partial: &mut [f32], data: &[f32], width: usize) {
    partial.par_chunks_exact_mut(width).zip(data.par_chunks(TOKEN_BLOCK * width)).for_each(
        |(sum, block)| {
            sum.fill(0.0);
            for row in block.chunks_exact(width) {
                math::add(sum, row);
            }
        },
    );
}

/// Carries `d_next` (queries x hidden, the gradient of the block's output) back to `dx` (tokens x hidden, the
/// gradient of its input `x`, overwritten) and adds the gradients of its parameters. `acts.gate_up` is consumed.
pub(super) fn layer_backward(
    model: Model<'_>,
    layer: usize,
    queries: Queries<'_>,
    x: &[f32],
    acts: &mut LayerActivations,
    d_next: &[f32],
    dx: &mut [f32],
    mut grads: LayerGrads<'_>,
    buffers: &mut BackwardBuffers,
) {
    let config = model.config;
    let weights = model.layer(layer);
    let (hidden, ff, eps) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps);
    let (q_width, kv_width) = (config.q_width(), 2 * config.kv_width());
    let (tokens, count) = (x.len() / hidden, queries.count());
    let mixed = &acts.mixed[..count * q_width];
    let middle = &acts.middle[..count * hidden];
    let gate_up = &mut acts.gate_up[..count * 2 * ff];
    let query_blocks = count.div_ceil(TOKEN_BLOCK);
    let token_blocks = tokens.div_ceil(TOKEN_BLOCK);

    // Feed-forward and the output projection, token by token.
    let activated = fit(&mut buffers.activated, count * ff);
    let normed = fit(&mut buffers.normed, tokens.max(count) * hidden);
    let d_middle = fit(&mut buffers.d_middle, count * hidden);
    let d_mixed = fit(&mut buffers.d_mixed, count * q_width);
    let partial = fit(&mut buffers.partial_norm, token_blocks.max(query_blocks) * hidden);
    d_next
        .par_chunks(TOKEN_BLOCK * hidden)
        .zip(middle.par_chunks(TOKEN_BLOCK * hidden))
        .zip(gate_up.par_chunks_mut(TOKEN_BLOCK * 2 * ff))
        .zip(activated.par_chunks_mut(TOKEN_BLOCK * ff))
        .zip(normed[..count * hidden].par_chunks_mut(TOKEN_BLOCK * hidden))
        .zip(d_middle.par_chunks_mut(TOKEN_BLOCK * hidden))
        .zip(d_mixed.par_chunks_mut(TOKEN_BLOCK * q_width))
        .zip(partial.par_chunks_exact_mut(hidden))
        .with_max_len(1)
        .for_each(
            |(
                ((((((d_next, middle), gate_up), activated), normed), d_middle), d_mixed),
                partial,
            )| {
                let rows = d_next.len() / hidden;
                gemm(
                    &mut MatMut::new(activated, rows, ff),
                    MatRef::new(d_next, rows, hidden),
                    MatRef::new(weights.down, hidden, ff),
                    false,
                );
                for (d, both) in
                    activated.chunks_exact_mut(ff).zip(gate_up.chunks_exact_mut(2 * ff))
                {
                    let (gate, up) = both.split_at_mut(ff);
                    math::swiglu_backward(d, gate, up);
                }
                d_middle.copy_from_slice(d_next);
                partial.fill(0.0);
                with_scratch([rows * hidden], |[d_normed]| {
                    gemm(
                        &mut MatMut::new(d_normed, rows, hidden),
                        MatRef::new(gate_up, rows, 2 * ff),
                        MatRef::new(weights.gate_up, 2 * ff, hidden),
                        false,
                    );
                    let norm = NormBackward { weight: weights.post_norm, eps };
                    norm.rows(d_middle, partial, normed, d_normed, middle.chunks_exact(hidden));
                });
                gemm(
                    &mut MatMut::new(d_mixed, rows, q_width),
                    MatRef::new(d_middle, rows, hidden),
                    MatRef::new(weights.o, hidden, q_width),
                    false,
                );
            },
        );
    add_parts(grads.post_norm, &partial[..query_blocks * hidden]);
    let mut tiles = Vec::new();
    gemm_tiles(
        MatMut::new(grads.down, hidden, ff),
        MatRef::new(d_next, count, hidden).t(),
        MatRef::new(activated, count, ff),
        true,
        &mut tiles,
    );
    gemm_tiles(
        MatMut::new(grads.gate_up, 2 * ff, hidden),
        MatRef::new(gate_up, count, 2 * ff).t(),
        MatRef::new(normed, count, hidden),
        true,
        &mut tiles,
    );
    gemm_tiles(
        MatMut::new(grads.o, hidden, q_width),
        MatRef::new(d_middle, count, hidden).t(),
        MatRef::new(mixed, count, q_width),
        true,
        &mut tiles,
    );
    run_tiles(tiles);

    let dq = fit(&mut buffers.dq, count * q_width);
    let dkv = fit(&mut buffers.dkv, tokens * kv_width);
    let input = AttentionInput {
        q: &acts.q[..count * q_width],
        kv: &acts.kv[..tokens * kv_width],
        norms: weights.qk_norm,
        spans: queries.spans,
        positions: queries.positions,
    };
    attention::backward(
        model.attention_shape(),
        input,
        mixed,
        &acts.lse,
        d_mixed,
        AttentionGrads { dq, dkv, d_norms: grads.qk_norm.take() },
    );

    // The projections and the input norm.
    if let Some(bias) = grads.qkv_bias.take() {
        let (q_bias, kv_bias) = bias.split_at_mut(q_width);
        for (bias, data, width) in [(q_bias, &*dq, q_width), (kv_bias, &*dkv, kv_width)] {
            let blocks = (data.len() / width).div_ceil(TOKEN_BLOCK);
            let partial = fit(&mut buffers.partial_bias, blocks * width);
            column_sums(partial, data, width);
            add_parts(bias, partial);
        }
    }
    let normed = &mut normed[..tokens * hidden];
    let query_of = &mut buffers.query_of;
    let d_from_q: &[f32] = match queries.tokens {
        None => &[],
        Some(wanted) => {
            query_of.clear();
            query_of.resize(tokens, u32::MAX);
            for (query, &token) in wanted.iter().enumerate() {
                query_of[token as usize] = query as u32;
            }
            let d_from_q = fit(&mut buffers.d_from_q, count * hidden);
            let normed_queries = fit(&mut buffers.normed_queries, count * hidden);
            d_from_q
                .par_chunks_mut(TOKEN_BLOCK * hidden)
                .zip(normed_queries.par_chunks_mut(TOKEN_BLOCK * hidden))
                .zip(dq.par_chunks(TOKEN_BLOCK * q_width))
                .zip(wanted.par_chunks(TOKEN_BLOCK))
                .with_max_len(1)
                .for_each(|(((d_from_q, normed), dq), wanted)| {
                    let rows = wanted.len();
                    gemm(
                        &mut MatMut::new(d_from_q, rows, hidden),
                        MatRef::new(dq, rows, q_width),
                        MatRef::new(weights.q, q_width, hidden),
                        false,
                    );
                    let x_rows = wanted.iter().map(|&token| row(x, token as usize, hidden));
                    norm_rows(normed, x_rows, weights.input_norm, eps);
                });
            d_from_q
        }
    };
    dx.par_chunks_mut(TOKEN_BLOCK * hidden)
        .zip(x.par_chunks(TOKEN_BLOCK * hidden))
        .zip(normed.par_chunks_mut(TOKEN_BLOCK * hidden))
        .zip(dkv.par_chunks(TOKEN_BLOCK * kv_width))
        .zip(partial.par_chunks_exact_mut(hidden))
        .enumerate()
        .with_max_len(1)
        .for_each(|(block, ((((dx, x), normed), dkv), partial))| {
            let (first, rows) = (block * TOKEN_BLOCK, x.len() / hidden);
            partial.fill(0.0);
            with_scratch([rows * hidden], |[d_normed]| {
                gemm(
                    &mut MatMut::new(d_normed, rows, hidden),
                    MatRef::new(dkv, rows, kv_width),
                    MatRef::new(weights.kv, kv_width, hidden),
                    false,
                );
                if queries.tokens.is_none() {
                    gemm(
                        &mut MatMut::new(d_normed, rows, hidden),
                        MatRef::new(dq, count, q_width).rows(first..first + rows),
                        MatRef::new(weights.q, q_width, hidden),
                        true,
                    );
                    dx.copy_from_slice(&d_middle[first * hidden..(first + rows) * hidden]);
                } else {
                    for (at, (dx, d_normed)) in dx
                        .chunks_exact_mut(hidden)
                        .zip(d_normed.chunks_exact_mut(hidden))
                        .enumerate()
                    {
                        match query_of[first + at] {
                            u32::MAX => dx.fill(0.0),
                            query => {
                                math::add(d_normed, row(d_from_q, query as usize, hidden));
                                dx.copy_from_slice(row(d_middle, query as usize, hidden));
                            }
                        }
                    }
                }
                let norm = NormBackward { weight: weights.input_norm, eps };
                norm.rows(dx, partial, normed, d_normed, x.chunks_exact(hidden));
            });
        });
    add_parts(grads.input_norm, &partial[..token_blocks * hidden]);
    let normed_queries: &[f32] =
        if queries.tokens.is_some() { &buffers.normed_queries } else { normed };
    let mut tiles = Vec::new();
    gemm_tiles(
        MatMut::new(grads.q, q_width, hidden),
        MatRef::new(dq, count, q_width).t(),
        MatRef::new(normed_queries, count, hidden),
        true,
        &mut tiles,
    );
    gemm_tiles(
        MatMut::new(grads.kv, kv_width, hidden),
        MatRef::new(dkv, tokens, kv_width).t(),
        MatRef::new(normed, tokens, hidden),
        true,
        &mut tiles,
    );
    run_tiles(tiles);
}

/// The RMS norm whose backward pass runs over rows.
pub(super) struct NormBackward<'a> {
    pub(super) weight: &'a [f32],
    pub(super) eps: f32,
}

impl NormBackward<'_> {
    /// Per row of `x`: recomputes the normed row, adds to `dx` and to the weight's gradient.
    pub(super) fn rows<'x>(
        &self,
        dx: &mut [f32],
        d_weight: &mut [f32],
        normed: &mut [f32],
        d_normed: &[f32],
        x: impl Iterator<Item = &'x [f32]>,
    ) {
        let width = self.weight.len();
        let rows = dx
            .chunks_exact_mut(width)
            .zip(normed.chunks_exact_mut(width))
            .zip(d_normed.chunks_exact(width))
            .zip(x);
        for (((dx, normed), d_normed), x) in rows {
            let scale = math::rms_norm(normed, x, self.weight, self.eps);
            math::rms_norm_backward(dx, d_weight, d_normed, x, self.weight, scale);
        }
    }
}
