//! The forward pass of one block over packed rows, keeping what the backward pass needs.

use rayon::prelude::*;

use super::adapters::{Adapters, Projection};
use super::attention::{self, AttentionInput, AttentionShape, RopeTable};
use super::batch::{MicroBatch, Span};
use super::buffer::{Buffer, with_scratch};
use super::layout::{LayerLayout, Layout};
use super::weights::{Base, Values};
use crate::config::ModelConfig;
use crate::kernels::train_gemm::{LowRank, Panels, multiply, panels_len};
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef, Widen};

/// Tokens a thread takes through the chain of products at a time, at most.
const TOKEN_BLOCK: usize = 96;

/// The height of the equal blocks that `rows` are cut into: whole strips of the product's kernel, an even number of
/// blocks where there are enough rows.
pub(super) fn block_height(rows: usize) -> usize {
    let blocks = 2 * rows.div_ceil(2 * TOKEN_BLOCK).max(1);
    rows.div_ceil(blocks).next_multiple_of(6)
}

/// A model's shape and weights.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) config: &'a ModelConfig,
    pub(super) layout: &'a Layout,
    pub(super) base: &'a Base,
    /// What is trained when the base is frozen.
    pub(super) adapters: Option<&'a Adapters>,
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

/// A weight of a block, or several below one another, and what adapters add to it.
pub(super) struct Stacked<'a> {
    values: Values<'a>,
    outputs: usize,
    inputs: usize,
    added: Vec<LowRank<'a>>,
}

/// One block's weights.
pub(super) struct LayerWeights<'a> {
    pub(super) input_norm: &'a [f32],
    q: Stacked<'a>,
    kv: Stacked<'a>,
    pub(super) q_bias: Option<&'a [f32]>,
    pub(super) kv_bias: Option<&'a [f32]>,
    pub(super) qk_norm: Option<(&'a [f32], &'a [f32])>,
    o: Stacked<'a>,
    pub(super) post_norm: &'a [f32],
    gate_up: Stacked<'a>,
    down: Stacked<'a>,
}

impl<'a> Model<'a> {
    pub(super) fn layer(&self, layer: usize) -> LayerWeights<'a> {
        let LayerLayout { input_norm, qkv, qkv_bias, qk_norm, o, post_norm, gate_up, down } =
            &self.layout.layers[layer];
        let (base, config) = (self.base, self.config);
        let (hidden, ff) = (config.hidden_size, config.intermediate_size);
        let (q_width, kv_width) = (config.q_width(), config.kv_width());
        let stacked = |values: Values<'a>, inputs: usize, parts: &[(Projection, usize)]| {
            let added = parts.iter().filter_map(|&(projection, first)| {
                Some(self.adapters?.get(layer, projection)?.low_rank(first))
            });
            Stacked { values, outputs: values.len() / inputs, inputs, added: added.collect() }
        };
        let qkv = base.matrix(qkv);
        let (q, kv) = (qkv.slice(0..q_width * hidden), qkv.slice(q_width * hidden..qkv.len()));
        let bias = qkv_bias.as_ref().map(|range| base.small(range).split_at(q_width));
        LayerWeights {
            input_norm: base.small(input_norm),
            q: stacked(q, hidden, &[(Projection::Q, 0)]),
            kv: stacked(kv, hidden, &[(Projection::K, 0), (Projection::V, kv_width)]),
            q_bias: bias.map(|(q, _)| q),
            kv_bias: bias.map(|(_, kv)| kv),
            qk_norm: qk_norm.as_ref().map(|(q, k)| (base.small(q), base.small(k))),
            o: stacked(base.matrix(o), q_width, &[(Projection::O, 0)]),
            post_norm: base.small(post_norm),
            gate_up: stacked(
                base.matrix(gate_up),
                hidden,
                &[(Projection::Gate, 0), (Projection::Up, ff)],
            ),
            down: stacked(base.matrix(down), ff, &[(Projection::Down, 0)]),
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
    pub(super) q: Buffer,
    /// Raw keys and values.
    pub(super) kv: Buffer,
    /// Attention's output before the output projection.
    pub(super) mixed: Buffer,
    /// Log-sum-exp of the score rows.
    pub(super) lse: Buffer,
    /// The residual stream between attention and feed-forward.
    pub(super) middle: Buffer,
    /// gate and up projections.
    pub(super) gate_up: Buffer,
}

/// Room for one block's packed weights.
#[derive(Debug, Default)]
pub(super) struct PackBuffers([Buffer; 5]);

/// One block's projections, packed for products with tokens on the left.
#[derive(Clone, Copy)]
pub(super) struct PackedLayer<'a> {
    pub(super) q: Panels<'a>,
    pub(super) kv: Panels<'a>,
    pub(super) o: Panels<'a>,
    pub(super) gate_up: Panels<'a>,
    pub(super) down: Panels<'a>,
}

impl PackBuffers {
    /// Packs the weights transposed, as the forward pass multiplies by them.
    pub(super) fn forward(&mut self, weights: &LayerWeights<'_>) -> PackedLayer<'_> {
        self.pack(weights, true)
    }

    /// Packs the weights as they are, as the backward pass multiplies by them.
    pub(super) fn backward(&mut self, weights: &LayerWeights<'_>) -> PackedLayer<'_> {
        self.pack(weights, false)
    }

    fn pack(&mut self, weights: &LayerWeights<'_>, transposed: bool) -> PackedLayer<'_> {
        let [q, kv, o, gate_up, down] = &mut self.0;
        PackedLayer {
            q: pack_weight(q, &weights.q, transposed),
            kv: pack_weight(kv, &weights.kv, transposed),
            o: pack_weight(o, &weights.o, transposed),
            gate_up: pack_weight(gate_up, &weights.gate_up, transposed),
            down: pack_weight(down, &weights.down, transposed),
        }
    }
}

fn pack_weight<'a>(buffer: &'a mut Buffer, weight: &Stacked<'_>, transposed: bool) -> Panels<'a> {
    let &Stacked { values, outputs, inputs, ref added } = weight;
    match values {
        Values::F32(values) => {
            pack_matrix(buffer, MatRef::new(values, outputs, inputs), added, transposed)
        }
        Values::Bf16(values) => {
            pack_matrix(buffer, MatRef::new(values, outputs, inputs), added, transposed)
        }
    }
}

fn pack_matrix<'a, T: Widen>(
    buffer: &'a mut Buffer,
    weight: MatRef<'_, T>,
    added: &[LowRank<'_>],
    transposed: bool,
) -> Panels<'a> {
    let (outputs, inputs) = weight.shape();
    if transposed {
        let added: Vec<LowRank<'_>> = added.iter().map(|part| part.t()).collect();
        Panels::par_pack_sum(buffer.fit(panels_len(inputs, outputs)), weight.t(), &added)
    } else {
        Panels::par_pack_sum(buffer.fit(panels_len(outputs, inputs)), weight, added)
    }
}

/// `out = x * weight (+ bias)`.
fn linear(out: &mut [f32], x: &[f32], weight: Panels<'_>, bias: Option<&[f32]>) {
    let (depth, width) = weight.shape();
    let rows = x.len() / depth;
    if let Some(bias) = bias {
        for row in out.chunks_exact_mut(width) {
            row.copy_from_slice(bias);
        }
    }
    let out = &mut MatMut::new(out, rows, width);
    multiply(out, MatRef::new(x, rows, depth), weight, bias.is_some());
}

/// `out += x * weight`.
pub(super) fn add_product(out: &mut [f32], x: &[f32], weight: Panels<'_>) {
    let (depth, width) = weight.shape();
    let rows = x.len() / depth;
    multiply(&mut MatMut::new(out, rows, width), MatRef::new(x, rows, depth), weight, true);
}

/// `out = x * weight`.
pub(super) fn product(out: &mut [f32], x: &[f32], weight: Panels<'_>) {
    linear(out, x, weight, None);
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
    packs: &mut PackBuffers,
    next: Option<&mut [f32]>,
) {
    let config = model.config;
    let weights = model.layer(layer);
    let packed = packs.forward(&weights);
    let (hidden, ff, eps) = (config.hidden_size, config.intermediate_size, config.rms_norm_eps);
    let (q_width, kv_width) = (config.q_width(), 2 * config.kv_width());
    let (tokens, count) = (x.len() / hidden, queries.count());
    let q = acts.q.fit(count * q_width);
    let kv = acts.kv.fit(tokens * kv_width);

    let (token_block, query_block) = (block_height(tokens), block_height(count));
    let x_blocks = x.par_chunks(token_block * hidden);
    let kv_blocks = kv.par_chunks_mut(token_block * kv_width);
    let q_blocks = q.par_chunks_mut(query_block * q_width);
    match queries.tokens {
        None => x_blocks.zip(kv_blocks).zip(q_blocks).with_max_len(1).for_each(|((x, kv), q)| {
            with_scratch([x.len()], |[normed]| {
                norm_rows(normed, x.chunks_exact(hidden), weights.input_norm, eps);
                linear(q, normed, packed.q, weights.q_bias);
                linear(kv, normed, packed.kv, weights.kv_bias);
            });
        }),
        Some(wanted) => {
            x_blocks.zip(kv_blocks).with_max_len(1).for_each(|(x, kv)| {
                with_scratch([x.len()], |[normed]| {
                    norm_rows(normed, x.chunks_exact(hidden), weights.input_norm, eps);
                    linear(kv, normed, packed.kv, weights.kv_bias);
                });
            });
            let wanted = wanted.par_chunks(query_block);
            q_blocks.zip(wanted).with_max_len(1).for_each(|(q, wanted)| {
                with_scratch([wanted.len() * hidden], |[normed]| {
                    let rows = wanted.iter().map(|&token| row(x, token as usize, hidden));
                    norm_rows(normed, rows, weights.input_norm, eps);
                    linear(q, normed, packed.q, weights.q_bias);
                });
            });
        }
    }

    let mixed = acts.mixed.fit(count * q_width);
    let lse = acts.lse.fit(count * config.heads);
    let input = AttentionInput {
        q,
        kv,
        norms: weights.qk_norm,
        spans: queries.spans,
        positions: queries.positions,
    };
    attention::forward(model.attention_shape(), input, mixed, lse);

    let middle = acts.middle.fit(count * hidden);
    let gate_up = acts.gate_up.fit(count * 2 * ff);
    let mut next_blocks = next.map(|next| next.chunks_mut(query_block * hidden));
    let work: Vec<_> = mixed
        .chunks(query_block * q_width)
        .zip(middle.chunks_mut(query_block * hidden))
        .zip(gate_up.chunks_mut(query_block * 2 * ff))
        .enumerate()
        .map(|(block, parts)| {
            (block * query_block, parts, next_blocks.as_mut().and_then(Iterator::next))
        })
        .collect();
    work.into_par_iter().with_max_len(1).for_each(|(first, ((mixed, middle), gate_up), next)| {
        for (at, middle) in middle.chunks_exact_mut(hidden).enumerate() {
            middle.copy_from_slice(row(x, queries.token(first + at), hidden));
        }
        let rows = mixed.len() / q_width;
        add_product(middle, mixed, packed.o);
        with_scratch([rows * hidden, rows * ff], |[normed, activated]| {
            norm_rows(normed, middle.chunks_exact(hidden), weights.post_norm, eps);
            product(gate_up, normed, packed.gate_up);
            if let Some(next) = next {
                for (out, both) in activated.chunks_exact_mut(ff).zip(gate_up.chunks_exact(2 * ff))
                {
                    math::swiglu(out, &both[..ff], &both[ff..]);
                }
                next.copy_from_slice(middle);
                add_product(next, activated, packed.down);
            }
        });
    });
}

/// One row of a row-major matrix.
pub(super) fn row(data: &[f32], at: usize, width: usize) -> &[f32] {
    &data[at * width..(at + 1) * width]
}
