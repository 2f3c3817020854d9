//! Tokenizers made to stall or to exhaust the memory are refused when they are loaded; real chains are not.

mod common;

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use common::fixture;
use lens_lm::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// The tokens of a short text with a chain put into a real tokenizer; a stall fails the test instead of hanging it.
fn encode_with(part: &'static str, chain: Value) -> Result<usize, String> {
    let path = fixture("qwen3/tokenizer.json");
    let mut file: Value =
        serde_json::from_slice(&std::fs::read(path).expect("committed")).expect("JSON");
    file[part] = chain;
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let json = file.to_string();
        let tokens = Tokenizer::from_json(Path::new("tokenizer.json"), json.as_bytes())
            .and_then(|tokenizer| tokenizer.encode("a plain text"))
            .map(|ids| ids.len())
            .map_err(|error| error.to_string());
        done.send(tokens)
    });
    result.recv_timeout(Duration::from_mins(1)).expect("an answer in time")
}

#[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

#[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
fn sequence(steps: Vec<Value>) -> Value {
    json!({"type": "Sequence", "normalizers": steps})
}

#[test]
fn replacements_that_multiply_are_refused() {
    let bomb = replace(json!({"String": "a"}), &"a".repeat(100));
    let error = encode_with("normalizer", sequence(vec![bomb; 6])).expect_err("refused");
    assert!(
        error.contains("its normalizer can make a text 1000000000000 times as long"),
        "{error}"
    );
    let doubling = replace(json!({"Regex": "a"}), "aa");
    let error = encode_with("normalizer", sequence(vec![doubling; 36])).expect_err("refused");
    assert!(error.contains("its normalizer has more than 32 steps"), "{error}");
    let doubling = replace(json!({"Regex": ""}), "a");
    let error = encode_with("normalizer", sequence(vec![doubling; 30])).expect_err("refused");
    assert!(error.contains("1073741824 times as long"), "{error}");
}

#[test]
fn decoders_and_nested_sequences_are_bounded_too() {
    let bomb = replace(json!({"String": "a"}), &"a".repeat(100));
    let chain = json!({"type": "Sequence", "decoders": vec![bomb; 6]});
    let error = encode_with("decoder", chain).expect_err("refused");
    assert!(error.contains("its decoder can make a text"), "{error}");
    let nested = (0..40).fold(json!({"type": "NFC"}), |inner, _| sequence(vec![inner]));
    let error = encode_with("normalizer", nested).expect_err("refused");
    assert!(error.contains("nested more than 4 deep"), "{error}");
    let long = json!({"type": "Prepend", "prepend": "x".repeat(1000)});
    let error = encode_with("normalizer", long).expect_err("refused");
    assert!(error.contains("puts 1000 bytes before a text"), "{error}");
    let map = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"});
    let error = encode_with("normalizer", map).expect_err("refused");
    assert!(error.contains("precompiled character map"), "{error}");
}

#[test]
fn chains_of_real_tokenizers_are_accepted() {
    let spaces = replace(json!({"String": " "}), "▁");
    let llama = sequence(vec![json!({"type": "Prepend", "prepend": "▁"}), spaces.clone()]);
    let unified = sequence(vec![
        json!({"type": "NFKC"}),
        json!({"type": "Lowercase"}),
        replace(json!({"Regex": " {2,}"}), "▁"),
    ]);
    for chain in [Value::Null, json!({"type": "NFC"}), spaces, llama, unified] {
        encode_with("normalizer", chain.clone()).unwrap_or_else(|error| panic!("{chain}: {error}"));
    }
}
