//! `docs/paper.md` names only what exists.
#![expect(clippy::disallowed_methods, reason = "the test reads the documentation it checks")]

use std::collections::BTreeSet;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

const LABELS: [&str; 12] = [
    "agent-opd",
    "frontier-soft-support",
    "gap-adaptive-pace",
    "top-kl-proposal",
    "gi-paired-branches",
    "future-validation-gate",
    "future-evaluator",
    "gi-distributions",
    "gi-objective",
    "confident-disagreement-components",
    "confident-disagreement-token-weight",
    "focused-opd",
];

const PARTS: [&str; 19] = [
    "Table 1",
    "Table 2",
    "Table 3",
    "Table 4",
    "Table 5",
    "Figure 1",
    "Figure 2a",
    "Figure 2b",
    "Figure 2c",
    "Figure 3a",
    "Figure 3b",
    "Figure 4a",
    "Figure 4b",
    "Figure 4c",
    "Figure 4d",
    "Figure 5",
    "Figure 6",
    "Figure 7",
    "Figure 8",
];

/// One row of a table, with the line it stands on.
struct Row {
    line: usize,
    name: String,
    code: String,
    test: String,
    command: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn index() -> String {
    read_to_string(root().join("docs/paper.md")).expect("docs/paper.md is there")
}

/// The rows of every table. A table's columns must end with code, test and command.
fn rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut header: Option<usize> = None;
    for (line, content) in (1..).zip(text.lines()) {
        if !content.starts_with('|') {
            header = None;
            continue;
        }
        let cells: Vec<&str> = content
            .trim()
            .trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim_matches([' ', '|']))
            .collect();
        let Some(width) = header else {
            assert!(
                cells.ends_with(&["code", "test", "command"]),
                "line {line}: a table ends with the columns code, test, command"
            );
            header = Some(cells.len());
            continue;
        };
        if cells.iter().all(|cell| cell.trim_matches('-').is_empty()) {
            continue;
        }
        assert_eq!(cells.len(), width, "line {line}: as many cells as the header has");
        let cell = |from_end: usize| cells[width - from_end].to_owned();
        rows.push(Row {
            line,
            name: cells[0].trim_matches('`').to_owned(),
            code: cell(3),
            test: cell(2),
            command: cell(1),
        });
    }
    rows
}

/// The names in a cell: `file::item` or `file`. `open` gives none.
fn names(line: usize, cell: &str) -> Vec<(String, Option<String>)> {
    if cell == "open" {
        return Vec::new();
    }
    cell.split(", ")
        .map(|name| {
            let inner = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
            let inner = inner
                .unwrap_or_else(|| panic!("line {line}: write `file::item` or open, not {name:?}"));
            match inner.split_once("::") {
                Some((file, item)) => (file.to_owned(), Some(item.to_owned())),
                None => (inner.to_owned(), None),
            }
        })
        .collect()
}

/// Whether a line of code declares `item`.
fn declares(line: &str, keywords: &[&str], item: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.any(|word| keywords.contains(&word)) && words.next() == Some(item)
}

/// The first line of documentation above the declaration of `item`.
fn first_doc_line(source: &str, keywords: &[&str], item: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| declares(line, keywords, item))?;
    let above = lines[..at].iter().rev();
    let head: Vec<&&str> =
        above.take_while(|line| line.starts_with("///") || line.starts_with("#[")).collect();
    Some(
        head.iter()
            .rev()
            .find(|line| line.starts_with("///"))
            .map_or_else(String::new, |l| (**l).to_owned()),
    )
}

const ITEMS: [&str; 7] = ["fn", "struct", "enum", "trait", "const", "type", "mod"];

#[test]
fn every_name_in_the_index_exists() {
    let rows = rows(&index());
    assert!(rows.len() > 60, "the index was not read: {} rows", rows.len());
    for row in rows {
        for (cell, keywords) in [(&row.code, ITEMS.as_slice()), (&row.test, &["fn"])] {
            for (file, item) in names(row.line, cell) {
                let source = read_to_string(root().join(&file))
                    .unwrap_or_else(|error| panic!("docs/paper.md:{}: {file}: {error}", row.line));
                let Some(item) = item else {
                    assert!(
                        Path::new(&file).extension().is_none_or(|e| e != "rs"),
                        "line {}: name an item of {file}",
                        row.line
                    );
                    continue;
                };
                // Sections of the configuration are declared inside a macro, by their name alone.
                let section = format!("{item} {{");
                let found = source
                    .lines()
                    .any(|line| declares(line, keywords, &item) || line.trim() == section);
                assert!(found, "docs/paper.md:{}: {file} has no {item}", row.line);
            }
        }
        assert!(!row.command.is_empty(), "docs/paper.md:{}: say open, or how to run it", row.line);
    }
}

#[test]
fn every_part_of_the_paper_is_in_the_index() {
    let names: BTreeSet<String> = rows(&index()).into_iter().map(|row| row.name).collect();
    for part in LABELS.iter().chain(&PARTS) {
        assert!(names.contains(*part), "docs/paper.md has no row for {part}");
    }
}

#[test]
fn every_formula_names_its_equation_first() {
    for row in rows(&index()).iter().filter(|row| LABELS.contains(&row.name.as_str())) {
        for (file, item) in names(row.line, &row.code) {
            let item = item.expect("equations are items");
            let source = read_to_string(root().join(&file)).expect("the file is there");
            let doc = first_doc_line(&source, &ITEMS, &item).expect("the item is there");
            let label = format!("eq. {}", row.name);
            assert!(
                doc.contains(&label),
                "{file}::{item} begins with {doc:?}, which lacks ({label})"
            );
        }
    }
}

#[test]
fn labels_in_the_code_are_the_papers() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = read_to_string(&path).expect("it can be read");
            for after in source.split("eq. ").skip(1) {
                let label: String =
                    after.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
                assert!(
                    LABELS.contains(&label.as_str()),
                    "{}: no equation {label:?}",
                    path.display()
                );
                seen.insert(label);
            }
        }
    }
    assert_eq!(seen.len(), LABELS.len(), "every equation is named somewhere in the code");
}
