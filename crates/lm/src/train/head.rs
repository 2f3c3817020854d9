//! The output head and every loss, fused.
//!
//! Loss positions are taken a block at a time. For a block, the vocabulary is walked in chunks: logits of the student
//! (and of the reference, from its stored hidden states) are computed, reduced to statistics and overwritten by
//! softmax numerators. Once the statistics of all chunks are joined, a second walk turns the numerators into gradients of the logits, in
//! place, and multiplies them into the gradients of the head and of the hidden states. The only positions x vocabulary
//! values that ever exist are those of one block, whose size a memory budget sets.
//!
//! Logits are stored vocabulary x positions: then the head is the left factor of every product as it lies in memory, and the
//! statistics of all positions are taken side by side.

use rayon::prelude::*;

use super::batch::LossPosition;
use super::buffer::{Buffer, with_scratch};
use super::labels::{label_loss, log_sum_exp};
use super::row::{Head, Heads, RowLoss, TrainRow};
use super::weights::Values;
use crate::kernels::train_gemm::{Panels, multiply, panels_len};
use crate::kernels::train_math::{self as math, KlColumns};
use crate::kernels::train_matrix::{MatMut, MatRef};

/// Vocabulary rows per chunk.
const CHUNK: usize = 256;
/// Chunks whose head rows are used for both gradients while they are in cache.
const CHUNKS_PER_GROUP: usize = 16;
/// Most positions per block.
const MOST_POSITIONS: usize = 512;
/// Positions per task when hidden states receive their gradient.
const POSITIONS_PER_TASK: usize = 66;
/// Values of a chunk's statistics per position.
const STATS: usize = 5;

/// Buffers of the head, reused from block to block.
#[derive(Debug, Default)]
pub(super) struct HeadBuffers {
    student: Buffer,
    reference: Buffer,
    hidden: Buffer,
    reference_hidden: Buffer,
    hidden_panels: Buffer,
    hidden_columns: Buffer,
    reference_columns: Buffer,
    weight_panels: Buffer,
    d_hidden: Buffer,
    stats: Buffer,
}

/// The trained model's head and what it works on.
pub(super) struct HeadInput<'a> {
    /// Head rows of the real tokens x hidden.
    pub(super) weight: Values<'a>,
    /// Width of the hidden states.
    pub(super) width: usize,
    /// Values of positions x vocabulary that may exist at once.
    pub(super) budget: usize,
    /// The batch's rows.
    pub(super) rows: &'a [TrainRow],
    /// The reference heads.
    pub(super) heads: &'a Heads<'a>,
    /// The loss positions.
    pub(super) positions: &'a [LossPosition],
    /// Their hidden states after the final norm, positions x width.
    pub(super) hidden: &'a [f32],
}

/// Which statistics and gradients a position needs.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Reverse,
    Forward,
    Labels,
}

fn mode(loss: &RowLoss) -> Mode {
    match loss {
        RowLoss::ReverseKl { .. } => Mode::Reverse,
        RowLoss::ForwardKl { .. } => Mode::Forward,
        RowLoss::ReverseKlTopK { .. } | RowLoss::PolicyGradient { .. } | RowLoss::Nll => {
            Mode::Labels
        }
    }
}

/// Computes the token loss of every position, writes the gradient of the hidden states and, unless the head is frozen,
/// adds the gradient of the head (real tokens x width).
pub(super) fn losses(
    input: &HeadInput<'_>,
    d_hidden: &mut [f32],
    mut d_weight: Option<&mut [f32]>,
    buffers: &mut HeadBuffers,
) -> Vec<f64> {
    let mut losses = vec![0.0; input.positions.len()];
    for wanted in [Mode::Reverse, Mode::Forward, Mode::Labels] {
        let members: Vec<usize> = (0..input.positions.len())
            .filter(|&at| mode(&input.rows[input.positions[at].row].loss) == wanted)
            .collect();
        let copies = if wanted == Mode::Labels { 1 } else { 2 };
        let vocab = input.weight.len() / input.width;
        let most = (input.budget / (copies * vocab)).clamp(16, MOST_POSITIONS);
        for members in
            members.chunks(members.len().div_ceil(members.len().div_ceil(most).max(1)).max(1))
        {
            let mut block = Block::load(input, wanted, members, buffers);
            block.logits();
            let gradients = block.join(&mut losses);
            block.backward(&gradients, d_weight.as_deref_mut());
            for (&at, row) in members.iter().zip(block.d_hidden.chunks_exact(input.width)) {
                d_hidden[at * input.width..(at + 1) * input.width].copy_from_slice(row);
            }
        }
    }
    losses
}

/// A block of positions with the same mode.
struct Block<'a> {
    input: &'a HeadInput<'a>,
    mode: Mode,
    members: &'a [usize],
    reference_head: Option<Head<'a>>,
    /// Hidden states, positions x width.
    hidden: Panels<'a>,
    /// The same transposed, width x positions.
    hidden_columns: Panels<'a>,
    reference_columns: Panels<'a>,
    d_hidden: &'a mut [f32],
    weight_panels: &'a mut Buffer,
    /// Vocabulary x positions.
    student: &'a mut [f32],
    reference: &'a mut [f32],
    /// Chunk after chunk: the statistics, each for all positions.
    stats: &'a mut [f32],
    asked: Asked,
}

/// How a position's numerators become gradients of its logits.
enum Gradient {
    /// `weight * p * (difference - mean)`.
    Reverse { weight: f32, lse: f64, mean: f32 },
    /// `weight * (p - q)`.
    Forward { weight: f32, lse: f64, reference_lse: f64 },
    /// `dense * p` for all tokens that were not asked for; those are in [`Asked::gradients`].
    Labels { dense: f32, lse: f64 },
}

/// Single tokens whose logits are needed, sorted by token so that each chunk owns a run of them.
#[derive(Default)]
struct Asked {
    /// (token, position in the block, index among the position's tokens).
    tokens: Vec<(u32, u32, u32)>,
    logits: Vec<f32>,
    gradients: Vec<f32>,
}

impl Asked {
    fn of(input: &HeadInput<'_>, members: &[usize]) -> Self {
        let mut tokens = Vec::new();
        for (position, &member) in members.iter().enumerate() {
            let LossPosition { row, at, .. } = input.positions[member];
            let data = &input.rows[row];
            if let RowLoss::ReverseKlTopK { k, ids, .. } = &data.loss {
                for (index, &id) in ids[at * k..(at + 1) * k].iter().enumerate() {
                    tokens.push((id, position as u32, index as u32));
                }
            } else {
                tokens.push((data.tokens[data.response_start + at], position as u32, 0));
            }
        }
        tokens.sort_unstable();
        let count = tokens.len();
        Self { tokens, logits: vec![0.0; count], gradients: vec![0.0; count] }
    }

    /// Where each chunk's run ends.
    fn ends(&self, vocab: usize) -> Vec<usize> {
        (0..vocab.div_ceil(CHUNK))
            .map(|chunk| {
                self.tokens.partition_point(|&(token, ..)| (token as usize) < (chunk + 1) * CHUNK)
            })
            .collect()
    }

    /// Cuts a slice parallel to `tokens` into the chunks' runs.
    fn runs<'b, T>(ends: &[usize], data: &'b mut [T]) -> Vec<&'b mut [T]> {
        let mut rest = data;
        let mut start = 0;
        ends.iter()
            .map(|&end| {
                let (run, tail) = std::mem::take(&mut rest).split_at_mut(end - start);
                (rest, start) = (tail, end);
                run
            })
            .collect()
    }
}

impl<'a> Block<'a> {
    fn load(
        input: &'a HeadInput<'a>,
        mode: Mode,
        members: &'a [usize],
        buffers: &'a mut HeadBuffers,
    ) -> Self {
        let (count, width) = (members.len(), input.width);
        let vocab = input.weight.len() / width;
        let reference_head = match mode {
            Mode::Reverse => input.heads.teacher,
            Mode::Forward => input.heads.snapshot,
            Mode::Labels => None,
        };
        let reference_width = reference_head.map_or(0, |head| head.hidden);
        let reference_count = if reference_head.is_some() { count * vocab } else { 0 };
        let hidden = buffers.hidden.fit(count * width);
        let reference_hidden = buffers.reference_hidden.fit(count * reference_width);
        for (position, &member) in members.iter().enumerate() {
            hidden[position * width..(position + 1) * width]
                .copy_from_slice(&input.hidden[member * width..(member + 1) * width]);
            let LossPosition { row, at, .. } = input.positions[member];
            if let RowLoss::ReverseKl { teacher_hidden: stored }
            | RowLoss::ForwardKl { snapshot_hidden: stored } = &input.rows[row].loss
            {
                let stored = &stored[at * reference_width..(at + 1) * reference_width];
                reference_hidden[position * reference_width..(position + 1) * reference_width]
                    .copy_from_slice(stored);
            }
        }
        let asked = if mode == Mode::Labels { Asked::of(input, members) } else { Asked::default() };
        let hidden = MatRef::new(hidden, count, width);
        let reference_hidden = MatRef::new(reference_hidden, count, reference_width);
        let pack = |buffer: &'a mut Buffer, matrix: MatRef<'_>| {
            let (rows, cols) = matrix.shape();
            Panels::pack(buffer.fit(panels_len(rows, cols)), matrix)
        };
        Self {
            input,
            mode,
            members,
            reference_head,
            hidden: pack(&mut buffers.hidden_panels, hidden),
            hidden_columns: pack(&mut buffers.hidden_columns, hidden.t()),
            reference_columns: pack(&mut buffers.reference_columns, reference_hidden.t()),
            d_hidden: buffers.d_hidden.fit(count * width),
            weight_panels: &mut buffers.weight_panels,
            student: buffers.student.fit(count * vocab),
            reference: buffers.reference.fit(reference_count),
            stats: buffers.stats.fit(vocab.div_ceil(CHUNK) * STATS * count),
            asked,
        }
    }

    fn vocab(&self) -> usize {
        self.input.weight.len() / self.input.width
    }

    /// First walk: logits, statistics, numerators.
    fn logits(&mut self) {
        let (count, width, vocab) = (self.members.len(), self.input.width, self.vocab());
        let ends = self.asked.ends(vocab);
        let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
        let asked_tokens = &self.asked.tokens;
        let runs = Asked::runs(&ends, &mut self.asked.logits);
        let weight = self.input.weight;
        let (columns, reference_columns) = (self.hidden_columns, self.reference_columns);
        let (mode, reference_head) = (self.mode, self.reference_head);
        let mut reference_chunks = self.reference.chunks_mut(count * CHUNK);
        let work: Vec<_> = self
            .student
            .chunks_mut(count * CHUNK)
            .zip(self.stats.chunks_mut(count * STATS))
            .zip(runs)
            .enumerate()
            .map(|(chunk, parts)| (chunk, parts, reference_chunks.next()))
            .collect();
        work.into_par_iter().with_max_len(1).for_each(
            |(chunk, ((student, stats), run), reference)| {
                let length = student.len() / count;
                let tokens = chunk * CHUNK..chunk * CHUNK + length;
                head_product(student, weight, width, tokens.clone(), columns);
                let [max, sum, reference_max, reference_sum, cross] = split_stats(stats, count);
                max.fill(f32::NEG_INFINITY);
                sum.fill(0.0);
                if let (Some(reference), Some(head)) = (reference, reference_head) {
                    head_product(reference, head.weight, head.hidden, tokens, reference_columns);
                    reference_max.fill(f32::NEG_INFINITY);
                    reference_sum.fill(0.0);
                    cross.fill(0.0);
                    math::column_max(max, student);
                    math::column_max(reference_max, reference);
                    let mut columns = KlColumns { max, sum, reference_max, reference_sum, cross };
                    if mode == Mode::Reverse {
                        math::reverse_kl_numerators(student, reference, &mut columns);
                    } else {
                        math::forward_kl_numerators(student, reference, &mut columns);
                    }
                } else {
                    let asked = &asked_tokens[starts[chunk]..ends[chunk]];
                    for (&(token, position, _), logit) in asked.iter().zip(run) {
                        let at = (token as usize - tokens.start) * count + position as usize;
                        *logit = std::mem::replace(&mut student[at], f32::NEG_INFINITY);
                    }
                    math::column_max(max, student);
                    // A column of which every token was asked for has no maximum of its own.
                    for max in max.iter_mut().filter(|max| **max == f32::NEG_INFINITY) {
                        *max = 0.0;
                    }
                    math::numerators(student, max, sum);
                }
            },
        );
    }

    /// Joins the chunks' statistics: the token losses, and how to form each position's gradient.
    fn join(&mut self, losses: &mut [f64]) -> Vec<Gradient> {
        let count = self.members.len();
        let chunks = self.vocab().div_ceil(CHUNK);
        let stat = |chunk: usize, which: usize, position: usize| {
            f64::from(self.stats[(chunk * STATS + which) * count + position])
        };
        let mut by_position: Vec<Vec<(usize, u32)>> = Vec::new();
        if self.mode == Mode::Labels {
            by_position.resize(count, Vec::new());
            for (slot, &(_, position, index)) in self.asked.tokens.iter().enumerate() {
                by_position[position as usize].push((slot, index));
            }
            for slots in &mut by_position {
                slots.sort_unstable_by_key(|&(_, index)| index);
            }
        }
        let mut gradients = Vec::with_capacity(count);
        for (position, &member) in self.members.iter().enumerate() {
            let LossPosition { row, at, weight } = self.input.positions[member];
            let of = |max: usize, sum: usize| {
                let parts = (0..chunks)
                    .map(|chunk| (stat(chunk, max, position), stat(chunk, sum, position)));
                log_sum_exp(parts)
            };
            let lse = of(0, 1);
            let data = &self.input.rows[row];
            let (loss, gradient) = match self.mode {
                Mode::Reverse | Mode::Forward => {
                    let reference_lse = of(2, 3);
                    let (max, own) =
                        if self.mode == Mode::Reverse { (0, lse) } else { (2, reference_lse) };
                    let mean: f64 = (0..chunks)
                        .map(|chunk| {
                            stat(chunk, 4, position) * (stat(chunk, max, position) - own).exp()
                        })
                        .sum();
                    if self.mode == Mode::Reverse {
                        let gradient = Gradient::Reverse { weight, lse, mean: mean as f32 };
                        (mean - (lse - reference_lse), gradient)
                    } else {
                        let gradient = Gradient::Forward { weight, lse, reference_lse };
                        (mean - (reference_lse - lse), gradient)
                    }
                }
                Mode::Labels => {
                    let slots = &by_position[position];
                    let logits: Vec<f64> =
                        slots.iter().map(|&(slot, _)| f64::from(self.asked.logits[slot])).collect();
                    let label = label_loss(&data.loss, at, &logits, lse);
                    for (&(slot, _), gradient) in slots.iter().zip(&label.sparse) {
                        self.asked.gradients[slot] = (f64::from(weight) * gradient) as f32;
                    }
                    let dense = (f64::from(weight) * label.dense) as f32;
                    (label.loss, Gradient::Labels { dense, lse: label.lse })
                }
            };
            losses[member] = loss;
            gradients.push(gradient);
        }
        gradients
    }

    /// Second walk: gradients of the logits, of the head and of the hidden states.
    fn backward(&mut self, gradients: &[Gradient], d_weight: Option<&mut [f32]>) {
        let (count, width, vocab) = (self.members.len(), self.input.width, self.vocab());
        let ends = self.asked.ends(vocab);
        let asked = &self.asked;
        let stats = &*self.stats;
        let reference = &*self.reference;
        let hidden = self.hidden;
        let weight = self.input.weight;
        let group = CHUNK * CHUNKS_PER_GROUP;
        let mut d_weights = d_weight.map(|d_weight| d_weight.chunks_mut(CHUNK * width));
        for (group_index, student) in self.student.chunks_mut(count * group).enumerate() {
            let first_chunk = group_index * CHUNKS_PER_GROUP;
            let d_weights: Vec<Option<&mut [f32]>> = (0..student.len().div_ceil(count * CHUNK))
                .map(|_| d_weights.as_mut().and_then(Iterator::next))
                .collect();
            student
                .par_chunks_mut(count * CHUNK)
                .zip(d_weights)
                .enumerate()
                .with_max_len(1)
                .for_each(|(chunk, (student, d_weight))| {
                    let chunk = first_chunk + chunk;
                    let stats = &stats[chunk * STATS * count..(chunk + 1) * STATS * count];
                    let start = (chunk * CHUNK * count).min(reference.len());
                    let end = (start + student.len()).min(reference.len());
                    let reference = &reference[start..end];
                    with_scratch([count, count], |[scale, other]| {
                        for (position, gradient) in gradients.iter().enumerate() {
                            let factor = |lse: f64, which: usize| {
                                (f64::from(stats[which * count + position]) - lse).exp() as f32
                            };
                            (scale[position], other[position]) = match *gradient {
                                Gradient::Reverse { weight, lse, mean } => {
                                    (weight * factor(lse, 0), mean)
                                }
                                Gradient::Forward { weight, lse, reference_lse } => {
                                    (weight * factor(lse, 0), weight * factor(reference_lse, 2))
                                }
                                Gradient::Labels { dense, lse } => (dense * factor(lse, 0), 0.0),
                            };
                        }
                        match self.mode {
                            Mode::Reverse => {
                                math::reverse_kl_gradient(student, reference, scale, other);
                            }
                            Mode::Forward => {
                                math::forward_kl_gradient(student, reference, scale, other);
                            }
                            Mode::Labels => math::scale_columns(student, scale),
                        }
                    });
                    let start = if chunk == 0 { 0 } else { ends[chunk - 1] };
                    for slot in start..ends[chunk] {
                        let (token, position, _) = asked.tokens[slot];
                        let at = (token as usize - chunk * CHUNK) * count + position as usize;
                        student[at] = asked.gradients[slot];
                    }
                    if let Some(d_weight) = d_weight {
                        let rows = student.len() / count;
                        let gradient = MatRef::new(student, rows, count);
                        multiply(&mut MatMut::new(d_weight, rows, width), gradient, hidden, true);
                    }
                });
            let rows = student.len() / count;
            let start = group_index * group;
            let buffer = self.weight_panels.fit(panels_len(rows, width));
            let panels = match weight.slice(start * width..(start + rows) * width) {
                Values::F32(part) => Panels::par_pack(buffer, MatRef::new(part, rows, width)),
                Values::Bf16(part) => Panels::par_pack(buffer, MatRef::new(part, rows, width)),
            };
            let gradient = MatRef::new(student, rows, count).t();
            self.d_hidden
                .par_chunks_mut(POSITIONS_PER_TASK * width)
                .enumerate()
                .with_max_len(1)
                .for_each(|(part, d_hidden)| {
                    let positions = d_hidden.len() / width;
                    let first = part * POSITIONS_PER_TASK;
                    let part = gradient.rows(first..first + positions);
                    let d_hidden = &mut MatMut::new(d_hidden, positions, width);
                    multiply(d_hidden, part, panels, group_index > 0);
                });
        }
    }
}

/// The logits of some tokens, tokens x positions: rows of a head times the hidden states in columns.
fn head_product(
    logits: &mut [f32],
    weight: Values<'_>,
    width: usize,
    tokens: std::ops::Range<usize>,
    columns: Panels<'_>,
) {
    let (rows, count) = (tokens.len(), columns.shape().1);
    with_scratch([weight.scratch(rows * width)], |[scratch]| {
        let weight = weight.rows(tokens, width, scratch);
        multiply(&mut MatMut::new(logits, rows, count), weight, columns, false);
    });
}

/// One chunk's statistics apart.
fn split_stats(stats: &mut [f32], count: usize) -> [&mut [f32]; STATS] {
    let mut rest = stats;
    std::array::from_fn(|_| {
        let (part, tail) = std::mem::take(&mut rest).split_at_mut(count);
        rest = tail;
        part
    })
}
