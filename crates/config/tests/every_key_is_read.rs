//! Every key of the schema is read by code that acts on it: a key that only its own check looks at is noise.

use std::path::{Path, PathBuf};

use lens_config::layers::leaf_keys;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("sources are there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The text without tests and without the bodies of `fn check...`.
fn acting(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("fn check") {
        kept.push_str(&rest[..start]);
        let mut depth = 0_i32;
        let end = rest[start..].char_indices().find(|&(_, letter)| {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            letter == '}' && depth == 0
        });
        rest = &rest[start + end.map_or(rest.len() - start, |(place, _)| place + 1)..];
    }
    kept + rest
}

/// The text without string literals, in which keys are only named.
fn unquoted(text: &str) -> String {
    text.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}

/// Whether the text reads the key of a section: `section.key`, `self.key` or `options.key` where a section is at home, or the key
/// in a pattern that takes a section apart.
fn reads(text: &str, section: &str, key: &str) -> bool {
    let word = |letter: Option<char>| letter.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(key).any(|(place, _)| {
        let (before, after) = (&text[..place], &text[place + key.len()..]);
        if word(before.chars().next_back()) || word(after.chars().next()) || after.starts_with('(')
        {
            return false;
        }
        let field = before.strip_suffix('.').is_some_and(|owner| {
            ["self", "options", section].iter().any(|one| owner.ends_with(one))
        });
        let line_end = after.find('\n').unwrap_or(after.len());
        field || (after.starts_with(',') && after[..line_end].contains(".. } = "))
    })
}

#[test]
fn no_key_is_accepted_and_ignored() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("beside the others");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).expect("the crates are there").flatten() {
        let source = entry.path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let texts: Vec<String> = files
        .iter()
        .filter(|path| !path.starts_with(crates.join("config")))
        .map(|path| acting(&unquoted(&std::fs::read_to_string(path).expect("readable"))))
        .collect();
    let mut keys = Vec::new();
    leaf_keys(&lens_config::schema::json_schema(), &mut Vec::new(), &mut keys);
    assert!(keys.len() > 60, "only {} keys", keys.len());
    let unread: Vec<&String> = keys
        .iter()
        .filter(|key| *key != "include")
        .filter(|key| {
            let (section, name) = key.split_once('.').unwrap_or(("config", key));
            !texts.iter().any(|text| reads(text, section, name))
        })
        .collect();
    assert!(unread.is_empty(), "no code acts on {unread:?}");
}

#[test]
fn a_key_that_only_its_check_reads_would_be_found() {
    let text = "fn check(&self) { self.unused > 0 } fn run(&self) { self.used(); part.used }";
    assert!(!reads(&acting(text), "part", "unused"));
    assert!(reads(&acting(text), "part", "used"));
    assert!(!reads(&acting(text), "other", "used"));
    assert!(!reads("Section { unused: 3 }", "section", "unused"));
    assert!(reads("let Section { used, .. } = *section;", "section", "used"));
    assert!(!reads(&unquoted("map(\"section.unused\")"), "section", "unused"));
}
