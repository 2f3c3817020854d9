//! The AVX2 form: six rows by one panel of 16 columns, twelve of the sixteen registers.

use std::arch::x86_64::{
    _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm256_add_ps, _mm256_broadcast_ss, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};
use std::ops::Range;

use super::{Left, MatMut, PANEL, Panels};

/// Rows of a strip.
pub(super) const STRIP: usize = 6;

/// [`super::run_block`] with AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
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
