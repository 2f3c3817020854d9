//! Causal attention over pages of cached keys and values.
//!
//! A page holds sixteen positions: for every layer and key head the keys as one panel
//! (`[head_dim][16 positions]`) and the values as rows (`[16 positions][head_dim, padded]`). A query row
//! is served in a fixed order of keys, so its result depends on its own position and the pages alone.

use std::ops::Range;

use rayon::prelude::*;

use super::dispatch::Isa;
use super::elementwise;
use super::matrix::{Matrix, PANEL};
use super::tile::{self, Element, Finish, Panels, Rows, Side};

/// Positions in a page.
pub(crate) const PAGE: usize = PANEL;
/// Query rows that share one walk over the keys.
const QUERY_ROWS: usize = 24;
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
            // SAFETY: the tasks cover disjoint rows and heads of an output that is mutably borrowed.
            unsafe {
                query_block(isa, shape, layer, queries, segment, kv_head, tokens, out, scratch);
            };
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
    inverse_sums: Vec<f32>,
    pages: Vec<*const E>,
}

impl<E> Default for Scratch<E> {
    fn default() -> Self {
        Self {
            queries: Vec::new(),
            scores: Vec::new(),
            mixed: Vec::new(),
            inverse_sums: Vec::new(),
            pages: Vec::new(),
        }
    }
}

/// # Safety
/// Nobody else touches the block's rows and heads of `out`.
unsafe fn query_block<E: Element>(
    isa: Isa,
    shape: HeadShape,
    layer: usize,
    queries: &Matrix,
    segment: &QuerySegment<'_, E>,
    kv_head: usize,
    tokens: Range<usize>,
    out: Output,
    scratch: &mut Scratch<E>,
) {
    let (head_dim, width) = (shape.head_dim, shape.value_width());
    let group = shape.heads / shape.kv_heads;
    let rows = tokens.len() * group;
    let token_of = |row: usize| tokens.start + row / group;
    let column_of = |row: usize| (kv_head * group + row % group) * head_dim;
    // Keys a row sees: every position up to its own.
    let limit_of = |row: usize| segment.position + token_of(row) + 1;
    let pages = &segment.pages[..limit_of(rows - 1).div_ceil(PAGE)];
    // An odd number of cache lines apart, for the same reason as in `Matrix`.
    let stride = pages.len() * PAGE + if pages.len().is_multiple_of(2) { PAGE } else { 0 };
    grow(&mut scratch.queries, rows * head_dim);
    grow(&mut scratch.scores, rows * stride);
    grow(&mut scratch.mixed, rows * width);
    grow(&mut scratch.inverse_sums, rows);
    let block_start = shape.block_start(layer, kv_head);
    let height = tile::tile_rows(isa);
    let tiles = (0..rows).step_by(height).map(|first| first..rows.min(first + height));
    for row in 0..rows {
        let query = &queries.row(segment.first_row + token_of(row))[column_of(row)..][..head_dim];
        scratch.queries[row * head_dim..][..head_dim].copy_from_slice(query);
    }

    let step = (REUSED_BYTES / (PAGE * head_dim * size_of::<E>())).max(1);
    scratch.pages.clear();
    scratch.pages.extend(pages.iter().map(|page| page[block_start..][..PAGE * head_dim].as_ptr()));
    for first_page in (0..pages.len()).step_by(step) {
        for tile in tiles.clone() {
            let last_page = limit_of(tile.end - 1).div_ceil(PAGE).min(first_page + step);
            if first_page >= last_page {
                continue;
            }
            let from = scratch.queries[tile.start * head_dim..tile.end * head_dim].as_ptr();
            let scores = &mut scratch.scores[tile.start * stride..tile.end * stride];
            let stored = Panels {
                blocks: &scratch.pages[first_page..last_page],
                block_depth: head_dim,
                depth: head_dim,
                step: PAGE,
                side: Side::Block,
            };
            let to = Rows { first: scores[first_page * PAGE..].as_mut_ptr(), stride };
            let from = Rows { first: from, stride: head_dim };
            let panels = last_page - first_page;
            // SAFETY: the queries and scores were sliced for all rows of the tile, a score row holds every page, and
            // each key block was sliced to its length.
            unsafe { tile::run(isa, from, tile.len(), stored, panels, to, Finish::PLAIN) };
        }
    }

    for tile in tiles.clone() {
        let tile_limit = limit_of(tile.end - 1);
        for row in tile {
            let (seen, unseen) =
                scratch.scores[row * stride..][..tile_limit].split_at_mut(limit_of(row));
            scratch.inverse_sums[row] = elementwise::softmax_unnormalized(isa, seen);
            // Later keys of the tile add `0 * value`, which leaves a sum as it is.
            unseen.fill(0.0);
        }
    }

    let step = (REUSED_BYTES / (PAGE * width * size_of::<E>())).max(1);
    scratch.pages.clear();
    let values = block_start + PAGE * head_dim;
    scratch.pages.extend(pages.iter().map(|page| page[values..][..PAGE * width].as_ptr()));
    for first_page in (0..pages.len()).step_by(step) {
        let first_key = first_page * PAGE;
        for tile in tiles.clone() {
            let last_key = limit_of(tile.end - 1).min(first_key + step * PAGE);
            if first_key >= last_key {
                continue;
            }
            let depth = last_key - first_key;
            let scores = &scratch.scores[tile.start * stride..tile.end * stride];
            let from = Rows { first: scores[first_key..].as_ptr(), stride };
            let mixed = &mut scratch.mixed[tile.start * width..tile.end * width];
            let to = Rows { first: mixed.as_mut_ptr(), stride: width };
            let stored = Panels {
                blocks: &scratch.pages[first_page..first_page + depth.div_ceil(PAGE)],
                block_depth: PAGE,
                depth,
                step: width,
                side: Side::Offset(PANEL),
            };
            let finish = Finish { resume: first_key > 0, ..Finish::PLAIN };
            // SAFETY: the scores and results were sliced for all rows of the tile, a score row holds every page, and
            // each value block was sliced to its length.
            unsafe { tile::run(isa, from, tile.len(), stored, width / PANEL, to, finish) };
        }
    }

    for row in 0..rows {
        let mixed = &mut scratch.mixed[row * width..][..head_dim];
        elementwise::scale(isa, mixed, scratch.inverse_sums[row]);
        // SAFETY: the row and the head's columns lie inside the output, and are this task's own.
        unsafe {
            let to =
                out.data.add((segment.first_row + token_of(row)) * out.stride + column_of(row));
            std::slice::from_raw_parts_mut(to, head_dim).copy_from_slice(mixed);
        }
    }
}

fn grow(buffer: &mut Vec<f32>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}
