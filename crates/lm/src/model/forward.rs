//! The forward pass over new tokens of many sequences.
//!
//! Work is shared between threads in one of two ways. With enough rows (or a small model) each thread runs whole
//! sequences by itself; with few rows of a large model, or one long prompt, the threads share every matrix product.
//! The bits are the same either way.

use std::ops::Range;

use rayon::prelude::*;

use super::Inner;
use super::scratch::Scratch;
use super::weights::Layer;
use crate::cache::{KvFormat, PageSlices, SequenceCache};
use crate::kernels::attention::{self, QuerySegment};
use crate::kernels::elementwise;
use crate::kernels::matrix::Matrix;

/// Rows that go through the blocks together; bounds the memory of activations.
const CHUNK_ROWS: usize = 480;
/// The same for small models, whose activations then stay in the second-level cache.
const SMALL_CHUNK_ROWS: usize = 96;
/// Rows a thread should have before it is worth reading the weights by itself.
const ROWS_PER_THREAD: usize = 64;
/// Weights up to this size stay in the last-level cache, so every thread may read them.
const SMALL_WEIGHTS: usize = 16 << 20;
/// Numbers below which a row-wise operation is not worth sharing between threads.
const PARALLEL_VALUES: usize = 1 << 16;

/// New tokens of one sequence, and the positions among them whose last hidden states are wanted.
pub(crate) struct Segment<'a> {
    pub(crate) cache: &'a mut SequenceCache,
    pub(crate) tokens: &'a [u32],
    pub(crate) wanted: Range<usize>,
}

impl Inner {
    /// Runs the new tokens and fills the caches. The result has one row (after the final norm) for every wanted
    /// position, in the order of the segments.
    pub(crate) fn forward(&self, segments: &mut [Segment<'_>]) -> Matrix {
        let threads = rayon::current_num_threads();
        let rows: usize = segments.iter().map(|segment| segment.tokens.len()).sum();
        let alone = rows >= ROWS_PER_THREAD * threads || self.weights.bytes() <= SMALL_WEIGHTS;
        if threads == 1 || segments.len() == 1 || !alone {
            return self.forward_group(segments, threads > 1);
        }
        let target = rows.div_ceil(threads).clamp(1, self.chunk_rows());
        let mut groups: Vec<&mut [Segment<'_>]> = Vec::new();
        let mut rest = segments;
        while !rest.is_empty() {
            let mut count = 0;
            let mut taken = 0;
            while count < rest.len() && (count == 0 || taken + rest[count].tokens.len() <= target) {
                taken += rest[count].tokens.len();
                count += 1;
            }
            let (group, later) = rest.split_at_mut(count);
            groups.push(group);
            rest = later;
        }
        let parts: Vec<Matrix> =
            groups.into_par_iter().map(|group| self.forward_group(group, false)).collect();
        Matrix::from_rows(
            self.config.hidden_size,
            parts
                .iter()
                .flat_map(|part| (0..part.rows()).map(move |row| part.row(row)))
                .collect::<Vec<_>>()
                .into_iter(),
        )
    }

    fn chunk_rows(&self) -> usize {
        if self.weights.bytes() <= SMALL_WEIGHTS { SMALL_CHUNK_ROWS } else { CHUNK_ROWS }
    }

    fn forward_group(&self, segments: &mut [Segment<'_>], parallel: bool) -> Matrix {
        let mut scratch = self.scratch.take(&self.config);
        let hidden = self.forward_chunks(segments, parallel, &mut scratch);
        self.scratch.give_back(scratch);
        hidden
    }

    fn forward_chunks(
        &self,
        segments: &mut [Segment<'_>],
        parallel: bool,
        scratch: &mut Scratch,
    ) -> Matrix {
        let wanted = segments.iter().map(|segment| segment.wanted.len()).sum();
        let mut hidden = Matrix::zeros(wanted, self.config.hidden_size);
        let mut hidden_row = 0;
        let mut segment = 0;
        let mut token = 0;
        while segment < segments.len() {
            let mut room = self.chunk_rows();
            let mut pieces = Vec::new();
            let first = segment;
            while segment < segments.len() && room > 0 {
                let left = segments[segment].tokens.len() - token;
                let take = left.min(room);
                pieces.push(token..token + take);
                room -= take;
                if take < left {
                    token += take;
                    break;
                }
                segment += 1;
                token = 0;
            }
            let last = first + pieces.len();
            let mut chunk: Vec<Segment<'_>> = segments[first..last]
                .iter_mut()
                .zip(&pieces)
                .map(|(segment, piece)| Segment {
                    cache: segment.cache,
                    tokens: &segment.tokens[piece.clone()],
                    wanted: overlap(&segment.wanted, piece),
                })
                .collect();
            hidden_row = self.forward_chunk(&mut chunk, parallel, scratch, &mut hidden, hidden_row);
        }
        hidden
    }

    /// One pass; writes the wanted rows to `hidden` from `hidden_row` on and gives the row after them.
    fn forward_chunk(
        &self,
        segments: &mut [Segment<'_>],
        parallel: bool,
        scratch: &mut Scratch,
        hidden: &mut Matrix,
        hidden_row: usize,
    ) -> usize {
        let config = &self.config;
        let rows = segments.iter().map(|segment| segment.tokens.len()).sum();
        let mut places = Vec::with_capacity(rows);
        for (index, segment) in segments.iter_mut().enumerate() {
            let first = segment.cache.len();
            places.extend((0..segment.tokens.len()).map(|offset| (index, first + offset)));
            segment.cache.extend(segment.tokens);
        }
        scratch.set_rows(rows);
        let tokens = segments.iter().flat_map(|segment| segment.tokens);
        for (row, &token) in tokens.enumerate() {
            self.weights.embed(token, scratch.x.row_mut(row));
        }
        for (index, layer) in self.weights.layers.iter().enumerate() {
            self.project(layer, index, &places, segments, scratch, parallel);
            let last = index + 1 == config.layers;
            let queries = if last {
                let (kept, queries) = wanted_queries(segments);
                if kept.is_empty() {
                    return hidden_row;
                }
                scratch.keep_rows(&kept);
                queries
            } else {
                all_queries(segments)
            };
            self.attend(index, segments, &queries, scratch, parallel);
            self.mix(layer, scratch, parallel);
        }
        let x = &scratch.x;
        for row in 0..x.rows() {
            let out = hidden.row_mut(hidden_row + row);
            elementwise::rms_norm(
                self.isa,
                x.row(row),
                &self.weights.norm,
                config.rms_norm_eps,
                out,
            );
        }
        hidden_row + x.rows()
    }

    /// Queries, keys and values of every row; keys and values go to the caches.
    fn project(
        &self,
        layer: &Layer,
        index: usize,
        places: &[(usize, usize)],
        segments: &mut [Segment<'_>],
        scratch: &mut Scratch,
        parallel: bool,
    ) {
        let config = &self.config;
        let (isa, eps) = (self.isa, config.rms_norm_eps);
        let Scratch { x, normed, qkv, .. } = scratch;
        rows_mut(normed, parallel, |row, out| {
            elementwise::rms_norm(isa, x.row(row), &layer.input_norm, eps, out);
        });
        layer.qkv.matmul(isa, normed, qkv, parallel);
        let query_scale = 1.0 / (config.head_dim as f32).sqrt();
        rows_mut(qkv, parallel, |row, qkv| {
            let (cos, sin) = self.rope.at(places[row].1);
            let (q, rest) = qkv.split_at_mut(config.q_width());
            for head in q.chunks_exact_mut(config.head_dim) {
                if config.qk_norm {
                    elementwise::rms_norm_in_place(isa, head, &layer.q_norm, eps);
                }
                elementwise::rotate(isa, head, cos, sin, query_scale);
            }
            for head in rest[..config.kv_width()].chunks_exact_mut(config.head_dim) {
                if config.qk_norm {
                    elementwise::rms_norm_in_place(isa, head, &layer.k_norm, eps);
                }
                elementwise::rotate(isa, head, cos, sin, 1.0);
            }
        });
        for (row, &(segment, position)) in places.iter().enumerate() {
            let (keys, values) = qkv.row(row)[config.q_width()..].split_at(config.kv_width());
            segments[segment].cache.write(index, position, keys, values);
        }
    }

    fn attend(
        &self,
        layer: usize,
        segments: &[Segment<'_>],
        queries: &[Query],
        scratch: &mut Scratch,
        parallel: bool,
    ) {
        let (isa, shape) = (self.isa, self.head_shape());
        let Scratch { qkv, attended, .. } = scratch;
        match self.kv_format {
            KvFormat::F32 => {
                let segments: Vec<_> = queries
                    .iter()
                    .filter_map(|query| match segments[query.segment].cache.pages() {
                        PageSlices::F32(pages) => Some(query.with(pages)),
                        PageSlices::Bf16(_) => None,
                    })
                    .collect();
                attention::attend(isa, shape, layer, qkv, &segments, attended, parallel);
            }
            KvFormat::Bf16 => {
                let segments: Vec<_> = queries
                    .iter()
                    .filter_map(|query| match segments[query.segment].cache.pages() {
                        PageSlices::Bf16(pages) => Some(query.with(pages)),
                        PageSlices::F32(_) => None,
                    })
                    .collect();
                attention::attend(isa, shape, layer, qkv, &segments, attended, parallel);
            }
        }
    }

    /// Output projection and feed-forward, each added to the residual stream.
    fn mix(&self, layer: &Layer, scratch: &mut Scratch, parallel: bool) {
        let config = &self.config;
        let (isa, eps) = (self.isa, config.rms_norm_eps);
        let Scratch { x, normed, attended, projected, gate_up, activated, .. } = scratch;
        layer.o.matmul(isa, attended, projected, parallel);
        rows_mut(x, parallel, |row, x| elementwise::add(isa, x, projected.row(row)));
        rows_mut(normed, parallel, |row, out| {
            elementwise::rms_norm(isa, x.row(row), &layer.post_norm, eps, out);
        });
        layer.gate_up.matmul(isa, normed, gate_up, parallel);
        rows_mut(activated, parallel, |row, out| {
            let (gate, up) = gate_up.row(row).split_at(config.intermediate_size);
            elementwise::silu_mul(isa, gate, up, out);
        });
        layer.down.matmul(isa, activated, projected, parallel);
        rows_mut(x, parallel, |row, x| elementwise::add(isa, x, projected.row(row)));
    }
}

/// Rows of the query matrix that belong to one sequence.
struct Query {
    segment: usize,
    first_row: usize,
    tokens: usize,
    position: usize,
}

impl Query {
    fn with<'a, E>(&self, pages: Vec<&'a [E]>) -> QuerySegment<'a, E> {
        QuerySegment {
            first_row: self.first_row,
            tokens: self.tokens,
            position: self.position,
            pages,
        }
    }
}

fn all_queries(segments: &[Segment<'_>]) -> Vec<Query> {
    let mut first_row = 0;
    segments
        .iter()
        .enumerate()
        .map(|(segment, piece)| {
            let tokens = piece.tokens.len();
            let position = piece.cache.len() - tokens;
            first_row += tokens;
            Query { segment, first_row: first_row - tokens, tokens, position }
        })
        .collect()
}

/// The wanted rows alone: which they are, and where they lie once the others are gone.
fn wanted_queries(segments: &[Segment<'_>]) -> (Vec<usize>, Vec<Query>) {
    let mut kept = Vec::new();
    let mut queries = Vec::new();
    for query in all_queries(segments) {
        let wanted = &segments[query.segment].wanted;
        if wanted.is_empty() {
            continue;
        }
        queries.push(Query {
            first_row: kept.len(),
            tokens: wanted.len(),
            position: query.position + wanted.start,
            ..query
        });
        kept.extend(wanted.clone().map(|token| query.first_row + token));
    }
    (kept, queries)
}

/// The part of `wanted` inside `piece`, counted from the start of `piece`.
fn overlap(wanted: &Range<usize>, piece: &Range<usize>) -> Range<usize> {
    let start = wanted.start.clamp(piece.start, piece.end);
    let end = wanted.end.clamp(start, piece.end);
    start - piece.start..end - piece.start
}

/// Applies `change` to every row, on all threads if that pays.
fn rows_mut(matrix: &mut Matrix, parallel: bool, change: impl Fn(usize, &mut [f32]) + Sync) {
    let (cols, stride) = (matrix.cols(), matrix.stride());
    if parallel && matrix.padded().len() >= PARALLEL_VALUES {
        let rows = matrix.padded_mut().par_chunks_exact_mut(stride).enumerate();
        rows.with_min_len(8).for_each(|(row, values)| change(row, &mut values[..cols]));
    } else {
        for (row, values) in matrix.padded_mut().chunks_exact_mut(stride).enumerate() {
            change(row, &mut values[..cols]);
        }
    }
}
