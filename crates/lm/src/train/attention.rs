//! Causal grouped-query attention over packed rows, forward and backward.
//!
//! A task is one row and one key head, with all query heads that share it, so gradients of keys and values are
//! summed inside one task. Queries come in blocks; a block's scores are the only probabilities that exist, and the
//! backward pass computes them again from the saved log-sum-exp. Head norms and rotations are applied when a task gathers its
//! queries and keys, so only the raw projections are kept between the passes.

use rayon::prelude::*;

use super::batch::Span;
use super::buffer::with_scratch;
use crate::config::ModelConfig;
use crate::kernels::prefetch;
use crate::kernels::train_gemm::{Panels, multiply, panels_len};
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef};

/// Score rows (queries x heads of a group) computed at a time.
const SCORE_ROWS: usize = 64;
/// How many rows ahead of its use a head is fetched: the heads of a row lie side by side, so those of one head are too far
/// apart for the processor to see them coming.
const AHEAD: usize = 8;

/// Cosines and sines by position, `head_dim / 2` of each.
#[derive(Debug, Clone, Default)]
pub(super) struct RopeTable {
    cos: Vec<f32>,
    sin: Vec<f32>,
    half: usize,
}

impl RopeTable {
    /// Makes sure positions below `length` are tabulated.
    pub(super) fn grow(&mut self, config: &ModelConfig, length: usize) {
        self.half = config.head_dim / 2;
        let known = self.cos.len() / self.half;
        if known >= length {
            return;
        }
        let frequencies = config.rope_inverse_frequencies();
        for position in known..length {
            for frequency in &frequencies {
                let (sin, cos) = (position as f64 * frequency).sin_cos();
                self.cos.push(cos as f32);
                self.sin.push(sin as f32);
            }
        }
    }

    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let range = position * self.half..(position + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

/// What every attention call of a model shares.
#[derive(Clone, Copy)]
pub(super) struct AttentionShape<'a> {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) eps: f32,
    pub(super) rope: &'a RopeTable,
}

/// One layer's inputs: raw projections and where they belong.
#[derive(Clone, Copy)]
pub(super) struct AttentionInput<'a> {
    /// Queries x (heads * `head_dim`).
    pub(super) q: &'a [f32],
    /// Tokens x (2 * `kv_heads` * `head_dim`): keys, then values.
    pub(super) kv: &'a [f32],
    /// Query norm and key norm weights, if the model has them.
    pub(super) norms: Option<(&'a [f32], &'a [f32])>,
    /// The rows.
    pub(super) spans: &'a [Span],
    /// Per query, its position in its row.
    pub(super) positions: &'a [u32],
}

impl AttentionShape<'_> {
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Queries of one head per block.
    fn block(&self) -> usize {
        (SCORE_ROWS / self.group()).max(16)
    }

    fn score_scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Norm (if any) and rotation of one head.
    fn embed_position(
        &self,
        out: &mut [f32],
        raw: &[f32],
        norm: Option<&[f32]>,
        position: usize,
        factor: f32,
        normed: &mut [f32],
    ) {
        let (cos, sin) = self.rope.at(position);
        match norm {
            Some(weight) => {
                math::rms_norm(normed, raw, weight, self.eps);
                math::rotate(out, normed, cos, sin, factor);
            }
            None => math::rotate(out, raw, cos, sin, factor),
        }
    }

    /// Carries a gradient back through [`Self::embed_position`] (factor 1) into `out`.
    fn embed_position_backward(
        &self,
        out: &mut [f32],
        grad: &mut [f32],
        raw: &[f32],
        norm: Option<(&[f32], &mut [f32])>,
        position: usize,
        normed: &mut [f32],
    ) {
        let (cos, sin) = self.rope.at(position);
        math::rotate_back(grad, cos, sin);
        match norm {
            Some((weight, d_weight)) => {
                let scale = math::rms_norm(normed, raw, weight, self.eps);
                out.fill(0.0);
                math::rms_norm_backward(out, d_weight, grad, raw, weight, scale);
            }
            None => out.copy_from_slice(grad),
        }
    }
}

/// One row and one key head.
struct Job<'a> {
    input: AttentionInput<'a>,
    shape: AttentionShape<'a>,
    span: &'a Span,
    kv_head: usize,
}

impl<'a> Job<'a> {
    fn keys(&self) -> usize {
        self.span.keys.len()
    }

    fn queries(&self) -> usize {
        self.span.queries.len()
    }

    fn position(&self, query: usize) -> usize {
        self.input.positions[self.span.queries.start + query] as usize
    }

    fn raw_q(&self, query: usize, member: usize) -> &'a [f32] {
        let (dim, width) = (self.shape.head_dim, self.shape.heads * self.shape.head_dim);
        let row = (self.span.queries.start + query) * width;
        let head = self.kv_head * self.shape.group() + member;
        &self.input.q[row + head * dim..row + (head + 1) * dim]
    }

    fn raw_k(&self, key: usize) -> &'a [f32] {
        let (dim, width) = (self.shape.head_dim, 2 * self.shape.kv_width());
        let start = (self.span.keys.start + key) * width + self.kv_head * dim;
        &self.input.kv[start..start + dim]
    }

    fn raw_v(&self, key: usize) -> &'a [f32] {
        let (dim, width) = (self.shape.head_dim, 2 * self.shape.kv_width());
        let start =
            (self.span.keys.start + key) * width + self.shape.kv_width() + self.kv_head * dim;
        &self.input.kv[start..start + dim]
    }

    /// The values of this head, keys x `head_dim`.
    fn values(&self) -> MatRef<'a> {
        let (dim, width) = (self.shape.head_dim, 2 * self.shape.kv_width());
        let column = self.shape.kv_width() + self.kv_head * dim;
        MatRef::new(self.input.kv, self.input.kv.len() / width, width)
            .rows(self.span.keys.clone())
            .cols(column..column + dim)
    }

    fn gather_keys(&self, keys: &mut [f32], normed: &mut [f32]) {
        let norm = self.input.norms.map(|(_, k)| k);
        for (key, out) in keys.chunks_exact_mut(self.shape.head_dim).enumerate() {
            let ahead = key + AHEAD;
            if ahead < self.keys() {
                prefetch(self.raw_k(ahead));
                prefetch(self.raw_v(ahead));
            }
            self.shape.embed_position(out, self.raw_k(key), norm, key, 1.0, normed);
        }
    }

    /// Query block rows, member by member, scaled for the scores.
    fn gather_queries(&self, block: &std::ops::Range<usize>, out: &mut [f32], normed: &mut [f32]) {
        let norm = self.input.norms.map(|(q, _)| q);
        let mut rows = out.chunks_exact_mut(self.shape.head_dim);
        for member in 0..self.shape.group() {
            for (query, out) in block.clone().zip(&mut rows) {
                if query + AHEAD < self.queries() {
                    prefetch(self.raw_q(query + AHEAD, member));
                }
                self.shape.embed_position(
                    out,
                    self.raw_q(query, member),
                    norm,
                    self.position(query),
                    self.shape.score_scale(),
                    normed,
                );
            }
        }
    }

    fn blocks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (count, height) = (self.queries(), self.shape.block());
        (0..count.div_ceil(height)).map(move |i| i * height..((i + 1) * height).min(count))
    }

    fn forward(&self, mut out: MatMut<'_>, lse: &mut [f32]) {
        let (dim, group) = (self.shape.head_dim, self.shape.group());
        let (keys, most) = (self.keys(), self.shape.block() * group);
        let lengths = [
            keys * dim,
            panels_len(dim, keys),
            panels_len(keys, dim),
            most * dim,
            most * keys,
            most * dim,
            dim,
        ];
        with_scratch(lengths, |[rows_of_k, k_t, v, queries, scores, mixed, normed]| {
            self.gather_keys(rows_of_k, normed);
            let k_t = Panels::pack(k_t, MatRef::new(rows_of_k, keys, dim).t());
            let v = Panels::pack(v, self.values());
            for block in self.blocks() {
                let rows = block.len() * group;
                let visible = self.position(block.end - 1) + 1;
                self.gather_queries(&block, &mut queries[..rows * dim], normed);
                let q = MatRef::new(queries, rows, dim);
                let seen_k = k_t.first_cols(visible);
                multiply(&mut MatMut::new(scores, rows, visible), q, seen_k, false);
                for (row, scores) in scores[..rows * visible].chunks_exact_mut(visible).enumerate()
                {
                    let (member, query) = (row / block.len(), block.start + row % block.len());
                    let seen = self.position(query) + 1;
                    let (max, sum) = math::softmax_numerators(scores, seen);
                    math::scale(&mut scores[..seen], 1.0 / sum);
                    lse[member * self.queries() + query] = max + sum.ln();
                }
                let p = MatRef::new(scores, rows, visible);
                multiply(&mut MatMut::new(mixed, rows, dim), p, v.first_rows(visible), false);
                for (row, mixed) in mixed[..rows * dim].chunks_exact(dim).enumerate() {
                    let (member, query) = (row / block.len(), block.start + row % block.len());
                    out.row(query)[member * dim..(member + 1) * dim].copy_from_slice(mixed);
                }
            }
        });
    }

    fn backward(&self, saved: &Saved<'_>, mut grads: JobGrads<'_>) {
        let (dim, group) = (self.shape.head_dim, self.shape.group());
        let (keys, most) = (self.keys(), self.shape.block() * group);
        let lengths = [
            keys * dim,
            panels_len(dim, keys),
            panels_len(keys, dim),
            panels_len(dim, keys),
            keys * dim,
            keys * dim,
            most * dim,
            most * dim,
            panels_len(most, dim),
            most * keys,
            most * keys,
            most * dim,
            dim,
        ];
        with_scratch(
            lengths,
            |[rows_of_k, k_t, k, v_t, dk, dv, q, d_out, pack, scores, d_scores, dq, normed]| {
                self.gather_keys(rows_of_k, normed);
                let k_rows = MatRef::new(rows_of_k, keys, dim);
                let k_t = Panels::pack(k_t, k_rows.t());
                let k = Panels::pack(k, k_rows);
                let v_t = Panels::pack(v_t, self.values().t());
                dk.fill(0.0);
                dv.fill(0.0);
                for block in self.blocks() {
                    let rows = block.len() * group;
                    let visible = self.position(block.end - 1) + 1;
                    self.gather_queries(&block, &mut q[..rows * dim], normed);
                    for (row, target) in d_out[..rows * dim].chunks_exact_mut(dim).enumerate() {
                        let (member, query) = (row / block.len(), block.start + row % block.len());
                        target.copy_from_slice(self.head_of(saved.d_out, query, member));
                    }
                    let q_block = MatRef::new(q, rows, dim);
                    let d_out_block = MatRef::new(d_out, rows, dim);
                    let (seen_k, seen_v) = (k_t.first_cols(visible), v_t.first_cols(visible));
                    multiply(&mut MatMut::new(scores, rows, visible), q_block, seen_k, false);
                    multiply(&mut MatMut::new(d_scores, rows, visible), d_out_block, seen_v, false);
                    let score_rows = scores[..rows * visible].chunks_exact_mut(visible);
                    let grad_rows = d_scores[..rows * visible].chunks_exact_mut(visible);
                    for (row, (scores, grad)) in score_rows.zip(grad_rows).enumerate() {
                        let (member, query) = (row / block.len(), block.start + row % block.len());
                        let upstream = &d_out[row * dim..(row + 1) * dim];
                        let delta = math::dot(upstream, self.head_of(saved.out, query, member));
                        let lse = saved.lse[member * self.queries() + query];
                        math::softmax_backward(scores, grad, self.position(query) + 1, lse, delta);
                    }
                    let p = MatRef::new(scores, rows, visible);
                    let ds = MatRef::new(d_scores, rows, visible);
                    multiply(&mut MatMut::new(dq, rows, dim), ds, k.first_rows(visible), false);
                    let q_panels = Panels::pack(pack, q_block);
                    multiply(&mut MatMut::new(dk, visible, dim), ds.t(), q_panels, true);
                    let d_out_panels = Panels::pack(pack, d_out_block);
                    multiply(&mut MatMut::new(dv, visible, dim), p.t(), d_out_panels, true);
                    for (row, dq) in dq[..rows * dim].chunks_exact_mut(dim).enumerate() {
                        let (member, query) = (row / block.len(), block.start + row % block.len());
                        math::scale(dq, self.shape.score_scale());
                        let norm = match (self.input.norms, &mut grads.d_norms) {
                            (Some((weight, _)), Some(d_norms)) => {
                                Some((weight, &mut d_norms[..dim]))
                            }
                            _ => None,
                        };
                        let out = &mut grads.dq.row(query)[member * dim..(member + 1) * dim];
                        let raw = self.raw_q(query, member);
                        self.shape.embed_position_backward(
                            out,
                            dq,
                            raw,
                            norm,
                            self.position(query),
                            normed,
                        );
                    }
                }
                let rows = dk.chunks_exact_mut(dim).zip(dv.chunks_exact(dim));
                for (key, (dk, dv)) in rows.enumerate() {
                    let norm = match (self.input.norms, &mut grads.d_norms) {
                        (Some((_, weight)), Some(d_norms)) => Some((weight, &mut d_norms[dim..])),
                        _ => None,
                    };
                    let out = grads.dk.row(key);
                    let raw = self.raw_k(key);
                    self.shape.embed_position_backward(out, dk, raw, norm, key, normed);
                    grads.dv.row(key).copy_from_slice(dv);
                }
            },
        );
    }

    /// One head of one query in a queries x width array of the whole micro-batch.
    fn head_of<'b>(&self, data: &'b [f32], query: usize, member: usize) -> &'b [f32] {
        let (dim, width) = (self.shape.head_dim, self.shape.heads * self.shape.head_dim);
        let start = (self.span.queries.start + query) * width
            + (self.kv_head * self.shape.group() + member) * dim;
        &data[start..start + dim]
    }
}

/// What the backward pass of one job reads.
struct Saved<'a> {
    d_out: &'a [f32],
    out: &'a [f32],
    lse: &'a [f32],
}

/// What the backward pass of one job writes.
struct JobGrads<'a> {
    dq: MatMut<'a>,
    dk: MatMut<'a>,
    dv: MatMut<'a>,
    /// Gradients of the query norm and the key norm, to be summed over jobs.
    d_norms: Option<&'a mut [f32]>,
}

/// Splits a queries (or tokens) x width matrix into one part per row and key head, rows first.
fn split(
    data: &mut [f32],
    width: usize,
    row_lengths: impl Iterator<Item = usize>,
    band: usize,
) -> Vec<MatMut<'_>> {
    let rows = data.len() / width;
    let mut rest = MatMut::new(data, rows, width);
    let mut parts = Vec::new();
    for length in row_lengths {
        let (row, tail) = rest.split_rows(length);
        rest = tail;
        parts.extend(row.col_bands(band));
    }
    parts
}

fn jobs<'a>(shape: AttentionShape<'a>, input: AttentionInput<'a>) -> impl Iterator<Item = Job<'a>> {
    input.spans.iter().flat_map(move |span| {
        (0..shape.kv_heads).map(move |kv_head| Job { input, shape, span, kv_head })
    })
}

/// Computes the mixed values `out` (queries x heads * `head_dim`) and the log-sum-exp of every score row.
pub(super) fn forward(
    shape: AttentionShape<'_>,
    input: AttentionInput<'_>,
    out: &mut [f32],
    lse: &mut [f32],
) {
    let (dim, group) = (shape.head_dim, shape.group());
    let query_counts = input.spans.iter().map(|span| span.queries.len());
    let outs = split(out, shape.heads * dim, query_counts, group * dim);
    let mut rest = lse;
    let work: Vec<_> = jobs(shape, input)
        .zip(outs)
        .map(|(job, out)| {
            let (lse, tail) = std::mem::take(&mut rest).split_at_mut(job.queries() * group);
            rest = tail;
            (job, out, lse)
        })
        .collect();
    work.into_par_iter().with_max_len(1).for_each(|(job, out, lse)| job.forward(out, lse));
}

/// The gradients of one layer's raw projections and head norms.
pub(super) struct AttentionGrads<'a> {
    /// Queries x (heads * `head_dim`), overwritten.
    pub(super) dq: &'a mut [f32],
    /// Tokens x (2 * `kv_heads` * `head_dim`), overwritten.
    pub(super) dkv: &'a mut [f32],
    /// Query norm and key norm gradients, added to.
    pub(super) d_norms: Option<(&'a mut [f32], &'a mut [f32])>,
}

/// Backward of [`forward`].
pub(super) fn backward(
    shape: AttentionShape<'_>,
    input: AttentionInput<'_>,
    out: &[f32],
    lse: &[f32],
    d_out: &[f32],
    grads: AttentionGrads<'_>,
) {
    let (dim, group) = (shape.head_dim, shape.group());
    let count = input.spans.len() * shape.kv_heads;
    let query_counts = input.spans.iter().map(|span| span.queries.len());
    let dqs = split(grads.dq, shape.heads * dim, query_counts, group * dim);
    let key_counts = input.spans.iter().map(|span| span.keys.len());
    let mut bands = split(grads.dkv, 2 * shape.kv_width(), key_counts, dim).into_iter();
    let (mut dks, mut dvs) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for _ in input.spans {
        dks.extend(bands.by_ref().take(shape.kv_heads));
        dvs.extend(bands.by_ref().take(shape.kv_heads));
    }
    let mut partial = vec![0.0; if grads.d_norms.is_some() { count * 2 * dim } else { 0 }];
    let mut partials = partial.chunks_exact_mut(2 * dim);
    let mut rest = lse;
    let work: Vec<_> = jobs(shape, input)
        .zip(dqs)
        .zip(dks.into_iter().zip(dvs))
        .map(|((job, dq), (dk, dv))| {
            let (lse, tail) = rest.split_at(job.queries() * group);
            rest = tail;
            (job, Saved { d_out, out, lse }, JobGrads { dq, dk, dv, d_norms: partials.next() })
        })
        .collect();
    work.into_par_iter()
        .with_max_len(1)
        .for_each(|(job, saved, grads)| job.backward(&saved, grads));
    if let Some((d_q_norm, d_k_norm)) = grads.d_norms {
        for part in partial.chunks_exact(2 * dim) {
            math::add(d_q_norm, &part[..dim]);
            math::add(d_k_norm, &part[dim..]);
        }
    }
}
