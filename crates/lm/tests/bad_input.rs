//! Damaged and lying files: each ends in an error that names the file and the tensor or key; nothing panics and nothing
//! is believed before it was checked against the length of the file.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use std::io::Cursor;
use std::path::Path;

use common::{copy_of, fixture};
use lens_lm::checkpoint::Checkpoint;
use lens_lm::checkpoint::safetensors::Header as SafetensorsHeader;
use lens_lm::error::LmError;
use lens_lm::gguf::GgufModel;
use lens_lm::gguf::header::Header as GgufHeader;
use lens_opd::random::{Purpose, Stream, StreamKey};

/// Opens a checkpoint and reads all of it.
fn read_all(directory: &Path) -> Result<(), LmError> {
    let checkpoint = Checkpoint::open(directory)?;
    checkpoint.read_parameters()?;
    checkpoint.files.tokenizer()?;
    checkpoint.files.chat_template().map(drop)
}

/// The message of opening a copy of the qwen3 fixture after `change`.
fn complaint(family: &str, change: impl FnOnce(&Path)) -> String {
    let copy = copy_of(family);
    change(copy.path());
    let error = read_all(copy.path()).expect_err("must be refused");
    assert!(error.is_user_error(), "{error:?}");
    error.to_string()
}

fn edit(directory: &Path, name: &str, from: &str, to: &str) {
    let path = directory.join(name);
    let text = std::fs::read_to_string(&path).expect("readable");
    assert!(text.contains(from), "{name} has no {from}");
    std::fs::write(path, text.replacen(from, to, 1)).expect("written");
}

/// Rewrites the JSON header of model.safetensors, keeping the data.
fn edit_header(directory: &Path, from: &str, to: &str) {
    let path = directory.join("model.safetensors");
    let bytes = std::fs::read(&path).expect("readable");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header = std::str::from_utf8(&bytes[8..8 + length]).expect("text");
    assert!(header.contains(from), "{header}");
    let header = header.replacen(from, to, 1);
    let mut changed = (header.len() as u64).to_le_bytes().to_vec();
    changed.extend(header.as_bytes());
    changed.extend(&bytes[8 + length..]);
    std::fs::write(path, changed).expect("written");
}

#[test]
fn a_damaged_configuration_is_named_by_its_key() {
    let cases = [
        ("\"model_type\": \"qwen3\"", "\"model_type\": \"mamba\"", "unknown architecture `mamba`"),
        ("\"hidden_size\": 32", "\"hidden_size\": \"wide\"", "`hidden_size` is \"wide\""),
        ("\"hidden_size\": 32", "\"hidden_sizes\": 32", "`hidden_size` is missing"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1e14", "`num_hidden_layers`"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": -2", "whole number"),
        ("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "does not divide"),
        ("\"head_dim\": 12", "\"head_dim\": 11", "even"),
        ("\"head_dim\": 12", "\"head_dim\": 0", "`head_dim` is 0"),
        ("\"vocab_size\": 160", "\"vocab_size\": 18446744073709551615", "`vocab_size`"),
        ("\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "only silu"),
        ("\"attention_bias\": false", "\"attention_bias\": true", "`attention_bias`"),
        (
            "\"rope_type\": \"default\"",
            "\"rope_type\": \"yarn\", \"factor\": 4.0",
            "`rope_parameters.rope_type` is `yarn`",
        ),
        ("\"rope_theta\": 1000000.0", "\"rope_theta\": -1", "`rope_theta`"),
        ("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "`rms_norm_eps`"),
        ("\"full_attention\"", "\"sliding_attention\"", "`layer_types`"),
        ("\"use_cache\": true", "\"quantization_config\": {\"bits\": 4}", "`quantization_config`"),
        ("\"use_cache\": true,", "\"use_cache\" true,", "not a JSON object"),
        ("Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3ForSequenceClassification"),
    ];
    for (from, to, words) in cases {
        let message = complaint("qwen3", |copy| edit(copy, "config.json", from, to));
        assert!(message.contains(words) && message.contains("config.json"), "{to}: {message}");
    }
}

#[test]
fn a_lying_safetensors_header_is_named_by_its_tensor() {
    let norm = "\"model.norm.weight\"";
    let cases = [
        (
            "\"dtype\":\"F32\",\"shape\":[160,32]",
            "\"dtype\":\"F32\",\"shape\":[160,33]",
            "model.embed_tokens.weight",
        ),
        (
            "\"shape\":[160,32]",
            "\"shape\":[18446744073709551615,32]",
            "more values than can be counted",
        ),
        ("\"shape\":[160,32]", "\"shape\":[160,-32]", "model.embed_tokens.weight"),
        (
            "\"dtype\":\"F32\",\"shape\":[160,32]",
            "\"dtype\":\"I64\",\"shape\":[160,32]",
            "stored as I64",
        ),
        ("\"data_offsets\":[0,20480]", "\"data_offsets\":[20480,0]", "ends before it"),
        ("\"data_offsets\":[0,20480]", "\"data_offsets\":[4,20484]", "overlap or leave a gap"),
        ("\"data_offsets\":[0,20480]", "\"data_offsets\":[0,9007199254740993]", "truncated"),
        (norm, "\"model.norm.weights\"", "`model.norm.weight` is missing"),
        (norm, "\"model.layers.0.input_layernorm.weight\"", "listed twice"),
        ("{", "[", "header"),
    ];
    for (from, to, words) in cases {
        let message = complaint("qwen3", |copy| edit_header(copy, from, to));
        assert!(message.contains(words), "{to}: {message}");
        // A tensor that is in no file is looked for in the directory.
        assert!(
            message.contains("model.safetensors") || message.contains("is missing"),
            "{message}"
        );
    }
}

#[test]
fn a_shape_that_contradicts_the_configuration_is_named() {
    let message = complaint("qwen3", |copy| {
        edit(copy, "config.json", "\"intermediate_size\": 40", "\"intermediate_size\": 48");
    });
    assert!(
        message.contains("`model.layers.0.mlp.down_proj.weight` has the shape [32, 40]"),
        "{message}"
    );
    let message = complaint("qwen3", |copy| {
        edit(
            copy,
            "config.json",
            "\"tie_word_embeddings\": true",
            "\"tie_word_embeddings\": false",
        );
    });
    assert!(message.contains("`lm_head.weight` is missing"), "{message}");
    let message = complaint("qwen3", |copy| {
        edit(copy, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
        edit(copy, "config.json", "\"full_attention\",", "");
    });
    assert!(message.contains("model.layers.1.") && message.contains("no place"), "{message}");
}

#[test]
fn truncated_weights_say_so() {
    for keep in [0, 7, 8, 100, 3000, 50_000] {
        let message = complaint("qwen3", |copy| {
            let path = copy.join("model.safetensors");
            let bytes = std::fs::read(&path).expect("readable");
            std::fs::write(path, &bytes[..keep]).expect("written");
        });
        assert!(message.contains("model.safetensors"), "{message}");
        assert!(message.contains("truncated") || keep < 8, "{keep}: {message}");
    }
}

#[test]
fn weights_that_are_not_finite_are_named_with_their_place() {
    for (bad, word) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let message = complaint("qwen3", |copy| {
            let path = copy.join("model.safetensors");
            let mut bytes = std::fs::read(&path).expect("readable");
            let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
            let at = 8 + header + 4 * (5 * 32 + 9);
            bytes[at..at + 4].copy_from_slice(&bad.to_le_bytes());
            std::fs::write(path, bytes).expect("written");
        });
        assert!(
            message.contains("model.embed_tokens.weight") && message.contains("[5, 9]"),
            "{message}"
        );
        assert!(message.contains(word) && message.contains("1 value(s)"), "{message}");
    }
}

#[test]
fn a_lying_index_is_named() {
    let index = "model.safetensors.index.json";
    let message = complaint("qwen2", |copy| {
        edit(copy, index, "model-00001-of-00002.safetensors", "../../etc/passwd");
    });
    assert!(message.contains("plain file names"), "{message}");
    let message = complaint("qwen2", |copy| {
        edit(copy, index, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors");
    });
    assert!(message.contains("although") || message.contains("elsewhere"), "{message}");
    let message = complaint("qwen2", |copy| {
        std::fs::remove_file(copy.join("model-00002-of-00002.safetensors")).expect("removed");
    });
    assert!(message.contains("model-00002-of-00002.safetensors"), "{message}");
    let message = complaint("qwen2", |copy| edit(copy, index, "\"weight_map\"", "\"weights\""));
    assert!(message.contains("weight_map"), "{message}");
}

#[test]
fn missing_files_come_with_advice() {
    let remove = |name: &'static str| {
        move |copy: &Path| std::fs::remove_file(copy.join(name)).expect("removed")
    };
    for (name, advice) in [
        ("config.json", "a model is a directory with config.json"),
        ("model.safetensors", "model.safetensors.index.json with its shards"),
        ("tokenizer.json", "copy the tokenizer files"),
        ("chat_template.jinja", "is it a base model?"),
    ] {
        let message = complaint("qwen3", remove(name));
        assert!(message.contains(name) && message.contains(advice), "{message}");
    }
    let message = complaint("qwen3", |copy| {
        let from = copy.join("model.safetensors");
        std::fs::rename(from, copy.join("pytorch_model.bin")).expect("renamed");
    });
    assert!(message.contains("pickled"), "{message}");
    let message =
        Checkpoint::open(Path::new("somewhere/model.gguf")).expect_err("absent").to_string();
    assert!(message.contains("lens model convert"), "{message}");
}

#[test]
fn a_damaged_tokenizer_or_template_is_named() {
    let message = complaint("qwen3", |copy| {
        std::fs::write(copy.join("tokenizer.json"), "{\"model\": 1}").expect("written");
    });
    assert!(message.contains("tokenizer.json"), "{message}");
    let message =
        complaint("qwen3", |copy| edit(copy, "tokenizer.json", "\"!\": 5", "\"!\": 4000000000"));
    assert!(message.contains("4000000000") && message.contains("150 tokens"), "{message}");
    let message = complaint("qwen3", |copy| {
        std::fs::write(copy.join("chat_template.jinja"), "a\n{% if %}").expect("written");
    });
    assert!(message.contains("chat_template.jinja") && message.contains("line 2"), "{message}");
    let message = complaint("qwen3", |copy| {
        std::fs::write(copy.join("chat_template.jinja"), [0xff, 0xfe]).expect("written");
    });
    assert!(message.contains("UTF-8"), "{message}");
}

/// Damages bytes in one of several ways. Numbers near zero and near the limits are the likeliest to hurt.
fn damage(bytes: &mut Vec<u8>, reach: usize, stream: &mut Stream) {
    for _ in 0..=stream.below(3).unwrap_or(0) {
        let at = stream.below(reach.min(bytes.len()) as u64).unwrap_or(0) as usize;
        match stream.below(6) {
            Some(0) => bytes[at] = stream.next_u64() as u8,
            Some(1) => bytes[at] ^= 1 << stream.below(8).unwrap_or(0),
            Some(2) => {
                let interesting =
                    [0, 1, u64::MAX, u64::MAX / 2, 1 << 31, 1 << 32, bytes.len() as u64];
                let word = interesting[stream.below(7).unwrap_or(0) as usize].to_le_bytes();
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
            Some(3) => bytes.truncate(at),
            Some(4) => {
                let end = (at + 1 + stream.below(40).unwrap_or(0) as usize).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let digits = b"0123456789-.e\"{}[],:";
                bytes[at] = digits[stream.below(digits.len() as u64).unwrap_or(0) as usize];
            }
        }
        if bytes.is_empty() {
            return;
        }
    }
}

#[test]
fn ten_thousand_damaged_safetensors_headers_do_not_panic() {
    let original = std::fs::read(fixture("qwen3").join("model.safetensors")).expect("committed");
    let header = 8 + u64::from_le_bytes(original[..8].try_into().expect("eight bytes")) as usize;
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..10_000 {
        let mut stream = StreamKey::new(1, 0, case, Purpose::Data, 0).open();
        let mut bytes = original.clone();
        damage(&mut bytes, header, &mut stream);
        let length = bytes.len() as u64;
        match SafetensorsHeader::read(Path::new("damaged"), &mut Cursor::new(&bytes), length) {
            Ok(header) => {
                accepted += 1;
                for entry in header.entries.values() {
                    assert!(entry.begin <= entry.end && header.data_start + entry.end <= length);
                    if let Ok(dtype) = entry.dtype {
                        assert_eq!((entry.values() * dtype.size()) as u64, entry.end - entry.begin);
                    }
                }
                // What we accept, the format's own reader accepts, unless it knows a type we only pass on.
                if header.entries.values().all(|entry| entry.dtype.is_ok()) {
                    safetensors::SafeTensors::deserialize(&bytes).expect("valid for others too");
                }
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("damaged"), "{error}");
            }
        }
    }
    assert!(refused > 8000 && accepted > 20, "{accepted} accepted, {refused} refused");
}

#[test]
fn ten_thousand_damaged_gguf_headers_do_not_panic() {
    let original = std::fs::read(fixture("gguf/tiny.gguf")).expect("committed");
    let (mut accepted, mut refused) = (0, 0);
    for case in 0..10_000 {
        let mut stream = StreamKey::new(2, 0, case, Purpose::Data, 0).open();
        let mut bytes = original.clone();
        damage(&mut bytes, 6_000, &mut stream);
        let length = bytes.len() as u64;
        match GgufHeader::read(Path::new("damaged"), &mut Cursor::new(&bytes), length) {
            Ok(header) => {
                accepted += 1;
                for tensor in header.tensors.values() {
                    let Ok(kind) = tensor.kind else { continue };
                    let blocks = tensor.shape.iter().product::<usize>() / kind.values();
                    assert!(tensor.offset + (blocks * kind.bytes()) as u64 <= length);
                }
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("damaged"), "{error}");
            }
        }
    }
    assert!(refused > 4000 && accepted > 500, "{accepted} accepted, {refused} refused");
}

#[test]
fn damaged_files_on_the_disk_are_read_to_the_end_or_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    let original = std::fs::read(fixture("gguf/tiny.gguf")).expect("committed");
    let copy = copy_of("qwen3");
    let weights = copy.path().join("model.safetensors");
    let good = std::fs::read(&weights).expect("readable");
    for case in 0..400 {
        let mut stream = StreamKey::new(3, 0, case, Purpose::Data, 0).open();
        let mut bytes = original.clone();
        damage(&mut bytes, 6_000, &mut stream);
        std::fs::write(&path, bytes).expect("written");
        if let Ok(model) = GgufModel::open(&path)
            && let Ok(files) = model.files()
        {
            // A damaged token list may still be a tokenizer; it must only not panic.
            let _ = files.tokenizer();
        }
        let mut bytes = good.clone();
        damage(&mut bytes, 3_000, &mut stream);
        std::fs::write(&weights, bytes).expect("written");
        let _ = read_all(copy.path());
    }
}

#[test]
fn counts_that_no_file_can_hold_are_refused_before_memory_is_spent() {
    let mut gguf = b"GGUF".to_vec();
    gguf.extend(3_u32.to_le_bytes());
    gguf.extend(1_u64.to_le_bytes());
    gguf.extend((u64::MAX / 16).to_le_bytes());
    gguf.resize(200, 0);
    let error =
        GgufHeader::read(Path::new("lie.gguf"), &mut Cursor::new(&gguf), 200).expect_err("a lie");
    assert!(error.to_string().contains("do not fit into 200 bytes"), "{error}");

    let shape = lens_lm::config::ModelConfig {
        layers: 1,
        ..Checkpoint::open(&fixture("qwen3")).expect("valid").files.config
    };
    let mut file = writer::Gguf::model("qwen3", &shape);
    file.set("a.list", writer::Meta::Ints(vec![7; 3]));
    let bytes = file.bytes();
    let at = bytes.windows(6).position(|w| w == b"a.list").expect("there") + 6 + 8;
    for count in [u64::MAX, 1 << 62, 1 << 40, bytes.len() as u64] {
        let mut lying = bytes.clone();
        lying[at..at + 8].copy_from_slice(&count.to_le_bytes());
        let error =
            GgufHeader::read(Path::new("lie.gguf"), &mut Cursor::new(&lying), lying.len() as u64)
                .expect_err("a lie");
        assert!(error.to_string().contains("`a.list`"), "{error}");
    }

    let mut header = (1_u64 << 40).to_le_bytes().to_vec();
    header.resize(64, b' ');
    let error =
        SafetensorsHeader::read(Path::new("lie.safetensors"), &mut Cursor::new(&header), 64)
            .expect_err("a lie");
    assert!(error.to_string().contains("said to be 1099511627776 bytes"), "{error}");
}
