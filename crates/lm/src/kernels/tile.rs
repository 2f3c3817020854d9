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

/// Stored panels as a tile sees them.
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, E> {
    /// Consecutive blocks of depth; each holds `block_depth` steps (the last may hold fewer).
    pub(crate) blocks: &'a [*const E],
    /// Steps in one block.
    pub(crate) block_depth: usize,
    /// Steps in all.
    pub(crate) depth: usize,
    /// Distance between steps.
    pub(crate) step: usize,
    /// Distance between neighbouring panels.
    pub(crate) panel: usize,
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

/// Multiplies `rows.len()` rows (at most [`TILE_ROWS`]) by `panels` neighbouring panels and writes the
/// results to `out`, sixteen columns a panel.
///
/// # Safety
/// For every row: `depth` values are readable at `rows[r]` and `16 * panels` writable at `out[r]`, and no
/// output overlaps an input or another output. Every block has its steps of sixteen values readable at
/// `step` distance for each of the panels. `scale` and `bias`, unless null, have `16 * panels` readable values.
pub(crate) unsafe fn run<E: Element>(
    isa: Isa,
    rows: &[*const f32],
    stored: Panels<'_, E>,
    panels: usize,
    out: &[*mut f32],
    finish: Finish,
) {
    debug_assert_eq!(rows.len(), out.len());
    match isa.kind() {
        // SAFETY: the caller's promises are this function's promises.
        Kind::Portable => unsafe { portable(rows, stored, panels, out, finish) },
        // SAFETY: as above, and the kind is proof of AVX2 and FMA.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => unsafe { avx2_by_rows(rows, stored, panels, out, finish) },
    }
}

/// # Safety
/// See [`run`].
unsafe fn portable<E: Element>(
    rows: &[*const f32],
    stored: Panels<'_, E>,
    panels: usize,
    out: &[*mut f32],
    finish: Finish,
) {
    for (&row, &out) in rows.iter().zip(out) {
        for panel in 0..panels {
            let mut sums = [0.0_f32; PANEL];
            // SAFETY: all offsets stay inside the ranges the caller vouches for.
            unsafe {
                let out = out.add(panel * PANEL);
                if finish.resume {
                    for (column, sum) in sums.iter_mut().enumerate() {
                        *sum = *out.add(column);
                    }
                }
                for k in 0..stored.depth {
                    let step = stored.blocks[k / stored.block_depth]
                        .add(panel * stored.panel + k % stored.block_depth * stored.step);
                    let value = *row.add(k);
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

/// Few rows take several panels at once, so that enough chains run side by side to hide the latency of an addition.
///
/// # Safety
/// See [`run`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_by_rows<E: Element>(
    rows: &[*const f32],
    stored: Panels<'_, E>,
    panels: usize,
    out: &[*mut f32],
    finish: Finish,
) {
    // SAFETY: the caller's promises are the tile's promises.
    unsafe {
        match rows.len() {
            1 if panels >= 4 => avx2_panels::<E, 1, 4>(rows, stored, panels, out, finish),
            1 => avx2_panels::<E, 1, 1>(rows, stored, panels, out, finish),
            2 if panels >= 2 => avx2_panels::<E, 2, 2>(rows, stored, panels, out, finish),
            2 => avx2_panels::<E, 2, 1>(rows, stored, panels, out, finish),
            3 if panels >= 2 => avx2_panels::<E, 3, 2>(rows, stored, panels, out, finish),
            3 => avx2_panels::<E, 3, 1>(rows, stored, panels, out, finish),
            4 => avx2_panels::<E, 4, 1>(rows, stored, panels, out, finish),
            5 => avx2_panels::<E, 5, 1>(rows, stored, panels, out, finish),
            6 => avx2_panels::<E, 6, 1>(rows, stored, panels, out, finish),
            _ => debug_assert!(rows.is_empty(), "a tile takes at most six rows"),
        }
    }
}

/// # Safety
/// See [`run`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_panels<E: Element, const ROWS: usize, const SIDE: usize>(
    rows: &[*const f32],
    stored: Panels<'_, E>,
    panels: usize,
    out: &[*mut f32],
    finish: Finish,
) {
    let mut panel = 0;
    // SAFETY: the caller's promises are the tile's promises.
    unsafe {
        while panel + SIDE <= panels {
            avx2_tile::<E, ROWS, SIDE>(rows, stored, panel, out, finish);
            panel += SIDE;
        }
        while panel < panels {
            avx2_tile::<E, ROWS, 1>(rows, stored, panel, out, finish);
            panel += 1;
        }
    }
}

/// # Safety
/// See [`run`]; the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2_tile<E: Element, const ROWS: usize, const SIDE: usize>(
    rows: &[*const f32],
    stored: Panels<'_, E>,
    panel: usize,
    out: &[*mut f32],
    finish: Finish,
) {
    let mut sums = [[[_mm256_setzero_ps(); 2]; SIDE]; ROWS];
    let mut at = [std::ptr::null::<f32>(); ROWS];
    at.copy_from_slice(&rows[..ROWS]);
    // SAFETY: all offsets stay inside the ranges the caller vouches for.
    unsafe {
        if finish.resume {
            for (row, sums) in sums.iter_mut().enumerate() {
                let from = out.get_unchecked(row).add(panel * PANEL);
                for (side, sums) in sums.iter_mut().enumerate() {
                    sums[0] = _mm256_loadu_ps(from.add(side * PANEL));
                    sums[1] = _mm256_loadu_ps(from.add(side * PANEL + 8));
                }
            }
        }
        let mut start = 0;
        for &block in stored.blocks {
            let steps = stored.block_depth.min(stored.depth - start);
            let mut step = block.add(panel * stored.panel);
            for k in start..start + steps {
                let mut weights = [[_mm256_setzero_ps(); 2]; SIDE];
                for (side, weights) in weights.iter_mut().enumerate() {
                    let step = step.add(side * stored.panel);
                    if ROWS > PREFETCH_ABOVE_ROWS {
                        prefetch(step.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                    }
                    *weights = E::load(step);
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let value = _mm256_broadcast_ss(&*at[row].add(k));
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
            let to = out.get_unchecked(row).add(panel * PANEL);
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
