//! Reading checkpoints made with `transformers`, and writing them back.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{copy_of, fixture};
use lens_lm::checkpoint::{Checkpoint, Dtype, SaveOptions, save};
use lens_lm::config::{Family, RopeScaling};
use lens_lm::tensor::Parameters;

/// The tensors of a directory as the `safetensors` crate reads them: bytes by name.
fn peer_bytes(directory: &Path) -> BTreeMap<String, (safetensors::Dtype, Vec<usize>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("listable") {
        let path = entry.expect("listable").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            let bytes = std::fs::read(&path).expect("readable");
            let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("a valid file");
            for (name, view) in tensors.tensors() {
                all.insert(name, (view.dtype(), view.shape().to_vec(), view.data().to_vec()));
            }
        }
    }
    all
}

fn read(directory: &Path) -> (Checkpoint, Parameters) {
    let checkpoint = Checkpoint::open(directory).expect("a valid checkpoint");
    let parameters = checkpoint.read_parameters().expect("readable weights");
    (checkpoint, parameters)
}

#[test]
fn configurations_written_by_transformers_are_understood() {
    let qwen3 = Checkpoint::open(&fixture("qwen3")).expect("valid").files.config;
    assert_eq!((qwen3.family, qwen3.qk_norm, qwen3.qkv_bias), (Family::Qwen3, true, false));
    assert_eq!((qwen3.head_dim, qwen3.q_width(), qwen3.hidden_size), (12, 48, 32));
    assert_eq!((qwen3.rope_theta, qwen3.tied_head), (1e6, true));
    assert_eq!(qwen3.rms_norm_eps, 1e-6);

    let qwen2 = Checkpoint::open(&fixture("qwen2")).expect("valid").files.config;
    assert_eq!((qwen2.family, qwen2.qk_norm, qwen2.qkv_bias), (Family::Qwen2, false, true));
    assert_eq!((qwen2.heads, qwen2.kv_heads, qwen2.head_dim, qwen2.tied_head), (4, 1, 8, false));

    let llama = Checkpoint::open(&fixture("llama")).expect("valid").files.config;
    assert_eq!((llama.family, llama.layers, llama.tied_head), (Family::Llama, 3, true));
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 64,
    };
    assert_eq!(llama.rope_scaling, Some(scaling));
}

#[test]
fn values_are_those_the_safetensors_crate_reads() {
    for family in ["qwen3", "qwen2", "llama"] {
        let (_, parameters) = read(&fixture(family));
        let theirs = peer_bytes(&fixture(family));
        assert_eq!(
            parameters.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>(),
            "{family}"
        );
        for (name, tensor) in &parameters {
            let (dtype, shape, bytes) = &theirs[name];
            assert_eq!(&tensor.shape, shape);
            let values: Vec<f32> = match dtype {
                safetensors::Dtype::F32 => {
                    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4"))).collect()
                }
                safetensors::Dtype::F16 => bytes
                    .chunks(2)
                    .map(|b| half::f16::from_le_bytes(b.try_into().expect("2")).to_f32())
                    .collect(),
                safetensors::Dtype::BF16 => bytes
                    .chunks(2)
                    .map(|b| half::bf16::from_le_bytes(b.try_into().expect("2")).to_f32())
                    .collect(),
                other => panic!("{other:?}"),
            };
            assert_eq!(tensor.data, values, "{family} {name}");
        }
    }
}

#[test]
fn saving_in_the_stored_type_gives_the_same_bytes() {
    for (family, dtype) in [("qwen3", Dtype::F32), ("qwen2", Dtype::Bf16), ("llama", Dtype::F16)] {
        let (checkpoint, parameters) = read(&fixture(family));
        assert_eq!(checkpoint.weights.main_dtype(), dtype);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let target = folder.path().join("saved");
        save(&target, &checkpoint.files, &parameters, &SaveOptions::new(dtype)).expect("saved");
        assert_eq!(peer_bytes(&target), peer_bytes(&fixture(family)), "{family}");
        for name in [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "generation_config.json",
        ] {
            let ours = std::fs::read(target.join(name)).expect("written");
            let theirs = std::fs::read(fixture(family).join(name)).expect("committed");
            assert!(ours == theirs, "{family}/{name} is not byte for byte the same");
        }
        let config = |directory: &Path| -> serde_json::Value {
            let text = std::fs::read(directory.join("config.json")).expect("written");
            serde_json::from_slice(&text).expect("JSON")
        };
        assert_eq!(config(&target), config(&fixture(family)));
        let (again, same) = read(&target);
        assert_eq!(again.files.config, checkpoint.files.config);
        assert_eq!(same, parameters);
    }
}

#[test]
fn shards_follow_the_size_limit_and_hold_everything_once() {
    let (checkpoint, parameters) = read(&fixture("qwen3"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("sharded");
    let options = SaveOptions { dtype: Dtype::F32, shard_limit: 30_000 };
    save(&target, &checkpoint.files, &parameters, &options).expect("saved");
    let (again, same) = read(&target);
    assert_eq!(same, parameters);
    assert!(again.weights.file_count() >= 3, "{}", again.weights.file_count());
    let index: serde_json::Value = serde_json::from_slice(
        &std::fs::read(target.join("model.safetensors.index.json")).expect("written"),
    )
    .expect("JSON");
    let bytes = checkpoint.files.config.parameter_count() * 4;
    assert_eq!(index["metadata"]["total_size"], bytes);
    for entry in std::fs::read_dir(&target).expect("listable") {
        let entry = entry.expect("listable");
        assert!(!entry.file_name().to_string_lossy().contains("partial"));
        if entry.path().extension().is_some_and(|end| end == "safetensors") {
            assert!(entry.metadata().expect("a file").len() < 30_000 + 4000);
        }
    }

    // The other layout replaces this one completely.
    save(&target, &checkpoint.files, &parameters, &SaveOptions::new(Dtype::Bf16)).expect("saved");
    let (single, rounded) = read(&target);
    assert_eq!((single.weights.file_count(), single.weights.main_dtype()), (1, Dtype::Bf16));
    assert!(!target.join("model.safetensors.index.json").exists());
    for (name, tensor) in &rounded {
        for (ours, exact) in tensor.data.iter().zip(&parameters[name].data) {
            assert!((ours - exact).abs() <= exact.abs() / 256.0, "{name}: {ours} for {exact}");
        }
    }
}

#[test]
fn pieces_of_a_tensor_are_the_tensor() {
    let checkpoint = Checkpoint::open(&fixture("qwen2")).expect("valid");
    let name = "model.embed_tokens.weight";
    let whole = checkpoint.read_tensor(name).expect("readable");
    let mut rows = vec![0.0; 3 * 32];
    checkpoint.weights.read_f32(name, 7 * 32, &mut rows).expect("readable");
    assert_eq!(rows, whole.data[7 * 32..10 * 32]);
    let beyond = checkpoint.weights.read_f32(name, 160 * 32 - 1, &mut rows).expect_err("too far");
    assert!(beyond.to_string().contains(name), "{beyond}");
}

#[test]
fn values_a_type_cannot_store_are_refused_and_nothing_appears() {
    let (checkpoint, mut parameters) = read(&fixture("qwen3"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("saved");
    let name = "model.layers.1.mlp.up_proj.weight";
    for (value, dtype, word) in
        [(70_000.0, Dtype::F16, "cannot store"), (f32::NAN, Dtype::F32, "[1, 2]")]
    {
        parameters.get_mut(name).expect("a parameter").data[34] = value;
        let error = save(&target, &checkpoint.files, &parameters, &SaveOptions::new(dtype))
            .expect_err("must not be saved")
            .to_string();
        assert!(error.contains(name) && error.contains(word), "{error}");
        assert!(!target.exists());
        assert_eq!(std::fs::read_dir(folder.path()).expect("listable").count(), 0);
    }
}

#[test]
fn a_checkpoint_without_model_type_is_known_by_its_class() {
    let copy = copy_of("llama");
    let path = copy.path().join("config.json");
    let text = std::fs::read_to_string(&path).expect("readable");
    std::fs::write(&path, text.replace("\"model_type\": \"llama\",", "")).expect("written");
    assert_eq!(Checkpoint::open(copy.path()).expect("valid").files.config.family, Family::Llama);
}
