//! Prompts and token ids equal those of `transformers` for the real Qwen3 and Qwen2.5 tokenizers.
//! Needs the real tokenizers beside the project; the expectations are in `fixtures/chat.json` (see `make_fixtures.py`).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a skipped test says so")]

mod common;

use std::collections::BTreeMap;

use common::{fixture, shared};
use lens_lm::chat::{ChatOptions, ChatTemplate, Message};
use lens_lm::checkpoint::Companions;
use lens_lm::tokenizer::Tokenizer;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Vec<Message>,
    options: Options,
    text: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Options {
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
}

fn open(family: &str) -> Option<(Tokenizer, ChatTemplate)> {
    let folder = shared("data/models")?.join(family);
    let companions = Companions::read(&folder).expect("readable files");
    let json = companions.tokenizer_json().expect("a tokenizer");
    let tokenizer = Tokenizer::from_json(&companions.path("tokenizer.json"), json).expect("valid");
    let (path, source) = companions.chat_template().expect("valid").expect("a template");
    let template = ChatTemplate::new(&path, &source, BTreeMap::new()).expect("compiles");
    Some((tokenizer, template))
}

#[test]
fn prompts_and_ids_equal_those_of_transformers() {
    let text = std::fs::read(fixture("chat.json")).expect("committed");
    let expected: BTreeMap<String, Vec<Case>> = serde_json::from_slice(&text).expect("valid");
    for (family, cases) in expected {
        let Some((tokenizer, template)) = open(&family) else { return };
        for case in cases {
            let options = ChatOptions {
                add_generation_prompt: case.options.add_generation_prompt,
                enable_thinking: case.options.enable_thinking,
                today: None,
            };
            let text = template.render(&case.messages, &options).expect("renders");
            assert_eq!(text, case.text, "{family}: {}", case.name);
            let ids = template.encode(&tokenizer, &case.messages, &options).expect("encodes");
            assert_eq!(ids, case.ids, "{family}: {}", case.name);
        }
    }
}

#[test]
fn the_real_tokenizers_have_the_known_tokens() {
    let Some((qwen3, _)) = open("qwen3") else { return };
    let Some((qwen2, _)) = open("qwen2_5") else { return };
    assert_eq!((qwen3.real_tokens(), qwen2.real_tokens()), (151_669, 151_665));
    for (token, id) in
        [("<|endoftext|>", 151_643), ("<|im_start|>", 151_644), ("<|im_end|>", 151_645)]
    {
        assert_eq!((qwen3.id(token), qwen2.id(token)), (Some(id), Some(id)));
        assert!(qwen3.is_special(id));
    }
    assert_eq!((qwen3.id("<think>"), qwen2.id("<think>")), (Some(151_667), None));
    assert!(!qwen3.is_special(151_667) && qwen3.is_added(151_667));
    assert!(qwen3.encode("<action>go</action>").expect("encodes").len() > 3);

    qwen3.check_same_vocabulary(&qwen3).expect("the same map");
    let error = qwen3.check_same_vocabulary(&qwen2).expect_err("different maps").to_string();
    assert!(error.contains("151665") && error.contains("<tool_response>"), "{error}");
}

#[test]
fn streaming_equals_decoding_at_once_for_real_tokens() {
    let Some((tokenizer, _)) = open("qwen3") else { return };
    let text = "größer 🦊👩‍👩‍👧 价格是多少？ e\u{301}\n\n1234 ﷽ 𝔘𝔫𝔦 \u{fffd}\u{fffd}x";
    let ids = tokenizer.encode(text).expect("encodes");
    let mut stream = tokenizer.stream();
    let mut pieces = Vec::new();
    for &id in &ids {
        pieces.push(stream.push(id).expect("decodes"));
    }
    let rest = stream.finish().expect("decodes");
    // The tokenizer normalizes (NFC), so what comes back is the decoded text, not the source.
    assert_eq!(pieces.concat() + &rest, tokenizer.decode_text(&ids).expect("decodes"));
    assert!(
        pieces.iter().filter(|piece| piece.is_empty()).count() > 3,
        "some characters are split"
    );
}
