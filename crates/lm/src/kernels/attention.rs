//! Causal attention over pages of cached keys and values.
//!
//! A page holds sixteen positions: for every layer and key head the keys as one panel
//! (`[head_dim][16 positions]`) and the values as rows (`[16 positions][head_dim, padded]`).
//!
//! A query row sees its keys in blocks of [`BLOCK`] positions, counted from the start of its sequence. The softmax of
//! a block is taken relative to the largest score so far; what earlier blocks added is scaled down when a later one
//! raises it. The blocks are the same whatever the batch and the query's neighbors, so a row's result depends on its
//! own position and the pages alone. Scores of more than a block never exist, so that a long context stays in the
//! caches.

use std::ops::Range;

use rayon::prelude::*;

use super::dispatch::Isa;
use super::elementwise;
use super::matrix::{Matrix, PANEL};
use super::tile::{self, Element, Finish, Panels, Rows, Side};

/// Positions in a page.
pub(crate) const PAGE: usize = PANEL;
/// Positions of a block of keys; part of the result's definition.
const BLOCK: usize = 512;
/// Query rows that share one walk over the keys.
const QUERY_ROWS: usize = 96;
/// Bytes of keys (or values) that all query rows use before the walk goes on: they stay in the first-level cache.
const REUSED_BYTES: usize = 16 << 10;
/// Query positions of one task.
const TASK_TOKENS: usize = 64;

/// The sizes attention needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadShape {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl HeadShape {
    /// Width of a value row: the head padded to whole panels.
    pub(crate) fn value_width(self) -> usize {
        self.head_dim.next_multiple_of(PANEL)
    }

    /// Numbers a page holds for one layer and one key head.
    pub(crate) fn block_len(self) -> usize {
        PAGE * (self.head_dim + self.value_width())
    }

    /// Where the keys (and, `PAGE * head_dim` later, the values) of a layer and key head start in a page.
    pub(crate) fn block_start(self, layer: usize, kv_head: usize) -> usize {
        (layer * self.kv_heads + kv_head) * self.block_len()
    }
}

/// Consecutive query positions of one sequence.
#[derive(Debug)]
pub(crate) struct QuerySegment<'a, E> {
    /// Where its rows start in the query matrix.
    pub(crate) first_row: usize,
    /// Number of positions.
    pub(crate) tokens: usize,
    /// Position of the first.
    pub(crate) position: usize,
    /// The sequence's pages; those of the query positions included.
    pub(crate) pages: Vec<&'a [E]>,
}

/// Attention of every query row over the keys up to its own position. `queries` holds rotated, scaled
/// queries in its first columns; `out` gets the heads side by side.
pub(crate) fn attend<E: Element>(
    isa: Isa,
    shape: HeadShape,
    layer: usize,
    queries: &Matrix,
    segments: &[QuerySegment<'_, E>],
    out: &mut Matrix,
    parallel: bool,
) {
    assert!(queries.cols() >= shape.heads * shape.head_dim && queries.rows() == out.rows());
    assert_eq!(out.cols(), shape.heads * shape.head_dim);
    let out = Output { stride: out.stride(), data: out.padded_mut().as_mut_ptr() };
    let mut tasks = Vec::new();
    for segment in segments {
        assert!(segment.first_row + segment.tokens <= queries.rows());
        assert!(segment.pages.len() * PAGE >= segment.position + segment.tokens);
        for kv_head in 0..shape.kv_heads {
            for first in (0..segment.tokens).step_by(TASK_TOKENS) {
                let tokens = first..segment.tokens.min(first + TASK_TOKENS);
                tasks.push(Task { segment, kv_head, tokens });
            }
        }
    }
    let run = |scratch: &mut Scratch<E>, task: &Task<'_, E>| {
        let group = shape.heads / shape.kv_heads;
        let step = (QUERY_ROWS / group).max(1);
        for first in task.tokens.clone().step_by(step) {
            let (segment, kv_head) = (task.segment, task.kv_head);
            let tokens = first..task.tokens.end.min(first + step);
            let start = shape.block_start(layer, kv_head);
            let block = QueryBlock { isa, shape, segment, kv_head, tokens, start };
            // SAFETY: the tasks cover disjoint rows and heads of an output that is mutably borrowed.
            unsafe { block.run(queries, out, scratch) };
        }
    };
    if parallel && tasks.len() > 1 {
        tasks.par_iter().for_each_init(Scratch::default, run);
    } else {
        let mut scratch = Scratch::default();
        for task in &tasks {
            run(&mut scratch, task);
        }
    }
}

/// Some query positions of a segment, for the query heads that share one key head.
struct Task<'a, E> {
    segment: &'a QuerySegment<'a, E>,
    kv_head: usize,
    tokens: Range<usize>,
}

#[derive(Clone, Copy)]
struct Output {
    data: *mut f32,
    stride: usize,
}

// SAFETY: tasks write disjoint parts while the owner is mutably borrowed.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

struct Scratch<E> {
    queries: Vec<f32>,
    scores: Vec<f32>,
    mixed: Vec<f32>,
    softmax: Vec<Softmax>,
    pages: Vec<*const E>,
}

impl<E> Default for Scratch<E> {
    fn default() -> Self {
        Self {
            queries: Vec::new(),
            scores: Vec::new(),
            mixed: Vec::new(),
            softmax: Vec::new(),
            pages: Vec::new(),
        }
    }
}

/// A row's softmax so far.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    sum: f32,
}

/// Some query positions of a segment, for the query heads that share one key head.
struct QueryBlock<'a, E> {
    isa: Isa,
    shape: HeadShape,
    segment: &'a QuerySegment<'a, E>,
    kv_head: usize,
    tokens: Range<usize>,
    /// Where the keys of this layer and head start in a page.
    start: usize,
}

impl<E: Element> QueryBlock<'_, E> {
    fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    fn rows(&self) -> usize {
        self.tokens.len() * self.group()
    }

    fn token(&self, row: usize) -> usize {
        self.tokens.start + row / self.group()
    }

    /// Where the head of a row starts in the queries and in the output.
    fn column(&self, row: usize) -> usize {
        (self.kv_head * self.group() + row % self.group()) * self.shape.head_dim
    }

    /// Keys a row sees: every position up to its own.
    fn limit(&self, row: usize) -> usize {
        self.segment.position + self.token(row) + 1
    }

    /// Rows that are computed together.
    fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<E> {
        let (rows, height) = (self.rows(), tile::tile_rows(self.isa));
        (0..rows).step_by(height).map(move |first| first..rows.min(first + height))
    }

    /// # Safety
    /// Nothing else touches the block's rows and heads of `out`.
    unsafe fn run(&self, queries: &Matrix, out: Output, scratch: &mut Scratch<E>) {
        let (rows, head_dim) = (self.rows(), self.shape.head_dim);
        let width = self.shape.value_width();
        let keys = self.limit(rows - 1);
        // An odd number of cache lines apart, for the same reason as in `Matrix`.
        let stride = (BLOCK + PAGE).min((keys.div_ceil(PAGE) | 1) * PAGE);
        grow(&mut scratch.queries, rows * head_dim);
        grow(&mut scratch.scores, rows * stride);
        grow(&mut scratch.mixed, rows * width);
        scratch.softmax.clear();
        scratch.softmax.resize(rows, Softmax { max: f32::NEG_INFINITY, sum: 0.0 });
        for row in 0..rows {
            let query = queries.row(self.segment.first_row + self.token(row));
            scratch.queries[row * head_dim..][..head_dim]
                .copy_from_slice(&query[self.column(row)..][..head_dim]);
        }
        for first in (0..keys).step_by(BLOCK) {
            let block = first..keys.min(first + BLOCK);
            self.score(&block, stride, scratch);
            self.soften(&block, stride, scratch);
            self.mix(&block, stride, scratch);
        }
        for row in 0..rows {
            let mixed = &mut scratch.mixed[row * width..][..head_dim];
            elementwise::scale(self.isa, mixed, 1.0 / scratch.softmax[row].sum);
            // SAFETY: the row and the head's columns lie inside the output, and are this task's own.
            unsafe {
                let row_start = (self.segment.first_row + self.token(row)) * out.stride;
                let to = out.data.add(row_start + self.column(row));
                std::slice::from_raw_parts_mut(to, head_dim).copy_from_slice(mixed);
            }
        }
    }

    /// The scores of a block of keys.
    fn score(&self, block: &Range<usize>, stride: usize, scratch: &mut Scratch<E>) {
        let head_dim = self.shape.head_dim;
        let step = (REUSED_BYTES / (PAGE * head_dim * size_of::<E>())).max(1) * PAGE;
        self.pages(block, self.start, PAGE * head_dim, &mut scratch.pages);
        for first in block.clone().step_by(step) {
            for tile in self.tiles() {
                let last = self.limit(tile.end - 1).min(first + step).min(block.end);
                if first >= last {
                    continue;
                }
                let pages = (first - block.start) / PAGE..(last - block.start).div_ceil(PAGE);
                let queries = &scratch.queries[tile.start * head_dim..tile.end * head_dim];
                let scores = &mut scratch.scores[tile.start * stride..tile.end * stride];
                let stored = Panels {
                    blocks: &scratch.pages[pages.clone()],
                    block_depth: head_dim,
                    depth: head_dim,
                    step: PAGE,
                    side: Side::Block,
                };
                let to = Rows { first: scores[pages.start * PAGE..].as_mut_ptr(), stride };
                let from = Rows { first: queries.as_ptr(), stride: head_dim };
                let finish = Finish::PLAIN;
                // SAFETY: the queries and scores were sliced for all rows of the tile, a score row holds every page
                // of a block, and each key block was sliced to its length.
                unsafe { tile::run(self.isa, from, tile.len(), stored, pages.len(), to, finish) };
            }
        }
    }

    /// Turns the scores of a block into weights relative to the largest score so far, and scales what earlier blocks
    /// added where it grew.
    fn soften(&self, block: &Range<usize>, stride: usize, scratch: &mut Scratch<E>) {
        let width = self.shape.value_width();
        for tile in self.tiles() {
            let tile_keys = self.limit(tile.end - 1).min(block.end).saturating_sub(block.start);
            for row in tile {
                let keys = self.limit(row).min(block.end).saturating_sub(block.start);
                let scores = &mut scratch.scores[row * stride..][..tile_keys];
                let (seen, unseen) = scores.split_at_mut(keys);
                // Later keys of the tile add `0 * value`, which leaves a sum as it is.
                unseen.fill(0.0);
                if seen.is_empty() {
                    continue;
                }
                let before = scratch.softmax[row];
                let max = elementwise::max(self.isa, seen);
                let max = if max > before.max { max } else { before.max };
                let mut sum = elementwise::exponentials(self.isa, seen, max);
                if block.start > 0 {
                    let kept = elementwise::exp(before.max - max);
                    sum = before.sum.mul_add(kept, sum);
                    let mixed = &mut scratch.mixed[row * width..][..width];
                    elementwise::scale(self.isa, mixed, kept);
                }
                scratch.softmax[row] = Softmax { max, sum };
            }
        }
    }

    /// Adds the values of a block, by their weights.
    fn mix(&self, block: &Range<usize>, stride: usize, scratch: &mut Scratch<E>) {
        let width = self.shape.value_width();
        let step = (REUSED_BYTES / (PAGE * width * size_of::<E>())).max(1) * PAGE;
        let start = self.start + PAGE * self.shape.head_dim;
        self.pages(block, start, PAGE * width, &mut scratch.pages);
        for first in block.clone().step_by(step) {
            for tile in self.tiles() {
                let last = self.limit(tile.end - 1).min(first + step).min(block.end);
                if first >= last {
                    continue;
                }
                let pages = (first - block.start) / PAGE..(last - block.start).div_ceil(PAGE);
                let scores = &scratch.scores[tile.start * stride..tile.end * stride];
                let from = Rows { first: scores[pages.start * PAGE..].as_ptr(), stride };
                let mixed = &mut scratch.mixed[tile.start * width..tile.end * width];
                let to = Rows { first: mixed.as_mut_ptr(), stride: width };
                let stored = Panels {
                    blocks: &scratch.pages[pages],
                    block_depth: PAGE,
                    depth: last - first,
                    step: width,
                    side: Side::Offset(PANEL),
                };
                let finish = Finish { resume: first > 0, ..Finish::PLAIN };
                // SAFETY: the scores and results were sliced for all rows of the tile, a score row holds every page
                // of a block, and each value block was sliced to its length.
                unsafe { tile::run(self.isa, from, tile.len(), stored, width / PANEL, to, finish) };
            }
        }
    }

    /// Where the numbers from `start` on, `len` of them, lie in the pages of a block of keys.
    fn pages(&self, block: &Range<usize>, start: usize, len: usize, into: &mut Vec<*const E>) {
        let pages = &self.segment.pages[block.start / PAGE..block.end.div_ceil(PAGE)];
        into.clear();
        into.extend(pages.iter().map(|page| page[start..][..len].as_ptr()));
    }
}

fn grow(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}
