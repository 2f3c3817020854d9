//! The output head and every loss, fused.
//!
//! Loss positions are taken a block at a time. For a block, the vocabulary is walked in chunks: logits of the student
//! (and of the reference, from its stored hidden states) are computed, reduced to running statistics and overwritten by
//! softmax numerators. Once the statistics of all chunks are joined, a second walk turns the numerators into gradients of the logits, in
//! place, and multiplies them into the gradients of the head and of the hidden states. The only positions x vocabulary
//! values that ever exist are those of one block, whose size a memory budget sets.

use rayon::prelude::*;

use super::batch::LossPosition;
use super::row::{Head, Heads, RowLoss, TrainRow};
use super::scratch::fit;
use crate::kernels::train_math as math;
use crate::kernels::train_matrix::{MatMut, MatRef, gemm};

/// Vocabulary rows per chunk.
const CHUNK: usize = 512;
/// Chunks whose head rows are used for both gradients while they are in cache.
const CHUNKS_PER_GROUP: usize = 8;
/// Most positions per block.
const MOST_POSITIONS: usize = 512;
/// Positions per task when hidden states receive their gradient.
const POSITIONS_PER_TASK: usize = 128;

/// Buffers of the head, reused from block to block.
#[derive(Debug, Default)]
pub(super) struct HeadBuffers {
    student: Vec<f32>,
    reference: Vec<f32>,
    hidden: Vec<f32>,
    reference_hidden: Vec<f32>,
    d_hidden: Vec<f32>,
    stats: Vec<[f32; 5]>,
}

/// The trained model's head and what it works on.
pub(super) struct HeadInput<'a> {
    /// Head rows of the real tokens x hidden.
    pub(super) weight: &'a [f32],
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

/// Computes the token loss of every position, writes the gradient of the hidden states and adds the gradient of the
/// head (real tokens x width).
pub(super) fn losses(
    input: &HeadInput<'_>,
    d_hidden: &mut [f32],
    d_weight: &mut [f32],
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
            block.backward(&gradients, d_weight);
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
    hidden: &'a mut [f32],
    reference_hidden: &'a mut [f32],
    d_hidden: &'a mut [f32],
    /// Chunk after chunk: positions x chunk values.
    student: &'a mut [f32],
    reference: &'a mut [f32],
    /// Chunk after chunk: one per position.
    stats: &'a mut [[f32; 5]],
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
        let hidden = fit(&mut buffers.hidden, count * width);
        let reference_hidden = fit(&mut buffers.reference_hidden, count * reference_width);
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
        let chunks = vocab.div_ceil(CHUNK);
        if buffers.stats.len() < chunks * count {
            buffers.stats.resize(chunks * count, [0.0; 5]);
        }
        let asked = if mode == Mode::Labels { Asked::of(input, members) } else { Asked::default() };
        Self {
            input,
            mode,
            members,
            reference_head,
            hidden,
            reference_hidden,
            d_hidden: fit(&mut buffers.d_hidden, count * width),
            student: fit(&mut buffers.student, count * vocab),
            reference: fit(&mut buffers.reference, reference_count),
            stats: &mut buffers.stats[..chunks * count],
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
        let hidden = MatRef::new(self.hidden, count, width);
        let weight = MatRef::new(self.input.weight, vocab, width);
        let reference_hidden = &*self.reference_hidden;
        let (mode, reference_head) = (self.mode, self.reference_head);
        let mut reference_chunks = self.reference.chunks_mut(count * CHUNK);
        let work: Vec<_> = self
            .student
            .chunks_mut(count * CHUNK)
            .zip(self.stats.chunks_mut(count))
            .zip(runs)
            .enumerate()
            .map(|(chunk, parts)| (chunk, parts, reference_chunks.next()))
            .collect();
        work.into_par_iter().with_max_len(1).for_each(
            |(chunk, ((student, stats), run), reference)| {
                let length = student.len() / count;
                let tokens = chunk * CHUNK..chunk * CHUNK + length;
                gemm(
                    &mut MatMut::new(student, count, length),
                    hidden,
                    weight.rows(tokens.clone()).t(),
                    false,
                );
                match (reference, reference_head) {
                    (Some(reference), Some(head)) => {
                        let reference_weight =
                            MatRef::new(head.weight, head.weight.len() / head.hidden, head.hidden);
                        gemm(
                            &mut MatMut::new(reference, count, length),
                            MatRef::new(reference_hidden, count, head.hidden),
                            reference_weight.rows(tokens).t(),
                            false,
                        );
                        let rows = student
                            .chunks_exact_mut(length)
                            .zip(reference.chunks_exact_mut(length))
                            .zip(stats);
                        for ((s, r), stats) in rows {
                            *stats = if mode == Mode::Reverse {
                                math::reverse_kl_chunk(s, r)
                            } else {
                                math::forward_kl_chunk(s, r)
                            };
                        }
                    }
                    _ => {
                        let asked = &asked_tokens[starts[chunk]..ends[chunk]];
                        let at = |&(token, position, _): &(u32, u32, u32)| {
                            position as usize * length + token as usize - tokens.start
                        };
                        for (asked, logit) in asked.iter().zip(run) {
                            *logit = std::mem::replace(&mut student[at(asked)], f32::NEG_INFINITY);
                        }
                        for (s, stats) in student.chunks_exact_mut(length).zip(stats) {
                            let (max, sum) = math::numerators(s);
                            *stats = [max, sum, 0.0, 0.0, 0.0];
                        }
                    }
                }
            },
        );
    }

    /// Joins the chunks' statistics: the token losses, and how to form each position's gradient.
    fn join(&mut self, losses: &mut [f64]) -> Vec<Gradient> {
        let (count, chunks) = (self.members.len(), self.stats.len() / self.members.len());
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
                let parts = (0..chunks).map(move |chunk| (chunk * count + position, max, sum));
                log_sum_exp(parts.map(|(i, max, sum)| {
                    (f64::from(self.stats[i][max]), f64::from(self.stats[i][sum]))
                }))
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
                            let stats = self.stats[chunk * count + position];
                            f64::from(stats[4]) * (f64::from(stats[max]) - own).exp()
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
    fn backward(&mut self, gradients: &[Gradient], d_weight: &mut [f32]) {
        let (count, width, vocab) = (self.members.len(), self.input.width, self.vocab());
        let ends = self.asked.ends(vocab);
        let asked = &self.asked;
        let stats = &*self.stats;
        let reference = &*self.reference;
        let hidden = MatRef::new(self.hidden, count, width);
        let weight = MatRef::new(self.input.weight, vocab, width);
        let group = CHUNK * CHUNKS_PER_GROUP;
        let student_groups = self.student.chunks_mut(count * group);
        for (group_index, (student, d_weight)) in
            student_groups.zip(d_weight.chunks_mut(group * width)).enumerate()
        {
            let first_chunk = group_index * CHUNKS_PER_GROUP;
            student
                .par_chunks_mut(count * CHUNK)
                .zip(d_weight.par_chunks_mut(CHUNK * width))
                .enumerate()
                .with_max_len(1)
                .for_each(|(chunk, (student, d_weight))| {
                    let chunk = first_chunk + chunk;
                    let length = student.len() / count;
                    let stats = &stats[chunk * count..(chunk + 1) * count];
                    let factor = |lse: f64, max: f32| (f64::from(max) - lse).exp() as f32;
                    for (position, numerators) in student.chunks_exact_mut(length).enumerate() {
                        let reference = || {
                            let start = chunk * CHUNK * count + position * length;
                            &reference[start..start + length]
                        };
                        match gradients[position] {
                            Gradient::Reverse { weight, lse, mean } => math::reverse_kl_gradient(
                                numerators,
                                reference(),
                                weight * factor(lse, stats[position][0]),
                                mean,
                            ),
                            Gradient::Forward { weight, lse, reference_lse } => {
                                math::forward_kl_gradient(
                                    numerators,
                                    reference(),
                                    weight * factor(lse, stats[position][0]),
                                    weight * factor(reference_lse, stats[position][2]),
                                );
                            }
                            Gradient::Labels { dense, lse } => {
                                math::scale(numerators, dense * factor(lse, stats[position][0]));
                            }
                        }
                    }
                    let start =
                        if chunk == 0 { 0 } else { ends.get(chunk - 1).copied().unwrap_or(0) };
                    let end = ends.get(chunk).copied().unwrap_or(0);
                    for slot in start..end {
                        let (token, position, _) = asked.tokens[slot];
                        student[position as usize * length + token as usize - chunk * CHUNK] =
                            asked.gradients[slot];
                    }
                    gemm(
                        &mut MatMut::new(d_weight, length, width),
                        MatRef::new(student, count, length).t(),
                        hidden,
                        true,
                    );
                });
            let student = &*student;
            self.d_hidden
                .par_chunks_mut(POSITIONS_PER_TASK * width)
                .enumerate()
                .with_max_len(1)
                .for_each(|(part, d_hidden)| {
                    let rows = d_hidden.len() / width;
                    let first = part * POSITIONS_PER_TASK;
                    for (chunk, student) in student.chunks(count * CHUNK).enumerate() {
                        let length = student.len() / count;
                        let start = (first_chunk + chunk) * CHUNK;
                        gemm(
                            &mut MatMut::new(d_hidden, rows, width),
                            MatRef::new(student, count, length).rows(first..first + rows),
                            weight.rows(start..start + length),
                            group_index + chunk > 0,
                        );
                    }
                });
        }
    }
}

/// `log sum of sum * e^max` over parts.
fn log_sum_exp(parts: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let max = parts
        .clone()
        .map(|(max, _)| max)
        .fold(f64::NEG_INFINITY, |a, b| if b <= a { a } else { b });
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + parts.map(|(part, sum)| sum * (part - max).exp()).sum::<f64>().ln()
}

/// A label loss and its derivatives by logits, before the token's coefficient.
struct LabelLoss {
    loss: f64,
    /// Log-sum-exp over all real tokens.
    lse: f64,
    /// Derivative by a logit that was not asked for, per unit of probability.
    dense: f64,
    /// Derivatives by the logits asked for.
    sparse: Vec<f64>,
}

/// The losses that need single tokens only. `logits` are those of the tokens asked for, `tail` is the log-sum-exp of
/// all others.
fn label_loss(loss: &RowLoss, at: usize, logits: &[f64], tail: f64) -> LabelLoss {
    let asked = logits.iter().map(|&logit| (logit, 1.0));
    let lse = log_sum_exp(asked.chain([(tail, 1.0)]));
    // The probability of everything not asked for, from its own sum: one minus the rest would lose its digits.
    let tail_logp = tail - lse;
    let tail_mass = tail_logp.exp();
    let on_token = |loss: f64, slope: f64| LabelLoss {
        loss,
        lse,
        dense: -slope,
        sparse: vec![slope * tail_mass],
    };
    match loss {
        RowLoss::PolicyGradient { teacher_logp, rollout_logp, kl_coef, clip, dual_clip } => {
            let (teacher, rollout) = (f64::from(teacher_logp[at]), f64::from(rollout_logp[at]));
            let settings = (f64::from(*kl_coef), f64::from(*clip), f64::from(*dual_clip));
            let (loss, slope) = policy_gradient(logits[0] - lse, teacher, rollout, settings);
            on_token(loss, slope)
        }
        RowLoss::ReverseKlTopK { k, logps, tail_logps, .. } => {
            let logps = &logps[at * k..(at + 1) * k];
            let excess: Vec<f64> =
                logits.iter().zip(logps).map(|(&s, &q)| s - lse - f64::from(q)).collect();
            let tail_excess =
                if tail_mass > 0.0 { tail_logp - f64::from(tail_logps[at]) } else { 0.0 };
            let masses: Vec<f64> = logits.iter().map(|&s| (s - lse).exp()).collect();
            let loss = masses.iter().zip(&excess).map(|(p, g)| p * g).sum::<f64>()
                + tail_mass * tail_excess;
            let sparse = masses.iter().zip(&excess).map(|(p, g)| p * (g - loss)).collect();
            LabelLoss { loss, lse, dense: tail_excess - loss, sparse }
        }
        RowLoss::Nll | RowLoss::ReverseKl { .. } | RowLoss::ForwardKl { .. } => {
            on_token(lse - logits[0], -1.0)
        }
    }
}

/// The clipped policy-gradient loss of one token and its derivative by the token's log-probability.
fn policy_gradient(
    logp: f64,
    teacher: f64,
    rollout: f64,
    (kl_coef, clip, dual_clip): (f64, f64, f64),
) -> (f64, f64) {
    /// Bound of the log-ratio, so that its exponential stays finite.
    const MOST: f64 = 20.0;
    let advantage = kl_coef * (teacher - rollout);
    let log_ratio = logp - rollout;
    let ratio = log_ratio.clamp(-MOST, MOST).exp();
    let ratio_slope = if log_ratio.abs() <= MOST { ratio } else { 0.0 };
    let plain = -advantage * ratio;
    let clipped = -advantage * ratio.clamp(1.0 - clip, 1.0 + clip);
    let (loss, slope) =
        if plain >= clipped { (plain, -advantage * ratio_slope) } else { (clipped, 0.0) };
    let bound = -dual_clip * advantage;
    if advantage < 0.0 && loss > bound { (bound, 0.0) } else { (loss, slope) }
}
