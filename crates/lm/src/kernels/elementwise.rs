//! Row-wise operations between the matrix products: norms, activations, rotation, softmax.
//!
//! Sums run in eight interleaved chains joined by a fixed tree, so a vector unit of eight lanes and plain
//! Rust give the same bits. Rows may carry trailing padding; nothing here depends on it.

use super::dispatch::dispatched;

/// Interleaved chains of a sum.
const LANES: usize = 8;

/// The exponential, within 1.5 units in the last place. Its argument is held between -87.3 and 88.3, where the result is
/// a normal number: smaller results than 1e-38 become that, larger ones than 2e38 that. Written so that a loop over it
/// vectorizes.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding and subtracting this rounds to a whole number, which is then found in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < -87.3 { -87.3 } else { x };
    let x = if x > 88.3 { 88.3 } else { x };
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts keeps r exact to the last bit.
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4_f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let value = p.mul_add(r * r, r) + 1.0;
    value * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()))
}

#[inline(always)]
fn join(lanes: [f32; LANES]) -> f32 {
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}

#[inline(always)]
fn sum_of_squares(values: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let whole = values.chunks_exact(LANES);
    let rest = whole.remainder();
    for chunk in whole {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = value.mul_add(value, *lane);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = value.mul_add(value, *lane);
    }
    join(lanes)
}

#[inline(always)]
fn maximum(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let whole = values.chunks_exact(LANES);
    let rest = whole.remainder();
    for chunk in whole {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = if value > *lane { value } else { *lane };
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

dispatched! {
    /// `out = x / rms(x) * weight`, the root mean square over the row.
    pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let scale = 1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt();
        for ((out, &x), &weight) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * weight;
        }
    }

    /// [`rms_norm`] of a row in its place.
    pub fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
        let scale = 1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt();
        for (x, &weight) in x.iter_mut().zip(weight) {
            *x = *x * scale * weight;
        }
    }

    /// `x += y`.
    pub fn add(x: &mut [f32], y: &[f32]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    /// `out = silu(gate) * up`, `silu(g) = g / (1 + exp(-g))`.
    pub fn silu_mul(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }

    /// Rotates a head's halves by the angles of one position and multiplies by `scale`.
    pub fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], scale: f32) {
        let (first, second) = head.split_at_mut(cos.len());
        for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            let (x, y) = (*a, *b);
            *a = (x * cos - y * sin) * scale;
            *b = (y * cos + x * sin) * scale;
        }
    }

    /// Turns scores into exponentials relative to `shift` and gives their sum.
    pub fn exponentials(scores: &mut [f32], shift: f32) -> f32 {
        let mut lanes = [0.0_f32; LANES];
        let mut whole = scores.chunks_exact_mut(LANES);
        for chunk in &mut whole {
            for (lane, score) in lanes.iter_mut().zip(chunk) {
                *score = exp(*score - shift);
                *lane += *score;
            }
        }
        for (lane, score) in lanes.iter_mut().zip(whole.into_remainder()) {
            *score = exp(*score - shift);
            *lane += *score;
        }
        join(lanes)
    }

    /// Multiplies a row by a number.
    pub fn scale(x: &mut [f32], factor: f32) {
        for x in x {
            *x *= factor;
        }
    }

    /// Divides a row by a number.
    pub fn divide(x: &mut [f32], divisor: f32) {
        for x in x {
            *x /= divisor;
        }
    }

    /// The largest value.
    pub fn max(values: &[f32]) -> f32 {
        maximum(values)
    }

    /// Sum of `exp(x - shift)`.
    pub fn sum_exp(values: &[f32], shift: f32) -> f32 {
        let mut lanes = [0.0_f32; LANES];
        let whole = values.chunks_exact(LANES);
        let rest = whole.remainder();
        for chunk in whole {
            for (lane, &value) in lanes.iter_mut().zip(chunk) {
                *lane += exp(value - shift);
            }
        }
        for (lane, &value) in lanes.iter_mut().zip(rest) {
            *lane += exp(value - shift);
        }
        join(lanes)
    }

    /// A chunk's share of KL(p || q) = sum of p ln(p/q) + q - p, with `p = exp(a - log_a)`, `q = exp(b - log_b)`.
    /// Over the whole vocabulary `q - p` sums to zero; with it, errors of the two normalizers cancel to first
    /// order, so even a tiny divergence keeps its digits.
    pub fn kl_chunk(a: &[f32], b: &[f32], log_a: f32, log_b: f32) -> f32 {
        let mut lanes = [0.0_f32; LANES];
        let (whole_a, whole_b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let (rest_a, rest_b) = (whole_a.remainder(), whole_b.remainder());
        let term = |a: f32, b: f32| {
            let (a, b) = (a - log_a, b - log_b);
            let (p, q) = (exp(a), exp(b));
            p.mul_add(a - b, q - p)
        };
        for (a, b) in whole_a.zip(whole_b) {
            for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += term(a, b);
            }
        }
        for ((lane, &a), &b) in lanes.iter_mut().zip(rest_a).zip(rest_b) {
            *lane += term(a, b);
        }
        join(lanes)
    }
}

/// Index of the largest value, the first of equals. `None` for an empty row.
pub fn argmax(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = index;
        }
    }
    (!values.is_empty()).then_some(best)
}
