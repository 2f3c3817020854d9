//! What an audit has found so far, one line per fork, so that it can be resumed.

use std::path::{Path, PathBuf};

use lens_records::audit::{AfterLine, AuditLine, AuditSettings};
use lens_train::files::write_atomically;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// A line that belongs to one fork.
pub(super) trait Keyed: Serialize + DeserializeOwned {
    /// Episode and turn.
    fn key(&self) -> (u64, u64);
}

impl Keyed for AuditLine {
    fn key(&self) -> (u64, u64) {
        (self.episode, self.turn)
    }
}

impl Keyed for AfterLine {
    fn key(&self) -> (u64, u64) {
        (self.episode, self.turn)
    }
}

/// The lines of an audit, on disk after every addition.
pub(super) struct AuditFile<L> {
    path: PathBuf,
    text: String,
    lines: Vec<L>,
}

impl<L: Keyed> AuditFile<L> {
    /// Opens a file, or begins one. A file of other settings is refused; a last line that was cut off is left out.
    pub(super) fn open(path: &Path, settings: &AuditSettings) -> Result<Self, Failure> {
        let first = json(settings)?;
        let mut file =
            Self { path: path.to_owned(), text: format!("{first}\n"), lines: Vec::new() };
        let found = match std::fs::read_to_string(path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(file),
            // A file that is there and cannot be read must not be written over.
            Err(error) => return Err(error.into()),
        };
        let mut lines = found.lines().enumerate();
        let began = lines.next().and_then(|(_, line)| serde_json::from_str(line).ok());
        if began.as_ref() != Some(settings) {
            return Err(Failure::user_with_hint(
                format!("{} belongs to an audit with other settings", path.display()),
                "choose another folder with --out DIR, or remove the file",
            ));
        }
        let last = found.lines().count() - 1;
        for (index, line) in lines {
            let read = match serde_json::from_str(line) {
                Ok(read) => read,
                Err(_) if index == last => break,
                Err(error) => {
                    return Err(Failure::user_with_hint(
                        format!("{}, line {}: {error}", path.display(), index + 1),
                        "remove the line, and its fork is audited again",
                    ));
                }
            };
            file.lines.push(read);
            file.text.push_str(line);
            file.text.push('\n');
        }
        Ok(file)
    }

    /// Whether a fork is done.
    pub(super) fn holds(&self, key: (u64, u64)) -> bool {
        self.lines.iter().any(|line| line.key() == key)
    }

    /// Adds lines and saves them.
    pub(super) fn add(&mut self, lines: Vec<L>) -> Result<(), Failure> {
        for line in lines {
            self.text.push_str(&json(&line)?);
            self.text.push('\n');
            self.lines.push(line);
        }
        Ok(write_atomically(&self.path, self.text.as_bytes())?)
    }

    /// The lines, by episode and turn.
    pub(super) fn into_lines(mut self) -> Vec<L> {
        self.lines.sort_by_key(Keyed::key);
        self.lines
    }
}

fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::Runtime(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_records::audit::GateSettings;

    fn settings(seed: u64) -> AuditSettings {
        AuditSettings {
            format: 2,
            student: "student".to_owned(),
            configuration: "hash".to_owned(),
            inputs: "another".to_owned(),
            seed,
            forks: 1,
            episodes: 0,
            continuations: 2,
            pairs: 4,
            turns: [3, 8],
            gate: GateSettings {
                evaluator: "teacher-likelihood".to_owned(),
                coupling: "independent".to_owned(),
                pairs: 1,
                margin: 0.0,
                outcome_first: false,
            },
        }
    }

    #[test]
    fn an_audit_goes_on_after_a_line_that_was_cut_off_and_never_with_other_settings() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("audit.jsonl");
        let line = |turn| AfterLine { format: 2, episode: 1, turn, truth: vec![(false, true)] };
        let mut file = AuditFile::open(&path, &settings(1)).expect("new");
        file.add(vec![line(0), line(3)]).expect("written");
        let mut text = std::fs::read_to_string(&path).expect("there");
        text.push_str("{\"format\":2,\"epis");
        std::fs::write(&path, &text).expect("written");
        let mut file: AuditFile<AfterLine> = AuditFile::open(&path, &settings(1)).expect("resumed");
        assert!(file.holds((1, 0)) && file.holds((1, 3)) && !file.holds((1, 4)));
        file.add(vec![line(2)]).expect("written");
        let file: AuditFile<AfterLine> = AuditFile::open(&path, &settings(1)).expect("resumed");
        let turns: Vec<u64> = file.into_lines().iter().map(|line| line.turn).collect();
        assert_eq!(turns, [0, 2, 3]);
        let damaged = text.replacen("\"turn\":0", "\"turn\":", 1);
        std::fs::write(&path, damaged).expect("written");
        let error = AuditFile::<AfterLine>::open(&path, &settings(1)).err().expect("refused");
        assert!(format!("{error:?}").contains("line 2"), "{error:?}");
        let other = AuditFile::<AfterLine>::open(&path, &settings(2));
        assert!(other.is_err(), "another seed");
    }
}
