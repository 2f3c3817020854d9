//! Element-wise kernels of training: norms, activations, softmax, the optimiser.
//!
//! Each kernel is written once, in plain Rust over short arrays of lanes, and compiled twice: for any
//! processor, and with AVX2 and FMA enabled, where the compiler turns the lanes into vectors. Both
//! versions round alike, because fused multiply-adds are spelled out and sums have a fixed order.

/// Compiles a kernel for AVX2 and FMA as well and picks at run time.
macro_rules! dispatched {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$meta])*
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn vectorised($($arg: $ty),*) $(-> $ret)? {
                    portable($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
                {
                    // SAFETY: the processor has both features, as just checked.
                    return unsafe { vectorised($($arg),*) };
                }
            }
            portable($($arg),*)
        }
    )*};
}

/// Lanes of a running sum: two AVX2 registers.
const LANES: usize = 16;

/// `e^x` within two units in the last place; NaN stays NaN, and the result never overflows to infinity.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const LOWEST: f32 = -87.336_54;
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
        sum_over(a, b, |x, y, sum| x.mul_add(y, sum))
    }

    /// `out += x`.
    fn add(out: &mut [f32], x: &[f32]) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o += v;
        }
    }

    /// `out = a + b`.
    fn sum_into(out: &mut [f32], a: &[f32], b: &[f32]) {
        for ((o, &x), &y) in out.iter_mut().zip(a).zip(b) {
            *o = x + y;
        }
    }

    /// `out = factor * x`.
    fn scale_into(out: &mut [f32], x: &[f32], factor: f32) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o = factor * v;
        }
    }

    /// RMS norm of one row; returns the reciprocal root mean square for the backward pass.
    fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) -> f32 {
        let mean = sum_over(x, x, |a, b, sum| a.mul_add(b, sum)) / x.len() as f32;
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
        for (at, ((&d, &v), &w)) in dy.iter().zip(x).zip(weight).enumerate() {
            lanes[at % LANES] = (d * w).mul_add(v, lanes[at % LANES]);
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
        for i in 0..half.min(sin.len()).min(x_high.len()).min(out_low.len()).min(out_high.len()) {
            let (c, s) = (cos[i] * factor, sin[i] * factor);
            out_low[i] = x_low[i] * c - x_high[i] * s;
            out_high[i] = x_high[i] * c + x_low[i] * s;
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

    /// Turns logits into `exp(logit - max)`; returns the maximum and the sum.
    fn numerators(logits: &mut [f32]) -> (f32, f32) {
        let max = max_over(logits);
        if max == f32::NEG_INFINITY {
            logits.fill(0.0);
            return (max, 0.0);
        }
        for x in logits.iter_mut() {
            *x = exp(*x - max);
        }
        (max, sum_over(logits, logits, |x, _, sum| sum + x))
    }

    /// One row of one vocabulary chunk for KL(student || reference). `student` becomes
    /// `exp(s - max)`, `reference` becomes `s - r`. Returns the student's maximum and sum, the
    /// reference's maximum and sum, and the sum of `exp(s - max) * (s - r)`.
    fn reverse_kl_chunk(student: &mut [f32], reference: &mut [f32]) -> [f32; 5] {
        let (max_s, max_r) = (max_over(student), max_over(reference));
        let mut sums = [[0.0_f32; LANES]; 3];
        let mut body = |lane: usize, s: &mut f32, r: &mut f32| {
            let difference = *s - *r;
            let e = exp(*s - max_s);
            sums[0][lane] += e;
            sums[1][lane] += exp(*r - max_r);
            sums[2][lane] = e.mul_add(difference, sums[2][lane]);
            *s = e;
            *r = difference;
        };
        let (s_whole, s_rest) = student.as_chunks_mut::<LANES>();
        let (r_whole, r_rest) = reference.as_chunks_mut::<LANES>();
        for (s, r) in s_whole.iter_mut().zip(r_whole) {
            for lane in 0..LANES {
                body(lane, &mut s[lane], &mut r[lane]);
            }
        }
        for (lane, (s, r)) in s_rest.iter_mut().zip(r_rest).enumerate() {
            body(lane, s, r);
        }
        [max_s, fold(sums[0]), max_r, fold(sums[1]), fold(sums[2])]
    }

    /// The gradient of KL(student || reference) for the logits of one chunk row:
    /// `numerators *= scale * (difference - offset)`.
    fn reverse_kl_gradient(numerators: &mut [f32], difference: &[f32], scale: f32, offset: f32) {
        for (x, &d) in numerators.iter_mut().zip(difference) {
            *x *= scale * (d - offset);
        }
    }

    /// One row of one vocabulary chunk for KL(reference || student): both become numerators. Returns
    /// the student's maximum and sum, the reference's, and the sum of `exp(r - max) * (r - s)`.
    fn forward_kl_chunk(student: &mut [f32], reference: &mut [f32]) -> [f32; 5] {
        let (max_s, max_r) = (max_over(student), max_over(reference));
        let mut sums = [[0.0_f32; LANES]; 3];
        let mut body = |lane: usize, s: &mut f32, r: &mut f32| {
            let difference = *r - *s;
            let e = exp(*r - max_r);
            *s = exp(*s - max_s);
            *r = e;
            sums[0][lane] += *s;
            sums[1][lane] += e;
            sums[2][lane] = e.mul_add(difference, sums[2][lane]);
        };
        let (s_whole, s_rest) = student.as_chunks_mut::<LANES>();
        let (r_whole, r_rest) = reference.as_chunks_mut::<LANES>();
        for (s, r) in s_whole.iter_mut().zip(r_whole) {
            for lane in 0..LANES {
                body(lane, &mut s[lane], &mut r[lane]);
            }
        }
        for (lane, (s, r)) in s_rest.iter_mut().zip(r_rest).enumerate() {
            body(lane, s, r);
        }
        [max_s, fold(sums[0]), max_r, fold(sums[1]), fold(sums[2])]
    }

    /// `student = student * student_scale - reference * reference_scale`.
    fn forward_kl_gradient(
        student: &mut [f32],
        reference: &[f32],
        student_scale: f32,
        reference_scale: f32,
    ) {
        for (s, &r) in student.iter_mut().zip(reference) {
            *s = *s * student_scale - r * reference_scale;
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
        assert!(exp(f32::NEG_INFINITY) < 2e-38);
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
                let (max, sum) = numerators(&mut spoiled);
                assert!(max.is_nan() || sum.is_nan(), "NaN at {bad} of {length} was lost");
            }
        }
    }
}
