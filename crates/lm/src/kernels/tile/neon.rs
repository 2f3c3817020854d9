//! The NEON form: up to six rows by one panel, or fewer rows by several.

use std::arch::aarch64::{float32x4_t, vaddq_f32, vdupq_n_f32, vld1q_f32, vmulq_f32, vst1q_f32};

use super::{Element, Finish, PANEL, Panels, Rows, Side};

/// Most rows one tile takes.
pub(super) const ROWS: usize = 6;
/// Registers of a panel's columns.
const QUARTERS: usize = PANEL / 4;

/// Cuts the rows into tiles of nearly equal height. Up to three rows take several panels at once instead, so that enough
/// chains run side by side to hide the latency of an addition.
///
/// # Safety
/// See [`super::run`].
pub(super) unsafe fn run<E: Element>(
    rows: Rows<*const f32>,
    count: usize,
    stored: Panels<'_, E>,
    panels: usize,
    out: Rows<*mut f32>,
    finish: Finish,
) {
    let tile = Tile { rows, out, stored, finish };
    let wide = if matches!(stored.side, Side::Block) || count > 3 { 1 } else { 2 };
    let mut panel = 0;
    // SAFETY: the caller's promises are the tile's promises.
    unsafe {
        while wide > 1 && panel + wide <= panels {
            match count {
                1 => tile.compute::<1, 2>(0, panel),
                2 => tile.compute::<2, 2>(0, panel),
                _ => tile.compute::<3, 2>(0, panel),
            }
            panel += wide;
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
    /// See [`super::run`]; the rows and panels are part of the call.
    #[inline]
    unsafe fn compute<const COUNT: usize, const SIDE: usize>(&self, row: usize, panel: usize) {
        let Self { rows, out, stored, finish } = self;
        let (blocks, offset) = stored.panel(panel);
        let distance = match stored.side {
            Side::Offset(distance) => distance,
            Side::Block => 0,
        };
        // SAFETY: all offsets stay inside the ranges the caller vouches for.
        unsafe {
            let zero: float32x4_t = vdupq_n_f32(0.0);
            let mut sums = [[[zero; QUARTERS]; SIDE]; COUNT];
            let out_first = out.first.add(row * out.stride + panel * PANEL);
            let place = |row: usize, side: usize, quarter: usize| {
                out_first.add(row * out.stride + side * PANEL + 4 * quarter)
            };
            if finish.resume {
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (side, sums) in sums.iter_mut().enumerate() {
                        for (quarter, sum) in sums.iter_mut().enumerate() {
                            *sum = vld1q_f32(place(row, side, quarter));
                        }
                    }
                }
            }
            let mut start = 0;
            for &block in blocks {
                let steps = stored.block_depth.min(stored.depth - start);
                let mut step = block.add(offset);
                for k in start..start + steps {
                    let mut weights = [[zero; QUARTERS]; SIDE];
                    for (side, weights) in weights.iter_mut().enumerate() {
                        *weights = E::load128(step.add(side * distance));
                    }
                    for (index, sums) in sums.iter_mut().enumerate() {
                        let value = vdupq_n_f32(*rows.first.add((row + index) * rows.stride + k));
                        for (sums, weights) in sums.iter_mut().zip(&weights) {
                            for (sum, &weight) in sums.iter_mut().zip(weights) {
                                *sum = E::multiply_add128(value, weight, *sum);
                            }
                        }
                    }
                    step = step.wrapping_add(stored.step);
                }
                start += steps;
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                for (side, sums) in sums.iter_mut().enumerate() {
                    for (quarter, sum) in sums.iter_mut().enumerate() {
                        let column = (panel + side) * PANEL + 4 * quarter;
                        if !finish.scale.is_null() {
                            *sum = vmulq_f32(*sum, vld1q_f32(finish.scale.add(column)));
                        }
                        if !finish.bias.is_null() {
                            *sum = vaddq_f32(*sum, vld1q_f32(finish.bias.add(column)));
                        }
                        vst1q_f32(place(row, side, quarter), *sum);
                    }
                }
            }
        }
    }
}
