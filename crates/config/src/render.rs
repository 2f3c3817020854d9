//! A resolved configuration as TOML, each value with where it came from.

use std::collections::BTreeMap;

use toml::Value;

use crate::layers::{Origin, Resolved};
use crate::schema::Config;

/// One line of a rendered configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// `[section]`.
    Section(String),
    /// `key = value` and its origin.
    Value {
        /// The key inside its section.
        key: String,
        /// The value as TOML.
        value: String,
        /// Where it came from.
        origin: Origin,
    },
}

/// The configuration as plain TOML without comments; reading it back gives the same configuration.
pub fn to_toml(config: &Config) -> String {
    let mut text = String::new();
    let resolved = Resolved { config: config.clone(), origins: BTreeMap::new(), notes: Vec::new() };
    for line in lines(&resolved) {
        match line {
            Line::Section(name) => text.push_str(&format!("\n[{name}]\n")),
            Line::Value { key, value, .. } => text.push_str(&format!("{key} = {value}\n")),
        }
    }
    text
}

/// Every value in the schema's order: top-level values first, then the sections.
pub fn lines(resolved: &Resolved) -> Vec<Line> {
    let Ok(Value::Table(root)) = Value::try_from(&resolved.config) else {
        // A plain tree of numbers, strings and lists always becomes a table.
        return Vec::new();
    };
    let value_line = |path: String, key: &str, value: &Value| Line::Value {
        key: key.to_owned(),
        value: value.to_string(),
        origin: resolved.origin(&path),
    };
    let mut lines = Vec::new();
    for (key, value) in &root {
        if !value.is_table() {
            lines.push(value_line(key.clone(), key, value));
        }
    }
    for (section, value) in &root {
        if let Value::Table(table) = value {
            section_lines(section, table, &value_line, &mut lines);
        }
    }
    lines
}

/// A section's own values, then the sections inside it.
fn section_lines(
    section: &str,
    table: &toml::Table,
    value_line: &dyn Fn(String, &str, &Value) -> Line,
    lines: &mut Vec<Line>,
) {
    lines.push(Line::Section(section.to_owned()));
    for (key, value) in table.iter().filter(|(_, value)| !value.is_table()) {
        lines.push(value_line(format!("{section}.{key}"), key, value));
    }
    for (key, value) in table {
        if let Value::Table(inner) = value {
            section_lines(&format!("{section}.{key}"), inner, value_line, lines);
        }
    }
}
