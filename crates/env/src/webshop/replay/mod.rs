//! Recordings of the original engine, compared with this one.
//!
//! A recording is a file of JSON lines. What kind of recording it is shows in the keys of its lines, so files need no
//! particular names.

mod numbers;
mod pages;
mod shopping;
mod words;

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::shop::Shop;
use crate::error::EnvError;
use crate::files;

/// At most so many mismatches of a file are described; all are counted.
const MOST_DESCRIBED: usize = 20;

/// The shops that recordings are compared with.
#[derive(Debug, Clone)]
pub struct Replayer {
    /// With synthetic goals.
    pub synthetic: Arc<Shop>,
    /// With human goals, if the catalog has them.
    pub human: Option<Arc<Shop>>,
}

/// What came of comparing one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What the file holds: "pages", "rewards", "goals", ...
    pub kind: &'static str,
    /// How many answers were compared.
    pub compared: usize,
    /// How many differ.
    pub mismatches: usize,
    /// The first of those, described.
    pub described: Vec<String>,
}

/// One kind of recording.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    /// A line of this kind has all of these keys.
    keys: &'static [&'static str],
    compare: fn(&Replayer, &Value, &mut Checker) -> Option<()>,
}

/// The kinds, the more particular ones first.
const KINDS: [Kind; 13] = [
    Kind { name: "pages", keys: &["session", "mode", "steps"], compare: pages::transcript },
    Kind { name: "prompts", keys: &["session", "task", "turns"], compare: pages::prompts },
    Kind { name: "actions", keys: &["action", "name", "arg"], compare: pages::parsed_action },
    Kind { name: "rewards", keys: &["asin", "options", "reward"], compare: shopping::reward },
    Kind { name: "goals", keys: &["i", "asin", "instruction_text"], compare: shopping::goal },
    Kind { name: "prices", keys: &["asin", "price"], compare: shopping::price },
    Kind { name: "nouns", keys: &["name", "nouns"], compare: shopping::nouns },
    Kind { name: "searches", keys: &["q", "hits"], compare: shopping::search },
    Kind { name: "document lengths", keys: &["id", "n"], compare: shopping::document_length },
    Kind { name: "analyzer", keys: &["tokens"], compare: words::analyzed },
    Kind { name: "likeness", keys: &["a", "b", "s"], compare: words::likeness },
    Kind { name: "colors", keys: &["v", "out"], compare: words::color },
    Kind { name: "random numbers", keys: &["op", "seed", "out"], compare: numbers::draws },
];

/// Counts answers and describes those that differ.
#[derive(Debug, Default)]
struct Checker {
    report: Report,
    line: usize,
}

impl Checker {
    fn equal<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: impl Display,
        ours: &T,
        recorded: &T,
    ) {
        self.report.compared += 1;
        if ours != recorded {
            self.report.mismatches += 1;
            if self.report.described.len() < MOST_DESCRIBED {
                let line = self.line;
                self.report
                    .described
                    .push(format!("line {line}, {what}: ours {ours:?}, recorded {recorded:?}"));
            }
        }
    }
}

impl Replayer {
    /// Compares one file of recordings.
    pub fn compare(&self, path: &Path) -> Result<Report, EnvError> {
        let file = files::open(path)?;
        let malformed = |line: usize, message: String| EnvError::Malformed {
            path: path.display().to_string(),
            line: Some(line),
            message,
        };
        let mut checker = Checker::default();
        for text in files::lines(std::io::BufReader::new(file), path) {
            let (number, text) = text?;
            if text.trim().is_empty() {
                continue;
            }
            checker.line = number;
            let line: Value = serde_json::from_str(&text)
                .map_err(|error| malformed(number, error.to_string()))?;
            let kind = KINDS
                .iter()
                .find(|kind| kind.keys.iter().all(|key| line.get(key).is_some()))
                .ok_or_else(|| {
                    malformed(number, "its keys belong to no known kind of recording".to_owned())
                })?;
            checker.report.kind = kind.name;
            (kind.compare)(self, &line, &mut checker).ok_or_else(|| {
                malformed(
                    number,
                    format!("not a recording of {} of this catalog: a value is missing or of the wrong type, or the catalog lacks what it is about", kind.name),
                )
            })?;
        }
        Ok(checker.report)
    }
}

/// A list of texts.
fn texts(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// A number that fits an index.
fn index(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}
