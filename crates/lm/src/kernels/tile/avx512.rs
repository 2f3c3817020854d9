//! The AVX-512 form: twelve rows by two panels where there are many rows; otherwise all rows (up to 24) by as many
//! panels as the 32 registers take, so that a stored value is read and widened once.

/// Rows of a tile when there are many.
pub(super) const ROWS: usize = 12;
/// Panels of a tile when there are many rows.
pub(super) const SIDE: usize = 2;
/// Up to this many rows are one tile.
pub(super) const FEW_ROWS: usize = 24;
/// With this many rows or fewer the processor sees the stream coming by itself.
const PREFETCH_ABOVE_ROWS: usize = 3;

/// Panels that a tile of some rows takes: 24 sums, or eight with a single row.
fn panels_of(rows: usize) -> usize {
    match rows {
        1 => 8,
        2..=6 => 4,
        7..=12 => 2,
        _ => 1,
    }
}

/// Calls `compute` for a height and a side.
macro_rules! shapes {
    ($tile:ident, $height:ident, $side:ident, $row:ident, $panel:ident) => {
        shapes!(
            $tile, $height, $side, $row, $panel,
            1 x 8 1 x 4 2 x 4 3 x 4 4 x 4 5 x 4 6 x 4
            1 x 2 2 x 2 3 x 2 4 x 2 5 x 2 6 x 2
            7 x 2 8 x 2 9 x 2 10 x 2 11 x 2 12 x 2
            1 x 1 2 x 1 3 x 1 4 x 1 5 x 1 6 x 1 7 x 1 8 x 1 9 x 1 10 x 1 11 x 1 12 x 1
            13 x 1 14 x 1 15 x 1 16 x 1 17 x 1 18 x 1 19 x 1 20 x 1 21 x 1 22 x 1 23 x 1 24 x 1
        )
    };
    ($tile:ident, $height:ident, $side:ident, $row:ident, $panel:ident, $($rows:literal x $panels:literal)*) => {
        match ($height, $side) {
            $(($rows, $panels) => $tile.compute::<$rows, $panels>($row, $panel),)*
            // No height and side but those above are ever asked for together.
            _ => {}
        }
    };
}

/// The tile, compiled for processors with some features: a function takes the features of its caller, so the loops have to
/// be compiled with the instruction they use.
macro_rules! tile {
    ($features:literal, $multiply_add:path) => {
        use std::arch::x86_64::{
            _mm512_add_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
            _mm512_storeu_ps,
        };

        use super::super::{Element, Finish, PANEL, PREFETCH_BYTES, Panels, Rows, Side, prefetch};
        use super::{FEW_ROWS, PREFETCH_ABOVE_ROWS, ROWS, SIDE, panels_of};

        /// # Safety
        /// See [`super::super::run`]; the processor has the parts of AVX-512 that `Isa` asks for.
        #[target_feature(enable = $features)]
        pub(in super::super) unsafe fn run<E: Element>(
            rows: Rows<*const f32>,
            count: usize,
            stored: Panels<'_, E>,
            panels: usize,
            out: Rows<*mut f32>,
            finish: Finish,
        ) {
            let tile = Tile { rows, out, stored, finish };
            let tiles = if count <= FEW_ROWS { 1 } else { count.div_ceil(ROWS) };
            let most = if tiles == 1 { panels_of(count) } else { SIDE };
            let mut panel = 0;
            while panel < panels {
                let mut side = most;
                while side > panels - panel {
                    side /= 2;
                }
                let mut row = 0;
                for index in 0..tiles {
                    let height = (count - row).div_ceil(tiles - index);
                    // SAFETY: the caller's promises are the tile's promises.
                    unsafe { tile.dispatch(height, side, row, panel) };
                    row += height;
                }
                panel += side;
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
            /// # Safety
            /// See [`Self::compute`].
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn dispatch(&self, height: usize, side: usize, row: usize, panel: usize) {
                // SAFETY: the caller's promises.
                unsafe {
                    shapes!(self, height, side, row, panel);
                }
            }

            /// `COUNT` rows from `row` on, `SIDE` panels from `panel` on.
            ///
            /// # Safety
            /// See [`super::super::run`]; the rows and panels are part of the call; the processor has AVX-512.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn compute<const COUNT: usize, const SIDE: usize>(
                &self,
                row: usize,
                panel: usize,
            ) {
                let Self { rows, out, stored, finish } = self;
                let mut sums = [[_mm512_setzero_ps(); SIDE]; COUNT];
                // SAFETY: all offsets stay inside the ranges the caller vouches for.
                unsafe {
                    let out_first = out.first.add(row * out.stride + panel * PANEL);
                    if finish.resume {
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let from = out_first.add(row * out.stride);
                            for (side, sum) in sums.iter_mut().enumerate() {
                                *sum = _mm512_loadu_ps(from.add(side * PANEL));
                                // The tile below will resume as well.
                                prefetch(from.wrapping_add(COUNT * out.stride + side * PANEL));
                            }
                        }
                    }
                    // Four rows share a pointer: an address has room for one more, once or twice its distance.
                    let mut values = [rows.first; 6];
                    for (group, value) in values.iter_mut().enumerate().take(COUNT.div_ceil(4)) {
                        *value = rows.first.add((row + 4 * group) * rows.stride);
                    }
                    let blocks = match stored.side {
                        Side::Offset(_) => stored.blocks.len(),
                        Side::Block => 1,
                    };
                    let mut left = stored.depth;
                    for block in 0..blocks {
                        let mut step = [stored.blocks[0]; SIDE];
                        for (side, step) in step.iter_mut().enumerate() {
                            *step = match stored.side {
                                Side::Offset(distance) => {
                                    stored.blocks[block].add((panel + side) * distance)
                                }
                                Side::Block => stored.blocks[panel + side],
                            };
                        }
                        let steps = stored.block_depth.min(left);
                        // Not unrolled: the compiler would keep broadcast values of several steps and run out of registers.
                        for _ in 0..steps {
                            let mut weights = [_mm512_setzero_ps(); SIDE];
                            for (weights, step) in weights.iter_mut().zip(&mut step) {
                                if COUNT > PREFETCH_ABOVE_ROWS {
                                    prefetch(step.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                                }
                                *weights = E::load512(*step);
                                *step = step.wrapping_add(stored.step);
                            }
                            for (row, sums) in sums.iter_mut().enumerate() {
                                let from = values[row / 4].wrapping_add(row % 4 * rows.stride);
                                let value = _mm512_set1_ps(*from);
                                for (sum, weights) in sums.iter_mut().zip(&weights) {
                                    *sum = $multiply_add(value, *weights, *sum);
                                }
                            }
                            for value in &mut values {
                                *value = value.wrapping_add(1);
                            }
                        }
                        left -= steps;
                    }
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let to = out_first.add(row * out.stride);
                        for (side, sum) in sums.iter_mut().enumerate() {
                            let at = (panel + side) * PANEL;
                            if !finish.scale.is_null() {
                                *sum = _mm512_mul_ps(*sum, _mm512_loadu_ps(finish.scale.add(at)));
                            }
                            if !finish.bias.is_null() {
                                *sum = _mm512_add_ps(*sum, _mm512_loadu_ps(finish.bias.add(at)));
                            }
                            _mm512_storeu_ps(to.add(side * PANEL), *sum);
                        }
                    }
                }
            }
        }
    };
}

/// Numbers of any kind.
pub(super) mod numbers {
    tile!("avx512f,avx512bw,avx512dq,avx512vl", E::multiply_add512);
}

/// Pairs of bf16 numbers, by the processor's own instruction.
pub(super) mod pairs {
    use std::arch::x86_64::{__m512, __m512bh, _mm512_dpbf16_ps};

    tile!("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16", multiply_add);

    /// Both products of each pair, the one in the upper half first, each added with a rounding of its own.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn multiply_add(value: __m512, stored: __m512, sum: __m512) -> __m512 {
        // SAFETY: both types are 64 bytes without further meaning.
        let value = unsafe { std::mem::transmute::<__m512, __m512bh>(value) };
        // SAFETY: as above.
        let stored = unsafe { std::mem::transmute::<__m512, __m512bh>(stored) };
        _mm512_dpbf16_ps(sum, value, stored)
    }
}
