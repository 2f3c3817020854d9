//! Hidden states and logits equal those of `transformers` for a small checkpoint of each family.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lens_lm::config::{Family, ModelConfig, RopeScaling};
use lens_lm::model::{Model, WeightFormat};
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_lm::tensor::{Parameters, Tensor};
use serde_json::Value;

fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(family)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("fixture")).expect("JSON")
}

fn tensors(path: &Path) -> Parameters {
    let bytes = std::fs::read(path).expect("fixture");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut found = BTreeMap::new();
    for (name, view) in file.tensors() {
        let data = match view.dtype() {
            safetensors::Dtype::F32 => view
                .data()
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            safetensors::Dtype::BF16 => view
                .data()
                .chunks_exact(2)
                .map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            safetensors::Dtype::F16 => view
                .data()
                .chunks_exact(2)
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
            other => panic!("{name}: {other:?}"),
        };
        found.insert(name.clone(), Tensor { shape: view.shape().to_vec(), data });
    }
    found
}

fn config(family: &str) -> ModelConfig {
    let json = json(&folder(family).join("config.json"));
    let size = |key: &str| json[key].as_u64().map(|n| n as usize);
    let rope = &json["rope_parameters"];
    let number = |key: &str| rope[key].as_f64().expect("a number");
    let heads = size("num_attention_heads").expect("heads");
    ModelConfig {
        family: match family {
            "qwen3" => Family::Qwen3,
            "qwen2" => Family::Qwen2,
            _ => Family::Llama,
        },
        hidden_size: size("hidden_size").expect("hidden_size"),
        intermediate_size: size("intermediate_size").expect("intermediate_size"),
        layers: size("num_hidden_layers").expect("layers"),
        heads,
        kv_heads: size("num_key_value_heads").expect("kv heads"),
        head_dim: size("head_dim").unwrap_or(size("hidden_size").expect("hidden") / heads),
        vocab_size: size("vocab_size").expect("vocab_size"),
        max_position: size("max_position_embeddings").expect("positions"),
        rms_norm_eps: json["rms_norm_eps"].as_f64().expect("eps") as f32,
        rope_theta: number("rope_theta"),
        rope_scaling: (rope["rope_type"] == "llama3").then(|| RopeScaling::Llama3 {
            factor: number("factor"),
            low_freq_factor: number("low_freq_factor"),
            high_freq_factor: number("high_freq_factor"),
            original_max_position: number("original_max_position_embeddings") as usize,
        }),
        tied_head: json["tie_word_embeddings"].as_bool().unwrap_or(false),
        qkv_bias: family == "qwen2",
        qk_norm: family == "qwen3",
    }
}

fn check(family: &str) {
    let folder = folder(family);
    let mut parameters = Parameters::new();
    for entry in std::fs::read_dir(&folder).expect("fixtures") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            parameters.append(&mut tensors(&path));
        }
    }
    let config = config(family);
    let model = Model::new(&config, &parameters, WeightFormat::F32).expect("model");
    let expected = tensors(&folder.join("expected.safetensors"));
    let rows = json(&folder.join("expected.json"))["rows"].clone();
    let rows: Vec<Vec<u32>> = serde_json::from_value(rows).expect("rows");

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
