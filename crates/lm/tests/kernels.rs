//! The kernels against plain arithmetic: products bit for bit, the rest within rounding.

mod small;

use lens_lm::kernels::dispatch::Isa;
use lens_lm::kernels::elementwise;
use lens_lm::kernels::matrix::Matrix;
use lens_lm::kernels::packed::Packed;
use lens_lm::kernels::weight_format::WeightFormat;
use lens_opd::random::{Purpose, Stream, StreamKey};
use proptest::prelude::*;
use small::on_threads;

fn stream(seed: u64) -> Stream {
    StreamKey::new(seed, 0, 0, Purpose::Data, 0).open()
}

fn normals(stream: &mut Stream, count: usize) -> Vec<f32> {
    (0..count).map(|_| stream.normal() as f32).collect()
}

/// What a weight becomes in a format, and the factor its sum is multiplied with.
fn stored(format: WeightFormat, row: &[f32]) -> (Vec<f32>, f32) {
    match format {
        WeightFormat::F32 => (row.to_vec(), 1.0),
        WeightFormat::Bf16 | WeightFormat::Bf16Dot => {
            (row.iter().map(|&value| half::bf16::from_f32(value).to_f32()).collect(), 1.0)
        }
        WeightFormat::Int8 => {
            let scale = row.iter().fold(0.0_f32, |a, b| a.max(b.abs())) / 127.0;
            (row.iter().map(|value| (value / scale).round_ties_even()).collect(), scale)
        }
    }
}

const FORMATS: [WeightFormat; 4] =
    [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Bf16Dot, WeightFormat::Int8];

fn check_product(seed: u64, rows: usize, inputs: usize, outputs: usize, format: WeightFormat) {
    let mut stream = stream(seed);
    let weights = normals(&mut stream, outputs * inputs);
    let x = normals(&mut stream, rows * inputs);
    let packed = Packed::pack(format, inputs, &[&weights]);
    let input = Matrix::from_rows(inputs, x.chunks_exact(inputs));
    let x = if format == WeightFormat::Bf16Dot { stored(format, &x).0 } else { x };
    let mut expected = Matrix::zeros(rows, outputs);
    for (output, row) in weights.chunks_exact(inputs).enumerate() {
        let (values, scale) = stored(format, row);
        for (index, x) in x.chunks_exact(inputs).enumerate() {
            let sum = x.iter().zip(&values).fold(0.0_f32, |sum, (&x, &w)| x.mul_add(w, sum));
            expected.row_mut(index)[output] = sum * scale;
        }
        let mut unpacked = vec![0.0; inputs];
        packed.output_row(output, &mut unpacked);
        let rounded: Vec<f32> = values.iter().map(|value| value * scale).collect();
        assert_eq!(unpacked, rounded, "row {output} unpacked");
    }
    for isa in Isa::available() {
        for parallel in [false, true] {
            let mut out = Matrix::zeros(rows, outputs);
            on_threads(2, || packed.matmul(isa, &input, &mut out, parallel));
            for row in 0..rows {
                assert_eq!(out.row(row), expected.row(row), "{format} {isa:?} row {row}");
                let last = outputs - 1;
                assert_eq!(packed.output(isa, input.row(row), last), expected.row(row)[last]);
            }
        }
    }
}

#[test]
fn products_are_one_chain_of_multiply_adds_whatever_the_blocking() {
    // Row counts around the tiles (4, 6 and 12), the few-rows limit (24) and the row block (240); depths around the depth block (256).
    for (seed, &(rows, inputs, outputs)) in [
        (1, 1, 1),
        (1, 300, 130),
        (2, 257, 33),
        (3, 256, 48),
        (5, 20, 70),
        (6, 255, 16),
        (7, 512, 40),
        (12, 300, 150),
        (13, 40, 35),
        (16, 600, 64),
        (24, 300, 17),
        (25, 300, 31),
        (100, 513, 20),
        (241, 260, 18),
        (245, 8, 100),
    ]
    .iter()
    .enumerate()
    {
        for format in FORMATS {
            check_product(seed as u64, rows, inputs, outputs, format);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn products_of_any_shape_are_exact_chains(
        seed in 0_u64..1000,
        rows in 1_usize..40,
        inputs in 1_usize..300,
        outputs in 1_usize..60,
        format in 0_usize..FORMATS.len(),
    ) {
        check_product(seed, rows, inputs, outputs, FORMATS[format]);
    }
}

/// The processor's own products of pairs know no subnormal numbers; those of the other sets must not show any either.
#[test]
fn products_of_pairs_with_tiny_and_huge_factors_are_the_same_on_every_set() {
    let mut stream = stream(9);
    let (inputs, outputs) = (61, 40);
    let mut extremes = |count: usize| -> Vec<f32> {
        let exponents = [-149, -140, -126, -80, -64, -57, -56, -50, 0, 60];
        let scale = |stream: &mut Stream| exponents[stream.below(10).unwrap_or(0) as usize];
        (0..count)
            .map(|_| (stream.normal() * f64::from(scale(&mut stream)).exp2()) as f32)
            .collect()
    };
    let packed = Packed::pack(WeightFormat::Bf16Dot, inputs, &[&extremes(inputs * outputs)]);
    let x = extremes(30 * inputs);
    let input = Matrix::from_rows(inputs, x.chunks_exact(inputs));
    let mut results = Isa::available().into_iter().map(|isa| {
        let mut out = Matrix::zeros(30, outputs);
        packed.matmul(isa, &input, &mut out, false);
        out.padded().iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    });
    let plain = results.next().expect("plain Rust is always there");
    for other in results {
        assert_eq!(plain, other);
    }
    assert!(plain.iter().all(|&bits| f32::from_bits(bits).is_finite()));
    let mut tiny = vec![0.0; inputs];
    Packed::pack(WeightFormat::Bf16Dot, inputs, &[&vec![1e-17; inputs]]).output_row(0, &mut tiny);
    assert_eq!(tiny, vec![0.0; inputs], "below the least magnitude that is kept");
}

#[test]
fn an_all_zero_row_stays_zero_in_int8() {
    let mut weights = vec![0.0; 2 * 20];
    weights[25] = -3.0;
    let packed = Packed::pack(WeightFormat::Int8, 20, &[&weights]);
    let mut row = vec![1.0; 20];
    packed.output_row(0, &mut row);
    assert_eq!(row, [0.0; 20]);
    packed.output_row(1, &mut row);
    assert_eq!(row[5], -3.0, "the largest magnitude is kept");
}

#[test]
fn the_exponential_is_accurate_over_its_range() {
    let mut worst = 0.0_f64;
    for step in -872_000..=882_000 {
        let x = step as f32 * 1e-4;
        let exact = f64::from(x).exp();
        worst = worst.max((f64::from(elementwise::exp(x)) - exact).abs() / exact);
    }
    assert!(worst < 1.5 * f64::from(f32::EPSILON), "relative error {worst:e}");
    assert_eq!(elementwise::exp(0.0), 1.0);
    assert!(elementwise::exp(-200.0) < 2e-38);
    assert!(elementwise::exp(f32::NEG_INFINITY) < 2e-38);
    assert!(elementwise::exp(1000.0) > 1e38 && elementwise::exp(1000.0).is_finite());
    assert!(elementwise::exp(f32::NAN).is_nan());
}

#[test]
fn row_operations_match_their_formulas_and_all_instruction_sets_agree() {
    for length in [1, 2, 7, 8, 9, 64, 100, 515] {
        let mut stream = stream(length as u64);
        let x = normals(&mut stream, length);
        let y = normals(&mut stream, length);
        let mut results = Isa::available().into_iter().map(|isa| {
            let mut normed = vec![0.0; length];
            elementwise::rms_norm(isa, &x, &y, 1e-6, &mut normed);
            let mut activated = vec![0.0; length];
            elementwise::silu_mul(isa, &x, &y, &mut activated);
            let mut softmax = x.clone();
            let shift = elementwise::max(isa, &softmax);
            let total = elementwise::exponentials(isa, &mut softmax, shift);
            elementwise::scale(isa, &mut softmax, 1.0 / total);
            let sum = elementwise::sum_exp(isa, &x, 0.5);
            let kl = elementwise::kl_chunk(isa, &x, &y, 3.0, 4.0);
            let mut in_place = x.clone();
            elementwise::rms_norm_in_place(isa, &mut in_place, &y, 1e-6);
            elementwise::add(isa, &mut in_place, &y);
            elementwise::divide(isa, &mut in_place, 0.7);
            let mut turned = x.repeat(2);
            elementwise::rotate(isa, &mut turned, &x, &y, 0.3);
            let largest = elementwise::max(isa, &x);
            (normed, activated, softmax, sum, kl, in_place, turned, largest)
        });
        let fast = results.next().expect("plain Rust is always there");
        for other in results {
            assert_eq!(fast, other, "length {length}");
        }
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let rms = (wide.iter().map(|x| x * x).sum::<f64>() / length as f64 + 1e-6).sqrt();
        let total: f64 = wide.iter().map(|x| x.exp()).sum();
        for index in 0..length {
            let (x, y) = (wide[index], f64::from(y[index]));
            let close = |mine: f32, exact: f64| {
                assert!((f64::from(mine) - exact).abs() <= 2e-6 * (1.0 + exact.abs()));
            };
            close(fast.0[index], x / rms * y);
            close(fast.1[index], x / (1.0 + (-x).exp()) * y);
            close(fast.2[index], x.exp() / total);
        }
        let sum = total * (-0.5_f64).exp();
        assert!((f64::from(fast.3) - sum).abs() < 1e-5 * sum);
        let kl: f64 = wide
            .iter()
            .zip(&y)
            .map(|(&a, &b)| {
                let (a, b) = (a - 3.0, f64::from(b) - 4.0);
                a.exp() * (a - b) + b.exp() - a.exp()
            })
            .sum();
        assert!((f64::from(fast.4) - kl).abs() < 1e-5 * (1.0 + kl.abs()), "{} {kl}", fast.4);
    }
}

#[test]
fn rotation_turns_each_pair_by_its_angle() {
    let mut head: Vec<f32> = vec![1.0, 0.0, 0.0, 2.0];
    let (cos, sin) = ([0.6, 0.0], [0.8, 1.0]);
    elementwise::rotate(Isa::detect(), &mut head, &cos, &sin, 2.0);
    let expected = [1.2, -4.0, 1.6, 0.0];
    for (mine, exact) in head.iter().zip(expected) {
        assert!((mine - exact).abs() < 1e-6, "{head:?}");
    }
}
