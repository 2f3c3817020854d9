//! Weights packed into panels of sixteen outputs, and the matrix product with them.

use std::cell::RefCell;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use super::aligned::AlignedBuf;
use super::bf16_pairs::{HIGH, round_pairs, rounded, rounded_pair};
use super::dispatch::{Isa, dispatched};
use super::matrix::{Matrix, PANEL};
use super::tile::{self, Element, Finish, Panels, Rows, Side};
use super::weight_format::WeightFormat;

/// Depth of one block: a panel block of f32 (16 KiB) stays in the first-level cache while rows walk past it.
const DEPTH_BLOCK: usize = 256;
/// Rows of one block: together with a depth block they stay in the second-level cache.
const ROW_BLOCK: usize = 240;
/// Up to this many rows the weights are the stream and are read in storage order.
const FEW_ROWS: usize = 24;
/// Values that are read before they are packed.
const READ_VALUES: usize = 1 << 20;
/// Multiply-adds below which a product is not worth sharing between threads.
const PARALLEL_WORK: usize = 1 << 17;

thread_local! {
    /// Room for rounded activations, one matrix per width, kept from one product to the next.
    static PAIRS: RefCell<Vec<Matrix>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
enum Store {
    F32(AlignedBuf<f32>),
    Bf16(AlignedBuf<u16>),
    /// Two inputs per element.
    Pairs(AlignedBuf<u32>),
    Int8(AlignedBuf<i8>),
}

/// A weight matrix (outputs x inputs) in panels: `[panel][input][16 outputs]`, with [`WeightFormat::Bf16Dot`] two inputs at a
/// time.
#[derive(Debug)]
pub struct Packed {
    outputs: usize,
    inputs: usize,
    store: Store,
    /// One factor per output, padded to whole panels; empty unless the format has scales.
    scales: AlignedBuf<f32>,
    /// One term per output, padded to whole panels; empty for none.
    bias: AlignedBuf<f32>,
}

impl Packed {
    /// Room for a matrix, all zeros.
    pub fn zeroed(format: WeightFormat, outputs: usize, inputs: usize, with_bias: bool) -> Self {
        let padded = outputs.next_multiple_of(PANEL);
        let store = match format {
            WeightFormat::F32 => Store::F32(AlignedBuf::zeroed(padded * inputs)),
            WeightFormat::Bf16 => Store::Bf16(AlignedBuf::zeroed(padded * inputs)),
            WeightFormat::Bf16Dot => Store::Pairs(AlignedBuf::zeroed(padded * inputs.div_ceil(2))),
            WeightFormat::Int8 => Store::Int8(AlignedBuf::zeroed(padded * inputs)),
        };
        let scaled = format == WeightFormat::Int8;
        Self {
            outputs,
            inputs,
            store,
            scales: AlignedBuf::zeroed(if scaled { padded } else { 0 }),
            bias: AlignedBuf::zeroed(if with_bias { padded } else { 0 }),
        }
    }

    /// Packs row-major matrices (each outputs x inputs) stacked below one another.
    pub fn pack(format: WeightFormat, inputs: usize, stacked: &[&[f32]]) -> Self {
        let outputs = stacked.iter().map(|part| part.len() / inputs.max(1)).sum();
        let mut packed = Self::zeroed(format, outputs, inputs, false);
        packed.fill(stacked);
        packed
    }

    /// Packs other values of the same shape into the memory already there.
    ///
    /// # Panics
    /// If the parts do not add up to the matrix's shape.
    pub fn fill(&mut self, stacked: &[&[f32]]) {
        let rows: Vec<&[f32]> =
            stacked.iter().flat_map(|part| part.chunks_exact(self.inputs)).collect();
        assert_eq!(rows.len(), self.outputs, "stacked matrices do not make up the packed shape");
        self.fill_panels_from(0, &rows);
    }

    /// Packs other values of the same shape, which `read` puts into a buffer: a few megabytes of whole rows at a time.
    pub(crate) fn fill_by<E>(
        &mut self,
        mut read: impl FnMut(Range<usize>, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let most = (READ_VALUES / self.inputs.max(1)).max(1).next_multiple_of(PANEL);
        let mut buffer = vec![0.0; most.min(self.outputs) * self.inputs];
        for first in (0..self.outputs).step_by(most) {
            let end = (first + most).min(self.outputs);
            let values = &mut buffer[..(end - first) * self.inputs];
            read(first..end, values)?;
            let rows: Vec<&[f32]> = values.chunks_exact(self.inputs).collect();
            self.fill_panels_from(first / PANEL, &rows);
        }
        Ok(())
    }

    /// Packs rows into the panels from `first_panel` on.
    fn fill_panels_from(&mut self, first_panel: usize, rows: &[&[f32]]) {
        let panel_len = PANEL * self.steps();
        let start = first_panel * panel_len;
        match &mut self.store {
            Store::F32(values) => {
                fill_panels(&mut values[start..], panel_len, rows, |_, value| value);
            }
            Store::Bf16(values) => {
                fill_panels(&mut values[start..], panel_len, rows, |_, value| {
                    bf16::from_f32(value).to_bits()
                });
            }
            Store::Pairs(values) => {
                values[start..]
                    .par_chunks_exact_mut(panel_len.max(1))
                    .zip(rows.par_chunks(PANEL))
                    .for_each(|(values, rows)| {
                        for (column, row) in rows.iter().enumerate() {
                            for (step, pair) in values.chunks_exact_mut(PANEL).zip(row.chunks(2)) {
                                step[column] = rounded_pair(pair);
                            }
                        }
                    });
            }
            Store::Int8(values) => {
                let scales: Vec<f32> = rows.par_iter().map(|row| int8_scale(row)).collect();
                self.scales[first_panel * PANEL..][..scales.len()].copy_from_slice(&scales);
                fill_panels(&mut values[start..], panel_len, rows, |row, value| {
                    if scales[row] == 0.0 {
                        0
                    } else {
                        (value / scales[row]).round_ties_even() as i8
                    }
                });
            }
        }
    }

    /// Sets the terms added to the outputs, stacked like the matrices.
    ///
    /// # Panics
    /// If the matrix was made without room for a bias, or the parts do not add up to the outputs.
    pub fn fill_bias(&mut self, stacked: &[&[f32]]) {
        let mut at = 0;
        for part in stacked {
            self.bias[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        assert_eq!(at, self.outputs, "stacked biases do not make up the outputs");
    }

    /// Rows of the unpacked matrix.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of the unpacked matrix.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Steps of a panel: inputs, or pairs of them.
    fn steps(&self) -> usize {
        match &self.store {
            Store::Pairs(_) => self.inputs.div_ceil(2),
            _ => self.inputs,
        }
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// Size in memory.
    pub fn bytes(&self) -> usize {
        let store = match &self.store {
            Store::F32(values) => values.bytes(),
            Store::Bf16(values) => values.bytes(),
            Store::Pairs(values) => values.bytes(),
            Store::Int8(values) => values.bytes(),
        };
        store + self.scales.bytes() + self.bias.bytes()
    }

    /// One row of the unpacked matrix, as the format rounded it.
    pub fn output_row(&self, output: usize, into: &mut [f32]) {
        self.raw_row(output, into);
        if !self.scales.is_empty() {
            let scale = self.scales[output];
            for value in into {
                *value *= scale;
            }
        }
    }

    fn raw_row(&self, output: usize, into: &mut [f32]) {
        assert!(output < self.outputs, "row {output} of {}", self.outputs);
        assert_eq!(into.len(), self.inputs, "a row has as many values as the matrix has inputs");
        match &self.store {
            Store::F32(values) => gather(values, output, into),
            Store::Bf16(values) => gather(values, output, into),
            Store::Pairs(values) => {
                let steps = self.steps();
                let panel = &values[output / PANEL * PANEL * steps..][..PANEL * steps];
                for (into, step) in into.chunks_mut(2).zip(panel.chunks_exact(PANEL)) {
                    let pair = step[output % PANEL];
                    for (value, bits) in into.iter_mut().zip([pair & HIGH, pair << 16]) {
                        *value = f32::from_bits(bits);
                    }
                }
            }
            Store::Int8(values) => gather(values, output, into),
        }
    }

    /// One output for one input row: the same bits as the product gives there.
    pub fn output(&self, isa: Isa, input: &[f32], output: usize) -> f32 {
        let mut row = vec![0.0; self.inputs];
        self.raw_row(output, &mut row);
        let mut sum = match &self.store {
            Store::Pairs(_) => {
                let rounded: Vec<f32> = input.iter().map(|&x| f32::from_bits(rounded(x))).collect();
                chain(isa, &rounded, &row)
            }
            _ => chain(isa, input, &row),
        };
        if !self.scales.is_empty() {
            sum *= self.scales[output];
        }
        if !self.bias.is_empty() {
            sum += self.bias[output];
        }
        sum
    }

    /// `out = input x weights^T + bias`, on the threads of the current pool if `parallel`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn matmul(&self, isa: Isa, input: &Matrix, out: &mut Matrix, parallel: bool) {
        assert_eq!(out.cols(), self.outputs, "the output is as wide as the weights");
        self.matmul_leading(isa, input, out, parallel);
    }

    /// [`Self::matmul`] for the leading outputs alone: as many as `out` has columns.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn matmul_leading(&self, isa: Isa, input: &Matrix, out: &mut Matrix, parallel: bool) {
        assert_eq!(input.rows(), out.rows(), "input and output have the same rows");
        assert!(out.cols() <= self.outputs, "the output is no wider than the weights");
        let all = out.cols().div_ceil(PANEL);
        let stride = out.stride();
        let target = Target { data: out.padded_mut().as_mut_ptr(), stride, first_panel: 0 };
        let work = input.rows() * self.inputs * out.cols();
        let threads = if parallel { rayon::current_num_threads() } else { 1 };
        let tasks = (threads * 4).min(work / PARALLEL_WORK).min(all);
        self.with_operand(isa, input, 0..input.rows(), tasks > 1, |input, rows| {
            if threads == 1 || tasks <= 1 {
                // SAFETY: the output has the input's rows, each padded to whole panels.
                unsafe { self.multiply(isa, input, rows, 0..all, target) };
                return;
            }
            (0..tasks).into_par_iter().for_each(|task| {
                let panels = all * task / tasks..all * (task + 1) / tasks;
                // SAFETY: as above; the tasks write disjoint ranges of columns.
                unsafe { self.multiply(isa, input, rows.clone(), panels, target) };
            });
        });
    }

    /// The columns of `panels` for the given input rows, on this thread. Row `r` of the result starts at
    /// `out[r * 16 * panels.len()]`.
    ///
    /// # Panics
    /// If the ranges do not fit.
    pub fn matmul_panels(
        &self,
        isa: Isa,
        input: &Matrix,
        rows: Range<usize>,
        panels: Range<usize>,
        out: &mut [f32],
    ) {
        let stride = panels.len() * PANEL;
        assert!(rows.end <= input.rows() && panels.end <= self.panels());
        assert!(out.len() >= rows.len() * stride, "the output holds all rows of the panels");
        let target = Target { data: out.as_mut_ptr(), stride, first_panel: panels.start };
        self.with_operand(isa, input, rows, false, |input, rows| {
            // SAFETY: the asserts above.
            unsafe { self.multiply(isa, input, rows, panels, target) };
        });
    }

    /// Hands `work` rows of the input in the form that the weights are multiplied with.
    fn with_operand(
        &self,
        isa: Isa,
        input: &Matrix,
        rows: Range<usize>,
        parallel: bool,
        work: impl FnOnce(&Matrix, Range<usize>),
    ) {
        assert_eq!(input.cols(), self.inputs, "the input is as wide as the weights are deep");
        if !matches!(self.store, Store::Pairs(_)) {
            return work(input, rows);
        }
        let mut kept = PAIRS.take();
        let steps = self.steps();
        let place = kept.iter().position(|pairs| pairs.cols() == steps).unwrap_or_else(|| {
            kept.push(Matrix::zeros(rows.len(), steps));
            kept.len() - 1
        });
        let operand = &mut kept[place];
        operand.set_rows(rows.len());
        let (first, cols, stride) = (rows.start, operand.cols(), operand.stride());
        let round = |(row, pairs): (usize, &mut [f32])| {
            round_pairs(isa, input.row(first + row), &mut pairs[..cols]);
        };
        let each = operand.padded_mut();
        if parallel {
            each.par_chunks_exact_mut(stride).enumerate().with_min_len(8).for_each(round);
        } else {
            each.chunks_exact_mut(stride).enumerate().for_each(round);
        }
        work(operand, 0..rows.len());
        PAIRS.set(kept);
    }

    /// # Safety
    /// `target` has a row for each of `rows` (the first of them is its row 0) with room for `panels`,
    /// and nothing else reads or writes there.
    unsafe fn multiply(
        &self,
        isa: Isa,
        input: &Matrix,
        rows: Range<usize>,
        panels: Range<usize>,
        target: Target,
    ) {
        assert_eq!(input.cols(), self.steps(), "the input is as wide as the weights are deep");
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match &self.store {
                Store::F32(values) => self.blocks(isa, input, rows, values, panels, target),
                Store::Bf16(values) => self.blocks(isa, input, rows, values, panels, target),
                Store::Pairs(values) => self.blocks(isa, input, rows, values, panels, target),
                Store::Int8(values) => self.blocks(isa, input, rows, values, panels, target),
            }
        }
    }

    /// # Safety
    /// See [`Self::multiply`].
    unsafe fn blocks<E: Element>(
        &self,
        isa: Isa,
        input: &Matrix,
        rows: Range<usize>,
        values: &[E],
        panels: Range<usize>,
        target: Target,
    ) {
        let steps = self.steps();
        let depths =
            || (0..steps).step_by(DEPTH_BLOCK).map(|start| start..steps.min(start + DEPTH_BLOCK));
        let together = tile::panels_together(isa);
        let groups = || {
            let starts = panels.clone().step_by(together);
            starts.map(|start| start..panels.end.min(start + together))
        };
        let mut first = rows.start;
        while first < rows.end {
            let block = first..rows.end.min(first + ROW_BLOCK);
            let run = |panels: Range<usize>, depth: Range<usize>| {
                // SAFETY: rows, panels and depth stay inside what the caller vouches for.
                unsafe {
                    self.block(
                        isa,
                        input,
                        block.clone(),
                        rows.start,
                        values,
                        panels,
                        depth,
                        target,
                    );
                }
            };
            if block.len() <= tile::single_pass_rows(isa) {
                // One tile of rows: no weight is used twice, so nothing is gained by cutting the depth.
                run(panels.clone(), 0..steps);
            } else if block.len() <= FEW_ROWS {
                for group in groups() {
                    depths().for_each(|depth| run(group.clone(), depth));
                }
            } else {
                for depth in depths() {
                    groups().for_each(|group| run(group, depth.clone()));
                }
            }
            first = block.end;
        }
    }

    /// # Safety
    /// See [`Self::multiply`].
    unsafe fn block<E: Element>(
        &self,
        isa: Isa,
        input: &Matrix,
        rows: Range<usize>,
        first_row: usize,
        values: &[E],
        panels: Range<usize>,
        depth: Range<usize>,
        target: Target,
    ) {
        let start = depth.start;
        let panel_len = PANEL * self.steps();
        let stored = &values[panels.start * panel_len..panels.end * panel_len];
        let last = depth.end == self.steps();
        let per_output = |values: &AlignedBuf<f32>| {
            if last && !values.is_empty() {
                values[panels.start * PANEL..panels.end * PANEL].as_ptr()
            } else {
                std::ptr::null()
            }
        };
        let finish = Finish {
            resume: start > 0,
            scale: per_output(&self.scales),
            bias: per_output(&self.bias),
        };
        let block = [stored[start * PANEL..].as_ptr()];
        let stored = Panels {
            blocks: &block,
            block_depth: depth.len(),
            depth: depth.len(),
            step: PANEL,
            side: Side::Offset(panel_len),
        };
        assert!(rows.end <= input.rows() && depth.end <= input.cols());
        let from = Rows {
            first: input.padded()[rows.start * input.stride() + start..].as_ptr(),
            stride: input.stride(),
        };
        // SAFETY: the input was checked above, the panels were sliced, and the target is the caller's promise.
        unsafe {
            let to = Rows {
                first: target.data.add(
                    (rows.start - first_row) * target.stride
                        + (panels.start - target.first_panel) * PANEL,
                ),
                stride: target.stride,
            };
            tile::run(isa, from, rows.len(), stored, panels.len(), to, finish);
        }
    }
}

/// Picks one output's weights out of its panel.
fn gather<E: Element>(values: &[E], output: usize, into: &mut [f32]) {
    let panel = &values[output / PANEL * PANEL * into.len()..][..PANEL * into.len()];
    let slot = E::slot(output % PANEL);
    for (value, step) in into.iter_mut().zip(panel.chunks_exact(PANEL)) {
        *value = step[slot].widen();
    }
}

/// Where a product goes.
#[derive(Clone, Copy)]
struct Target {
    data: *mut f32,
    stride: usize,
    first_panel: usize,
}

// SAFETY: the pointer is only used by tasks that write disjoint parts while the owner is mutably borrowed.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

fn fill_panels<E: Element>(
    values: &mut [E],
    panel_len: usize,
    rows: &[&[f32]],
    store: impl Fn(usize, f32) -> E + Sync,
) {
    values.par_chunks_exact_mut(panel_len.max(1)).zip(rows.par_chunks(PANEL)).enumerate().for_each(
        |(panel, (values, rows))| {
            for (column, row) in rows.iter().enumerate() {
                let index = panel * PANEL + column;
                for (step, &value) in values.chunks_exact_mut(PANEL).zip(*row) {
                    step[E::slot(column)] = store(index, value);
                }
            }
        },
    );
}

/// The scale that maps the largest magnitude of a row to 127.
fn int8_scale(row: &[f32]) -> f32 {
    row.iter().fold(0.0_f32, |largest, value| largest.max(value.abs())) / 127.0
}

dispatched! {
    /// One chain of fused multiply-adds.
    fn chain(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).fold(0.0, |sum, (&a, &b)| a.mul_add(b, sum))
    }
}
