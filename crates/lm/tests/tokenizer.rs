//! A tokenizer of our own making, streaming, and the comparison of token maps.

mod common;

use std::path::Path;

use common::{copy_of, fixture};
use lens_lm::chat::{ChatOptions, Message};
use lens_lm::checkpoint::{Checkpoint, ModelFiles, ModelTokens};
use lens_lm::tokenizer::{
    Splitting, Tokenizer, chatml_companions, chatml_tokens, train_bpe, train_bpe_with,
};
use proptest::prelude::*;

fn corpus() -> Vec<String> {
    let rooms = ["kitchen", "bathroom", "hallway", "cellar"];
    let things = ["mug", "spoon", "candle", "towel", "größe", "🦊"];
    let mut texts = Vec::new();
    for (number, room) in rooms.iter().cycle().take(60).enumerate() {
        let thing = things[number % things.len()];
        texts.push(format!(
            "You are in the {room}. On the shelf {number}, you see a {thing} {number}.\n> take {thing} {number}\n"
        ));
    }
    texts
}

fn trained(vocab_size: usize) -> Tokenizer {
    let json = train_bpe(&corpus(), vocab_size, &chatml_tokens()).expect("trains");
    Tokenizer::from_json(Path::new("trained"), &json).expect("valid")
}

#[test]
fn training_is_repeatable_and_reaches_the_size_asked_for() {
    let json = train_bpe(&corpus(), 320, &chatml_tokens()).expect("trains");
    assert_eq!(json, train_bpe(&corpus(), 320, &chatml_tokens()).expect("trains"));
    let tokenizer = Tokenizer::from_json(Path::new("trained"), &json).expect("valid");
    assert_eq!(tokenizer.real_tokens(), 320);
    let specials: Vec<Option<&str>> = (0..5).map(|id| tokenizer.token(id)).collect();
    let names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"].map(Some);
    assert_eq!(specials, names);
    assert_eq!(
        (0..6).map(|id| tokenizer.is_special(id)).collect::<Vec<_>>(),
        [true, true, true, false, false, false]
    );
    assert!(tokenizer.is_added(3) && !tokenizer.is_added(5) && tokenizer.is_special(320));
    let known = tokenizer.encode("You are in the kitchen.").expect("encodes");
    assert!(known.len() < 12, "the words of the corpus became tokens: {known:?}");
}

#[test]
fn digits_stay_single_and_framing_is_one_token_each() {
    let tokenizer = trained(600);
    let ids = tokenizer.encode("drawer 1234").expect("encodes");
    let last: Vec<&str> =
        ids[ids.len() - 4..].iter().filter_map(|&id| tokenizer.token(id)).collect();
    assert_eq!(last, ["1", "2", "3", "4"]);
    assert_eq!(
        tokenizer.encode("<|im_start|><think></think><|im_end|>").expect("encodes"),
        [1, 3, 4, 2]
    );
}

#[test]
fn a_name_is_one_token_wherever_it_stands() {
    let things = ["mug", "spoon", "spoonrest", "towel"];
    let texts: Vec<String> = (0..40)
        .map(|place| {
            let listed = things.map(|thing| format!("a {thing} {place}")).join(", ");
            let thing = things[place % things.len()];
            format!("Put a clean {thing} in the house. You see {listed}.\n'take {thing} 3'")
        })
        .collect();
    let json = train_bpe_with(&texts, 600, &chatml_tokens(), Splitting::Commands).expect("trains");
    let tokenizer = Tokenizer::from_json(Path::new("trained"), &json).expect("valid");
    let pieces = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text).expect("encodes");
        ids.iter().map(|&id| tokenizer.decode(&[id]).expect("decodes")).collect()
    };
    for thing in things {
        let name = format!(" {thing}");
        let goal = pieces(&format!("Put a clean {thing} in the house. You see a"));
        assert_eq!(goal, ["Put a clean", &name, " in the house. You see a"], "{thing}");
        assert_eq!(pieces(&format!("{name} 3."))[..2], [name.as_str(), " 3"], "{thing}");
    }
}

#[test]
fn a_quoted_command_is_one_token_and_the_same_words_in_an_answer_are_several() {
    let list = "['go to desk 1'\n'take mug 2 from desk 1'\n'look']";
    let texts: Vec<String> = (0..40).map(|_| format!("{list} so I go to desk 1.")).collect();
    let json = train_bpe_with(&texts, 600, &chatml_tokens(), Splitting::Commands).expect("trains");
    let tokenizer = Tokenizer::from_json(Path::new("trained"), &json).expect("valid");
    let count = |text: &str| tokenizer.encode(text).expect("encodes").len();
    assert_eq!(count("'go to desk 1'\n"), 1);
    assert_eq!(count("'take mug 2 from desk 1'\n"), 2);
    assert!(count("go to desk 1") > 2);
}

#[test]
fn texts_without_numbers_have_no_names_and_stay_whole() {
    let texts = vec!["Nothing is counted here.".to_owned(); 40];
    let json = train_bpe_with(&texts, 600, &chatml_tokens(), Splitting::Commands).expect("trains");
    let tokenizer = Tokenizer::from_json(Path::new("trained"), &json).expect("valid");
    assert_eq!(tokenizer.encode(&texts[0]).expect("encodes").len(), 1);
}

#[test]
fn clauses_end_at_punctuation_and_numbers() {
    let texts: Vec<String> = (0..40)
        .map(|day| format!("In it, you see:\n\ta red box\n\ta door (open). Day {day} [door, box]"))
        .collect();
    let json = train_bpe_with(&texts, 600, &chatml_tokens(), Splitting::Clauses).expect("trains");
    let tokenizer = Tokenizer::from_json(Path::new("trained"), &json).expect("valid");
    let pieces = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text).expect("encodes");
        ids.iter().map(|&id| tokenizer.decode(&[id]).expect("decodes")).collect()
    };
    assert_eq!(
        pieces("In it, you see:\n\ta red box\n"),
        ["In it", ", ", "you see", ":\n\t", "a red box", "\n"]
    );
    assert_eq!(pieces("Day 7 [door, box]"), ["Day ", "7", " ", "[", "door", ", ", "box", "]"]);
}

#[test]
fn a_vocabulary_too_small_for_the_bytes_is_refused() {
    let error = train_bpe(&corpus(), 260, &chatml_tokens()).expect_err("too small").to_string();
    assert!(error.contains("261"), "{error}");
}

#[test]
fn our_template_frames_turns_and_switches_thinking_off() {
    let json = train_bpe(&corpus(), 300, &chatml_tokens()).expect("trains");
    let companions = chatml_companions(json).expect("complete");
    let config = Checkpoint::open(&fixture("qwen3")).expect("valid").files.config;
    let config = lens_lm::config::ModelConfig { vocab_size: 304, ..config };
    let files = ModelFiles::new(config, &ModelTokens::default(), companions);
    let (tokenizer, template) =
        (files.tokenizer().expect("valid"), files.chat_template().expect("valid"));
    assert_eq!(files.stop_ids(&tokenizer).expect("known"), [0, 2]);
    let turns = [
        Message::system("Be brief."),
        Message::user("One?"),
        Message::assistant("<think>\nhm\n</think>\n\nOne."),
        Message::user("Two?"),
    ];
    let text = template.render(&turns, &ChatOptions::default()).expect("renders");
    assert_eq!(
        text,
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nOne?<|im_end|>\n\
         <|im_start|>assistant\nOne.<|im_end|>\n<|im_start|>user\nTwo?<|im_end|>\n\
         <|im_start|>assistant\n<think>\n\n</think>\n\n"
    );
    let ids = template.encode(&tokenizer, &turns, &ChatOptions::default()).expect("encodes");
    assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 5);
    let thinking = ChatOptions { enable_thinking: Some(true), ..ChatOptions::default() };
    assert!(
        template.render(&turns, &thinking).expect("renders").ends_with("<|im_start|>assistant\n")
    );
}

#[test]
fn different_token_maps_are_shown_by_their_first_differing_ids() {
    let (small, large) = (trained(300), trained(310));
    let error = small.check_same_vocabulary(&large).expect_err("different").to_string();
    assert!(
        error.contains("300 and 310 tokens") && error.contains("id 300 is nothing and"),
        "{error}"
    );
    assert!(error.contains("5 more ids differ"), "{error}");
    assert_ne!(small.vocabulary_hash(), large.vocabulary_hash());

    let copy = copy_of("qwen3");
    let path = copy.path().join("tokenizer.json");
    let text =
        std::fs::read_to_string(&path).expect("readable").replacen("\"!\": 5", "\"¡\": 5", 1);
    std::fs::write(&path, text).expect("written");
    let original =
        Checkpoint::open(&fixture("qwen3")).expect("valid").files.tokenizer().expect("valid");
    let changed = Tokenizer::from_file(&path).expect("valid");
    let error = original.check_same_vocabulary(&changed).expect_err("different").to_string();
    assert!(
        error.contains("id 5 is \"!\" and \"¡\"") && error.contains(&*path.to_string_lossy()),
        "{error}"
    );
}

#[test]
fn a_tokenizer_larger_than_the_model_does_not_belong_to_it() {
    let mut files = Checkpoint::open(&fixture("qwen3")).expect("valid").files;
    files.config.vocab_size = 149;
    let error = files.tokenizer().expect_err("too many tokens").to_string();
    assert!(error.contains("150 tokens") && error.contains("149"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_decodes_to_itself(text in "\\PC{0,60}") {
        let tokenizer = trained_once();
        prop_assume!(!text.contains('<'));
        let ids = tokenizer.encode(&text).expect("encodes");
        prop_assert_eq!(tokenizer.decode(&ids).expect("decodes"), text);
    }

    /// Random ids are mostly broken UTF-8: the pieces must still add up, and no piece may end in a character that the
    /// next token completes.
    #[test]
    fn streamed_pieces_add_up_for_any_ids(ids in prop::collection::vec(0_u32..330, 0..60)) {
        let tokenizer = trained_once();
        let mut stream = tokenizer.stream();
        let mut text = String::new();
        for &id in &ids {
            text.push_str(&stream.push(id).expect("decodes"));
        }
        text.push_str(&stream.finish().expect("decodes"));
        prop_assert_eq!(text, tokenizer.decode_text(&ids).expect("decodes"));
    }
}

fn trained_once() -> &'static Tokenizer {
    static TRAINED: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    TRAINED.get_or_init(|| trained(320))
}
