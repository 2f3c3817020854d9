//! Gradients of a KL loss equal those of `transformers` for a small checkpoint of each family.

mod common;
mod train_common;

use std::path::Path;

use lens_lm::checkpoint::Checkpoint;
use lens_lm::tensor::{Parameters, Tensor};
use lens_lm::train::{
    Head, Heads, PromptedRow, Recompute, RowLoss, TrainRow, Trainer, TrainerOptions,
};
use train_common::relative_error;

fn tensors(path: &Path) -> Parameters {
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

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// The fixtures' `pad_token_id`.
const PADDING: usize = 0;

fn check(family: &str, recompute: Recompute) {
    let folder = common::fixture(family);
    let checkpoint = Checkpoint::open(&folder).expect("checkpoint");
    let config = checkpoint.files.config.clone();
    let (tied_head, hidden_size) = (config.tied_head, config.hidden_size);
    let expected = tensors(&folder.join("expected.safetensors"));
    let gradients = tensors(&folder.join("gradients.safetensors"));
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("fixture");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let field = |name: &str| json[name].clone();
    let token_rows: Vec<Vec<u32>> = serde_json::from_value(field("rows")).expect("rows");
    let weights: Vec<Vec<f32>> = serde_json::from_value(field("weights")).expect("weights");
    let real_tokens = json["real_tokens"].as_u64().expect("real_tokens") as usize;
    let kl: Vec<f64> = serde_json::from_value(field("kl")).expect("kl");
    let loss = json["loss"].as_f64().expect("loss");

    let teacher = &expected["teacher_head"];
    let width = teacher.shape[1];
    let heads = Heads {
        teacher: Some(Head { weight: (&teacher.data).into(), hidden: width }),
        snapshot: None,
    };
    // Every position predicts; a last arbitrary token gives the last one something to predict.
    let extended: Vec<Vec<u32>> =
        token_rows.iter().map(|tokens| tokens.iter().copied().chain([0]).collect()).collect();
    let mut at = 0;
    let rows: Vec<TrainRow> = extended
        .iter()
        .zip(weights)
        .map(|(tokens, weights)| {
            let first = at;
            at += weights.len();
            let teacher_hidden =
                expected["teacher_hidden"].data[first * width..at * width].to_vec();
            let loss = RowLoss::ReverseKl { teacher_hidden };
            TrainRow { tokens: tokens.clone(), response_start: 1, weights, loss }
        })
        .collect();

    let options =
        TrainerOptions { real_vocab: Some(real_tokens), recompute, ..TrainerOptions::default() };
    let parameters = checkpoint.read_parameters().expect("parameters");
    let mut trainer = Trainer::new(config, parameters, options).expect("trainer");

    let prompts: Vec<PromptedRow<'_>> =
        extended.iter().map(|tokens| PromptedRow { tokens, response_start: 1 }).collect();
    let hidden = trainer.hidden_states(&prompts).expect("hidden states").concat();
    let error = relative_error(&hidden, &doubles(&expected["hidden"].data));
    assert!(error < 1e-5, "{family}: hidden states differ by {error}");

    let report = trainer.accumulate(&rows, &heads).expect("rows");
    assert!((report.loss - loss).abs() < 1e-5 * loss, "{family}: {} against {loss}", report.loss);
    let weighted = rows.iter().flat_map(|row| &row.weights).zip(&kl);
    let token_loss: f64 = weighted.filter(|(weight, _)| **weight != 0.0).map(|(_, kl)| kl).sum();
    let found: f64 = report.rows.iter().map(|row| row.token_loss).sum();
    assert!((found - token_loss).abs() < 1e-4 * token_loss, "{family}: {found} {token_loss}");

    let mut seen = 0;
    for view in trainer.gradients() {
        let theirs = &gradients[view.name];
        assert_eq!(view.shape, theirs.shape, "{}", view.name);
        let mut ours = view.data.to_vec();
        // PyTorch gives the input embedding of the padding token no gradient, even where the token is an ordinary input.
        if view.name == "model.embed_tokens.weight" && !tied_head {
            ours[PADDING * hidden_size..(PADDING + 1) * hidden_size].fill(0.0);
        }
        let error = relative_error(&ours, &doubles(&theirs.data));
        assert!(error < 1e-4, "{family} {}: gradients differ by {error}", view.name);
        seen += 1;
    }
    assert_eq!(seen, gradients.len());
}

#[test]
fn qwen3_gradients_equal_transformers() {
    check("qwen3", Recompute::Never);
}

#[test]
fn qwen2_gradients_equal_transformers() {
    check("qwen2", Recompute::Never);
}

#[test]
fn llama_gradients_equal_transformers() {
    check("llama", Recompute::Never);
}

#[test]
fn recomputed_activations_give_the_same_gradients() {
    check("qwen3", Recompute::Always);
}
