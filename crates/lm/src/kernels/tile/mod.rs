//! The register tile: some rows of activations times neighboring panels of sixteen columns of stored values.
//!
//! Each output value is one chain of fused multiply-adds over the depth in ascending order, whatever
//! the number of rows in the tile. A chain may be cut into blocks of depth: its running value is kept
//! exactly (f32 in memory) in between.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod element;
#[cfg(target_arch = "aarch64")]
mod neon;

use super::dispatch::{Isa, Kind};
use super::matrix::PANEL;

pub(crate) use element::Element;

/// Most rows of a tile in plain Rust.
const PORTABLE_ROWS: usize = 4;

/// How far ahead of its use a stored step is fetched.
#[cfg(target_arch = "x86_64")]
const PREFETCH_BYTES: usize = 2048;

/// Rows of a tile that many rows are best cut into.
pub(crate) fn tile_rows(isa: Isa) -> usize {
    match isa.kind() {
        Kind::Portable => PORTABLE_ROWS,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => avx2::ROWS,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => avx512::ROWS,
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => neon::ROWS,
    }
}

/// Rows up to which [`run`] reads every stored value once.
pub(crate) fn single_pass_rows(isa: Isa) -> usize {
    match isa.kind() {
        Kind::Portable => PORTABLE_ROWS,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => avx2::ROWS,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => avx512::FEW_ROWS,
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => neon::ROWS,
    }
}

/// Panels that [`run`] computes side by side when there are many rows.
pub(crate) fn panels_together(isa: Isa) -> usize {
    match isa.kind() {
        Kind::Portable => 1,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => 1,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => avx512::SIDE,
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => 1,
    }
}

/// Asks for a cache line that will be needed soon. Any address will do: nothing is read.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch never faults, and every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
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
    /// Where the steps lie: blocks of consecutive depth, or, with [`Side::Block`], one block per panel.
    pub(crate) blocks: &'a [*const E],
    /// Steps in one block; the last may hold fewer.
    pub(crate) block_depth: usize,
    /// Steps in all.
    pub(crate) depth: usize,
    /// Distance between steps.
    pub(crate) step: usize,
    /// How neighboring panels lie to each other.
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
    /// Sixteen factors per panel for the finished sums; null for none.
    pub(crate) scale: *const f32,
    /// Sixteen terms per panel, added after scaling; null for none.
    pub(crate) bias: *const f32,
}

impl Finish {
    /// Plain sums from zero.
    pub(crate) const PLAIN: Self =
        Self { resume: false, scale: std::ptr::null(), bias: std::ptr::null() };
}

/// Multiplies `count` rows by `panels` neighboring panels and writes the results to `out`, sixteen columns per panel.
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
        Kind::Avx2 => unsafe { avx2::run(rows, count, stored, panels, out, finish) },
        // SAFETY: as above, and the kind is proof of AVX-512.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 if !(E::IS_PAIR && isa.multiplies_pairs()) => unsafe {
            avx512::numbers::run(rows, count, stored, panels, out, finish);
        },
        // SAFETY: as above, and the processor was asked for its products of bf16 pairs.
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => unsafe { avx512::pairs::run(rows, count, stored, panels, out, finish) },
        // SAFETY: the caller's promises are this function's promises.
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => unsafe { neon::run(rows, count, stored, panels, out, finish) },
    }
}

/// Four rows by a panel at a time.
///
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
    for panel in 0..panels {
        let (blocks, offset) = stored.panel(panel);
        for first in (0..count).step_by(PORTABLE_ROWS) {
            let height = PORTABLE_ROWS.min(count - first);
            let mut sums = [[0.0_f32; PANEL]; PORTABLE_ROWS];
            // SAFETY: all offsets stay inside the ranges the caller vouches for.
            unsafe {
                let out_of = |row: usize| out.first.add((first + row) * out.stride + panel * PANEL);
                if finish.resume {
                    for (row, sums) in sums[..height].iter_mut().enumerate() {
                        *sums = out_of(row).cast::<[f32; PANEL]>().read();
                    }
                }
                for k in 0..stored.depth {
                    let step = blocks[k / stored.block_depth]
                        .add(offset + k % stored.block_depth * stored.step);
                    let weights: [E; PANEL] =
                        std::array::from_fn(|column| *step.add(E::slot(column)));
                    for (row, sums) in sums[..height].iter_mut().enumerate() {
                        let value = *rows.first.add((first + row) * rows.stride + k);
                        for (sum, weight) in sums.iter_mut().zip(weights) {
                            *sum = weight.multiply_add(value, *sum);
                        }
                    }
                }
                for (row, sums) in sums[..height].iter_mut().enumerate() {
                    for (column, sum) in sums.iter_mut().enumerate() {
                        let at = panel * PANEL + column;
                        if !finish.scale.is_null() {
                            *sum *= *finish.scale.add(at);
                        }
                        if !finish.bias.is_null() {
                            *sum += *finish.bias.add(at);
                        }
                    }
                    out_of(row).cast::<[f32; PANEL]>().write(*sums);
                }
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// A processor with AVX-512 may lack the instruction for pairs; this one may have it, and then no other test gets here.
    #[test]
    fn pairs_have_the_same_bits_with_and_without_the_instruction() {
        let Some(isa) = Isa::available().into_iter().find(|isa| isa.kind() == Kind::Avx512) else {
            return;
        };
        let (rows, depth, panels) = (30, 37, 3);
        let mut word = 1_u32;
        let mut pairs = |count: usize| -> Vec<u32> {
            let mut number = || {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (word >> 8) as f32 / 8_388_608.0 - 1.0
            };
            let mut pair = || (number().to_bits() & 0xffff_0000) | (number().to_bits() >> 16);
            (0..count).map(|_| pair()).collect()
        };
        let left: Vec<f32> = pairs(rows * depth).into_iter().map(f32::from_bits).collect();
        let right = pairs(panels * depth * PANEL);
        let block = [right.as_ptr()];
        let stored = Panels {
            blocks: &block,
            block_depth: depth,
            depth,
            step: PANEL,
            side: Side::Offset(depth * PANEL),
        };
        let from = Rows { first: left.as_ptr(), stride: depth };
        let width = panels * PANEL;
        let product = |work: &dyn Fn(Rows<*mut f32>)| {
            let mut out = vec![f32::NAN; rows * width];
            work(Rows { first: out.as_mut_ptr(), stride: width });
            out.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        // SAFETY: all rows and panels were made for these sizes, and the processor has AVX-512.
        let [without, chosen, plain] = unsafe {
            [
                product(&|out| {
                    avx512::numbers::run(from, rows, stored, panels, out, Finish::PLAIN);
                }),
                product(&|out| run(isa, from, rows, stored, panels, out, Finish::PLAIN)),
                product(&|out| portable(from, rows, stored, panels, out, Finish::PLAIN)),
            ]
        };
        assert_eq!(without, plain);
        assert_eq!(chosen, plain);
    }
}
