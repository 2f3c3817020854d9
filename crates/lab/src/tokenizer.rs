//! The tokenizer of a build, and the record of what it was made from.
//!
//! Every model of a build shares the tokenizer, so a build into a folder that has one uses it. That is only right if it
//! was made from the same samples: `tokenizer-origin.json` beside it says so.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use lens_env::Profile;
use lens_lm::tokenizer::{Splitting, chatml_tokens, train_bpe_with};
use lens_opd::random::{Purpose, StreamKey};
use lens_train::files::write_atomically;
use serde::{Deserialize, Serialize};

use crate::corpus::{Corpus, Sample, SampleKind};
use crate::error::LabError;
use crate::habits::{Turn, reworded};
use crate::recipe::{Recipe, Tasks, Tokenizer};

/// The file with the tokenizer, and the file with the record.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The record of what the tokenizer was made from.
pub const ORIGIN_FILE: &str = "tokenizer-origin.json";

/// What a tokenizer was made from: the parts of a recipe that decide its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizerOrigin {
    /// The benchmark.
    pub benchmark: String,
    /// The seed of the draws.
    pub seed: u64,
    /// The demonstrated tasks.
    pub tasks: Tasks,
    /// The samples they gave.
    pub corpus: Corpus,
    /// The size of the vocabulary and of the sample it was trained on.
    pub tokenizer: Tokenizer,
}

impl TokenizerOrigin {
    /// What a tokenizer of this recipe and seed is made from.
    pub fn new(recipe: &Recipe, seed: u64) -> Self {
        Self {
            benchmark: recipe.benchmark.clone(),
            seed,
            tasks: recipe.tasks.clone(),
            corpus: recipe.corpus,
            tokenizer: recipe.tokenizer,
        }
    }

    /// How another origin differs from this one, key by key.
    fn differences(&self, other: &Self) -> Vec<String> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        leaves(&serde_json::to_value(self).unwrap_or_default(), "", &mut left);
        leaves(&serde_json::to_value(other).unwrap_or_default(), "", &mut right);
        let added = right.iter().filter(|(key, _)| !left.iter().any(|(name, _)| name == key));
        let keys = left.iter().chain(added).map(|(key, _)| key.as_str());
        let value = |leaves: &[(String, serde_json::Value)], key: &str| {
            let found = leaves.iter().find(|(name, _)| name == key);
            found.map_or_else(|| "unset".to_owned(), |(_, value)| value.to_string())
        };
        keys.map(|key| (key, value(&left, key), value(&right, key)))
            .filter(|(_, left, right)| left != right)
            .map(|(key, left, right)| format!("{key} = {left} instead of {right}"))
            .collect()
    }
}

/// The dotted keys of a value with their values; lists are values.
fn leaves(value: &serde_json::Value, key: &str, found: &mut Vec<(String, serde_json::Value)>) {
    let Some(object) = value.as_object() else {
        found.push((key.to_owned(), value.clone()));
        return;
    };
    for (name, value) in object {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        leaves(value, &key, found);
    }
}

/// ALFWorld numbers every object ("cup 1"), so object names can be recognized and kept as single tokens. ScienceWorld's
/// prompts list them. WebShop's pages are split at the marks of their buttons, other texts at punctuation.
pub fn splitting(profile: &Profile) -> Splitting {
    if profile.laboratory.numbered_names {
        Splitting::Commands
    } else if profile.laboratory.marked_pages {
        Splitting::Pages
    } else if profile.prompt.template.contains("{objects}") {
        Splitting::Items
    } else {
        Splitting::Clauses
    }
}

/// Trains a tokenizer on a part of the samples and of the turns, and returns its `tokenizer.json`.
///
/// Phrases of the prompts become tokens, so that prompts are short. Answers are shown word by word: a token of an answer
/// is at most a word, unless a prompt has the same phrase, so that a response consists of many small decisions.
pub fn train(
    samples: &[Sample],
    turns: &[Turn],
    settings: Tokenizer,
    splitting: Splitting,
) -> Result<Vec<u8>, LabError> {
    let critiques: HashSet<&str> = samples
        .iter()
        .filter(|one| one.kind == SampleKind::Critique)
        .map(|one| one.answer.as_str())
        .collect();
    let mut texts = Vec::new();
    // Corrupted demonstrations have no words of their own.
    let samples: Vec<_> = samples.iter().filter(|one| one.kind != SampleKind::Corrupted).collect();
    for sample in samples.iter().step_by(stride(samples.len(), settings)) {
        // The critique in a prompt is an answer.
        let prompt = sample.message.split("\n\n").filter(|part| !critiques.contains(part));
        texts.push(prompt.collect::<Vec<_>>().join("\n\n"));
        texts.push(apart(&sample.answer, splitting));
    }
    let mut draws = StreamKey::new(0, 0, 0, Purpose::Data, 7).open();
    for turn in turns.iter().step_by(stride(turns.len(), settings)) {
        for decision in std::iter::once(&turn.right).chain(turn.lapses.all()) {
            let thought = reworded(&decision.thought, turn.rewordings, 1.0, &mut draws);
            texts.push(apart(&thought, splitting));
            texts.push(apart(&decision.thought, splitting));
        }
    }
    Ok(train_bpe_with(&texts, settings.vocab_size, &chatml_tokens(), splitting)?)
}

/// A text whose words no token can join: numbers end tokens, and brackets those of pages.
fn apart(text: &str, splitting: Splitting) -> String {
    match splitting {
        // So often that words of answers become tokens before parts of the phrases of pages do.
        Splitting::Pages => format!("{}]", words(text).join("]")).repeat(30),
        _ => words(text).join("0"),
    }
}

fn stride(count: usize, settings: Tokenizer) -> usize {
    (count / settings.samples.max(1)).max(1)
}

/// The words of a text, each with the space before it; marks and tags stand alone.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for one in text.chars() {
        let starts = matches!(one, ' ' | '<' | ';' | ',' | '.' | ':') && before != ' ';
        match words.last_mut() {
            Some(word) if !(starts || one == ' ' || before == '>') => word.push(one),
            _ => words.push(one.to_string()),
        }
        before = one;
    }
    words
}

/// The tokenizer of `folder` if it was made from `origin`; otherwise, if there is none, what `train` makes.
pub fn reuse_or_train(
    folder: &Path,
    origin: &TokenizerOrigin,
    train: impl FnOnce() -> Result<Vec<u8>, LabError>,
) -> Result<Vec<u8>, LabError> {
    let (path, record) = (folder.join(TOKENIZER_FILE), folder.join(ORIGIN_FILE));
    match std::fs::read(&path) {
        Ok(tokenizer) => {
            let recorded = read_origin(&path, &record)?;
            if recorded == *origin {
                return Ok(tokenizer);
            }
            Err(LabError::TokenizerOther { path, differences: recorded.differences(origin) })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let tokenizer = train()?;
            // The record first: an interruption between the two must not leave a tokenizer without one.
            let text = serde_json::to_vec_pretty(origin).map_err(std::io::Error::from);
            let text = text.map_err(|source| LabError::TokenizerUnknown {
                path: path.clone(),
                record: record.clone(),
                source,
            })?;
            write_atomically(&record, &text)?;
            write_atomically(&path, &tokenizer)?;
            Ok(tokenizer)
        }
        Err(source) => Err(LabError::TokenizerUnknown { path, record, source }),
    }
}

fn read_origin(path: &Path, record: &Path) -> Result<TokenizerOrigin, LabError> {
    let unknown = |source| LabError::TokenizerUnknown {
        path: PathBuf::from(path),
        record: PathBuf::from(record),
        source,
    };
    let text = std::fs::read(record).map_err(unknown)?;
    serde_json::from_slice(&text).map_err(|error| unknown(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_into_words_marks_and_tags() {
        let text = "I need cup 1; so I go. <action>go to bed 1</action>";
        let cut = words(text);
        assert_eq!(cut.concat(), text);
        let expected = [
            "I",
            " need",
            " cup",
            " 1",
            ";",
            " so",
            " I",
            " go",
            ".",
            " <action>",
            "go",
            " to",
            " bed",
            " 1",
            "</action>",
        ];
        assert_eq!(cut, expected);
    }

    fn origin(seed: u64) -> TokenizerOrigin {
        TokenizerOrigin::new(&Recipe::shipped("alfworld").expect("it is shipped"), seed)
    }

    #[test]
    fn a_tokenizer_is_reused_only_for_what_it_was_made_from() {
        let folder = tempfile::tempdir().expect("a folder");
        let get = |origin: &TokenizerOrigin, text: &str| {
            reuse_or_train(folder.path(), origin, || Ok(text.as_bytes().to_vec()))
        };
        assert_eq!(get(&origin(1), "first").expect("it is made"), b"first");
        assert_eq!(get(&origin(1), "second").expect("it is reused"), b"first");
        let mut other = origin(2);
        other.corpus.critique = 0.25;
        // A key that one side leaves out.
        other.corpus.history = Some(1);
        let error = get(&other, "third").expect_err("another seed and corpus");
        let message = error.to_string();
        assert!(message.contains("seed = 1 instead of 2"), "{message}");
        assert!(message.contains("corpus.critique = 0.6 instead of 0.25"), "{message}");
        assert!(message.contains("corpus.history = unset instead of 1"), "{message}");
        assert!(!message.contains("corpus.turn_limit"), "{message}");
        assert!(error.hint().expect("advice").contains("--out"));
        // A stage's steps do not change the samples, so they do not change the tokenizer.
        let mut recipe = Recipe::shipped("alfworld").expect("it is shipped");
        recipe.set_steps(7);
        assert_eq!(get(&TokenizerOrigin::new(&recipe, 1), "fourth").expect("reused"), b"first");
    }

    #[test]
    fn a_tokenizer_without_a_record_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join(TOKENIZER_FILE), "{}").expect("it is written");
        let result = reuse_or_train(folder.path(), &origin(1), || unreachable!("there is one"));
        let error = result.expect_err("nothing says what it was made from");
        assert!(error.to_string().contains(ORIGIN_FILE), "{error}");
        std::fs::write(folder.path().join(ORIGIN_FILE), "{\"seed\": 1}").expect("it is written");
        let result = reuse_or_train(folder.path(), &origin(1), || unreachable!("there is one"));
        assert!(matches!(result, Err(LabError::TokenizerUnknown { .. })));
    }
}
