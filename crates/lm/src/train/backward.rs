//! The backward pass of one block.

use rayon::prelude::*;

use super::adapter_gradients::{AdapterBuffers, AdapterGrads, AdapterInput};
use super::adapters::Projection;
use super::attention::{self, AttentionGrads, AttentionInput};
use super::buffer::{Buffer, with_scratch};
use super::forward::{
    LayerActivations, Model, PackBuffers, Queries, add_product, block_height, norm_rows, product,
    row,
};
use super::layout::LayerLayout;
use crate::config::ModelConfig;
use crate::kernels::train_gemm::{TokenPanels, gradient_bands, panels_len, run_bands};
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef};

/// Buffers of the backward pass, shared by all layers.
#[derive(Debug, Default)]
pub(super) struct BackwardBuffers {
    activated: Buffer,
    normed: Buffer,
    normed_queries: Buffer,
    d_middle: Buffer,
    d_mixed: Buffer,
    dq: Buffer,
    dkv: Buffer,
    d_from_q: Buffer,
    partial_norm: Buffer,
    partial_bias: Buffer,
    panels: [Buffer; 3],
    adapters: AdapterBuffers,
    query_of: Vec<u32>,
}

/// Where one block's gradients go.
pub(super) enum LayerGrads<'a> {
    /// Every parameter is trained.
    Whole(WholeGrads<'a>),
    /// Adapters are trained; no gradient of the block's own parameters is formed.
    Adapters(Box<AdapterGrads<'a>>),
}

/// One block's gradients when all of it is trained.
pub(super) struct WholeGrads<'a> {
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

impl<'a> WholeGrads<'a> {
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

/// Packs what a weight multiplied (tokens x width) for the weight's gradient.
fn pack_tokens<'a>(buffer: &'a mut Buffer, x: &[f32], width: usize) -> TokenPanels<'a> {
    let tokens = x.len() / width;
    TokenPanels::par_pack(buffer.fit(panels_len(tokens, width)), MatRef::new(x, tokens, width))
}

/// Sums of the columns of each block of rows.
fn column_sums(partial: &mut [f32], data: &[f32], width: usize, height: usize) {
    partial.par_chunks_exact_mut(width).zip(data.par_chunks(height * width)).for_each(
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
    packs: &mut PackBuffers,
) {
    let config = model.config;
    let weights = model.layer(layer);
    let packed = packs.backward(&weights);
    let (hidden, ff, eps) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps);
    let (q_width, kv_width) = (config.q_width(), 2 * config.kv_width());
    let (tokens, count) = (x.len() / hidden, queries.count());
    let mixed = acts.mixed.get(count * q_width);
    let middle = acts.middle.get(count * hidden);
    let gate_up = acts.gate_up.fit(count * 2 * ff);
    let (token_height, query_height) = (block_height(tokens), block_height(count));
    let query_blocks = count.div_ceil(query_height);
    let token_blocks = tokens.div_ceil(token_height);

    // Feed-forward and the output projection, token by token.
    let activated = buffers.activated.fit(count * ff);
    let normed = buffers.normed.fit(tokens.max(count) * hidden);
    let d_middle = buffers.d_middle.fit(count * hidden);
    let d_mixed = buffers.d_mixed.fit(count * q_width);
    let partial = buffers.partial_norm.fit(token_blocks.max(query_blocks) * hidden);
    d_next
        .par_chunks(query_height * hidden)
        .zip(middle.par_chunks(query_height * hidden))
        .zip(gate_up.par_chunks_mut(query_height * 2 * ff))
        .zip(activated.par_chunks_mut(query_height * ff))
        .zip(normed[..count * hidden].par_chunks_mut(query_height * hidden))
        .zip(d_middle.par_chunks_mut(query_height * hidden))
        .zip(d_mixed.par_chunks_mut(query_height * q_width))
        .zip(partial.par_chunks_exact_mut(hidden))
        .with_max_len(1)
        .for_each(
            |(
                ((((((d_next, middle), gate_up), activated), normed), d_middle), d_mixed),
                partial,
            )| {
                let rows = d_next.len() / hidden;
                product(activated, d_next, packed.down);
                for (d, both) in
                    activated.chunks_exact_mut(ff).zip(gate_up.chunks_exact_mut(2 * ff))
                {
                    let (gate, up) = both.split_at_mut(ff);
                    math::swiglu_backward(d, gate, up);
                }
                d_middle.copy_from_slice(d_next);
                partial.fill(0.0);
                with_scratch([rows * hidden], |[d_normed]| {
                    product(d_normed, gate_up, packed.gate_up);
                    let norm = NormBackward { weight: weights.post_norm, eps };
                    norm.rows(d_middle, partial, normed, d_normed, middle.chunks_exact(hidden));
                });
                product(d_mixed, d_middle, packed.o);
            },
        );
    let of_gate_up = MatRef::new(gate_up, count, 2 * ff);
    match &mut grads {
        LayerGrads::Whole(grads) => {
            add_parts(grads.post_norm, &partial[..query_blocks * hidden]);
            let [for_down, for_gate_up, for_o] = &mut buffers.panels;
            let mut bands = Vec::new();
            gradient_bands(
                MatMut::new(grads.down, hidden, ff),
                MatRef::new(d_next, count, hidden),
                pack_tokens(for_down, activated, ff),
                &mut bands,
            );
            gradient_bands(
                MatMut::new(grads.gate_up, 2 * ff, hidden),
                of_gate_up,
                pack_tokens(for_gate_up, &normed[..count * hidden], hidden),
                &mut bands,
            );
            gradient_bands(
                MatMut::new(grads.o, hidden, q_width),
                MatRef::new(d_middle, count, hidden),
                pack_tokens(for_o, mixed, q_width),
                &mut bands,
            );
            run_bands(bands);
        }
        LayerGrads::Adapters(grads) => {
            let inputs = [
                AdapterInput::new(
                    activated,
                    ff,
                    vec![(Projection::Down, MatRef::new(d_next, count, hidden))],
                ),
                AdapterInput::new(
                    &normed[..count * hidden],
                    hidden,
                    vec![
                        (Projection::Gate, of_gate_up.cols(0..ff)),
                        (Projection::Up, of_gate_up.cols(ff..2 * ff)),
                    ],
                ),
                AdapterInput::new(
                    mixed,
                    q_width,
                    vec![(Projection::O, MatRef::new(d_middle, count, hidden))],
                ),
            ];
            grads.add(&inputs, &mut buffers.adapters);
        }
    }

    let dq = buffers.dq.fit(count * q_width);
    let dkv = buffers.dkv.fit(tokens * kv_width);
    let input = AttentionInput {
        q: acts.q.get(count * q_width),
        kv: acts.kv.get(tokens * kv_width),
        norms: weights.qk_norm,
        spans: queries.spans,
        positions: queries.positions,
    };
    // Frozen norms are passed through as well; what they would learn is dropped.
    let mut unused = [Vec::new(), Vec::new()];
    let d_norms = match &mut grads {
        LayerGrads::Whole(grads) => grads.qk_norm.take(),
        LayerGrads::Adapters(_) => weights.qk_norm.map(|(q_norm, k_norm)| {
            unused = [vec![0.0; q_norm.len()], vec![0.0; k_norm.len()]];
            let [q, k] = &mut unused;
            (&mut q[..], &mut k[..])
        }),
    };
    attention::backward(
        model.attention_shape(),
        input,
        mixed,
        acts.lse.get(count * config.heads),
        d_mixed,
        AttentionGrads { dq, dkv, d_norms },
    );

    // The projections and the input norm.
    if let LayerGrads::Whole(WholeGrads { qkv_bias: Some(bias), .. }) = &mut grads {
        let (q_bias, kv_bias) = bias.split_at_mut(q_width);
        for (bias, data, width) in [(q_bias, &*dq, q_width), (kv_bias, &*dkv, kv_width)] {
            let height = block_height(data.len() / width);
            let blocks = (data.len() / width).div_ceil(height);
            let partial = buffers.partial_bias.fit(blocks * width);
            column_sums(partial, data, width, height);
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
            let d_from_q = buffers.d_from_q.fit(count * hidden);
            let normed_queries = buffers.normed_queries.fit(count * hidden);
            d_from_q
                .par_chunks_mut(query_height * hidden)
                .zip(normed_queries.par_chunks_mut(query_height * hidden))
                .zip(dq.par_chunks(query_height * q_width))
                .zip(wanted.par_chunks(query_height))
                .with_max_len(1)
                .for_each(|(((d_from_q, normed), dq), wanted)| {
                    product(d_from_q, dq, packed.q);
                    let x_rows = wanted.iter().map(|&token| row(x, token as usize, hidden));
                    norm_rows(normed, x_rows, weights.input_norm, eps);
                });
            d_from_q
        }
    };
    dx.par_chunks_mut(token_height * hidden)
        .zip(x.par_chunks(token_height * hidden))
        .zip(normed.par_chunks_mut(token_height * hidden))
        .zip(dkv.par_chunks(token_height * kv_width))
        .zip(partial.par_chunks_exact_mut(hidden))
        .enumerate()
        .with_max_len(1)
        .for_each(|(block, ((((dx, x), normed), dkv), partial))| {
            let (first, rows) = (block * token_height, x.len() / hidden);
            partial.fill(0.0);
            with_scratch([rows * hidden], |[d_normed]| {
                product(d_normed, dkv, packed.kv);
                if queries.tokens.is_none() {
                    let dq = &dq[first * q_width..(first + rows) * q_width];
                    add_product(d_normed, dq, packed.q);
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
    let normed_queries: &[f32] =
        if queries.tokens.is_some() { buffers.normed_queries.get(count * hidden) } else { normed };
    let (of_q, of_kv) = (MatRef::new(dq, count, q_width), MatRef::new(dkv, tokens, kv_width));
    match grads {
        LayerGrads::Whole(grads) => {
            add_parts(grads.input_norm, &partial[..token_blocks * hidden]);
            let [for_q, for_kv, _] = &mut buffers.panels;
            let mut bands = Vec::new();
            gradient_bands(
                MatMut::new(grads.q, q_width, hidden),
                of_q,
                pack_tokens(for_q, normed_queries, hidden),
                &mut bands,
            );
            gradient_bands(
                MatMut::new(grads.kv, kv_width, hidden),
                of_kv,
                pack_tokens(for_kv, normed, hidden),
                &mut bands,
            );
            run_bands(bands);
        }
        LayerGrads::Adapters(mut grads) => {
            let (of_k, of_v) = (of_kv.cols(0..kv_width / 2), of_kv.cols(kv_width / 2..kv_width));
            let inputs = [
                AdapterInput::new(normed_queries, hidden, vec![(Projection::Q, of_q)]),
                AdapterInput::new(
                    normed,
                    hidden,
                    vec![(Projection::K, of_k), (Projection::V, of_v)],
                ),
            ];
            grads.add(&inputs, &mut buffers.adapters);
        }
    }
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
