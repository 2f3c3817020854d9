//! Layers: defaults, files, overrides; and the memory of where each value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use lens_opd::methods::MethodSections;
use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use crate::error::ConfigError;
use crate::read;
use crate::schema::{Config, section_schema};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The default in the source.
    Default,
    /// A file's line, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// A `--set` override.
    Override,
    /// What the benchmark of that name says about itself.
    Benchmark(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Override => f.write_str("--set"),
            Self::Benchmark(name) => write!(f, "default of {name}"),
        }
    }
}

/// A configuration ready for use, with the origin of each value that is not a default.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The typed configuration.
    pub config: Config,
    /// Dotted key to origin, for every value set by a file or an override.
    pub origins: BTreeMap<String, Origin>,
    /// What was understood although it is spelled as an earlier release spelled it.
    pub notes: Vec<String>,
}

/// What became of a key of an earlier release.
enum Retired {
    Renamed(&'static str),
    Gone(&'static str),
}

/// Keys of earlier releases, so that their files and run folders still load. A name without a dot is a section.
const RETIRED: &[(&str, Retired)] = &[
    ("tcod.growth", Retired::Renamed("tcod.residence")),
    ("validate.horizon", Retired::Renamed("validate.continuation_turns")),
    ("cluster", Retired::Gone("nothing reads it: servers are sized where they are started")),
];

fn retired(keys: &[String]) -> Option<&'static Retired> {
    let dotted = keys.join(".");
    let known = RETIRED.iter().find(|(key, _)| *key == dotted || *key == keys[0]);
    known.map(|(_, fate)| fate)
}

impl Resolved {
    /// Where the value of a dotted key came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }
}

/// Reads `files` in order, applies `overrides`, and checks the result.
pub fn resolve(files: &[PathBuf], overrides: &[String]) -> Result<Resolved, ConfigError> {
    let mut layers = Layers::new();
    for file in files {
        layers.add_file(file, &mut Vec::new())?;
    }
    layers.add_overrides(overrides)
}

/// The same for a configuration that is at hand as text, such as one built into a program; `name` is what errors call it.
/// What it includes is looked for beside `name`.
pub fn resolve_text(
    name: &Path,
    text: &str,
    overrides: &[String],
) -> Result<Resolved, ConfigError> {
    let mut layers = Layers::new();
    layers.add_text(name, text, &mut Vec::new())?;
    layers.add_overrides(overrides)
}

struct Layers {
    values: Table,
    origins: BTreeMap<String, Origin>,
    notes: Vec<String>,
    schema: Json,
    /// Files read so far, each as often as it was included.
    files: usize,
}

impl Layers {
    fn new() -> Self {
        Self {
            values: Table::new(),
            origins: BTreeMap::new(),
            notes: Vec::new(),
            schema: section_schema(),
            files: 0,
        }
    }

    fn add_overrides(mut self, overrides: &[String]) -> Result<Resolved, ConfigError> {
        for text in overrides {
            self.add_override(text)?;
        }
        self.finish()
    }

    fn add_file(&mut self, path: &Path, chain: &mut Vec<PathBuf>) -> Result<(), ConfigError> {
        let failed = |source| ConfigError::Read { path: path.to_owned(), source };
        let canonical = path.canonicalize().map_err(failed)?;
        if chain.contains(&canonical) {
            let chain: Vec<_> = chain.iter().map(|p| p.display().to_string()).collect();
            return Err(ConfigError::IncludeCycle {
                path: path.to_owned(),
                chain: chain.join(" -> "),
            });
        }
        // Files that each include the next one twice make no cycle, but double at every level.
        self.files += 1;
        if self.files > read::MOST_FILES {
            return Err(ConfigError::TooManyFiles {
                path: path.to_owned(),
                limit: read::MOST_FILES,
            });
        }
        chain.push(canonical);
        let text = read::text(path)?;
        self.add_text(path, &text, chain)?;
        chain.pop();
        Ok(())
    }

    fn add_text(
        &mut self,
        path: &Path,
        text: &str,
        chain: &mut Vec<PathBuf>,
    ) -> Result<(), ConfigError> {
        let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            message: error.message().to_owned(),
        })?;
        let mut table = table.into_inner();
        if let Some(include) = table.remove("include") {
            let bad = || ConfigError::BadInclude { path: path.to_owned() };
            let DeValue::Array(names) = include.into_inner() else { return Err(bad()) };
            for name in names {
                let DeValue::String(name) = name.into_inner() else { return Err(bad()) };
                let beside = path.parent().unwrap_or_else(|| Path::new("")).join(name.as_ref());
                self.add_file(&beside, chain)?;
            }
        }
        let at = |offset| Origin::File { path: path.to_owned(), line: line_of(text, offset) };
        let mut leaves = Vec::new();
        collect_leaves(&table, &mut Vec::new(), &mut leaves);
        for (keys, offset, value) in leaves {
            self.set(&keys, value, at(offset))?;
        }
        Ok(())
    }

    fn add_override(&mut self, text: &str) -> Result<(), ConfigError> {
        let bad = || ConfigError::BadOverride { text: text.to_owned() };
        let (key, value) = text.split_once('=').ok_or_else(bad)?;
        let keys: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if keys.iter().any(String::is_empty) {
            return Err(bad());
        }
        let value = value.trim();
        let parsed = toml::from_str::<Table>(&format!("value = {value}"))
            .ok()
            .and_then(|mut table| table.remove("value"))
            .unwrap_or_else(|| Value::String(value.to_owned()));
        match parsed {
            Value::Table(table) => {
                let mut flat = Vec::new();
                flatten(&table, &keys, &mut flat);
                for (keys, value) in flat {
                    self.set(&keys, value, Origin::Override)?;
                }
                Ok(())
            }
            value => self.set(&keys, value, Origin::Override),
        }
    }

    /// Puts one value at its place after checking that the schema has that place.
    fn set(&mut self, keys: &[String], value: Value, origin: Origin) -> Result<(), ConfigError> {
        let dotted = keys.join(".");
        match retired(keys) {
            Some(Retired::Renamed(key)) => {
                self.notes.push(format!("{origin}: `{dotted}` is now `{key}`"));
                let keys: Vec<String> = key.split('.').map(str::to_owned).collect();
                return self.set(&keys, value, origin);
            }
            Some(Retired::Gone(why)) => {
                self.notes.push(format!("{origin}: `{dotted}` is ignored; {why}"));
                return Ok(());
            }
            None => {}
        }
        let mut schema = &self.schema;
        for (depth, key) in keys.iter().enumerate() {
            let Some(next) = schema.get("properties").and_then(|properties| properties.get(key))
            else {
                let suggestion = suggest(&self.schema, schema, keys, depth);
                return Err(ConfigError::UnknownKey { origin, key: dotted, suggestion });
            };
            schema = next;
        }
        if schema.get("properties").is_some() {
            let message = "is a section, not a value; set one of the keys inside it".to_owned();
            return Err(ConfigError::BadValue { origin, key: dotted, message });
        }
        let (last, sections) = keys.split_last().expect("a key has at least one part");
        let mut table = &mut self.values;
        for section in sections {
            let entry = table.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
            table = entry.as_table_mut().expect("the schema says this is a section");
        }
        table.insert(last.clone(), value);
        self.origins.insert(dotted, origin);
        Ok(())
    }

    /// Fills in what follows from the benchmark and was not set.
    fn add_benchmark_defaults(&mut self) -> Result<(), ConfigError> {
        let task = self.values.get("task").and_then(Value::as_table);
        let named = task.and_then(|task| task.get("benchmark")).and_then(Value::as_str);
        // The default configuration is the default benchmark's already; an unknown one is refused by the check.
        let Some(profile) = named.and_then(|name| lens_env::registry::profile(name).ok()) else {
            return Ok(());
        };
        let text = |text: &str| Value::String(text.to_owned());
        let number = |number: usize| Value::Integer(number as i64);
        let splits = profile.eval_splits.iter().map(|split| text(split)).collect();
        for (key, value) in [
            ("task.train_split", text(&profile.train_split)),
            ("task.eval_splits", Value::Array(splits)),
            ("task.turn_limit", number(profile.turn_limit)),
            ("rollout.history", number(profile.history)),
            ("eval.history", number(profile.history)),
        ] {
            if !self.origins.contains_key(key) {
                let keys: Vec<String> = key.split('.').map(str::to_owned).collect();
                self.set(&keys, value, Origin::Benchmark(profile.name.to_string()))?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Resolved, ConfigError> {
        self.add_benchmark_defaults()?;
        let Self { values, origins, notes, .. } = self;
        let bad = |error: serde_path_to_error::Error<toml::de::Error>| {
            let key = error.path().to_string();
            // The path of an array element is `a.b[2]`; origins are kept for `a.b`.
            let holder = key.split('[').next().unwrap_or(&key).to_owned();
            ConfigError::BadValue {
                origin: origins.get(&holder).cloned().unwrap_or(Origin::Default),
                key,
                message: plain_words(error.inner().message()),
            }
        };
        // Sections that are flattened into the configuration lose their path in an error, so they are read once more.
        let sections = serde_json::to_value(MethodSections::default()).unwrap_or_default();
        let (flattened, _): (Table, Table) =
            values.clone().into_iter().partition(|(key, _)| sections.get(key).is_some());
        serde_path_to_error::deserialize::<_, MethodSections>(flattened).map_err(bad)?;
        let config: Config = serde_path_to_error::deserialize(values).map_err(bad)?;
        let resolved = Resolved { config, origins, notes };
        crate::check::check(&resolved)?;
        Ok(resolved)
    }
}

/// The reader's message in words a user knows: `u64` and `usize` are whole numbers, a variant is a value.
fn plain_words(message: &str) -> String {
    let line = message.lines().next().unwrap_or(message).trim();
    let mut text = line.replace("unknown variant", "unknown value");
    for (kind, words) in [
        ("expected usize", "expected a whole number, 0 or above"),
        ("expected u64", "expected a whole number, 0 or above"),
        ("expected u32", "expected a whole number, 0 or above"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected f32", "expected a number"),
        ("expected path string", "expected a path"),
    ] {
        text = text.replace(kind, words);
    }
    text
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count() + 1
}

type Leaf = (Vec<String>, usize, Value);

fn collect_leaves(table: &DeTable<'_>, path: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => collect_leaves(inner, path, leaves),
            _ => leaves.push((path.clone(), key.span().start, plain(value))),
        }
        path.pop();
    }
}

fn plain(value: &Spanned<DeValue<'_>>) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::String(number.as_str().to_owned()), Value::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Value::String(number.as_str().to_owned()), Value::Float),
        DeValue::Boolean(flag) => Value::Boolean(*flag),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(items) => Value::Array(items.iter().map(plain).collect()),
        DeValue::Table(inner) => Value::Table(
            inner.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value))).collect(),
        ),
    }
}

fn flatten(table: &Table, prefix: &[String], flat: &mut Vec<(Vec<String>, Value)>) {
    for (key, value) in table {
        let mut path = prefix.to_vec();
        path.push(key.clone());
        match value {
            Value::Table(inner) => flatten(inner, &path, flat),
            other => flat.push((path, other.clone())),
        }
    }
}

/// The nearest key that holds a value: first below the sibling nearest to the wrong part, then anywhere by the last
/// part's name or the whole path.
fn suggest(root: &Json, level: &Json, keys: &[String], depth: usize) -> Option<String> {
    let (dotted, wrong) = (keys.join("."), &keys[depth]);
    let near = |name: &str, wanted: &str| strsim::jaro_winkler(name, wanted);
    let siblings = level.get("properties").and_then(Json::as_object).into_iter().flatten();
    let best = siblings
        .map(|(name, inner)| (near(name, wrong), name, inner))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, ..)| *score > 0.8);
    if let Some((_, name, inner)) = best {
        let mut path = keys[..depth].to_vec();
        path.push(name.clone());
        let mut below = Vec::new();
        leaf_keys(inner, &mut path, &mut below);
        return below.into_iter().max_by(|a, b| near(a, &dotted).total_cmp(&near(b, &dotted)));
    }
    let mut all = Vec::new();
    leaf_keys(root, &mut Vec::new(), &mut all);
    all.into_iter()
        .map(|key| {
            let last = key.rsplit('.').next().unwrap_or(&key);
            (near(last, wrong).max(near(&key, &dotted)), key.clone())
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(score, _)| *score > 0.85)
        .map(|(_, key)| key)
}

/// Every dotted key of the schema that holds a value.
pub fn leaf_keys(schema: &Json, path: &mut Vec<String>, keys: &mut Vec<String>) {
    match schema.get("properties").and_then(Json::as_object) {
        Some(properties) => {
            for (name, inner) in properties {
                path.push(name.clone());
                leaf_keys(inner, path, keys);
                path.pop();
            }
        }
        None => keys.push(path.join(".")),
    }
}
