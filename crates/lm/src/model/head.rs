//! The output head: logits where all are needed, and a walk over the vocabulary in chunks where they are not.

use std::ops::Range;

use rayon::prelude::*;

use super::Inner;
use crate::kernels::dispatch::Isa;
use crate::kernels::elementwise;
use crate::kernels::matrix::{Matrix, PANEL};

/// Ids of one chunk. The chunks are part of the result's definition: sums over the vocabulary are joined in their order.
const CHUNK_PANELS: usize = 32;
pub(crate) const CHUNK: usize = CHUNK_PANELS * PANEL;
/// Rows multiplied with a chunk at a time.
const BLOCK_ROWS: usize = 120;

/// What a chunk of the vocabulary adds to a row's softmax.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkStats {
    pub(crate) max: f32,
    pub(crate) argmax: u32,
    /// Sum of exponentials relative to `max`.
    pub(crate) sum: f32,
}

impl ChunkStats {
    /// `first` is the id of the chunk's first logit.
    pub(crate) fn new(isa: Isa, logits: &[f32], first: usize) -> Self {
        let max = elementwise::max(isa, logits);
        let argmax = logits.iter().position(|&logit| logit == max).unwrap_or(0);
        Self { max, argmax: (first + argmax) as u32, sum: elementwise::sum_exp(isa, logits, max) }
    }
}

/// A row's softmax in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowSummary {
    /// The most likely id, the lowest of equals, and its logit.
    pub(crate) top: u32,
    pub(crate) top_logit: f32,
    /// Logarithm of the sum of exponentials.
    pub(crate) log_sum: f64,
}

impl RowSummary {
    /// Joins chunks in ascending order. `None` if some logit was not finite.
    pub(crate) fn join(chunks: impl Iterator<Item = ChunkStats> + Clone) -> Option<Self> {
        let mut best = ChunkStats { max: f32::NEG_INFINITY, argmax: 0, sum: 0.0 };
        for chunk in chunks.clone() {
            if chunk.max > best.max {
                best = chunk;
            }
        }
        let top = f64::from(best.max);
        let sum: f64 =
            chunks.map(|chunk| f64::from(chunk.sum) * (f64::from(chunk.max) - top).exp()).sum();
        let log_sum = top + sum.ln();
        log_sum.is_finite().then_some(Self { top: best.argmax, top_logit: best.max, log_sum })
    }

    /// The summary of a whole row of logits.
    pub(crate) fn of_row(isa: Isa, logits: &[f32]) -> Option<Self> {
        Self::join(chunk_stats(isa, logits).into_iter())
    }

    /// The log-probability that goes with a logit.
    pub(crate) fn log_probability(&self, logit: f32) -> f32 {
        (f64::from(logit) - self.log_sum) as f32
    }
}

/// Statistics of every chunk of a row.
pub(crate) fn chunk_stats(isa: Isa, logits: &[f32]) -> Vec<ChunkStats> {
    logits
        .chunks(CHUNK)
        .enumerate()
        .map(|(chunk, logits)| ChunkStats::new(isa, logits, chunk * CHUNK))
        .collect()
}

/// A row's softmax and its largest logits with their ids, best first.
pub(crate) type SummaryAndTop = (RowSummary, Vec<(f32, u32)>);

impl Inner {
    /// All logits of the first `vocab` ids, one row per hidden state.
    pub(crate) fn logits(&self, hidden: &Matrix, vocab: usize) -> Matrix {
        let mut logits = Matrix::zeros(hidden.rows(), vocab);
        self.weights.head.matmul_leading(self.isa, hidden, &mut logits, true);
        logits
    }

    /// The logit of one id, with the bits the whole row would have there.
    pub(crate) fn logit(&self, hidden: &[f32], id: u32) -> f32 {
        self.weights.head.output(self.isa, hidden, id as usize)
    }

    /// Computes one chunk of the first `vocab` ids for `rows`, divided by `tau`: one row of the buffer per hidden state,
    /// as long as the chunk padded to whole panels.
    pub(crate) fn chunk_logits(
        &self,
        hidden: &Matrix,
        rows: Range<usize>,
        vocab: usize,
        chunk: usize,
        tau: f32,
        buffer: &mut Vec<f32>,
    ) {
        let ids = chunk_ids(vocab, chunk);
        let panels = chunk * CHUNK_PANELS..ids.end.div_ceil(PANEL);
        buffer.resize(rows.len() * panels.len() * PANEL, 0.0);
        self.weights.head.matmul_panels(self.isa, hidden, rows, panels, buffer);
        if tau != 1.0 {
            elementwise::divide(self.isa, buffer, tau);
        }
    }

    /// Walks the vocabulary for every row of `hidden` and never holds more than a chunk of logits per thread. Gives each
    /// row's summary and its `top_k` largest logits with their ids; `None` for rows with logits that are not finite.
    pub(crate) fn summaries(
        &self,
        hidden: &Matrix,
        vocab: usize,
        tau: f32,
        top_k: usize,
    ) -> Vec<Option<SummaryAndTop>> {
        let mut chunks = per_chunk(hidden.rows(), vocab, |chunk, rows, buffer| {
            let ids = chunk_ids(vocab, chunk);
            self.chunk_logits(hidden, rows.clone(), vocab, chunk, tau, buffer);
            let stride = ids.len().next_multiple_of(PANEL);
            (0..rows.len())
                .map(|row| {
                    let logits = &buffer[row * stride..][..ids.len()];
                    let stats = ChunkStats::new(self.isa, logits, ids.start);
                    (stats, leaders(logits.iter().copied().zip(ids.start as u32..), top_k))
                })
                .collect()
        });
        (0..hidden.rows())
            .map(|row| {
                let summary = RowSummary::join(chunks.iter().map(|chunk| chunk[row].0))?;
                let all = chunks.iter_mut().flat_map(|chunk| std::mem::take(&mut chunk[row].1));
                Some((summary, leaders(all, top_k)))
            })
            .collect()
    }
}

/// The `count` largest logits, best first, the lowest id of equals first.
fn leaders(logits: impl Iterator<Item = (f32, u32)>, count: usize) -> Vec<(f32, u32)> {
    if count == 0 {
        return Vec::new();
    }
    let mut ranked: Vec<(f32, u32)> = logits.collect();
    keep_leaders(&mut ranked, count);
    ranked
}

/// Keeps the `count` largest logits, best first, the lowest id of equals first.
pub(crate) fn keep_leaders(ranked: &mut Vec<(f32, u32)>, count: usize) {
    let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, order);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(order);
}

/// Runs `work` for every chunk of the vocabulary and block of rows, chunks on all threads; the results of a chunk's
/// blocks are joined in row order.
pub(crate) fn per_chunk<T: Send, Buffer: Default>(
    rows: usize,
    vocab: usize,
    work: impl Fn(usize, Range<usize>, &mut Buffer) -> Vec<T> + Sync,
) -> Vec<Vec<T>> {
    (0..vocab.div_ceil(CHUNK))
        .into_par_iter()
        .map_init(Buffer::default, |buffer, chunk| {
            let blocks = (0..rows).step_by(BLOCK_ROWS);
            blocks
                .flat_map(|first| work(chunk, first..rows.min(first + BLOCK_ROWS), buffer))
                .collect()
        })
        .collect()
}

/// The ids of a chunk.
pub(crate) fn chunk_ids(vocab: usize, chunk: usize) -> Range<usize> {
    chunk * CHUNK..vocab.min((chunk + 1) * CHUNK)
}
