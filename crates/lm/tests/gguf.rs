//! Importing GGUF files: stored forms, order of rows, shapes, tokenizers.

mod common;
#[path = "common/gguf.rs"]
mod writer;

use std::path::Path;

use common::fixture;
use lens_lm::checkpoint::safetensors::SafetensorsFile;
use lens_lm::checkpoint::{Checkpoint, Dtype, ModelFiles, SaveOptions, TensorSource, save};
use lens_lm::config::{Family, ModelConfig, RopeScaling};
use lens_lm::gguf::GgufModel;
use lens_lm::gguf::blocks::BlockType;
use lens_lm::tokenizer::Tokenizer;
use writer::{Gguf, Meta};

fn values(source: &dyn TensorSource, name: &str) -> Vec<f32> {
    let shape = source.shape(name).expect("a tensor");
    let mut values = vec![0.0; shape.iter().product()];
    source.read_values(name, 0, &mut values).expect("readable");
    values
}

fn config(family: Family) -> ModelConfig {
    ModelConfig {
        family,
        hidden_size: 8,
        intermediate_size: 12,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        vocab_size: 10,
        max_position: 64,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        rope_scaling: None,
        tied_head: true,
        qkv_bias: family == Family::Qwen2,
        qk_norm: family == Family::Qwen3,
    }
}

fn open(gguf: &Gguf) -> Result<GgufModel, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    GgufModel::open(&gguf.write(folder.path())).map_err(|error| error.to_string())
}

#[test]
fn every_stored_form_means_what_the_gguf_package_says_it_means() {
    let bytes = std::fs::read(fixture("gguf/blocks.safetensors")).expect("committed");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("valid");
    let forms = [
        ("Q4_0", BlockType::Q4_0),
        ("Q4_1", BlockType::Q4_1),
        ("Q5_0", BlockType::Q5_0),
        ("Q5_1", BlockType::Q5_1),
        ("Q8_0", BlockType::Q8_0),
        ("Q4_K", BlockType::Q4_K),
        ("Q5_K", BlockType::Q5_K),
        ("Q6_K", BlockType::Q6_K),
        ("F16", BlockType::F16),
        ("BF16", BlockType::BF16),
    ];
    for (name, form) in forms {
        let stored = tensors.tensor(&format!("{name}.bytes")).expect("stored");
        let expected: Vec<f32> = tensors
            .tensor(&format!("{name}.values"))
            .expect("stored")
            .data()
            .chunks(4)
            .map(|four| f32::from_le_bytes(four.try_into().expect("four bytes")))
            .collect();
        let mut ours = vec![0.0; stored.data().len() / form.bytes() * form.values()];
        form.decode(stored.data(), &mut ours);
        assert_eq!(ours.len(), expected.len(), "{name}");
        for (place, (ours, expected)) in ours.iter().zip(&expected).enumerate() {
            assert_eq!(
                ours.to_bits(),
                expected.to_bits(),
                "{name} at {place}: {ours} for {expected}"
            );
        }
    }
}

#[test]
fn a_file_written_by_the_gguf_package_is_imported_exactly() {
    let model = GgufModel::open(&fixture("gguf/tiny.gguf")).expect("valid");
    let expected = SafetensorsFile::open(&fixture("gguf/tiny.safetensors")).expect("valid");
    assert_eq!(model.config().parameter_shapes().len(), expected.entries().len());
    for (name, entry) in expected.entries() {
        let mut theirs = vec![0.0; entry.values()];
        expected.read_f32(name, 0, &mut theirs).expect("readable");
        let ours = values(&model, name);
        assert!(ours == theirs, "{name} differs");
        // Pieces that start and end inside blocks and rows are the same values.
        for (first, length) in [(1, 1), (17, 40), (31, 2), (ours.len() - 5, 5)] {
            if first + length <= ours.len() {
                let mut piece = vec![0.0; length];
                model.read_values(name, first, &mut piece).expect("readable");
                assert_eq!(piece, ours[first..first + length], "{name} from {first}");
            }
        }
    }
    assert_eq!((model.config().family, model.config().tied_head), (Family::Llama, false));
    assert_eq!((model.config().rms_norm_eps, model.lossless_dtype()), (1e-5, Dtype::F32));
}

#[test]
fn the_tokenizer_inside_becomes_the_one_it_was_made_from() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let target = folder.path().join("imported");
    let model = GgufModel::open(&fixture("gguf/tiny.gguf")).expect("valid");
    let files = model.files().expect("a tokenizer");
    save(&target, &files, &model, &SaveOptions::new(Dtype::F32)).expect("saved");

    let imported = Checkpoint::open(&target).expect("valid");
    assert_eq!(&imported.files.config, model.config());
    let ours = imported.files.tokenizer().expect("valid");
    let theirs = ModelFiles::read(&fixture("llama")).expect("valid");
    let tokenizer = theirs.tokenizer().expect("valid");
    ours.check_same_vocabulary(&tokenizer).expect("the same tokens, padding left out");
    assert_eq!(ours.special_flags(), tokenizer.special_flags());
    for text in ["You open the drawer 2.", "<|im_start|>user\nLook  around<think>", "it's 1234"] {
        assert_eq!(
            ours.encode(text).expect("encodes"),
            tokenizer.encode(text).expect("encodes"),
            "{text}"
        );
    }
    let turns = [lens_lm::chat::Message::user("Hello")];
    let options = lens_lm::chat::ChatOptions::default();
    assert_eq!(
        imported.files.chat_template().expect("valid").render(&turns, &options).expect("renders"),
        theirs.chat_template().expect("valid").render(&turns, &options).expect("renders"),
    );
    assert_eq!(imported.files.stop_ids(&ours).expect("known"), [2]);
}

#[test]
fn qwen_files_keep_their_row_order_and_llama_files_do_not() {
    for (architecture, family) in
        [("qwen2", Family::Qwen2), ("qwen3", Family::Qwen3), ("llama", Family::Llama)]
    {
        let shape = config(family);
        let gguf = Gguf::model(architecture, &shape);
        let model = open(&gguf).expect("valid");
        assert_eq!(model.config(), &shape);
        let stored =
            &gguf.tensors.iter().find(|(name, ..)| name == "blk.1.attn_q.weight").expect("there").2;
        let rows: Vec<&[f32]> = stored.chunks(8).collect();
        let ours = values(&model, "model.layers.1.self_attn.q_proj.weight");
        let order: [usize; 8] = if family == Family::Llama {
            [0, 2, 1, 3, 4, 6, 5, 7]
        } else {
            [0, 1, 2, 3, 4, 5, 6, 7]
        };
        assert_eq!(ours, order.map(|row| rows[row]).concat(), "{architecture}");
    }
}

#[test]
fn one_matrix_stored_twice_is_tied_and_two_matrices_are_not() {
    let mut gguf = Gguf::model("qwen2", &config(Family::Qwen2));
    let embedding =
        gguf.tensors.iter().find(|(name, ..)| name == "token_embd.weight").expect("there").clone();
    let close: Vec<f32> = embedding.2.iter().map(|value| value * 1.01).collect();
    gguf.tensors.push(("output.weight".to_owned(), embedding.1.clone(), close.clone()));
    let model = open(&gguf).expect("valid");
    assert!(model.config().tied_head);
    assert_eq!(
        values(&model, "model.embed_tokens.weight"),
        close,
        "the head's copy is the better one"
    );

    let other: Vec<f32> =
        embedding.2.iter().enumerate().map(|(i, v)| if i % 2 == 0 { -v } else { *v }).collect();
    gguf.tensors.last_mut().expect("pushed").2 = other;
    assert!(!open(&gguf).expect("valid").config().tied_head);
}

#[test]
fn llama_3_scaling_is_recovered_from_the_divisors() {
    let scaling = RopeScaling::Llama3 {
        factor: 32.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    };
    let plain = ModelConfig {
        head_dim: 64,
        heads: 2,
        hidden_size: 128,
        rope_theta: 500_000.0,
        ..config(Family::Llama)
    };
    let scaled = ModelConfig { rope_scaling: Some(scaling), ..plain.clone() };
    let mut divisors: Vec<f32> = plain
        .rope_inverse_frequencies()
        .iter()
        .zip(scaled.rope_inverse_frequencies())
        .map(|(plain, scaled)| (plain / scaled) as f32)
        .collect();
    let mut gguf = Gguf::model("llama", &plain);
    gguf.tensors.push(("rope_freqs.weight".to_owned(), vec![32], divisors.clone()));
    assert_eq!(open(&gguf).expect("valid").config().rope_scaling, Some(scaling));

    divisors[10] *= 1.5;
    gguf.tensors.last_mut().expect("pushed").2 = divisors;
    let error = open(&gguf).expect_err("unexplained");
    assert!(error.contains("rope_freqs.weight"), "{error}");
}

#[test]
fn a_sentencepiece_vocabulary_merges_by_its_scores() {
    let mut pieces: Vec<(String, f32, i32)> =
        vec![("<unk>".into(), 0.0, 2), ("<s>".into(), 0.0, 3), ("</s>".into(), 0.0, 3)];
    pieces.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
    for (number, piece) in ["▁t", "he", "▁the", "in", "▁a", "hein"].iter().enumerate() {
        pieces.push(((*piece).to_owned(), -(number as f32), 1));
    }
    for letter in ["▁", "t", "h", "e", "i", "n", "a"] {
        pieces.push((letter.to_owned(), -100.0, 1));
    }
    let shape = ModelConfig { vocab_size: pieces.len(), ..config(Family::Llama) };
    let mut gguf = Gguf::model("llama", &shape);
    gguf.set("tokenizer.ggml.model", Meta::Text("llama"));
    gguf.set("tokenizer.ggml.tokens", Meta::Texts(pieces.iter().map(|p| p.0.clone()).collect()));
    gguf.set("tokenizer.ggml.scores", Meta::Floats(pieces.iter().map(|p| p.1).collect()));
    gguf.set("tokenizer.ggml.token_type", Meta::Ints(pieces.iter().map(|p| p.2).collect()));
    gguf.set("tokenizer.ggml.unknown_token_id", Meta::U32(0));
    gguf.set("tokenizer.ggml.bos_token_id", Meta::U32(1));
    gguf.set("tokenizer.ggml.eos_token_id", Meta::U32(2));
    let files = open(&gguf).expect("valid").files().expect("a tokenizer");
    let json = files.companions.tokenizer_json().expect("written");
    let tokenizer = Tokenizer::from_json(Path::new("pieces"), json).expect("valid");
    let split = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text).expect("encodes");
        ids.iter().map(|&id| tokenizer.token(id).expect("a token").to_owned()).collect()
    };
    // "▁t" scores best, so "the" starts with it although "he" and then "▁the" exist too.
    assert_eq!(split("the in"), ["▁the", "▁", "in"]);
    assert_eq!(split("a hein"), ["▁a", "▁", "hein"]);
    assert_eq!(split("é"), ["▁", "<0xC3>", "<0xA9>"]);
    for text in ["the in", "a hein é🦊 the"] {
        let ids = tokenizer.encode(text).expect("encodes");
        assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
        let mut stream = tokenizer.stream();
        let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).expect("decodes")).collect();
        assert_eq!(pieces.concat() + &stream.finish().expect("decodes"), text);
    }
}

#[test]
fn what_cannot_be_imported_is_named() {
    let base = Gguf::model("qwen3", &config(Family::Qwen3));
    let changed = |change: &dyn Fn(&mut Gguf)| {
        let mut gguf = base.clone();
        change(&mut gguf);
        open(&gguf).expect_err("must be refused")
    };
    let error = changed(&|gguf| gguf.set("general.architecture", Meta::Text("gemma3")));
    assert!(error.contains("gemma3") && error.contains("supported are qwen3"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.block_count", Meta::Text("two")));
    assert!(error.contains("`qwen3.block_count` must be one whole number"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.block_count", Meta::U32(3)));
    assert!(error.contains("blk.2.attn_norm.weight") && error.contains("missing"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.block_count", Meta::U32(1)));
    assert!(error.contains("blk.1.") && error.contains("no place"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.feed_forward_length", Meta::U32(11)));
    assert!(error.contains("blk.0.ffn_down.weight") && error.contains("[8, 12]"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.expert_count", Meta::U32(4)));
    assert!(error.contains("experts"), "{error}");
    let error = changed(&|gguf| gguf.set("qwen3.rope.scaling.type", Meta::Text("yarn")));
    assert!(error.contains("yarn"), "{error}");
    let error = changed(&|gguf| {
        let first = gguf.tensors[0].clone();
        gguf.tensors.push(first);
    });
    assert!(error.contains("twice"), "{error}");

    let model = open(&base).expect("valid");
    let error = model.files().expect_err("no tokenizer").to_string();
    assert!(error.contains("no tokenizer"), "{error}");
    let mut other = base.clone();
    other.set("tokenizer.ggml.model", Meta::Text("gpt2"));
    other.set("tokenizer.ggml.pre", Meta::Text("deepseek-llm"));
    other.set("tokenizer.ggml.tokens", Meta::Texts(vec!["a".into(), "b".into()]));
    other.set("tokenizer.ggml.merges", Meta::Texts(vec!["a b".into()]));
    let error = open(&other).expect("valid").files().expect_err("unknown split").to_string();
    assert!(error.contains("deepseek-llm") && error.contains("smollm"), "{error}");
}
