//! Adapters of a frozen model: their gradients, the merged model, their files, and what must stay the same.

mod common;
mod train_common;

use half::bf16;
use lens_lm::checkpoint::{Checkpoint, TensorSource, read_adapter, save_adapter};
use lens_lm::config::{Family, ModelConfig};
use lens_lm::tensor::{Parameters, Tensor};
use lens_lm::train::{
    AdamWConfig, Head, Heads, LoraOptions, Projection, PromptedRow, Recompute, RowLoss, Targets,
    TrainRow, Trainer, TrainerOptions,
};
use train_common::reference::{self, Weights};
use train_common::*;

const TEACHER_WIDTH: usize = 9;
const TEACHER_ROWS: usize = 29;
const REAL: usize = 21;

fn lora(rank: usize) -> LoraOptions {
    LoraOptions { rank, alpha: 5.0, targets: Targets::ALL, seed: 3, bf16_base: false }
}

fn options(lora: LoraOptions) -> TrainerOptions {
    TrainerOptions { real_vocab: Some(REAL), lora: Some(lora), ..TrainerOptions::default() }
}

/// A trainer whose adapters are all away from zero.
fn moved(config: &ModelConfig, parameters: Parameters, options: TrainerOptions) -> Trainer {
    let mut trainer = Trainer::new(config.clone(), parameters, options).expect("valid");
    let mut stream = stream(99);
    let mut tensors = trainer.adapter_tensors();
    for tensor in tensors.values_mut() {
        tensor.data = noise(tensor.len(), 0.2, &mut stream);
    }
    trainer.set_adapters(&tensors).expect("its own names");
    trainer
}

fn rounded(mut parameters: Parameters) -> Parameters {
    for tensor in parameters.values_mut().filter(|tensor| tensor.shape.len() > 1) {
        tensor.data.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
    }
    parameters
}

/// `W + scale * B * A` in double precision, for every adapted weight.
fn merged(base: &Weights, adapters: &Weights, config: &ModelConfig, lora: &LoraOptions) -> Weights {
    let mut weights = base.clone();
    for (name, a) in adapters {
        let Some(module) = name.strip_suffix(".lora_A.weight") else { continue };
        let b = &adapters[&format!("{module}.lora_B.weight")];
        let module = module.strip_prefix("base_model.model.").expect("PEFT's prefix");
        let weight = weights.get_mut(&format!("{module}.weight")).expect("an adapted weight");
        let inputs = a.len() / lora.rank;
        for (at, value) in weight.iter_mut().enumerate() {
            let (out, input) = (at / inputs, at % inputs);
            let product: f64 =
                (0..lora.rank).map(|k| b[out * lora.rank + k] * a[k * inputs + input]).sum();
            *value += lora.alpha / lora.rank as f64 * product;
        }
    }
    assert_eq!(weights.len(), config.parameter_shapes().len());
    weights
}

fn check_gradients(config: &ModelConfig, lora: LoraOptions, seed: u64) {
    let mut stream = stream(seed);
    let parameters = random_parameters(config, seed);
    let parameters = if lora.bf16_base { rounded(parameters) } else { parameters };
    let teacher = noise(TEACHER_ROWS * TEACHER_WIDTH, 0.5, &mut stream);
    let snapshot = noise(TEACHER_ROWS * TEACHER_WIDTH, 0.5, &mut stream);
    let heads = Heads {
        teacher: Some(Head { weight: (&teacher).into(), hidden: TEACHER_WIDTH }),
        snapshot: Some(Head { weight: (&snapshot).into(), hidden: TEACHER_WIDTH }),
    };
    let rows: Vec<_> = KINDS
        .iter()
        .enumerate()
        .map(|(i, &kind)| random_row(kind, REAL, TEACHER_WIDTH, 7 + i % 3, 2 + i % 2, &mut stream))
        .collect();
    let base = reference::weights(&parameters);
    let mut trainer = moved(config, parameters, options(lora));
    let mut adapters = reference::weights(&trainer.adapter_tensors());
    let loss = |adapters: &Weights| {
        let weights = merged(&base, adapters, config, &lora);
        reference::loss(config, &weights, &rows, &heads, REAL)
    };
    let report = trainer.accumulate(&rows, &heads).expect("valid rows");
    let want = loss(&adapters);
    assert!((report.loss - want).abs() < 1e-5 * want.abs().max(1.0), "{} {want}", report.loss);
    let mut seen = 0;
    for view in trainer.gradients() {
        let size = view.data.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        assert!(size > 0.0, "{} receives no gradient", view.name);
        for _ in 0..4 {
            let direction: Vec<f64> = view.data.iter().map(|_| stream.normal()).collect();
            let here = adapters[view.name].clone();
            let mut at = |distance: f64| {
                let moved = here.iter().zip(&direction).map(|(x, d)| x + distance * d).collect();
                adapters.insert(view.name.to_owned(), moved);
                loss(&adapters)
            };
            let want = (at(1e-5) - at(-1e-5)) / 2e-5;
            adapters.insert(view.name.to_owned(), here);
            let parts = view.data.iter().zip(&direction).map(|(&g, d)| f64::from(g) * d);
            let got: f64 = parts.clone().sum();
            let scale = parts.map(|part| part * part).sum::<f64>().sqrt();
            assert!((got - want).abs() < 1e-4 * scale, "{}: {got} against {want}", view.name);
        }
        seen += 1;
    }
    assert_eq!(seen, 2 * lora.targets.iter().count() * config.layers);
}

#[test]
fn adapters_of_every_family_get_the_gradient_of_every_loss() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        check_gradients(&tiny(family), lora(3), seed as u64);
    }
}

#[test]
fn adapters_of_some_layers_on_a_rounded_model_get_their_gradients_too() {
    let targets = [Projection::Q, Projection::V, Projection::Up].into_iter().collect();
    let lora = LoraOptions { targets, bf16_base: true, ..lora(2) };
    let all = ModelConfig { qkv_bias: true, tied_head: false, ..tiny(Family::Qwen3) };
    check_gradients(&all, lora, 7);
    check_gradients(&all, LoraOptions { bf16_base: true, ..self::lora(17) }, 8);
}

fn prompts(rows: &[TrainRow]) -> Vec<PromptedRow<'_>> {
    rows.iter()
        .map(|row| PromptedRow { tokens: &row.tokens, response_start: row.response_start })
        .collect()
}

/// Large enough that every product is cut into several tiles.
fn wide() -> (ModelConfig, Vec<TrainRow>) {
    let config = ModelConfig {
        hidden_size: 48,
        intermediate_size: 80,
        head_dim: 16,
        vocab_size: 600,
        max_position: 512,
        ..tiny(Family::Qwen3)
    };
    let mut stream = stream(5);
    let rows = (0..6)
        .map(|i| random_row(Kind::Nll, REAL, 1, 40 + 37 * i, 20 + 11 * i, &mut stream))
        .collect();
    (config, rows)
}

#[test]
fn the_merged_model_computes_the_same_bits_and_a_fresh_adapter_changes_none() {
    let (config, rows) = wide();
    for bf16_base in [false, true] {
        let lora = LoraOptions { bf16_base, ..lora(4) };
        let parameters = rounded(random_parameters(&config, 1));
        let fresh = Trainer::new(config.clone(), parameters.clone(), options(lora)).expect("valid");
        assert!(fresh.parameters() == parameters, "B starts at zero");
        let mut adapted = moved(&config, parameters.clone(), options(lora));
        let merged = adapted.parameters();
        assert!(merged != parameters);
        let plain = TrainerOptions { real_vocab: Some(REAL), ..TrainerOptions::default() };
        let mut whole = Trainer::new(config.clone(), merged.clone(), plain).expect("valid");
        let states = adapted.hidden_states(&prompts(&rows)).expect("valid rows");
        assert!(states == whole.hidden_states(&prompts(&rows)).expect("valid rows"));
        let name = "model.layers.1.mlp.down_proj.weight";
        for (first, count) in [(0, 1), (3, 79), (5, 200), (80, 160), (777, 1111)] {
            let mut part = vec![0.0; count];
            adapted.read_values(name, first, &mut part).expect("in range");
            assert_eq!(part, merged[name].data[first..first + count], "{first} {count}");
        }
        assert!(adapted.read_values(name, 48 * 80 - 1, &mut [0.0; 2]).is_err());
    }
}

fn train(threads: usize, options: TrainerOptions, steps: usize) -> (Parameters, Vec<u8>) {
    let (config, rows) = wide();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(|| {
        let mut trainer =
            Trainer::new(config.clone(), random_parameters(&config, 2), options).expect("valid");
        for _ in 0..steps {
            one_step(&mut trainer, &rows);
        }
        (trainer.adapter_tensors(), trainer.optimizer_state().expect("memory"))
    })
}

fn one_step(trainer: &mut Trainer, rows: &[TrainRow]) -> f64 {
    let loss = trainer.accumulate(rows, &Heads::default()).expect("valid rows").loss;
    trainer.step(&AdamWConfig { lr: 1e-2, ..AdamWConfig::default() }).expect("valid");
    loss
}

#[test]
fn adapters_learn_and_neither_threads_nor_recomputation_change_a_bit() {
    let options = options(LoraOptions { bf16_base: true, ..lora(4) });
    let trained = train(1, options, 3);
    assert!(trained == train(3, options, 3));
    let again = TrainerOptions { recompute: Recompute::Always, ..options };
    assert!(trained == train(2, again, 3));
    let (config, rows) = wide();
    let mut trainer =
        Trainer::new(config.clone(), random_parameters(&config, 2), options).expect("valid");
    let losses: Vec<f64> = (0..8).map(|_| one_step(&mut trainer, &rows)).collect();
    assert!(losses[7] < 0.8 * losses[0], "{losses:?}");
}

#[test]
fn adapters_saved_as_peft_saves_them_resume_with_the_same_bytes() {
    let options = options(lora(4));
    let whole = train(2, options, 4);
    let (tensors, state) = train(2, options, 2);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("adapter");
    save_adapter(&path, "base", &lora(4), &tensors).expect("written");
    let found = read_adapter(&path, &lora(4)).expect("readable");
    assert!(found == tensors);
    let (config, rows) = wide();
    let mut resumed =
        Trainer::new(config.clone(), random_parameters(&config, 2), options).expect("valid");
    resumed.set_adapters(&found).expect("they fit");
    resumed.load_optimizer_state(&state).expect("its own state");
    one_step(&mut resumed, &rows);
    one_step(&mut resumed, &rows);
    assert!((resumed.adapter_tensors(), resumed.optimizer_state().expect("memory")) == whole);

    for (wrong, word) in [
        (LoraOptions { rank: 5, ..lora(4) }, "rank"),
        (LoraOptions { alpha: 4.0, ..lora(4) }, "lora_alpha"),
        (
            LoraOptions { targets: [Projection::Q].into_iter().collect(), ..lora(4) },
            "target_modules",
        ),
    ] {
        let error = read_adapter(&path, &wrong).expect_err("another kind").to_string();
        assert!(error.contains(word) && error.contains("adapter_config.json"), "{error}");
    }
    let mut short = tensors.clone();
    let (name, _) = short.pop_first().expect("some");
    let error = resumed.set_adapters(&short).expect_err("one is missing").to_string();
    assert!(error.contains(&name), "{error}");
    let mut extra = tensors;
    extra.insert("base_model.model.lm_head.lora_A.weight".to_owned(), Tensor::zeros(&[4, 48]));
    let error = resumed.set_adapters(&extra).expect_err("one too many").to_string();
    assert!(error.contains("lm_head"), "{error}");
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The fixtures of `make_lora.py`: PEFT's own adapter folder, its loss, its gradients and its merged weights.
#[test]
fn losses_gradients_and_merged_weights_equal_peft() {
    for family in ["qwen2", "qwen3"] {
        let folder = common::fixture(family);
        let read = |path: &str| tensors(&folder.join(path));
        let text = std::fs::read_to_string(folder.join("lora/expected.json")).expect("fixture");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let field = |name: &str| json[name].clone();
        let names: Vec<String> = serde_json::from_value(field("targets")).expect("names");
        let lora = LoraOptions {
            rank: json["r"].as_u64().expect("a rank") as usize,
            alpha: json["alpha"].as_f64().expect("a number"),
            targets: names.iter().map(|name| name.parse::<Projection>().expect("known")).collect(),
            seed: 0,
            // One checkpoint is stored in bf16 and loses nothing, the other in f32.
            bf16_base: family == "qwen2",
        };
        let given = read_adapter(&folder.join("lora"), &lora).expect("PEFT's own folder");
        let checkpoint = Checkpoint::open(&folder).expect("checkpoint");
        let (expected, text) = (read("expected.safetensors"), folder.join("expected.json"));
        let text = std::fs::read_to_string(text).expect("fixture");
        let base: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let token_rows: Vec<Vec<u32>> = serde_json::from_value(base["rows"].clone()).expect("rows");
        let weights: Vec<Vec<f32>> =
            serde_json::from_value(base["weights"].clone()).expect("weights");
        let real = base["real_tokens"].as_u64().expect("a count") as usize;
        let teacher = &expected["teacher_head"];
        let width = teacher.shape[1];
        let heads = Heads {
            teacher: Some(Head { weight: (&teacher.data).into(), hidden: width }),
            snapshot: None,
        };
        let mut states = expected["teacher_hidden"].data.chunks(width);
        let rows: Vec<TrainRow> = token_rows
            .iter()
            .zip(weights)
            .map(|(tokens, weights)| TrainRow {
                tokens: tokens.iter().copied().chain([0]).collect(),
                response_start: 1,
                loss: RowLoss::ReverseKl {
                    teacher_hidden: states
                        .by_ref()
                        .take(weights.len())
                        .flatten()
                        .copied()
                        .collect(),
                },
                weights,
            })
            .collect();
        let options = TrainerOptions {
            real_vocab: Some(real),
            lora: Some(lora),
            ..TrainerOptions::default()
        };
        let config = checkpoint.files.config.clone();
        let mut trainer = Trainer::load(config, &checkpoint.weights, options).expect("trainer");
        trainer.set_adapters(&given).expect("PEFT's names");
        let report = trainer.accumulate(&rows, &heads).expect("rows");
        let loss = json["loss"].as_f64().expect("a number");
        assert!((report.loss - loss).abs() < 1e-5 * loss, "{family}: {} {loss}", report.loss);
        let gradients = read("lora/gradients.safetensors");
        assert_eq!(trainer.gradients().count(), gradients.len());
        for view in trainer.gradients() {
            let error = relative_error(view.data, &doubles(&gradients[view.name].data));
            assert!(error < 1e-4, "{family} {}: {error}", view.name);
        }
        let merged = trainer.parameters();
        let theirs = read("lora/merged.safetensors");
        assert!(!theirs.is_empty());
        for (name, tensor) in theirs {
            let error = relative_error(&merged[&name].data, &doubles(&tensor.data));
            assert!(error < 1e-6, "{family} {name}: {error}");
        }
    }
}

fn tensors(path: &std::path::Path) -> Parameters {
    let bytes = std::fs::read(path).expect("fixture");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let values = |data: &[u8]| data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            (name, Tensor { shape: view.shape().to_vec(), data: values(view.data()) })
        })
        .collect()
}
