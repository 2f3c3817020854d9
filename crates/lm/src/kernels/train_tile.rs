//! The innermost part of training's matrix product: a block of rows by one block of inner indices of every panel.

use std::ops::Range;

use super::train_gemm::Panels;
use super::train_matrix::MatMut;

/// Columns of a panel: two AVX2 registers.
pub(super) const PANEL: usize = 16;
/// Rows the kernel computes at a time: with two registers each they fill twelve of the sixteen.
pub(super) const STRIP: usize = 6;

/// A block of the left factor: value (row, inner index) of strip `s` lies at `s * strip + row * row + index * depth`.
pub(super) struct Left<'a> {
    pub(super) data: &'a [f32],
    pub(super) strip: usize,
    pub(super) row: usize,
    pub(super) depth: usize,
}

/// Multiplies one block of rows by one block of inner indices of all panels.
pub(super) fn run_block(
    dst: &mut MatMut<'_>,
    rows: Range<usize>,
    left: &Left<'_>,
    b: Panels<'_>,
    depth: Range<usize>,
    add: bool,
) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has both features, as just checked.
        unsafe { avx2::block(dst, rows, left, b, depth, add) };
        return;
    }
    portable_block(dst, rows, left, b, depth, add);
}

/// [`run_block`] on any processor.
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
        for (at, row) in rows.clone().enumerate() {
            let start = at / STRIP * left.strip + at % STRIP * left.row;
            let mut sums = [0.0_f32; PANEL];
            for (index, right) in right.iter().enumerate() {
                let factor = left.data[start + index * left.depth];
                for (sum, &value) in sums.iter_mut().zip(right) {
                    *sum = factor.mul_add(value, *sum);
                }
            }
            for (out, sum) in dst.row(row)[cols.clone()].iter_mut().zip(sums) {
                *out = if add { *out + sum } else { sum };
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_add_ps, _mm256_broadcast_ss,
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    use super::{Left, MatMut, PANEL, Panels, Range, STRIP};

    /// [`super::run_block`] with AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn block(
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
        let strips = rows.len().div_ceil(STRIP);
        let panels = b.cols.div_ceil(PANEL);
        for panel in 0..panels {
            let right = b.block(panel, depth.clone());
            // While a strip is computed, the next quarter of the next panel's block is fetched.
            let next = b.block((panel + 1).min(panels - 1), depth.clone());
            let cols = panel * PANEL..b.cols.min((panel + 1) * PANEL);
            for strip in 0..strips {
                let first = rows.start + strip * STRIP;
                let height = STRIP.min(rows.end - first);
                let tile = Tile {
                    depth: depth.len(),
                    a: &left.data[strip * left.strip..],
                    a_row: left.row,
                    a_depth: left.depth,
                    b: right,
                    ahead: &next[(strip % 4) * (next.len() / 4)..],
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
        ahead: &'a [f32],
    }

    impl Tile<'_> {
        /// Computes `height` rows of 16 columns.
        ///
        /// # Safety
        /// `out` must be writable for 16 values at each `row * out_row`.
        #[inline]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn run(&self, height: usize, out: *mut f32, out_row: usize, add: bool) {
            let Self { depth, a, a_row, a_depth, b, ahead } = *self;
            let last = (height - 1) * a_row + (depth - 1) * a_depth;
            assert!(last < a.len() && depth * PANEL <= b.len(), "factor too short");
            let (a, b, ahead) = (a.as_ptr(), b.as_ptr(), ahead.as_ptr());
            // SAFETY: both factors reach as far as `height` and `depth` ask, as just checked; the caller vouches for `out`.
            unsafe {
                match (height, a_depth) {
                    // The common heights with the two layouts of the left factor known to the compiler.
                    (6, 1) => kernel::<6>(depth, a, a_row, 1, b, ahead, out, out_row, add),
                    (6, STRIP) => kernel::<6>(depth, a, 1, STRIP, b, ahead, out, out_row, add),
                    (6, _) => kernel::<6>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                    (5, _) => kernel::<5>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                    (4, _) => kernel::<4>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                    (3, _) => kernel::<3>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                    (2, _) => kernel::<2>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                    _ => kernel::<1>(depth, a, a_row, a_depth, b, ahead, out, out_row, add),
                }
            }
        }
    }

    /// `M` rows of 16 columns.
    ///
    /// # Safety
    /// `a` must be readable at `row * a_row + index * a_depth` for every row below `M` and index below `depth`,
    /// `b` for `16 * depth` values, and `out` writable for 16 values at each `row * out_row`. `ahead` is only fetched into
    /// the cache.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn kernel<const M: usize>(
        depth: usize,
        a: *const f32,
        a_row: usize,
        a_depth: usize,
        b: *const f32,
        ahead: *const f32,
        out: *mut f32,
        out_row: usize,
        add: bool,
    ) {
        // SAFETY: every access below is one of those the caller vouches for.
        unsafe {
            let mut low = [_mm256_setzero_ps(); M];
            let mut high = [_mm256_setzero_ps(); M];
            for row in 0..M {
                _mm_prefetch::<_MM_HINT_T0>(out.add(row * out_row).cast());
                _mm_prefetch::<_MM_HINT_T0>(out.add(row * out_row + PANEL - 1).cast());
            }
            let (mut a, mut b, mut ahead) = (a, b, ahead);
            macro_rules! index {
                () => {
                    let b_low = _mm256_loadu_ps(b);
                    let b_high = _mm256_loadu_ps(b.add(8));
                    for row in 0..M {
                        let factor = _mm256_broadcast_ss(&*a.add(row * a_row));
                        low[row] = _mm256_fmadd_ps(factor, b_low, low[row]);
                        high[row] = _mm256_fmadd_ps(factor, b_high, high[row]);
                    }
                    a = a.wrapping_add(a_depth);
                    b = b.wrapping_add(PANEL);
                };
            }
            for _ in 0..depth / 4 {
                _mm_prefetch::<_MM_HINT_T1>(ahead.cast());
                ahead = ahead.wrapping_add(PANEL);
                index!();
                index!();
                index!();
                index!();
            }
            for _ in 0..depth % 4 {
                index!();
            }
            for row in 0..M {
                let out = out.add(row * out_row);
                if add {
                    low[row] = _mm256_add_ps(_mm256_loadu_ps(out), low[row]);
                    high[row] = _mm256_add_ps(_mm256_loadu_ps(out.add(8)), high[row]);
                }
                _mm256_storeu_ps(out, low[row]);
                _mm256_storeu_ps(out.add(8), high[row]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::train_gemm::{multiply, panels_len};
    use super::super::train_matrix::MatRef;
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5)
            .collect()
    }

    #[test]
    fn the_portable_block_gives_the_same_bits() {
        let (rows, cols, depth) = (20, 37, 41);
        let (a, b) = (values(rows * depth, 3), values(depth * cols, 4));
        let left = Left { data: &a, strip: STRIP * depth, row: depth, depth: 1 };
        let mut buffer = vec![0.0; panels_len(depth, cols)];
        let panels = Panels::pack(&mut buffer, MatRef::new(&b, depth, cols));
        let (mut fast, mut slow) = (values(rows * cols, 5), values(rows * cols, 5));
        let view = MatRef::new(&a, rows, depth);
        multiply(&mut MatMut::new(&mut fast, rows, cols), view, panels, true);
        let slow_view = &mut MatMut::new(&mut slow, rows, cols);
        portable_block(slow_view, 0..rows, &left, panels, 0..depth, true);
        assert_eq!(fast, slow);
    }
}
