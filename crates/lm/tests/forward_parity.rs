//! Hidden states and logits equal those of `transformers` for a small checkpoint of each family.

mod common;

use std::path::Path;

use lens_lm::checkpoint::Checkpoint;
use lens_lm::model::{Model, WeightFormat};
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_lm::tensor::{Parameters, Tensor};

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

fn check(family: &str) {
    let folder = common::fixture(family);
    let checkpoint = Checkpoint::open(&folder).expect("checkpoint");
    let config = checkpoint.files.config.clone();
    let model = Model::load(&config, &checkpoint.weights, WeightFormat::F32).expect("model");
    let expected = tensors(&folder.join("expected.safetensors"));
    let text = std::fs::read_to_string(folder.join("expected.json")).expect("fixture");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows: Vec<Vec<u32>> = serde_json::from_value(json["rows"].clone()).expect("rows");

    let vocab = config.vocab_size;
    let all: Vec<u32> = (0..vocab as u32).collect();
    let options = ScoreOptions { hidden: true, ..ScoreOptions::default() };
    let mut position = 0;
    for row in &rows {
        // Position i predicts token i + 1; a last arbitrary token makes the last position count as well.
        let response: Vec<u32> = row[1..].iter().copied().chain([0]).collect();
        let asked = vec![all.clone(); response.len()];
        let request = ScoreRequest { prompt: &row[..1], response: &response, asked: &asked };
        let scored = score(&model, &[request], &options).expect("scored").remove(0);
        let hidden = scored.hidden.expect("asked for");
        for (at, scores) in scored.positions.iter().enumerate() {
            let states = &expected["hidden"].data[position * config.hidden_size..];
            let own = &hidden.data[at * config.hidden_size..][..config.hidden_size];
            for (mine, theirs) in own.iter().zip(states) {
                assert!((mine - theirs).abs() < 1e-4, "{family} {position}: {mine} {theirs}");
            }
            let logits = &expected["logits"].data[position * vocab..][..vocab];
            let max = logits.iter().fold(f64::MIN, |a, &b| a.max(f64::from(b)));
            let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum();
            for (id, (&mine, &theirs)) in scores.asked.iter().zip(logits).enumerate() {
                let theirs = f64::from(theirs) - max - sum.ln();
                assert!(
                    (f64::from(mine) - theirs).abs() < 1e-4,
                    "{family} position {position} id {id}: {mine} against {theirs}"
                );
            }
            position += 1;
        }
    }
    assert_eq!(position, expected["logits"].shape[0]);
}

#[test]
fn qwen3_logits_equal_transformers() {
    check("qwen3");
}

#[test]
fn qwen2_logits_equal_transformers() {
    check("qwen2");
}

#[test]
fn llama_logits_equal_transformers() {
    check("llama");
}
