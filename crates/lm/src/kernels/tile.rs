//! The register tile: up to six rows of activations times sixteen columns of stored values.
//!
//! Each output value is one chain of fused multiply-adds over the depth in ascending order, whatever
//! the number of rows in the tile. A chain may be cut into blocks of depth: its running value is kept
//! exactly (f32 in memory) in between.

use bytemuck::Pod;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_loadl_epi64, _mm256_add_ps, _mm256_and_si256,
    _mm256_broadcast_ss, _mm256_castsi256_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_set1_epi32,
    _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
};

use super::dispatch::{Isa, Kind};
use super::matrix::PANEL;

/// Most rows one tile takes.
pub(crate) const TILE_ROWS: usize = 6;

/// How far ahead of its use a stored step is fetched.
const PREFETCH_BYTES: usize = 2048;
/// With this many rows or fewer the processor sees the stream coming by itself.
const PREFETCH_ABOVE_ROWS: usize = 3;

/// Asks for a cache line that will be needed soon. Any address will do: nothing is read.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, and every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A stored number that widens to f32 exactly. Sixteen of them, stored together, make one step of a panel.
pub(crate) trait Element: Pod + Send + Sync {
    /// Where column `column` of a panel step is stored.
    fn slot(column: usize) -> usize {
        column
    }

    /// The value of one stored number.
    fn widen(self) -> f32;

    /// Loads sixteen stored numbers as columns 0..8 and 8..16.
    ///
    /// # Safety
    /// The processor has AVX2; `from` points at sixteen readable values.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load(from: *const Self) -> [__m256; 2];
}

impl Element for f32 {
    fn widen(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }
}

/// bf16 bits. Columns 0..8 and 8..16 are interleaved, so that one load, one shift and one mask give both halves.
impl Element for u16 {
    fn slot(column: usize) -> usize {
        column % 8 * 2 + column / 8
    }

    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values, 32 bytes.
        let both = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
        let high = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
        [
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(both)),
            _mm256_castsi256_ps(_mm256_and_si256(both, high)),
        ]
    }
}

/// Integers whose scale is applied to the finished sum.
impl Element for i8 {
    fn widen(self) -> f32 {
        f32::from(self)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values; each load takes eight bytes.
        let (low, high) = unsafe {
            (
                _mm_loadl_epi64(from.cast::<__m128i>()),
                _mm_loadl_epi64(from.add(8).cast::<__m128i>()),
            )
        };
        [
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
        ]
    }
}

/// Rows at a fixed distance.
#[derive(Clone, Copy)]
pub(crate) struct Rows<P> {
    pub(crate) first: P,
    pub(crate) stride: usize,
}

/// Stored panels: step `k` of panel `p` is found at
/// `blocks[k / block_depth] + panel_offset(p) + k % block_depth * step`.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, E> {
    /// Where the steps lie: blocks of consecutive depth, or, with [`Side::Block`], one block a panel.
    pub(crate) blocks: &'a [*const E],
    /// Steps in one block; the last may hold fewer.
    pub(crate) block_depth: usize,
    /// Steps in all.
    pub(crate) depth: usize,
    /// Distance between steps.
    pub(crate) step: usize,
    /// How neighbouring panels lie to each other.
    pub(crate) side: Side,
}

/// Where the next panel is.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// At this distance in the same block.
    Offset(usize),
    /// In the next block; every panel is one block deep.
    Block,
}

impl<E> Panels<'_, E> {
    /// The blocks of a panel, and where in them it starts.
    #[inline]
    fn panel(&self, panel: usize) -> (&[*const E], usize) {
        match self.side {
            Side::Offset(distance) => (self.blocks, panel * distance),
            Side::Block => (&self.blocks[panel..=panel], 0),
        }
    }
}

/// What happens to the sums of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// Whether the chains start from the values already in the output.
    pub(crate) resume: bool,
    /// Sixteen factors a panel for the finished sums; null for none.
    pub(crate) scale: *const f32,
    /// Sixteen terms a panel, added after scaling; null for none.
    pub(crate) bias: *const f32,
}

impl Finish {
    /// Plain sums from zero.
    pub(crate) const PLAIN: Self =
        Self { resume: false, scale: std::ptr::null(), bias: std::ptr::null() };
}

/// Multiplies `count` rows by `panels` neighbouring panels and writes the results to `out`, sixteen columns a panel.
///
/// # Safety
/// For every row: `depth` values are readable from its start and `16 * panels` writable in the output, and no output
/// overlaps an input. Every block has its steps of sixteen values readable at `step` distance for each of the
/// panels. `scale` and `bias`, unless null, have `16 * panels` readable values.
pub(crate) unsafe fn run<E: Element>(
    isa: Isa,
    rows: Rows<*const f32>,
    count: usize,
    stored: Panels<'_, E>,
    panels: usize,
    out: Rows<*mut f32>,
    finish: Finish,
) {
    match isa.kind() {
        // SAFETY: the caller's promises are this function's promises.
        Kind::Portable => unsafe { portable(rows, count, stored, panels, out, finish) },
        // SAFETY: as above, and the kind is proof of AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { avx2(rows, count, stored, panels, out, finish) },
    }
}

/// # Safety
/// See [`run`].
unsafe fn portable<E: Element>(
    rows: Rows<*const f32>,
    count: usize,
    stored: Panels<'_, E>,
    panels: usize,
    out: Rows<*mut f32>,
    finish: Finish,
) {
    for row in 0..count {
        for panel in 0..panels {
            let (blocks, offset) = stored.panel(panel);
            let mut sums = [0.0_f32; PANEL];
            // SAFETY: all offsets stay inside the ranges the caller vouches for.
            unsafe {
                let row_values = rows.first.add(row * rows.stride);
                let out = out.first.add(row * out.stride + panel * PANEL);
                if finish.resume {
                    for (column, sum) in sums.iter_mut().enumerate() {
                        *sum = *out.add(column);
                    }
                }
                for k in 0..stored.depth {
                    let step = blocks[k / stored.block_depth]
                        .add(offset + k % stored.block_depth * stored.step);
                    let value = *row_values.add(k);
                    for (column, sum) in sums.iter_mut().enumerate() {
                        *sum = value.mul_add((*step.add(E::slot(column))).widen(), *sum);
                    }
                }
                for (column, sum) in sums.iter_mut().enumerate() {
                    let at = panel * PANEL + column;
                    if !finish.scale.is_null() {
                        *sum *= *finish.scale.add(at);
                    }
                    if !finish.bias.is_null() {
                        *sum += *finish.bias.add(at);
                    }
                    *out.add(column) = *sum;
                }
            }
        }
    }
}

/// Cuts the rows into tiles of nearly equal height. Up to three rows take several panels at once instead, so that enough
/// chains run side by side to hide the latency of an addition.
///
/// # Safety
/// See [`run`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<E: Element>(
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
                1 => tile.avx2::<1, 4>(0, panel),
                2 => tile.avx2::<2, 2>(0, panel),
                _ => tile.avx2::<3, 2>(0, panel),
            }
            panel += together;
        }
        let tiles = count.div_ceil(TILE_ROWS);
        for panel in panel..panels {
            let mut row = 0;
            for index in 0..tiles {
                let height = (count - row).div_ceil(tiles - index);
                match height {
                    1 => tile.avx2::<1, 1>(row, panel),
                    2 => tile.avx2::<2, 1>(row, panel),
                    3 => tile.avx2::<3, 1>(row, panel),
                    4 => tile.avx2::<4, 1>(row, panel),
                    5 => tile.avx2::<5, 1>(row, panel),
                    _ => tile.avx2::<6, 1>(row, panel),
                }
                row += height;
            }
        }
    }
}

/// One call's operands.
#[cfg(target_arch = "x86_64")]
struct Tile<'a, E> {
    rows: Rows<*const f32>,
    out: Rows<*mut f32>,
    stored: Panels<'a, E>,
    finish: Finish,
}

#[cfg(target_arch = "x86_64")]
impl<E: Element> Tile<'_, E> {
    /// `ROWS` rows from `row` on, `SIDE` panels from `panel` on.
    ///
    /// # Safety
    /// See [`run`]; the rows and panels are part of the call; the processor has AVX2 and FMA.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<const ROWS: usize, const SIDE: usize>(&self, row: usize, panel: usize) {
        let Self { rows, out, stored, finish } = self;
        let (blocks, offset) = stored.panel(panel);
        let distance = match stored.side {
            Side::Offset(distance) => distance,
            Side::Block => 0,
        };
        let mut sums = [[[_mm256_setzero_ps(); 2]; SIDE]; ROWS];
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
                    prefetch(from.wrapping_add(ROWS * out.stride));
                }
            }
            let mut value = [rows.first; ROWS];
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
                        if ROWS > PREFETCH_ABOVE_ROWS {
                            prefetch(step.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                        }
                        *weights = E::load(step);
                    }
                    for (value, sums) in value.iter().zip(&mut sums) {
                        let value = _mm256_broadcast_ss(&*value.add(k));
                        for (sums, weights) in sums.iter_mut().zip(&weights) {
                            sums[0] = _mm256_fmadd_ps(value, weights[0], sums[0]);
                            sums[1] = _mm256_fmadd_ps(value, weights[1], sums[1]);
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
