//! What must stay the same whatever the split, the threads or the interruptions; and what must be refused.

mod train_common;

use lens_lm::config::{Family, ModelConfig};
use lens_lm::tensor::Parameters;
use lens_lm::train::{
    AdamWConfig, Head, Heads, LossKind, PromptedRow, Recompute, RowLoss, TrainRow, Trainer,
    TrainerOptions,
};
use train_common::*;

/// Large enough that every product is cut into several tiles and every row into several blocks.
fn wide(family: Family) -> ModelConfig {
    ModelConfig {
        hidden_size: 48,
        intermediate_size: 80,
        head_dim: 16,
        vocab_size: 1300,
        max_position: 512,
        ..tiny(family)
    }
}

fn mixed_rows(config: &ModelConfig, reference_width: usize, seed: u64) -> Vec<TrainRow> {
    let mut stream = stream(seed);
    (0..10)
        .map(|i| {
            let length = 40 + 37 * i % 210;
            let kind = KINDS[i % KINDS.len()];
            random_row(kind, config.vocab_size, reference_width, length, length / 2, &mut stream)
        })
        .collect()
}

struct Setting {
    config: ModelConfig,
    parameters: Parameters,
    rows: Vec<TrainRow>,
    teacher: Vec<f32>,
}

impl Setting {
    const TEACHER_WIDTH: usize = 40;

    fn new(family: Family, seed: u64) -> Self {
        let config = wide(family);
        let parameters = random_parameters(&config, seed);
        let rows = mixed_rows(&config, Self::TEACHER_WIDTH, seed);
        let teacher = noise(config.vocab_size * Self::TEACHER_WIDTH, 0.3, &mut stream(seed + 1));
        Self { config, parameters, rows, teacher }
    }

    fn heads(&self) -> Heads<'_> {
        let head = Head { weight: (&self.teacher).into(), hidden: Self::TEACHER_WIDTH };
        Heads { teacher: Some(head), snapshot: Some(head) }
    }

    fn trainer(&self, options: TrainerOptions) -> Trainer {
        Trainer::new(self.config.clone(), self.parameters.clone(), options).expect("valid model")
    }

    /// Some steps of training; the final weights and optimizer state.
    fn train(&self, options: TrainerOptions, steps: usize) -> (Parameters, Vec<u8>) {
        let mut trainer = self.trainer(options);
        for _ in 0..steps {
            self.one_step(&mut trainer);
        }
        let state = trainer.optimizer_state().expect("writing to memory");
        (trainer.into_parameters(), state)
    }

    fn one_step(&self, trainer: &mut Trainer) {
        trainer.accumulate(&self.rows, &self.heads()).expect("valid rows");
        let report = trainer.step(&adam()).expect("valid settings");
        assert!(!report.skipped_non_finite && report.grad_norm > 0.0);
    }
}

fn adam() -> AdamWConfig {
    AdamWConfig { lr: 1e-3, ..AdamWConfig::default() }
}

fn on_threads<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(work)
}

#[test]
fn the_bytes_do_not_depend_on_the_number_of_threads() {
    for family in FAMILIES {
        let setting = Setting::new(family, 3);
        let run = |threads| on_threads(threads, || setting.train(TrainerOptions::default(), 3));
        let alone = run(1);
        for threads in [2, 3] {
            assert!(alone == run(threads), "{family:?} differs with {threads} threads");
        }
    }
}

#[test]
fn recomputing_activations_changes_no_bit() {
    for family in FAMILIES {
        let setting = Setting::new(family, 4);
        let options = TrainerOptions::default();
        let kept = setting.train(options, 2);
        assert!(
            kept == setting.train(TrainerOptions { recompute: Recompute::Always, ..options }, 2)
        );
    }
}

#[test]
fn an_interrupted_run_continues_with_the_same_bytes() {
    let setting = Setting::new(Family::Qwen3, 5);
    let uninterrupted = setting.train(TrainerOptions::default(), 4);
    let (parameters, state) = setting.train(TrainerOptions::default(), 2);
    let mut resumed =
        Trainer::new(setting.config.clone(), parameters, TrainerOptions::default()).expect("valid");
    resumed.load_optimizer_state(&state).expect("our own state");
    assert_eq!(resumed.steps(), 2);
    setting.one_step(&mut resumed);
    setting.one_step(&mut resumed);
    assert!(resumed.optimizer_state().expect("writing to memory") == uninterrupted.1);
    assert!(resumed.into_parameters() == uninterrupted.0);
}

#[test]
fn micro_batches_and_the_logit_budget_change_only_the_rounding() {
    let setting = Setting::new(Family::Qwen2, 6);
    let gradient = |options: TrainerOptions, split: usize| {
        let mut trainer = setting.trainer(options);
        let mut loss = 0.0;
        for rows in setting.rows.chunks(split) {
            loss += trainer.accumulate(rows, &setting.heads()).expect("valid rows").loss;
        }
        let flat: Vec<f32> = trainer.gradients().flat_map(|view| view.data.to_vec()).collect();
        (loss, flat)
    };
    let plain = TrainerOptions::default();
    let (loss, whole) = gradient(plain, setting.rows.len());
    let whole: Vec<f64> = whole.into_iter().map(f64::from).collect();
    for (options, split) in [
        (plain, 1),
        (plain, 3),
        (TrainerOptions { micro_batch_tokens: 1, ..plain }, 10),
        (TrainerOptions { micro_batch_tokens: 300, ..plain }, 10),
        (TrainerOptions { logit_bytes: 1, ..plain }, 10),
    ] {
        let (other_loss, other) = gradient(options, split);
        assert!((loss - other_loss).abs() < 1e-6 * loss.abs());
        let error = relative_error(&other, &whole);
        assert!(error < 1e-5, "{options:?} in parts of {split}: {error}");
    }
}

#[test]
fn a_row_s_gradient_does_not_depend_on_its_neighbors() {
    let setting = Setting::new(Family::Llama, 7);
    let alone = |rows: &[TrainRow]| {
        let mut trainer = setting.trainer(TrainerOptions::default());
        let report = trainer.accumulate(rows, &setting.heads()).expect("valid rows");
        (report, trainer.gradients().flat_map(|view| view.data.to_vec()).collect::<Vec<f32>>())
    };
    let (together, whole) = alone(&setting.rows);
    let mut sum = vec![0.0_f64; whole.len()];
    for (row, report) in setting.rows.iter().zip(&together.rows) {
        let (single, gradient) = alone(std::slice::from_ref(row));
        assert!((single.loss - report.weighted_loss).abs() < 1e-6);
        assert_eq!((single.rows[0].kind, single.loss_tokens), (report.kind, report.tokens));
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += f64::from(g));
    }
    assert!(relative_error(&whole, &sum) < 1e-5);
    assert_eq!(together.kinds.len(), 5);
    assert_eq!(together.kinds[0].kind, LossKind::ReverseKl);
    assert_eq!(together.kinds.iter().map(|kind| kind.rows).sum::<usize>(), setting.rows.len());
}

#[test]
fn a_student_that_equals_its_teacher_has_zero_loss_and_zero_gradient() {
    for family in FAMILIES {
        let setting = Setting::new(family, 8);
        let mut trainer = setting.trainer(TrainerOptions::default());
        let prompts: Vec<PromptedRow<'_>> = setting
            .rows
            .iter()
            .map(|row| PromptedRow { tokens: &row.tokens, response_start: row.response_start })
            .collect();
        let states = trainer.hidden_states(&prompts).expect("valid rows");
        let own = trainer.head().to_vec();
        let head = Head { weight: (&own).into(), hidden: setting.config.hidden_size };
        let heads = Heads { teacher: Some(head), snapshot: Some(head) };
        let rows: Vec<TrainRow> = setting
            .rows
            .iter()
            .zip(states)
            .enumerate()
            .map(|(i, (row, states))| TrainRow {
                weights: vec![1.0; row.weights.len()],
                loss: if i % 2 == 0 {
                    RowLoss::ReverseKl { teacher_hidden: states }
                } else {
                    RowLoss::ForwardKl { snapshot_hidden: states }
                },
                ..row.clone()
            })
            .collect();
        let report = trainer.accumulate(&rows, &heads).expect("valid rows");
        assert_eq!(report.loss, 0.0);
        assert!(trainer.gradients().all(|view| view.data.iter().all(|&x| x == 0.0)));
    }
}

#[test]
fn tokens_without_weight_give_no_gradient() {
    let setting = Setting::new(Family::Qwen3, 9);
    let mut trainer = setting.trainer(TrainerOptions::default());
    let silent: Vec<TrainRow> = setting
        .rows
        .iter()
        .map(|row| TrainRow { weights: vec![0.0; row.weights.len()], ..row.clone() })
        .collect();
    let report = trainer.accumulate(&silent, &setting.heads()).expect("valid rows");
    assert_eq!((report.loss, report.loss_tokens, report.tokens), (0.0, 0, 0));
    assert!(trainer.gradients().all(|view| view.data.iter().all(|&x| x == 0.0)));
}

#[test]
fn a_loss_that_is_not_finite_skips_the_step_and_leaves_everything_as_it_was() {
    let setting = Setting::new(Family::Qwen3, 11);
    let mut trainer = setting.trainer(TrainerOptions::default());
    setting.one_step(&mut trainer);
    let before = (trainer.parameters(), trainer.optimizer_state().expect("memory"));
    for poison in [f32::NAN, f32::INFINITY] {
        for kind in 0..4 {
            let mut rows = setting.rows.clone();
            match &mut rows[kind].loss {
                RowLoss::ReverseKl { teacher_hidden: values }
                | RowLoss::ReverseKlTopK { logps: values, .. }
                | RowLoss::PolicyGradient { teacher_logp: values, .. }
                | RowLoss::ForwardKl { snapshot_hidden: values } => values[0] = poison,
                RowLoss::Nll => unreachable!("the first four kinds carry values"),
            }
            rows[kind].weights[0] = 1.0;
            let report = trainer.accumulate(&rows, &setting.heads()).expect("well-formed rows");
            assert!(!report.loss.is_finite(), "kind {kind} with {poison}: {}", report.loss);
            let step = trainer.step(&adam()).expect("valid settings");
            assert!(step.skipped_non_finite && !step.clipped);
            assert_eq!(step.step, 1);
            let after = (trainer.parameters(), trainer.optimizer_state().expect("memory"));
            assert!(before == after, "a skipped step changed something");
            assert!(trainer.gradients().all(|view| view.data.iter().all(|&x| x == 0.0)));
        }
    }
    setting.one_step(&mut trainer);
    assert_eq!(trainer.steps(), 2);
}

#[test]
fn a_gradient_that_overflows_skips_the_step() {
    let setting = Setting::new(Family::Llama, 12);
    let mut trainer = setting.trainer(TrainerOptions::default());
    let rows = vec![TrainRow {
        weights: vec![3e38; setting.rows[4].weights.len()],
        loss: RowLoss::Nll,
        ..setting.rows[4].clone()
    }];
    let before = trainer.parameters();
    trainer.accumulate(&rows, &setting.heads()).expect("well-formed rows");
    assert!(trainer.step(&adam()).expect("valid settings").skipped_non_finite);
    assert!(before == trainer.parameters());
}

#[test]
fn overfitting_a_tiny_batch_drives_the_likelihood_loss_to_zero() {
    let config = ModelConfig { hidden_size: 32, intermediate_size: 64, ..tiny(Family::Qwen3) };
    let mut stream = stream(13);
    let rows: Vec<TrainRow> = (0..3)
        .map(|_| {
            let mut row = random_row(Kind::Nll, config.vocab_size, 0, 12, 4, &mut stream);
            row.weights.fill(1.0 / 24.0);
            row
        })
        .collect();
    let mut trainer =
        Trainer::new(config.clone(), random_parameters(&config, 13), TrainerOptions::default())
            .expect("valid model");
    let mut losses = Vec::new();
    for _ in 0..150 {
        losses.push(trainer.accumulate(&rows, &Heads::default()).expect("valid rows").loss);
        trainer.step(&AdamWConfig { lr: 1e-2, ..AdamWConfig::default() }).expect("valid");
    }
    assert!(losses[0] > 2.0, "{}", losses[0]);
    assert!(losses[149] < 0.01, "{}", losses[149]);
}

#[test]
fn clipping_scales_the_whole_gradient() {
    let setting = Setting::new(Family::Llama, 14);
    let step = |clip: f64| {
        let mut trainer = setting.trainer(TrainerOptions::default());
        trainer.accumulate(&setting.rows, &setting.heads()).expect("valid rows");
        // With a huge epsilon the update is proportional to the gradient.
        let config = AdamWConfig { lr: 1e6, eps: 1e6, weight_decay: 0.0, clip, ..adam() };
        let report = trainer.step(&config).expect("valid settings");
        let moved: f64 = trainer
            .views()
            .map(|view| {
                let old = &setting.parameters[view.name].data;
                view.data.iter().zip(old).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>()
            })
            .sum();
        (report, moved.sqrt())
    };
    let (free, free_moved) = step(f64::INFINITY);
    let (bound, bound_moved) = step(free.grad_norm / 4.0);
    assert!(!free.clipped && bound.clipped);
    assert_eq!(free.grad_norm, bound.grad_norm);
    assert!((free_moved / bound_moved - 4.0).abs() < 0.05, "{free_moved} {bound_moved}");
}

#[test]
fn bad_input_is_refused_with_its_place() {
    let setting = Setting::new(Family::Qwen3, 15);
    let config = &setting.config;
    let options = TrainerOptions::default();
    let message = |parameters: Parameters| {
        Trainer::new(config.clone(), parameters, options).expect_err("must be refused").to_string()
    };
    let name = "model.layers.1.mlp.up_proj.weight";
    let mut spoiled = setting.parameters.clone();
    spoiled.get_mut(name).expect("present").data[7] = f32::NAN;
    assert!(
        message(spoiled).contains(&format!("`{name}` holds a value that is not finite at index 7"))
    );
    let mut missing = setting.parameters.clone();
    missing.remove(name);
    assert!(message(missing).contains("is missing"));
    let mut extra = setting.parameters.clone();
    extra.insert("lm_head.weight".to_owned(), extra["model.embed_tokens.weight"].clone());
    assert!(message(extra).contains("`lm_head.weight` does not belong"));

    let mut trainer = setting.trainer(options);
    let mut refuse = |row: TrainRow, heads: &Heads<'_>| {
        trainer.accumulate(&[row], heads).expect_err("must be refused").to_string()
    };
    let good = &setting.rows[0];
    let long = TrainRow { tokens: vec![1; 600], ..good.clone() };
    assert!(refuse(long, &setting.heads()).contains("more than the model's 512 positions"));
    let foreign = TrainRow { tokens: vec![5000; good.tokens.len()], ..good.clone() };
    assert!(refuse(foreign, &setting.heads()).contains("token 5000 at index 0"));
    let short = TrainRow { weights: vec![1.0], ..good.clone() };
    assert!(refuse(short, &setting.heads()).contains("`weights` holds 1 values"));
    let nan = TrainRow { weights: vec![f32::NAN; good.weights.len()], ..good.clone() };
    assert!(refuse(nan, &setting.heads()).contains("weight 0 is NaN"));
    assert!(refuse(good.clone(), &Heads::default()).contains("teacher output head"));
    let start = TrainRow { response_start: 0, ..good.clone() };
    assert!(refuse(start, &setting.heads()).contains("needs at least one token before it"));
    let lost = AdamWConfig { betas: (1.0, 0.9), ..adam() };
    assert!(trainer.step(&lost).expect_err("must be refused").to_string().contains("betas.0"));
}

#[test]
fn a_damaged_optimizer_state_is_refused_and_changes_nothing() {
    let setting = Setting::new(Family::Llama, 16);
    let (_, state) = setting.train(TrainerOptions::default(), 1);
    let mut trainer = setting.trainer(TrainerOptions::default());
    let before = trainer.optimizer_state().expect("memory");
    for cut in [0, 4, 8, 100, state.len() / 2, state.len() - 1] {
        trainer.load_optimizer_state(&state[..cut]).expect_err("a cut file");
    }
    let other = Setting { config: tiny(Family::Llama), ..Setting::new(Family::Llama, 16) };
    let parameters = random_parameters(&other.config, 1);
    let mut small = Trainer::new(other.config, parameters, TrainerOptions::default()).expect("ok");
    let error = small.load_optimizer_state(&state).expect_err("another model's state");
    assert!(error.to_string().contains("expected F32"), "{error}");
    assert!(before == trainer.optimizer_state().expect("memory"));
    trainer.load_optimizer_state(&state).expect("the whole file");
    assert!(state == trainer.optimizer_state().expect("memory"));
}
