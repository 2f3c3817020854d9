//! The trainer's loss and gradient against central differences of the double-precision reference.

mod train_common;

use lens_lm::config::{Family, ModelConfig, RopeScaling};
use lens_lm::train::{Head, Heads, Trainer, TrainerOptions};
use train_common::reference::{self, Weights};
use train_common::*;

const TEACHER_WIDTH: usize = 9;
const TEACHER_ROWS: usize = 29;
const REAL: usize = 21;

/// Values of a tensor whose slope is taken one by one; a random direction covers all of them together.
const SINGLE_VALUES: usize = 16;

/// The slope of the reference's loss when `name` moves along `direction`.
fn slope(
    weights: &mut Weights,
    name: &str,
    direction: &[f64],
    loss: impl Fn(&Weights) -> f64,
) -> f64 {
    let step = 1e-5;
    let here = weights[name].clone();
    let mut at = |distance: f64| {
        let moved = here.iter().zip(direction).map(|(x, d)| x + distance * d).collect();
        weights.insert(name.to_owned(), moved);
        loss(weights)
    };
    let slope = (at(step) - at(-step)) / (2.0 * step);
    weights.insert(name.to_owned(), here);
    slope
}

fn check(config: &ModelConfig, kinds: &[Kind], seed: u64) {
    let mut stream = stream(seed);
    let parameters = random_parameters(config, seed);
    let teacher = noise(TEACHER_ROWS * TEACHER_WIDTH, 0.5, &mut stream);
    let snapshot = noise(TEACHER_ROWS * TEACHER_WIDTH, 0.5, &mut stream);
    let heads = Heads {
        teacher: Some(Head { weight: (&teacher).into(), hidden: TEACHER_WIDTH }),
        snapshot: Some(Head { weight: (&snapshot).into(), hidden: TEACHER_WIDTH }),
    };
    let rows: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(i, &kind)| random_row(kind, REAL, TEACHER_WIDTH, 7 + i % 3, 2 + i % 2, &mut stream))
        .collect();
    let weights = reference::weights(&parameters);
    let loss = |weights: &Weights| reference::loss(config, weights, &rows, &heads, REAL);

    let options = TrainerOptions { real_vocab: Some(REAL), ..TrainerOptions::default() };
    let mut trainer = Trainer::new(config.clone(), parameters, options).expect("valid model");
    let report = trainer.accumulate(&rows, &heads).expect("valid rows");
    let want = loss(&weights);
    assert!((report.loss - want).abs() < 1e-5 * want.abs().max(1.0), "{} {want}", report.loss);

    let mut weights = weights;
    let mut seen = 0;
    for view in trainer.gradients() {
        let (name, count) = (view.name, view.data.len());
        let size = view.data.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!(size > 0.0, "{name} receives no gradient");
        for i in 0..SINGLE_VALUES.min(count) {
            let at = if count <= SINGLE_VALUES {
                i
            } else {
                stream.below(count as u64).expect("not empty") as usize
            };
            let mut direction = vec![0.0; count];
            direction[at] = 1.0;
            let want = slope(&mut weights, name, &direction, loss);
            let error = (f64::from(view.data[at]) - want).abs() / f64::from(size);
            assert!(error < 1e-4, "{kinds:?} {name}[{at}]: {} against {want}", view.data[at]);
        }
        let direction: Vec<f64> = (0..count).map(|_| stream.normal()).collect();
        let want = slope(&mut weights, name, &direction, loss);
        let parts = view.data.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d);
        let got: f64 = parts.clone().sum();
        let scale = parts.map(|part| part * part).sum::<f64>().sqrt();
        assert!((got - want).abs() < 1e-4 * scale, "{kinds:?} {name}: {got} against {want}");
        seen += 1;
    }
    assert_eq!(seen, config.parameter_shapes().len());
}

#[test]
fn every_parameter_of_every_family_gets_the_gradient_of_every_loss() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        check(&tiny(family), &KINDS, seed as u64);
    }
}

#[test]
fn each_loss_alone_gives_its_own_gradient() {
    let config = ModelConfig { layers: 1, ..tiny(Family::Qwen3) };
    for (seed, kind) in KINDS.into_iter().enumerate() {
        check(&config, &[kind], 10 + seed as u64);
    }
}

#[test]
fn all_switches_together_and_unusual_shapes() {
    let config = ModelConfig {
        heads: 3,
        kv_heads: 1,
        head_dim: 10,
        layers: 3,
        rope_scaling: Some(RopeScaling::Linear { factor: 2.0 }),
        qkv_bias: true,
        qk_norm: true,
        tied_head: false,
        ..tiny(Family::Llama)
    };
    check(&config, &KINDS, 20);
}
