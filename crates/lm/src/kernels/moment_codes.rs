//! The optimizer's moments in fewer bits: widened for a step, and stored again with a random rounding that is exact on average.
//!
//! Bodies are loops over values without branches, so that the compiler makes vectors of them for every instruction set; all
//! round alike.

use super::dispatch::dispatched;

/// Levels of the first moment's magnitude.
const FIRST_LEVELS: f32 = 127.0;
/// Levels of the second moment.
const SECOND_LEVELS: f32 = 255.0;

/// A first moment's magnitude relative to its block's scale.
#[inline(always)]
fn square(level: f32) -> f32 {
    let x = level / FIRST_LEVELS;
    x * x
}

/// A second moment relative to its block's scale.
#[inline(always)]
fn fourth(level: f32) -> f32 {
    let x = level / SECOND_LEVELS;
    (x * x) * (x * x)
}

/// Uniform bits for the rounding of value `index` of a block, by the block's key.
#[inline(always)]
fn draw(key: u32, index: usize) -> u32 {
    let mut word = (index as u32).wrapping_mul(0x9e37_79b9) ^ key;
    word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
    word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 16)
}

/// The level below or above `value` (relative to the scale, 0 to 1), with the chance that makes its expected value exact.
#[inline(always)]
fn level(value: f32, below: f32, levels: f32, curve: impl Fn(f32) -> f32, draw: u32) -> f32 {
    // The root may be off by a rounding; the level below must not be above the value.
    let mut below = below.floor().clamp(0.0, levels - 1.0);
    below -= if curve(below) > value && below > 0.0 { 1.0 } else { 0.0 };
    let (low, high) = (curve(below), curve(below + 1.0));
    let chance = (value - low) / (high - low);
    // 24 bits, which an f32 holds exactly.
    let uniform = (draw >> 8).cast_signed() as f32;
    below + if uniform < chance * 16_777_216.0 { 1.0 } else { 0.0 }
}

/// The low byte of a whole number of at most 22 bits, in two's complement.
#[inline(always)]
fn low_byte(whole: f32) -> u8 {
    // Added to this, a whole number stands in the lowest bits.
    const WHOLE: f32 = 12_582_912.0;
    (whole + WHOLE).to_bits() as u8
}

#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 16];
    for values in values.chunks(16) {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = if value.abs() > *lane { value.abs() } else { *lane };
        }
    }
    lanes.iter().fold(0.0, |most, &lane| if lane > most { lane } else { most })
}

/// Values relative to a scale, of which the largest is 1; all zero where the scale is.
#[inline(always)]
fn reciprocal(scale: f32) -> (f32, f32) {
    if scale > 0.0 { (scale, 1.0) } else { (1.0, 0.0) }
}

dispatched! {
    /// Widens first moments: magnitude `scale * (code / 127)^2`, with a sign.
    pub(crate) fn read_signed(out: &mut [f32], codes: &[u8], scale: f32) {
        for (out, &code) in out.iter_mut().zip(codes) {
            let code = f32::from(code.cast_signed());
            *out = (scale * square(code)).copysign(code);
        }
    }

    /// Stores first moments and returns their scale.
    pub(crate) fn write_signed(codes: &mut [u8], values: &[f32], key: u32) -> f32 {
        let scale = largest(values);
        let (divisor, some) = reciprocal(scale);
        for (index, (code, &value)) in codes.iter_mut().zip(values).enumerate() {
            let relative = some * value.abs() / divisor;
            let guess = FIRST_LEVELS * relative.sqrt();
            let magnitude = level(relative, guess, FIRST_LEVELS, square, draw(key, index));
            *code = low_byte(magnitude.copysign(value));
        }
        scale
    }

    /// Widens second moments: `scale * (code / 255)^4`.
    pub(crate) fn read_positive(out: &mut [f32], codes: &[u8], scale: f32) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = scale * fourth(f32::from(code));
        }
    }

    /// Stores second moments and returns their scale. One that is not zero is never stored as zero: beside a first moment that
    /// was rounded up, its root is what bounds the step. So values far below the block's largest become its 4e9th part.
    pub(crate) fn write_positive(codes: &mut [u8], values: &[f32], key: u32) -> f32 {
        let scale = largest(values);
        let (divisor, some) = reciprocal(scale);
        for (index, (code, &value)) in codes.iter_mut().zip(values).enumerate() {
            let relative = some * value / divisor;
            let guess = SECOND_LEVELS * relative.sqrt().sqrt();
            let level = level(relative, guess, SECOND_LEVELS, fourth, draw(key, index));
            let least = if relative > 0.0 { 1.0 } else { 0.0 };
            *code = low_byte(if level > least { level } else { least });
        }
        scale
    }

    /// Widens the bits of bfloat16 values.
    pub(crate) fn read_halves(out: &mut [f32], halves: &[u16]) {
        for (out, &bits) in out.iter_mut().zip(halves) {
            *out = f32::from_bits(u32::from(bits) << 16);
        }
    }

    /// Stores values as the bits of bfloat16.
    pub(crate) fn write_halves(halves: &mut [u16], values: &[f32], key: u32) {
        /// The bits of infinity.
        const INFINITE: u32 = 0x7f80_0000;
        for (index, (half, &value)) in halves.iter_mut().zip(values).enumerate() {
            // The lower half is the chance of the next larger magnitude; the largest one stays finite.
            let bits = value.to_bits();
            let up = bits.wrapping_add(draw(key, index) & 0xffff);
            let finite = up & INFINITE != INFINITE;
            *half = ((if finite { up } else { bits }) >> 16) as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::dispatch::Isa;

    /// Magnitudes over six decades and both signs; not a multiple of any vector's length.
    fn values() -> Vec<f32> {
        let value =
            |i: i32| (if i % 3 == 0 { -1.0 } else { 1.0 }) * 10.0_f32.powf(-6.0 * i as f32 / 251.0);
        (0..251).map(value).collect()
    }

    #[test]
    fn codes_are_the_same_on_every_instruction_set() {
        let values = values();
        let positive: Vec<f32> = values.iter().map(|value| value.abs()).collect();
        let on = |isa: Isa| {
            let (mut first, mut second, mut halves) = ([0; 251], [0; 251], [0; 251]);
            let scales = (
                write_signed(isa, &mut first, &values, 5),
                write_positive(isa, &mut second, &positive, 6),
            );
            write_halves(isa, &mut halves, &values, 7);
            let mut read = [[0.0; 251]; 3];
            read_signed(isa, &mut read[0], &first, scales.0);
            read_positive(isa, &mut read[1], &second, scales.1);
            read_halves(isa, &mut read[2], &halves);
            (first, second, halves, scales, read.map(|values| values.map(f32::to_bits)))
        };
        let wanted = on(Isa::portable());
        for isa in Isa::available() {
            assert_eq!(on(isa), wanted, "{isa}");
        }
    }

    #[test]
    fn rounding_a_half_up_never_reaches_infinity() {
        for key in 0..64 {
            let mut half = [0];
            write_halves(Isa::portable(), &mut half, &[f32::MAX], key);
            assert_eq!(half, [0x7f7f]);
        }
    }
}
