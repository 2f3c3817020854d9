//! The AVX2 form: up to six rows by one panel, or fewer rows by several.

use std::arch::x86_64::{
    _mm256_add_ps, _mm256_broadcast_ss, _mm256_loadu_ps, _mm256_mul_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{Element, Finish, PANEL, PREFETCH_BYTES, Panels, Rows, Side, prefetch};

/// Most rows one tile takes.
pub(super) const ROWS: usize = 6;
/// With this many rows or fewer the processor sees the stream coming by itself.
const PREFETCH_ABOVE_ROWS: usize = 3;

/// Cuts the rows into tiles of nearly equal height. Up to three rows take several panels at once instead, so that enough
/// chains run side by side to hide the latency of an addition.
///
/// # Safety
/// See [`super::run`]; the processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run<E: Element>(
    rows: Rows<*const f32>,
    count: usize,
    stored: Panels<'_, E>,
    panels: usize,
    out: Rows<*mut f32>,
    finish: Finish,
) {
    let tile = Tile { rows, out, stored, finish };
    let wide = match count {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    };
    let together = if matches!(stored.side, Side::Block) { 1 } else { wide };
    let mut panel = 0;
    // SAFETY: the caller's promises are the tile's promises.
    unsafe {
        while together > 1 && panel + together <= panels {
            match count {
                1 => tile.compute::<1, 4>(0, panel),
                2 => tile.compute::<2, 2>(0, panel),
                _ => tile.compute::<3, 2>(0, panel),
            }
            panel += together;
        }
        let tiles = count.div_ceil(ROWS);
        for panel in panel..panels {
            let mut row = 0;
            for index in 0..tiles {
                let height = (count - row).div_ceil(tiles - index);
                match height {
                    1 => tile.compute::<1, 1>(row, panel),
                    2 => tile.compute::<2, 1>(row, panel),
                    3 => tile.compute::<3, 1>(row, panel),
                    4 => tile.compute::<4, 1>(row, panel),
                    5 => tile.compute::<5, 1>(row, panel),
                    _ => tile.compute::<6, 1>(row, panel),
                }
                row += height;
            }
        }
    }
}

/// One call's operands.
struct Tile<'a, E> {
    rows: Rows<*const f32>,
    out: Rows<*mut f32>,
    stored: Panels<'a, E>,
    finish: Finish,
}

impl<E: Element> Tile<'_, E> {
    /// `COUNT` rows from `row` on, `SIDE` panels from `panel` on.
    ///
    /// # Safety
    /// See [`super::run`]; the rows and panels are part of the call; the processor has AVX2 and FMA.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn compute<const COUNT: usize, const SIDE: usize>(&self, row: usize, panel: usize) {
        let Self { rows, out, stored, finish } = self;
        let (blocks, offset) = stored.panel(panel);
        let distance = match stored.side {
            Side::Offset(distance) => distance,
            Side::Block => 0,
        };
        let mut sums = [[[_mm256_setzero_ps(); 2]; SIDE]; COUNT];
        // SAFETY: all offsets stay inside the ranges the caller vouches for.
        unsafe {
            let out_first = out.first.add(row * out.stride + panel * PANEL);
            if finish.resume {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let from = out_first.add(row * out.stride);
                    for (side, sums) in sums.iter_mut().enumerate() {
                        sums[0] = _mm256_loadu_ps(from.add(side * PANEL));
                        sums[1] = _mm256_loadu_ps(from.add(side * PANEL + 8));
                    }
                    // The tile below will resume as well.
                    prefetch(from.wrapping_add(COUNT * out.stride));
                }
            }
            let mut value = [rows.first; COUNT];
            for (index, value) in value.iter_mut().enumerate() {
                *value = rows.first.add((row + index) * rows.stride);
            }
            let mut start = 0;
            for &block in blocks {
                let steps = stored.block_depth.min(stored.depth - start);
                let mut step = block.add(offset);
                for k in start..start + steps {
                    let mut weights = [[_mm256_setzero_ps(); 2]; SIDE];
                    for (side, weights) in weights.iter_mut().enumerate() {
                        let step = step.add(side * distance);
                        if COUNT > PREFETCH_ABOVE_ROWS {
                            prefetch(step.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                        }
                        *weights = E::load256(step);
                    }
                    for (value, sums) in value.iter().zip(&mut sums) {
                        let value = _mm256_broadcast_ss(&*value.add(k));
                        for (sums, weights) in sums.iter_mut().zip(&weights) {
                            sums[0] = E::multiply_add256(value, weights[0], sums[0]);
                            sums[1] = E::multiply_add256(value, weights[1], sums[1]);
                        }
                    }
                    step = step.add(stored.step);
                }
                start += steps;
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let to = out_first.add(row * out.stride);
                for (side, sums) in sums.iter_mut().enumerate() {
                    for (half, sum) in sums.iter_mut().enumerate() {
                        let column = side * PANEL + half * 8;
                        if !finish.scale.is_null() {
                            let scale = _mm256_loadu_ps(finish.scale.add(panel * PANEL + column));
                            *sum = _mm256_mul_ps(*sum, scale);
                        }
                        if !finish.bias.is_null() {
                            let bias = _mm256_loadu_ps(finish.bias.add(panel * PANEL + column));
                            *sum = _mm256_add_ps(*sum, bias);
                        }
                        _mm256_storeu_ps(to.add(column), *sum);
                    }
                }
            }
        }
    }
}
