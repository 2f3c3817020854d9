//! The optimizer's memory: two moments of every trained value, in 32, 16 or 8 bits.
//!
//! A step always computes with f32: a block of moments is widened, updated and stored again. Sixteen bits are bfloat16.
//! Eight bits are codes with one scale per block of 256 values: the first moment's codes are spaced by squares and the second's
//! by fourth powers, so that small values beside large ones keep their relative size. Both are rounded at random, up or down,
//! so that the expected value is exact: the second moment changes by a thousandth per step, which rounding to nearest would
//! lose. The draw is a function of the step and the value's index, so that threads and interruptions change nothing. The
//! arithmetic of the codes is in [`codes`].

use std::str::FromStr;

use half::bf16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::optimizer::CHUNK;
use crate::kernels::dispatch::Isa;
use crate::kernels::moment_codes as codes;
use crate::kernels::train_math::{self as math, AdamRates};

/// Values that share a scale; also how many are widened at a time.
pub(super) const BLOCK: usize = 256;

/// How moments are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MomentFormat {
    /// 32-bit floats.
    #[default]
    F32,
    /// bfloat16, rounded at random: half the memory.
    Bf16,
    /// Codes of 8 bits with a scale per block of 256, rounded at random: a quarter of the memory.
    Int8,
}

impl MomentFormat {
    /// The name in configurations and saved states.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// Bytes of both moments of `count` values.
    pub fn bytes(self, count: usize) -> usize {
        match self {
            Self::F32 => 8 * count,
            Self::Bf16 => 4 * count,
            Self::Int8 => 2 * (count + 4 * count.div_ceil(BLOCK)),
        }
    }
}

impl FromStr for MomentFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::F32, Self::Bf16, Self::Int8]
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("`{text}` is not a format of moments; use f32, bf16 or int8"))
    }
}

/// Codes of one moment and their blocks' scales.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Coded {
    /// The first moment: a sign and seven bits of magnitude in two's complement. The second: eight bits.
    pub(super) codes: Vec<u8>,
    pub(super) scales: Vec<f32>,
}

impl Coded {
    fn new(count: usize) -> Self {
        Self { codes: vec![0; count], scales: vec![0.0; count.div_ceil(BLOCK)] }
    }
}

/// Both moments of every trained value: the first, then the second.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Moments {
    F32([Vec<f32>; 2]),
    Bf16([Vec<bf16>; 2]),
    Int8([Coded; 2]),
}

impl Default for Moments {
    fn default() -> Self {
        Self::F32([Vec::new(), Vec::new()])
    }
}

impl Moments {
    /// Moments at zero.
    pub(super) fn new(format: MomentFormat, count: usize) -> Self {
        match format {
            MomentFormat::F32 => Self::F32([vec![0.0; count], vec![0.0; count]]),
            MomentFormat::Bf16 => Self::Bf16([vec![bf16::ZERO; count], vec![bf16::ZERO; count]]),
            MomentFormat::Int8 => Self::Int8([Coded::new(count), Coded::new(count)]),
        }
    }

    /// Values that have moments.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::F32([first, _]) => first.len(),
            Self::Bf16([first, _]) => first.len(),
            Self::Int8([first, _]) => first.codes.len(),
        }
    }

    /// One step of AdamW number `step` over all values.
    pub(super) fn update(
        &mut self,
        weights: &mut [f32],
        gradient: &mut [f32],
        rates: &AdamRates,
        step: u64,
    ) {
        let work = weights.par_chunks_mut(CHUNK).zip(gradient.par_chunks_mut(CHUNK)).enumerate();
        match self {
            Self::F32([first, second]) => work
                .zip(first.par_chunks_mut(CHUNK))
                .zip(second.par_chunks_mut(CHUNK))
                .for_each(|(((_, (w, g)), m), v)| math::adamw(w, g, m, v, rates)),
            Self::Bf16([first, second]) => work
                .zip(first.par_chunks_mut(CHUNK))
                .zip(second.par_chunks_mut(CHUNK))
                .for_each(|(((chunk, (w, g)), m), v)| {
                    let blocks = m.chunks_mut(BLOCK).zip(v.chunks_mut(BLOCK));
                    step_blocks(w, g, blocks, rates, chunk, step);
                }),
            Self::Int8([first, second]) => {
                let scales = CHUNK / BLOCK;
                let first =
                    first.codes.par_chunks_mut(CHUNK).zip(first.scales.par_chunks_mut(scales));
                let second =
                    second.codes.par_chunks_mut(CHUNK).zip(second.scales.par_chunks_mut(scales));
                work.zip(first).zip(second).for_each(
                    |(((chunk, (w, g)), (m, m_scales)), (v, v_scales))| {
                        let first = m.chunks_mut(BLOCK).zip(m_scales).map(SignedBlock);
                        let second = v.chunks_mut(BLOCK).zip(v_scales).map(PositiveBlock);
                        step_blocks(w, g, first.zip(second), rates, chunk, step);
                    },
                );
            }
        }
    }
}

/// A block of moments as it is kept.
trait Stored {
    fn read(&self, out: &mut [f32]);
    /// Keeps `values`; the key decides which of them are rounded up.
    fn write(&mut self, values: &[f32], key: u32);
}

/// Widens, steps and stores the blocks of one chunk.
fn step_blocks<'a, M: Stored, V: Stored>(
    weights: &'a mut [f32],
    gradient: &'a mut [f32],
    moments: impl Iterator<Item = (M, V)>,
    rates: &AdamRates,
    chunk: usize,
    step: u64,
) {
    let (mut first, mut second) = ([0.0; BLOCK], [0.0; BLOCK]);
    let blocks = weights.chunks_mut(BLOCK).zip(gradient.chunks_mut(BLOCK)).zip(moments);
    for (block, ((w, g), (mut m, mut v))) in blocks.enumerate() {
        let (first, second) = (&mut first[..w.len()], &mut second[..w.len()]);
        m.read(first);
        v.read(second);
        math::adamw(w, g, first, second, rates);
        let block = (chunk * (CHUNK / BLOCK) + block) as u64;
        m.write(first, key(step, block, 0));
        v.write(second, key(step, block, 1));
    }
}

/// The key of a block's roundings: a mix of the step, the block and the moment.
fn key(step: u64, block: u64, which: u64) -> u32 {
    let mut word = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (2 * block + which);
    for shift in [30, 27] {
        word = (word ^ (word >> shift)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    ((word ^ (word >> 31)) >> 16) as u32
}

impl Stored for &mut [bf16] {
    fn read(&self, out: &mut [f32]) {
        codes::read_halves(Isa::active(), out, self.reinterpret_cast());
    }

    fn write(&mut self, values: &[f32], key: u32) {
        codes::write_halves(Isa::active(), self.reinterpret_cast_mut(), values, key);
    }
}

/// First moments.
struct SignedBlock<'a>((&'a mut [u8], &'a mut f32));

/// Second moments.
struct PositiveBlock<'a>((&'a mut [u8], &'a mut f32));

impl Stored for SignedBlock<'_> {
    fn read(&self, out: &mut [f32]) {
        let (codes, scale) = &self.0;
        codes::read_signed(Isa::active(), out, codes, **scale);
    }

    fn write(&mut self, values: &[f32], key: u32) {
        let (codes, scale) = &mut self.0;
        **scale = codes::write_signed(Isa::active(), codes, values, key);
    }
}

impl Stored for PositiveBlock<'_> {
    fn read(&self, out: &mut [f32]) {
        let (codes, scale) = &self.0;
        codes::read_positive(Isa::active(), out, codes, **scale);
    }

    fn write(&mut self, values: &[f32], key: u32) {
        let (codes, scale) = &mut self.0;
        **scale = codes::write_positive(Isa::active(), codes, values, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        // Magnitudes over six decades.
        (0..count)
            .map(|i| {
                let sign = if i % 3 == 0 { -1.0 } else { 1.0 };
                sign * 10.0_f32.powf(-6.0 * (i as f32 / count as f32))
            })
            .collect()
    }

    /// The mean of what is read back after many roundings of the same value.
    fn means(stored: &mut impl Stored, values: &[f32]) -> Vec<f64> {
        let rounds = 4000;
        let mut sums = vec![0.0; values.len()];
        let mut out = vec![0.0; values.len()];
        for step in 0..rounds {
            stored.write(values, key(step, 3, 0));
            stored.read(&mut out);
            for (sum, value) in sums.iter_mut().zip(&out) {
                *sum += f64::from(*value) / rounds as f64;
            }
        }
        sums
    }

    #[test]
    fn roundings_are_exact_on_average_and_keep_signs() {
        let signed = values(BLOCK);
        let positive: Vec<f32> = signed.iter().map(|value| value.abs()).collect();
        let (mut halves, mut codes, mut scale) = (vec![bf16::ZERO; BLOCK], vec![0; BLOCK], 0.0);
        let found = [
            (means(&mut halves.as_mut_slice(), &signed), &signed, 2e-4),
            (means(&mut SignedBlock((&mut codes, &mut scale)), &signed), &signed, 5e-3),
        ];
        for (means, wanted, tolerance) in found {
            for (mean, &value) in means.iter().zip(wanted) {
                // Values far below the scale are rounded to zero or to the first level.
                let grain = if tolerance > 1e-3 { 2e-5 } else { 0.0 };
                let error = (mean - f64::from(value)).abs();
                assert!(error < tolerance * f64::from(value.abs()) + grain, "{mean} {value}");
            }
        }
        let means = means(&mut PositiveBlock((&mut codes, &mut scale)), &positive);
        for (mean, &value) in means.iter().zip(&positive) {
            let error = (mean - f64::from(value)).abs();
            assert!(error < 1e-2 * f64::from(value) + 1e-9, "{mean} {value}");
        }
    }

    #[test]
    fn values_far_below_the_largest_of_their_block_step_at_most_four_times_as_far() {
        let rates = AdamRates {
            clip: 1.0,
            beta1: 0.9,
            beta2: 0.999,
            step_size: 1e-3,
            root_correction: 1.0,
            eps: 1e-8,
            keep: 1.0,
        };
        let mut moments = Moments::new(MomentFormat::Int8, BLOCK);
        let mut weights = vec![0.0_f32; BLOCK];
        for step in 1..200 {
            let before = weights.clone();
            // One value with a gradient, the others a millionth of it, and at most steps none.
            let small = if step % 7 == 0 { 1e-6 } else { 0.0 };
            let mut gradient: Vec<f32> = vec![small; BLOCK];
            gradient[9] = 1.0;
            moments.update(&mut weights, &mut gradient, &rates, step);
            let moved: Vec<f32> =
                weights.iter().zip(&before).map(|(new, old)| (new - old).abs()).collect();
            // The smallest codes are (1 / 127)^2 and (1 / 255)^4 of the largest value's moments, so a first moment that was
            // rounded up to one moves its weight 255^2 / 127^2 = 4.03 times as far.
            for (index, step_of_value) in moved.iter().enumerate() {
                let most = 4.1 * moved[9];
                assert!(
                    *step_of_value < most,
                    "step {step}, value {index}: {step_of_value} of {most}"
                );
            }
        }
    }

    #[test]
    fn the_largest_value_of_a_block_is_kept_exactly_and_zero_stays_zero() {
        let mut block = vec![0.0; BLOCK];
        block[7] = -0.37;
        let (mut codes, mut scale) = (vec![0; BLOCK], 0.0);
        let mut out = vec![1.0; BLOCK];
        let mut stored = SignedBlock((&mut codes, &mut scale));
        stored.write(&block, key(1, 0, 0));
        stored.read(&mut out);
        assert_eq!(out, block);
        let mut stored = PositiveBlock((&mut codes, &mut scale));
        stored.write(&vec![0.0; BLOCK], key(1, 0, 1));
        stored.read(&mut out);
        assert_eq!(out, vec![0.0; BLOCK]);
    }
}
