//! Moments in 16 and 8 bits: what they cost the loss, that they resume exactly, and what is refused.

mod train_common;

use lens_lm::config::{Family, ModelConfig};
use lens_lm::train::{
    AdamWConfig, Heads, LoraOptions, MomentFormat, Targets, TrainRow, Trainer, TrainerOptions,
};
use train_common::*;

const STEPS: usize = 60;
const LOW: [MomentFormat; 2] = [MomentFormat::Bf16, MomentFormat::Int8];

fn setting() -> (ModelConfig, Vec<TrainRow>) {
    let config = ModelConfig { max_position: 128, vocab_size: 97, ..tiny(Family::Qwen3) };
    let mut stream = stream(31);
    let rows = (0..12).map(|i| random_row(Kind::Nll, 97, 1, 24 + i, 6, &mut stream)).collect();
    (config, rows)
}

fn trainer(moments: MomentFormat) -> Trainer {
    let (config, _) = setting();
    let options = TrainerOptions { moments, ..TrainerOptions::default() };
    Trainer::new(config.clone(), random_parameters(&config, 32), options).expect("valid")
}

/// The mean loss per token of each step.
fn learn(trainer: &mut Trainer, rows: &[TrainRow], steps: usize) -> Vec<f64> {
    let adam = AdamWConfig { lr: 3e-3, ..AdamWConfig::default() };
    (0..steps)
        .map(|_| {
            let report = trainer.accumulate(rows, &Heads::default()).expect("valid rows");
            trainer.step(&adam).expect("valid settings");
            let tokens: f64 = rows.iter().flat_map(|row| &row.weights).map(|&w| f64::from(w)).sum();
            report.loss / tokens
        })
        .collect()
}

#[test]
fn losses_with_low_bit_moments_follow_those_of_f32_within_two_percent() {
    let (_, rows) = setting();
    let exact = learn(&mut trainer(MomentFormat::F32), &rows, STEPS);
    assert!(exact[STEPS - 1] < 0.6 * exact[0], "{exact:?}");
    for format in LOW {
        let found = learn(&mut trainer(format), &rows, STEPS);
        let worst = exact
            .iter()
            .zip(&found)
            .map(|(exact, found)| (found - exact).abs() / exact)
            .fold(0.0, f64::max);
        assert!(worst < 0.02, "{}: {worst}\n{exact:?}\n{found:?}", format.name());
        assert!(found != exact, "{} rounds nothing", format.name());
    }
}

#[test]
fn low_bit_moments_resume_with_the_same_bytes_on_any_number_of_threads() {
    let (config, rows) = setting();
    for format in LOW {
        let mut whole = trainer(format);
        learn(&mut whole, &rows, 6);
        let mut first = trainer(format);
        learn(&mut first, &rows, 3);
        let state = first.optimizer_state().expect("memory");
        let options = TrainerOptions { moments: format, ..TrainerOptions::default() };
        let mut resumed = Trainer::new(config.clone(), first.parameters(), options).expect("valid");
        resumed.load_optimizer_state(&state).expect("its own state");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        pool.install(|| learn(&mut resumed, &rows, 3));
        assert!(
            resumed.optimizer_state().expect("memory") == whole.optimizer_state().expect("memory")
        );
        assert!(resumed.parameters() == whole.parameters(), "{}", format.name());

        let error = trainer(MomentFormat::F32).load_optimizer_state(&state).expect_err("another");
        assert!(error.to_string().contains(format.name()), "{error}");
        let mut cut = state.clone();
        cut.truncate(state.len() - 5);
        assert!(resumed.load_optimizer_state(&cut).is_err());
    }
}

#[test]
fn fewer_bits_take_less_room() {
    let count = config_count();
    let sizes = [MomentFormat::F32, MomentFormat::Bf16, MomentFormat::Int8].map(|format| {
        let (_, rows) = setting();
        let mut trainer = trainer(format);
        learn(&mut trainer, &rows, 1);
        let size = trainer.optimizer_state().expect("memory").len();
        let moments = format.bytes(count);
        assert!(size >= moments && size < moments + 16_000, "{} {size} {moments}", format.name());
        moments
    });
    assert!(sizes[1] * 2 == sizes[0] && sizes[2] < sizes[0] / 4 + sizes[0] / 64, "{sizes:?}");
}

fn config_count() -> usize {
    setting().0.parameter_count()
}

#[test]
fn adapters_may_have_low_bit_moments_too() {
    let (config, rows) = setting();
    let lora = LoraOptions { rank: 4, alpha: 8.0, targets: Targets::ALL, seed: 0, bf16_base: true };
    let options = TrainerOptions {
        lora: Some(lora),
        moments: MomentFormat::Int8,
        ..TrainerOptions::default()
    };
    let mut trainer =
        Trainer::new(config.clone(), random_parameters(&config, 32), options).expect("valid");
    let losses = learn(&mut trainer, &rows, 20);
    assert!(losses[19] < 0.9 * losses[0], "{losses:?}");
}
