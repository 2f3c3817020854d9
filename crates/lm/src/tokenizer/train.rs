//! Training a small tokenizer of our own: byte-level pairs, ChatML framing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::json;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, DecoderWrapper};

use super::Tokenizer;
use crate::chat::CHATML_TEMPLATE;
use crate::checkpoint::Companions;
use crate::error::LmError;

/// A token that is never split and never the result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// How it is written.
    pub content: String,
    /// Whether it frames text instead of being text.
    pub special: bool,
}

/// The framing tokens of ChatML, and the marks around thoughts (which are text, as in Qwen3).
pub fn chatml_tokens() -> Vec<SpecialToken> {
    [
        ("<|endoftext|>", true),
        ("<|im_start|>", true),
        ("<|im_end|>", true),
        ("<think>", false),
        ("</think>", false),
    ]
    .map(|(content, special)| SpecialToken { content: content.to_owned(), special })
    .to_vec()
}

/// Where merges may not reach across.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splitting {
    /// Between words, and around every digit: a tokenizer for text of any kind.
    Words,
    /// Only around numbers: whole phrases become tokens. Texts made from templates shrink to a third.
    Phrases,
    /// Around numbers and names, which are words that stand before a number somewhere (`soapbar 2`): phrases become
    /// tokens, and a name is one token wherever it stands, so that a model can look it up. A quoted command such as
    /// `'go to cabinet 12'` is one piece, and so are the two halves of `'take mug 1 from desk 1'`: a list of commands
    /// shrinks to a third, and finding one takes one step of attention. Without quotes, as in an answer, it is words.
    Commands,
    /// Around numbers and around the items of lists such as `[agent, door to kitchen, blue jay]`: an item is one token
    /// wherever it stands, and the phrases between become tokens. A list with capital letters, marks or numbers in it is
    /// none of names.
    Items,
    /// Around the marks of a shop's pages: buttons, commands, names of options, prices. What stands between two marks,
    /// such as the value of an option, is the same piece on a page, in a list of commands, in an instruction and in an
    /// answer, so that a model can look it up; the marks between two values are one token. A product's number is five.
    Pages,
    /// Around numbers and punctuation: for texts with fewer numbers, whose phrases would grow without end.
    Clauses,
}

/// A number and the space before it.
const NUMBER: &str = r" ?\p{N}+";

/// Words of letters alone that stand before a number in one of the texts.
fn names(texts: &[impl AsRef<str>]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for text in texts {
        for (end, _) in text.as_ref().match_indices(' ') {
            let (before, after) = (&text.as_ref()[..end], &text.as_ref()[end + 1..]);
            let start = before.trim_end_matches(char::is_alphabetic).len();
            if start < end && after.starts_with(char::is_numeric) {
                names.insert(&before[start..]);
            }
        }
    }
    names
}

/// The items of the lists of names in the texts, the longest first, so that an expression finds whole items.
fn items<'a>(texts: &'a [impl AsRef<str>]) -> Vec<&'a str> {
    let plain = |one: char| one.is_ascii_lowercase() || one == ' ' || one == ',';
    let mut items: Vec<&'a str> = texts
        .iter()
        .flat_map(|text| text.as_ref().split('[').skip(1))
        .filter_map(|rest| rest.split_once(']'))
        .filter(|(list, _)| list.contains(", ") && list.chars().all(plain))
        .flat_map(|(list, _)| list.split(", "))
        .collect();
    items.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then(one.cmp(other)));
    items.dedup();
    items
}

/// The marks of a shop's pages, longest first.
fn page_marks() -> String {
    let name = "color|size|style|scent|flavor|flavor name|pattern name|item shape|fit type";
    let number = "[0-9A-Za-z]";
    let after = |letters: &str, count: &str| {
        format!(r"(?<=\b[Ll][Ww]{letters}){number}{{{count}}}(?={number}*\b)")
    };
    [
        // The buttons that every product's page has.
        r"\s*\[button\] Description \[button_\]\s\[button\] Features \[button_\]\s\[button\] Reviews \[button_\]\s\[button\] Buy Now \[button_\]",
        r"\s*\[button\] Back to Search \[button_\](?:\s\[button\] < Prev \[button_\])?",
        r"\s*click\[back to search\](?:\nclick\[< prev\])?(?:\nclick\[description\]\nclick\[features\]\nclick\[reviews\]\nclick\[buy now\])?",
        // Between two buttons, before the first, and after the last.
        r"(?: \[(?:clicked )?button_\])?\s*\[(?:clicked )?button\] ",
        r" \[(?:clicked )?button_\]\s*",
        // The same of commands.
        r" ?<action>(?:click\[|search\[)?|\]</action>|You have clicked |\.\s(?!<)",
        r"\]?\nclick\[|click\[|search\[|\]",
        // Options and prices of an instruction, clauses of an answer.
        r", and price lower than |\.00 dollars|, and |;| -",
        &format!(r"\b(?:{name}): "),
        r"\s\$\p{N}+",
        // A product's number.
        &format!(r"\b[Ll][Ww]{number}(?={number}{{7}}\b)"),
        &after(".", "1"),
        &after("..", "1"),
        &after("...", "4"),
        &after(".......", "1"),
    ]
    .join("|")
}

impl Splitting {
    fn pre_tokenizer(self, names: &[&str]) -> Result<PreTokenizerWrapper, String> {
        let isolate = |pattern: String| {
            let pattern = SplitPattern::Regex(pattern);
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| error.to_string())?;
            let bytes = ByteLevel::new(false, false, false);
            Ok::<_, String>(vec![
                PreTokenizerWrapper::Split(split),
                PreTokenizerWrapper::ByteLevel(bytes),
            ])
        };
        let sequence = match self {
            Self::Words => vec![
                PreTokenizerWrapper::Digits(Digits::new(true)),
                PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, false, true)),
            ],
            Self::Phrases => isolate(r"\p{N}+|[^\p{N}]+".to_owned())?,
            Self::Commands | Self::Items if names.is_empty() => isolate(NUMBER.to_owned())?,
            Self::Items => isolate(format!(r" ?\b(?:{})\b|{NUMBER}", names.join("|")))?,
            Self::Commands => {
                let names = names.join("|");
                let first_half = r"'[a-z][a-z ]*\p{N}+(?:'\n?)?";
                let second_half = format!(r" (?:from|to|with|in/on) (?:{names}) \p{{N}}+'\n?");
                isolate(format!(r"{first_half}|{second_half}| ?\b(?:{names})\b|{NUMBER}"))?
            }
            Self::Pages => isolate(page_marks())?,
            Self::Clauses => {
                let marks = r",.:;()\[\]\n\t";
                isolate(format!(r"\p{{N}}+|[{marks}]+ ?|[^\p{{N}}{marks}]+"))?
            }
        };
        Ok(PreTokenizerWrapper::Sequence(Sequence::new(sequence)))
    }
}

/// [`train_bpe_with`] merges that stay inside words.
pub fn train_bpe(
    texts: &[impl AsRef<str> + Sync],
    vocab_size: usize,
    special: &[SpecialToken],
) -> Result<Vec<u8>, LmError> {
    train_bpe_with(texts, vocab_size, special, Splitting::Words)
}

/// Trains a byte-level BPE on `texts` and gives the content of its `tokenizer.json`. The special tokens come first, then
/// the 256 bytes, then merges until `vocab_size` tokens exist or the texts have no pair left that occurs twice. Every text can be encoded, and decodes to itself.
pub fn train_bpe_with(
    texts: &[impl AsRef<str> + Sync],
    vocab_size: usize,
    special: &[SpecialToken],
    splitting: Splitting,
) -> Result<Vec<u8>, LmError> {
    let wrong = |problem: String| LmError::Tokenizer { path: new_path(), problem };
    let least = 256 + special.len();
    if vocab_size < least {
        return Err(wrong(format!(
            "a vocabulary of {vocab_size} cannot hold the 256 bytes and {} special tokens; ask for at least {least}",
            special.len()
        )));
    }
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    let names = match splitting {
        Splitting::Commands => names(texts).into_iter().collect(),
        Splitting::Items => items(texts),
        Splitting::Words | Splitting::Phrases | Splitting::Pages | Splitting::Clauses => Vec::new(),
    };
    tokenizer.with_pre_tokenizer(Some(splitting.pre_tokenizer(&names).map_err(wrong)?));
    tokenizer.with_decoder(Some(DecoderWrapper::ByteLevel(ByteLevel::new(false, false, true))));
    let added = special
        .iter()
        .map(|token| AddedToken::from(token.content.clone(), token.special).normalized(false));
    let trainer = BpeTrainer::builder()
        .vocab_size(vocab_size)
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(added.collect())
        .build();
    let mut trainer = TrainerWrapper::BpeTrainer(trainer);
    // Names come before everything else: as if each stood in every text.
    let insisted: Vec<String> =
        names.iter().map(|name| format!(" {name}").repeat(texts.len())).collect();
    tokenizer
        .train(
            &mut trainer,
            texts.iter().map(AsRef::as_ref).chain(insisted.iter().map(String::as_str)),
        )
        .map_err(|error| wrong(format!("training failed: {error}")))?;
    let text = tokenizer.to_string(false).map_err(|error| wrong(error.to_string()))?;
    Ok(text.into_bytes())
}

/// The small files of a model with a tokenizer from [`train_bpe`] and [`chatml_tokens`]: the tokenizer, its
/// configuration, our ChatML template and where a response ends.
pub fn chatml_companions(tokenizer_json: Vec<u8>) -> Result<Companions, LmError> {
    let tokenizer = Tokenizer::from_json(&new_path(), &tokenizer_json)?;
    let id = |token: &str| {
        tokenizer.id(token).ok_or_else(|| LmError::Tokenizer {
            path: new_path(),
            problem: format!("`{token}` is not one of its tokens"),
        })
    };
    let (end_of_text, end_of_turn) = (id("<|endoftext|>")?, id("<|im_end|>")?);
    let tokenizer_config = json!({
        "add_bos_token": false,
        "bos_token": null,
        "clean_up_tokenization_spaces": false,
        "eos_token": "<|im_end|>",
        "model_max_length": 1_000_000,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": null,
    });
    let generation =
        json!({"eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text});
    let files = BTreeMap::from([
        ("chat_template.jinja".to_owned(), CHATML_TEMPLATE.as_bytes().to_vec()),
        ("generation_config.json".to_owned(), format!("{generation:#}\n").into_bytes()),
        ("tokenizer.json".to_owned(), tokenizer_json),
        ("tokenizer_config.json".to_owned(), format!("{tokenizer_config:#}\n").into_bytes()),
    ]);
    Ok(Companions { directory: PathBuf::new(), files })
}

fn new_path() -> PathBuf {
    Path::new("(new tokenizer)").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_items_of_a_list_are_single_tokens_wherever_they_stand() {
        let text =
            "You see a blue jay. Objects: [agent, blue jay, door to kitchen]. Do: [go OBJ, wait]";
        let json = train_bpe_with(&[text; 3], 600, &chatml_tokens(), Splitting::Items)
            .expect("it is trained");
        let tokenizer = Tokenizer::from_json(&new_path(), &json).expect("it loads");
        for name in [" blue jay", " door to kitchen"] {
            assert_eq!(tokenizer.encode(name).expect("it is text").len(), 1, "{name}");
        }
        let ids = tokenizer.encode(text).expect("it is text");
        assert_eq!(tokenizer.decode(&ids).expect("they are tokens"), text);
        let jay = tokenizer.encode(" blue jay").expect("it is text")[0];
        assert_eq!(ids.iter().filter(|&&id| id == jay).count(), 2);
        assert_eq!(items(&[text]), ["door to kitchen", "blue jay", "agent"]);
    }
}
