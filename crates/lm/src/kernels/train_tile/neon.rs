//! The NEON form: six rows by one panel of 16 columns, 24 of the 32 registers.

use std::arch::aarch64::{float32x4_t, vaddq_f32, vdupq_n_f32, vfmaq_n_f32, vld1q_f32, vst1q_f32};
use std::ops::Range;

use super::{Left, MatMut, PANEL, Panels};

/// Rows of a strip.
pub(super) const STRIP: usize = 6;
/// Registers of a panel's columns.
const QUARTERS: usize = PANEL / 4;

/// [`super::run_block`] with NEON, which every 64-bit ARM processor has.
pub(in crate::kernels) fn block(
    dst: &mut MatMut<'_>,
    rows: Range<usize>,
    left: &Left<'_>,
    b: Panels<'_>,
    depth: Range<usize>,
    add: bool,
) {
    assert!(rows.end <= dst.rows && b.cols <= dst.cols, "the block exceeds the result");
    if rows.is_empty() || depth.is_empty() {
        return;
    }
    for panel in 0..b.cols.div_ceil(PANEL) {
        let right = b.block(panel, depth.clone());
        let cols = panel * PANEL..b.cols.min((panel + 1) * PANEL);
        for (strip, first) in rows.clone().step_by(STRIP).enumerate() {
            let height = STRIP.min(rows.end - first);
            let tile = Tile {
                depth: depth.len(),
                a: &left.data[strip * left.strip..],
                a_row: left.row,
                a_depth: left.depth,
                b: right,
            };
            if cols.len() == PANEL {
                // SAFETY: the rows and columns of the tile lie inside `dst`, as checked above.
                unsafe {
                    let out = dst.data.add(first * dst.row_stride + cols.start);
                    tile.run(height, out, dst.row_stride, add);
                }
            } else {
                let mut edge = [0.0; STRIP * PANEL];
                // SAFETY: `edge` has room for a whole tile.
                unsafe { tile.run(height, edge.as_mut_ptr(), PANEL, false) };
                for (row, sums) in (first..first + height).zip(edge.chunks_exact(PANEL)) {
                    for (out, &sum) in dst.row(row)[cols.clone()].iter_mut().zip(sums) {
                        *out = if add { *out + sum } else { sum };
                    }
                }
            }
        }
    }
}

/// The factors of one tile of the product.
struct Tile<'a> {
    depth: usize,
    a: &'a [f32],
    a_row: usize,
    a_depth: usize,
    b: &'a [f32],
}

impl Tile<'_> {
    /// Computes `height` rows of 16 columns.
    ///
    /// # Safety
    /// `out` must be writable for 16 values at each `row * out_row`.
    unsafe fn run(&self, height: usize, out: *mut f32, out_row: usize, add: bool) {
        let last = (height - 1) * self.a_row + (self.depth - 1) * self.a_depth;
        assert!(last < self.a.len() && self.depth * PANEL <= self.b.len(), "factor too short");
        // SAFETY: both factors reach as far as `height` and `depth` ask, as just checked; the caller vouches for `out`.
        unsafe {
            match height {
                6 => self.kernel::<6>(out, out_row, add),
                5 => self.kernel::<5>(out, out_row, add),
                4 => self.kernel::<4>(out, out_row, add),
                3 => self.kernel::<3>(out, out_row, add),
                2 => self.kernel::<2>(out, out_row, add),
                _ => self.kernel::<1>(out, out_row, add),
            }
        }
    }

    /// `M` rows of 16 columns.
    ///
    /// # Safety
    /// `a` must be readable at `row * a_row + index * a_depth` for every row below `M` and index below `depth`, `b` for
    /// `16 * depth` values, and `out` writable for 16 values at each `row * out_row`.
    #[inline]
    unsafe fn kernel<const M: usize>(&self, out: *mut f32, out_row: usize, add: bool) {
        let (mut a, mut b) = (self.a.as_ptr(), self.b.as_ptr());
        // SAFETY: every access below is one of those the caller vouches for.
        unsafe {
            let mut sums: [[float32x4_t; QUARTERS]; M] = [[vdupq_n_f32(0.0); QUARTERS]; M];
            for _ in 0..self.depth {
                let mut right = [vdupq_n_f32(0.0); QUARTERS];
                for (quarter, right) in right.iter_mut().enumerate() {
                    *right = vld1q_f32(b.add(4 * quarter));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let factor = *a.add(row * self.a_row);
                    for (sum, &right) in sums.iter_mut().zip(&right) {
                        *sum = vfmaq_n_f32(*sum, right, factor);
                    }
                }
                a = a.wrapping_add(self.a_depth);
                b = b.wrapping_add(PANEL);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (quarter, &sum) in sums.iter().enumerate() {
                    let out = out.add(row * out_row + 4 * quarter);
                    vst1q_f32(out, if add { vaddq_f32(vld1q_f32(out), sum) } else { sum });
                }
            }
        }
    }
}
