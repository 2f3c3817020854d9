//! Element-wise kernels of training: norms, activations, softmax, the optimizer.
//!
//! Each kernel is written once, in plain Rust over short arrays of lanes, and compiled several times: for
//! any processor, and with AVX2 or AVX-512 enabled, where the compiler turns the lanes into vectors. All
//! versions round alike, because fused multiply-adds are spelled out and sums have a fixed order.

use super::dispatch::{Isa, Kind};

/// Compiles a kernel for AVX2 and AVX-512 as well and picks the active instruction set at run time.
macro_rules! dispatched {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                portable($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                portable($($arg),*)
            }

            match Isa::active().kind() {
                Kind::Portable => portable($($arg),*),
                // SAFETY: the value exists only if the processor has AVX2 and FMA.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: the value exists only if the processor has these parts of AVX-512.
                #[cfg(target_arch = "x86_64")]
                Kind::Avx512 => unsafe { avx512($($arg),*) },
                // Vectors are part of what the body is compiled for.
                #[cfg(target_arch = "aarch64")]
                Kind::Neon => portable($($arg),*),
            }
        }
    )*};
}

/// Lanes of a running sum: one AVX-512 register or two AVX2 registers.
const LANES: usize = 16;

/// `e^x` within two units in the last place, zero below -87.7; NaN stays NaN, and nothing overflows to infinity.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // The exponent's bits come out as zero here, and with them the result.
    const LOWEST: f32 = -88.0;
    const HIGHEST: f32 = 88.376_26;
    // Adding and subtracting this rounds to the nearest whole number.
    const ROUND: f32 = 12_582_912.0;
    let x = if x < LOWEST { LOWEST } else { x };
    let x = if x > HIGHEST { HIGHEST } else { x };
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let power = shifted - ROUND;
    // ln 2 in two parts, the first exact in few bits.
    let r = power.mul_add(-0.693_359_4, x);
    let r = power.mul_add(2.121_944_4e-4, r);
    let mut series = 1.987_569_1e-4_f32;
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        series = series.mul_add(r, coefficient);
    }
    let fraction = series.mul_add(r * r, r + 1.0);
    let exponent = (shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits());
    fraction * f32::from_bits(exponent)
}

#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The sum of lanes in a fixed tree.
#[inline(always)]
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The sum of `f(a, b)` over two slices of equal length.
#[inline(always)]
fn sum_over(a: &[f32], b: &[f32], f: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_whole, a_rest) = a.as_chunks::<LANES>();
    let (b_whole, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_whole.iter().zip(b_whole) {
        for lane in 0..LANES {
            lanes[lane] = f(x[lane], y[lane], lanes[lane]);
        }
    }
    for (lane, (&x, &y)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] = f(x, y, lanes[lane]);
    }
    fold(lanes)
}

/// The largest value; NaN when any is.
#[inline(always)]
fn max_over(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let keep = |best: f32, x: f32| if x <= best { best } else { x };
    let (whole, rest) = values.as_chunks::<LANES>();
    for x in whole {
        for lane in 0..LANES {
            lanes[lane] = keep(lanes[lane], x[lane]);
        }
    }
    for (lane, &x) in rest.iter().enumerate() {
        lanes[lane] = keep(lanes[lane], x);
    }
    lanes.iter().fold(f32::NEG_INFINITY, |best, &x| keep(best, x))
}

dispatched! {
    /// `sum of a * b`.
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        sum_over(a, b, f32::mul_add)
    }

    /// `out += x`.
    fn add(out: &mut [f32], x: &[f32]) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o += v;
        }
    }

    /// RMS norm of one row; returns the reciprocal root mean square for the backward pass.
    fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> f32 {
        let mean = sum_over(x, x, f32::mul_add) / x.len() as f32;
        let scale = 1.0 / (mean + eps).sqrt();
        for ((o, &v), &w) in out.iter_mut().zip(x).zip(weight) {
            *o = v * scale * w;
        }
        scale
    }

    /// Backward of [`rms_norm`]: `dx += `, `d_weight += `. `scale` is what the forward returned.
    fn rms_norm_backward(
        dx: &mut [f32],
        d_weight: &mut [f32],
        dy: &[f32],
        x: &[f32],
        weight: &[f32],
        scale: f32,
    ) {
        let mut lanes = [0.0_f32; LANES];
        let rows = dy.chunks(LANES).zip(x.chunks(LANES)).zip(weight.chunks(LANES));
        for ((dy, x), weight) in rows {
            for (((lane, &d), &v), &w) in lanes.iter_mut().zip(dy).zip(x).zip(weight) {
                *lane = (d * w).mul_add(v, *lane);
            }
        }
        let shared = -fold(lanes) * scale * scale * scale / x.len() as f32;
        for ((((o, dw), &d), &v), &w) in
            dx.iter_mut().zip(d_weight).zip(dy).zip(x).zip(weight)
        {
            *o += (d * w).mul_add(scale, shared * v);
            *dw = (d * v).mul_add(scale, *dw);
        }
    }

    /// `out = silu(gate) * up`.
    fn swiglu(out: &mut [f32], gate: &[f32], up: &[f32]) {
        for ((o, &g), &u) in out.iter_mut().zip(gate).zip(up) {
            *o = g * sigmoid(g) * u;
        }
    }

    /// Backward of [`swiglu`]: `grad` holds the gradient of the output and receives the output itself
    /// again; `gate` and `up` receive their gradients.
    fn swiglu_backward(grad: &mut [f32], gate: &mut [f32], up: &mut [f32]) {
        for ((d, g), u) in grad.iter_mut().zip(gate).zip(up) {
            let s = sigmoid(*g);
            let silu = *g * s;
            let slope = silu.mul_add(1.0 - s, s);
            let upstream = *d;
            *d = silu * *u;
            *g = upstream * *u * slope;
            *u = upstream * silu;
        }
    }

    /// Rotates one head by its position's angles: `out = rotate(x) * factor`, halves paired.
    fn rotate(out: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32], factor: f32) {
        let half = cos.len();
        let (x_low, x_high) = x.split_at(half);
        let (out_low, out_high) = out.split_at_mut(half);
        let angles = cos.iter().zip(sin);
        let rows = out_low.iter_mut().zip(out_high).zip(x_low.iter().zip(x_high));
        for (((low, high), (&a, &b)), (&cos, &sin)) in rows.zip(angles) {
            let (c, s) = (cos * factor, sin * factor);
            *low = a * c - b * s;
            *high = b * c + a * s;
        }
    }

    /// The rotation's transpose in place: carries a gradient back through [`rotate`] with factor 1.
    fn rotate_back(x: &mut [f32], cos: &[f32], sin: &[f32]) {
        let half = cos.len();
        let (low, high) = x.split_at_mut(half);
        for i in 0..half.min(sin.len()).min(low.len()).min(high.len()) {
            let (a, b) = (low[i], high[i]);
            low[i] = a * cos[i] + b * sin[i];
            high[i] = b * cos[i] - a * sin[i];
        }
    }

    /// Causal softmax numerators of one row of scores: the first `visible` scores become
    /// `exp(score - max)`, the others zero. Returns the maximum and the sum.
    fn softmax_numerators(scores: &mut [f32], visible: usize) -> (f32, f32) {
        let (seen, hidden) = scores.split_at_mut(visible);
        hidden.fill(0.0);
        let max = max_over(seen);
        for x in seen.iter_mut() {
            *x = exp(*x - max);
        }
        (max, sum_over(seen, seen, |x, _, sum| sum + x))
    }

    /// Backward of the causal softmax of one row. `scores` becomes the probabilities, `grad` (the
    /// gradient of the probabilities) becomes the gradient of the scores; hidden entries become zero.
    fn softmax_backward(scores: &mut [f32], grad: &mut [f32], visible: usize, lse: f32, delta: f32) {
        let (seen, hidden) = scores.split_at_mut(visible);
        let (grad_seen, grad_hidden) = grad.split_at_mut(visible);
        hidden.fill(0.0);
        grad_hidden.fill(0.0);
        for (x, d) in seen.iter_mut().zip(grad_seen) {
            let p = exp(*x - lse);
            *x = p;
            *d = p * (*d - delta);
        }
    }

    /// Raises `max` to the largest value of each column of `rows`.
    fn column_max(max: &mut [f32], rows: &[f32]) {
        for row in rows.chunks_exact(max.len()) {
            for (max, &x) in max.iter_mut().zip(row) {
                *max = if x <= *max { *max } else { x };
            }
        }
    }

    /// One vocabulary chunk for losses on single tokens: logits (tokens x positions) become `exp(logit - max)`,
    /// the column sums are added to `sum`.
    fn numerators(logits: &mut [f32], max: &[f32], sum: &mut [f32]) {
        for row in logits.chunks_exact_mut(max.len()) {
            for ((x, &max), sum) in row.iter_mut().zip(max).zip(sum.iter_mut()) {
                *x = exp(*x - max);
                *sum += *x;
            }
        }
    }

    /// One vocabulary chunk for KL(student || reference), tokens x positions. `student` becomes
    /// `exp(s - max)`, `reference` becomes `s - r`; column sums are added up.
    fn reverse_kl_numerators(student: &mut [f32], reference: &mut [f32], columns: &mut KlColumns<'_>) {
        let KlColumns { max, sum, reference_max, reference_sum, cross } = columns;
        let width = max.len();
        let rows = student.chunks_exact_mut(width).zip(reference.chunks_exact_mut(width));
        for (s, r) in rows {
            for ((&r, &max), sum) in r.iter().zip(reference_max.iter()).zip(reference_sum.iter_mut()) {
                *sum += exp(r - max);
            }
            let columns = max.iter().zip(sum.iter_mut()).zip(cross.iter_mut());
            for ((s, r), ((&max, sum), cross)) in s.iter_mut().zip(r.iter_mut()).zip(columns) {
                let e = exp(*s - max);
                let difference = *s - *r;
                *sum += e;
                *cross = e.mul_add(difference, *cross);
                *s = e;
                *r = difference;
            }
        }
    }

    /// The gradient of KL(student || reference) by the logits, tokens x positions:
    /// `numerators *= scale * (difference - mean)`.
    fn reverse_kl_gradient(numerators: &mut [f32], difference: &[f32], scale: &[f32], mean: &[f32]) {
        let width = scale.len();
        for (row, difference) in numerators.chunks_exact_mut(width).zip(difference.chunks_exact(width)) {
            for (((x, &d), &scale), &mean) in row.iter_mut().zip(difference).zip(scale).zip(mean) {
                *x *= scale * (d - mean);
            }
        }
    }

    /// One vocabulary chunk for KL(reference || student), tokens x positions: both become numerators; column
    /// sums are added up.
    fn forward_kl_numerators(student: &mut [f32], reference: &mut [f32], columns: &mut KlColumns<'_>) {
        let KlColumns { max, sum, reference_max, reference_sum, cross } = columns;
        let width = max.len();
        let rows = student.chunks_exact_mut(width).zip(reference.chunks_exact_mut(width));
        for (s, r) in rows {
            let columns = reference_max.iter().zip(reference_sum.iter_mut()).zip(cross.iter_mut());
            for ((&s, r), ((&max, sum), cross)) in s.iter().zip(r.iter_mut()).zip(columns) {
                let e = exp(*r - max);
                *sum += e;
                *cross = e.mul_add(*r - s, *cross);
                *r = e;
            }
            for ((s, &max), sum) in s.iter_mut().zip(max.iter()).zip(sum.iter_mut()) {
                *s = exp(*s - max);
                *sum += *s;
            }
        }
    }

    /// The gradient of KL(reference || student) by the logits: `student * scale - reference * reference_scale`.
    fn forward_kl_gradient(
        student: &mut [f32],
        reference: &[f32],
        scale: &[f32],
        reference_scale: &[f32],
    ) {
        let width = scale.len();
        for (row, reference) in student.chunks_exact_mut(width).zip(reference.chunks_exact(width)) {
            let scales = scale.iter().zip(reference_scale);
            for ((x, &r), (&scale, &reference_scale)) in row.iter_mut().zip(reference).zip(scales) {
                *x = *x * scale - r * reference_scale;
            }
        }
    }

    /// `rows *= scale`, column by column.
    fn scale_columns(rows: &mut [f32], scale: &[f32]) {
        for row in rows.chunks_exact_mut(scale.len()) {
            for (x, &scale) in row.iter_mut().zip(scale) {
                *x *= scale;
            }
        }
    }

    /// `x *= factor`.
    fn scale(x: &mut [f32], factor: f32) {
        for v in x {
            *v *= factor;
        }
    }

    /// The sum of squares in double precision.
    fn sum_of_squares(x: &[f32]) -> f64 {
        let mut lanes = [0.0_f64; 8];
        let (whole, rest) = x.as_chunks::<8>();
        for chunk in whole {
            for lane in 0..8 {
                let v = f64::from(chunk[lane]);
                lanes[lane] = v.mul_add(v, lanes[lane]);
            }
        }
        for (lane, &v) in rest.iter().enumerate() {
            let v = f64::from(v);
            lanes[lane] = v.mul_add(v, lanes[lane]);
        }
        lanes.iter().sum()
    }

    /// One AdamW update of a run of parameters. The gradient is scaled by `clip` and set to zero.
    fn adamw(
        weights: &mut [f32],
        gradient: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        rates: &AdamRates,
    ) {
        let r = *rates;
        for (((w, g), m), v) in weights.iter_mut().zip(gradient).zip(first).zip(second) {
            let d = *g * r.clip;
            *g = 0.0;
            *m = d.mul_add(1.0 - r.beta1, *m * r.beta1);
            *v = (d * d).mul_add(1.0 - r.beta2, *v * r.beta2);
            let step = *m * r.step_size / (v.sqrt() * r.root_correction + r.eps);
            *w = w.mul_add(r.keep, -step);
        }
    }
}

/// Statistics of a vocabulary chunk, one value per position.
pub(crate) struct KlColumns<'a> {
    /// Largest logit of the student.
    pub(crate) max: &'a [f32],
    /// Sum of the student's numerators.
    pub(crate) sum: &'a mut [f32],
    /// Largest logit of the reference.
    pub(crate) reference_max: &'a [f32],
    /// Sum of the reference's numerators.
    pub(crate) reference_sum: &'a mut [f32],
    /// Sum of numerator times difference of logits.
    pub(crate) cross: &'a mut [f32],
}

/// The constants of one AdamW step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamRates {
    /// Factor on the gradient: 1 unless its norm was clipped.
    pub(crate) clip: f32,
    /// Decay of the first moment.
    pub(crate) beta1: f32,
    /// Decay of the second moment.
    pub(crate) beta2: f32,
    /// Learning rate over the first moment's bias correction.
    pub(crate) step_size: f32,
    /// One over the root of the second moment's bias correction.
    pub(crate) root_correction: f32,
    /// Added to the root of the second moment.
    pub(crate) eps: f32,
    /// `1 - lr * weight_decay`.
    pub(crate) keep: f32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_real_one_everywhere_and_keeps_nan() {
        let mut x = -87.0_f32;
        while x < 88.0 {
            let want = f64::from(x).exp();
            let error = (f64::from(exp(x)) - want).abs() / want;
            assert!(error < 2.5e-7, "{x} {error}");
            x += 0.013;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(1e9).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_and_maxima_cover_every_length_and_keep_nan() {
        for length in 1..70 {
            let values: Vec<f32> = (0..length).map(|i| (i * 7 % 13) as f32 - 4.0).collect();
            let squares: f32 = values.iter().map(|x| x * x).sum();
            assert_eq!(dot(&values, &values), squares);
            let want = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max_over(&values), want);
            for bad in 0..length as usize {
                let mut spoiled = values.clone();
                spoiled[bad] = f32::NAN;
                let (_, sum) = softmax_numerators(&mut spoiled, length as usize);
                assert!(sum.is_nan(), "NaN at {bad} of {length} was lost");
            }
        }
    }
}
