//! The AVX-512 form: twelve rows by two panels of 16 columns, 24 of the 32 registers.

use std::arch::x86_64::{
    _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
};
use std::ops::Range;

use super::{Left, MatMut, PANEL, Panels};

/// Rows of a strip.
pub(super) const STRIP: usize = 12;

/// [`super::run_block`] with AVX-512.
#[target_feature(enable = "avx512f")]
pub(in crate::kernels) fn block(
    dst: &mut MatMut<'_>,
    rows: Range<usize>,
    left: &Left<'_>,
    b: Panels<'_>,
    depth: Range<usize>,
    add: bool,
) {
    assert!(rows.end <= dst.rows && b.cols <= dst.cols, "the block exceeds the result");
    assert!(left.depth == 1 || (left.row, left.depth) == (1, STRIP), "not a layout of strips");
    if rows.is_empty() || depth.is_empty() {
        return;
    }
    let panels = b.cols.div_ceil(PANEL);
    for panel in (0..panels).step_by(2) {
        let pair = panel + 1 < panels;
        let first = b.block(panel, depth.clone());
        let second = if pair { b.block(panel + 1, depth.clone()) } else { first };
        // While a strip is computed, a quarter of one of the next panels' blocks is fetched.
        let ahead = [2, 3].map(|next| b.block((panel + next).min(panels - 1), depth.clone()));
        for (strip, row) in rows.clone().step_by(STRIP).enumerate() {
            let next = ahead[strip / 4 % 2];
            let tile = Tile {
                depth: depth.len(),
                left: &left.data[strip * left.strip..],
                row: left.row,
                packed: left.depth != 1,
                right: [first, second],
                ahead: next[strip % 4 * (next.len() / 4)..].as_ptr(),
                masks: [0, 1].map(|side| mask(b.cols, panel + side)),
                add,
            };
            let height = STRIP.min(rows.end - row);
            // SAFETY: the rows lie inside `dst`, and the masks leave columns beyond it alone.
            unsafe {
                let out = dst.data.add(row * dst.row_stride + panel * PANEL);
                if pair {
                    tile.run::<2>(height, out, dst.row_stride);
                } else {
                    tile.run::<1>(height, out, dst.row_stride);
                }
            }
        }
    }
}

/// Which columns of a panel exist.
fn mask(cols: usize, panel: usize) -> u16 {
    let width = cols.saturating_sub(panel * PANEL).min(PANEL);
    ((1_u32 << width) - 1) as u16
}

/// The factors of one tile of the product.
struct Tile<'a> {
    depth: usize,
    left: &'a [f32],
    row: usize,
    packed: bool,
    right: [&'a [f32]; 2],
    ahead: *const f32,
    masks: [u16; 2],
    add: bool,
}

impl Tile<'_> {
    /// Computes `height` rows of `SIDE` panels.
    ///
    /// # Safety
    /// `out` must be writable at each `row * out_row` for the columns that the masks name.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn run<const SIDE: usize>(&self, height: usize, out: *mut f32, out_row: usize) {
        let last = if self.packed {
            (self.depth - 1) * STRIP + height - 1
        } else {
            (height - 1) * self.row + self.depth - 1
        };
        assert!(last < self.left.len(), "left factor too short");
        assert!(self.right.iter().all(|right| right.len() >= self.depth * PANEL));
        macro_rules! heights {
            ($($height:literal),*) => {
                match (height, self.packed) {
                    (12, true) => self.kernel::<12, SIDE, true>(out, out_row),
                    $(
                        ($height, true) => self.kernel::<$height, SIDE, true>(out, out_row),
                        ($height, false) => self.kernel::<$height, SIDE, false>(out, out_row),
                    )*
                    _ => self.kernel::<12, SIDE, false>(out, out_row),
                }
            };
        }
        // SAFETY: both factors reach as far as `height` and `depth` ask, as just checked; the caller vouches for `out`.
        unsafe { heights!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) }
    }

    /// `M` rows of `SIDE` panels.
    ///
    /// # Safety
    /// See [`Self::run`]; the factors hold `M` rows.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn kernel<const M: usize, const SIDE: usize, const PACKED: bool>(
        &self,
        out: *mut f32,
        out_row: usize,
    ) {
        let (a_row, a_depth) = if PACKED { (1, STRIP) } else { (self.row, 1) };
        // SAFETY: every access below is one of those the caller vouches for; a prefetch may name any address.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); SIDE]; M];
            for row in 0..M {
                for side in 0..SIDE {
                    let at = out.wrapping_add(row * out_row + side * PANEL);
                    _mm_prefetch::<_MM_HINT_T0>(at.cast());
                }
            }
            // Four rows share a pointer: an address has room for one more, once or twice its distance.
            let mut a = [self.left.as_ptr(); STRIP / 4];
            for (group, a) in a.iter_mut().enumerate().take(M.div_ceil(4)) {
                *a = self.left.as_ptr().wrapping_add(4 * group * a_row);
            }
            let mut b = [self.right[0].as_ptr(); SIDE];
            for (b, right) in b.iter_mut().zip(&self.right) {
                *b = right.as_ptr();
            }
            // Not unrolled: the compiler would keep broadcast values of several steps and run out of registers.
            for step in 0..self.depth {
                if step % 4 == 0 {
                    _mm_prefetch::<_MM_HINT_T1>(self.ahead.wrapping_add(step / 4 * PANEL).cast());
                }
                let right = b.map(|b| _mm512_loadu_ps(b));
                for (row, sums) in sums.iter_mut().enumerate() {
                    let factor = _mm512_set1_ps(*a[row / 4].wrapping_add(row % 4 * a_row));
                    for (sum, right) in sums.iter_mut().zip(&right) {
                        *sum = _mm512_fmadd_ps(factor, *right, *sum);
                    }
                }
                a = a.map(|a| a.wrapping_add(a_depth));
                b = b.map(|b| b.wrapping_add(PANEL));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                for (side, sum) in sums.iter_mut().enumerate() {
                    let out = out.wrapping_add(row * out_row + side * PANEL);
                    let mask = self.masks[side];
                    if self.add {
                        *sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), *sum);
                    }
                    _mm512_mask_storeu_ps(out, mask, *sum);
                }
            }
        }
    }
}
