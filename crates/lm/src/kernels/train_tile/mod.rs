//! The innermost part of training's matrix product: a block of rows by one block of inner indices of every panel.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

use std::ops::Range;

use super::dispatch::{Isa, Kind};
use super::train_gemm::Panels;
use super::train_matrix::MatMut;

/// Columns of a panel: one AVX-512 register or two AVX2 registers.
pub(super) const PANEL: usize = 16;
/// Rows of a strip in plain Rust: as few registers as the smallest machine has.
const PORTABLE_STRIP: usize = 4;

/// A block of the left factor in strips of [`strip_rows`] rows: value (row, inner index) of strip `s` lies at
/// `s * strip + row * row + index * depth`.
pub(super) struct Left<'a> {
    pub(super) data: &'a [f32],
    pub(super) strip: usize,
    pub(super) row: usize,
    pub(super) depth: usize,
}

/// Rows the kernel of an instruction set computes at a time.
pub(super) fn strip_rows(isa: Isa) -> usize {
    match isa.kind() {
        Kind::Portable => PORTABLE_STRIP,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => avx2::STRIP,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => avx512::STRIP,
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => neon::STRIP,
    }
}

/// Multiplies one block of rows by one block of inner indices of all panels.
pub(super) fn run_block(
    isa: Isa,
    dst: &mut MatMut<'_>,
    rows: Range<usize>,
    left: &Left<'_>,
    b: Panels<'_>,
    depth: Range<usize>,
    add: bool,
) {
    match isa.kind() {
        Kind::Portable => portable_block(dst, rows, left, b, depth, add),
        // SAFETY: the value exists only if the processor has AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { avx2::block(dst, rows, left, b, depth, add) },
        // SAFETY: the value exists only if the processor has AVX-512.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => unsafe { avx512::block(dst, rows, left, b, depth, add) },
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => neon::block(dst, rows, left, b, depth, add),
    }
}

/// [`run_block`] on any processor: four rows by a panel at a time.
fn portable_block(
    dst: &mut MatMut<'_>,
    rows: Range<usize>,
    left: &Left<'_>,
    b: Panels<'_>,
    depth: Range<usize>,
    add: bool,
) {
    for panel in 0..b.cols.div_ceil(PANEL) {
        let (right, _) = b.block(panel, depth.clone()).as_chunks::<PANEL>();
        let cols = panel * PANEL..b.cols.min((panel + 1) * PANEL);
        for (strip, first) in rows.clone().step_by(PORTABLE_STRIP).enumerate() {
            let height = PORTABLE_STRIP.min(rows.end - first);
            let data = &left.data[strip * left.strip..];
            let mut sums = [[0.0_f32; PANEL]; PORTABLE_STRIP];
            for (index, right) in right.iter().enumerate() {
                for (row, sums) in sums[..height].iter_mut().enumerate() {
                    let factor = data[row * left.row + index * left.depth];
                    for (sum, &value) in sums.iter_mut().zip(right) {
                        *sum = factor.mul_add(value, *sum);
                    }
                }
            }
            for (row, sums) in sums[..height].iter().enumerate() {
                for (out, &sum) in dst.row(first + row)[cols.clone()].iter_mut().zip(sums) {
                    *out = if add { *out + sum } else { sum };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::train_gemm::panels_len;
    use super::super::train_matrix::MatRef;
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5)
            .collect()
    }

    #[test]
    fn every_instruction_set_adds_the_same_bits_to_a_result() {
        let (cols, depth) = (37, 41);
        for rows in 1..=27 {
            let (a, b) = (values(rows * depth, 3), values(depth * cols, 4));
            let mut buffer = vec![0.0; panels_len(depth, cols)];
            let panels = Panels::pack(&mut buffer, MatRef::new(&b, depth, cols));
            let results = Isa::available().into_iter().map(|isa| {
                let strip = strip_rows(isa) * depth;
                let left = Left { data: &a, strip, row: depth, depth: 1 };
                let mut out = values(rows * cols, 5);
                let view = &mut MatMut::new(&mut out, rows, cols);
                run_block(isa, view, 0..rows, &left, panels, 0..depth, true);
                out
            });
            let results: Vec<Vec<f32>> = results.collect();
            assert!(results.iter().all(|out| *out == results[0]), "{rows} rows");
        }
    }
}
