//! Numbers rounded to bf16 and kept in pairs, as the dot-product instruction reads them.

use super::dispatch::dispatched;

/// The half of a pair that the first number's bits are in.
pub(super) const HIGH: u32 = 0xffff_0000;
/// Magnitudes below this become zero in the bf16-dot format. Products of what is left, and sums of them, are zero or
/// normal numbers, so it does not matter that the processor's instruction knows no others.
const LEAST: f32 = 1.387_778_8e-17;

/// The bits of the nearest bf16 number in the upper half, of two equally near ones the even one.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the body takes the instruction set of its caller")]
pub(super) fn rounded(x: f32) -> u32 {
    let bits = if x.abs() < LEAST { 0 } else { x.to_bits() };
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & HIGH;
    // Rounding up the bits of what is not a number could make one of it.
    if x.is_nan() { 0x7fc0_0000 } else { rounded }
}

/// One or two numbers as a pair.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the body takes the instruction set of its caller")]
pub(super) fn rounded_pair(numbers: &[f32]) -> u32 {
    match *numbers {
        [first, second] => rounded(first) | (rounded(second) >> 16),
        [first] => rounded(first),
        _ => 0,
    }
}

dispatched! {
    /// Rounds a row to pairs, kept as the bits of f32 numbers.
    pub(super) fn round_pairs(row: &[f32], pairs: &mut [f32]) {
        let (whole, rest) = row.as_chunks::<2>();
        for (pair, &[first, second]) in pairs.iter_mut().zip(whole) {
            *pair = f32::from_bits(rounded(first) | (rounded(second) >> 16));
        }
        if let (&[last], Some(pair)) = (rest, pairs.last_mut()) {
            *pair = f32::from_bits(rounded(last));
        }
    }
}
