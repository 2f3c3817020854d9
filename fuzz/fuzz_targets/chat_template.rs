//! Any text is a chat template that renders, or an error.
#![no_main]

use std::collections::BTreeMap;
use std::path::Path;

use lens_lm::chat::{ChatOptions, ChatTemplate, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|source: &str| {
    // A template is bounded in steps, not in memory: a few doublings of a text exhaust any machine.
    let doubling = ["macro", "namespace", "call"].iter().any(|word| source.contains(word));
    if doubling || source.matches(['~', '+', '*']).count() > 8 || source.len() > 4096 {
        return;
    }
    let tokens = BTreeMap::from([("eos_token".to_owned(), "<|im_end|>".to_owned())]);
    if let Ok(template) = ChatTemplate::new(Path::new("fuzz"), source, tokens) {
        let messages = [Message::system("a"), Message::user("b\n"), Message::assistant("<think>c</think>d")];
        let _ = template.render(&messages, &ChatOptions::default());
    }
});
