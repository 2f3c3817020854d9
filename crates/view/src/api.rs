//! The answers behind the page: a path in, JSON out. Paths name runs by id, never by file.

use std::path::PathBuf;

use lens_records::RunFolder;
use lens_report::compare::compare;
use lens_report::doctor::examine;
use lens_report::summary::{Summary, head};
use lens_report::{Run, list};
use serde::Serialize;

use crate::error::ViewError;

/// Episodes a search returns at most.
const SEARCH_LIMIT: usize = 500;

/// A run with the name its address has.
#[derive(Debug)]
pub struct Shown {
    /// The id in addresses: letters, digits, `-`, `_` and `.`.
    pub id: String,
    /// The run.
    pub run: Run,
}

/// The runs of a viewer.
#[derive(Debug)]
pub struct Library {
    roots: Vec<PathBuf>,
    shown: Vec<Shown>,
}

impl Library {
    /// Every run in or below the given folders.
    pub fn open(roots: Vec<PathBuf>) -> Self {
        let mut library = Self { roots, shown: Vec::new() };
        library.find();
        library
    }

    /// The runs.
    pub fn runs(&self) -> &[Shown] {
        &self.shown
    }

    /// Adds runs that have appeared since; says whether there were any.
    pub fn find(&mut self) -> bool {
        let before = self.shown.len();
        let folders: Vec<RunFolder> =
            self.roots.iter().flat_map(|root| RunFolder::find(root, 4)).collect();
        for folder in folders {
            if self.shown.iter().all(|shown| shown.run.folder != folder) {
                let run = Run::load(folder);
                let id = self.free_id(&run);
                self.shown.push(Shown { id, run });
            }
        }
        self.shown.len() > before
    }

    /// Reads what the runs have written since; gives the ids of those that did.
    pub fn refresh(&mut self) -> Vec<String> {
        let mut changed = Vec::new();
        for shown in &mut self.shown {
            if shown.run.refresh() {
                changed.push(shown.id.clone());
            }
        }
        changed
    }

    fn free_id(&self, run: &Run) -> String {
        let seed = run.seed().map_or_else(String::new, |seed| format!("-{seed}"));
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let wanted: String = format!("{}{seed}", run.name()).chars().map(plain).collect();
        let taken = |id: &str| self.shown.iter().any(|shown| shown.id == id);
        let mut id = wanted.clone();
        let mut number = 2;
        while taken(&id) {
            id = format!("{wanted}.{number}");
            number += 1;
        }
        id
    }

    fn run(&self, id: &str) -> Result<&Run, ViewError> {
        let found = self.shown.iter().find(|shown| shown.id == id);
        found.map(|shown| &shown.run).ok_or_else(|| ViewError::Missing(format!("no run `{id}`")))
    }
}

/// One line of the list of runs.
#[derive(Serialize)]
struct Listed {
    id: String,
    #[serde(flatten)]
    head: lens_report::summary::Head,
    evals: Vec<lens_report::summary::SplitCurve>,
}

/// An answer, or the files it has to be read from. The latter is done without holding the library, so that a long
/// search does not keep other pages waiting.
#[derive(Debug)]
pub enum Answer {
    /// JSON.
    Ready(Vec<u8>),
    /// An episode of a run.
    Episode(RunFolder, u64, u64),
    /// A search in a run.
    Search(RunFolder, String),
}

impl Answer {
    /// Reads what has to be read.
    pub fn finish(self) -> Result<Vec<u8>, ViewError> {
        match self {
            Self::Ready(json) => Ok(json),
            Self::Search(folder, needle) => json(&list::search(&folder, &needle, SEARCH_LIMIT)),
            Self::Episode(folder, batch, episode) => {
                if !folder.episode_path(batch).is_file() {
                    return Err(ViewError::Missing(format!("there is no batch {batch}")));
                }
                let line = folder.episode(batch, episode)?;
                let missing =
                    || ViewError::Missing(format!("batch {batch} has no episode {episode}"));
                json(&line.ok_or_else(missing)?)
            }
        }
    }
}

/// Answers a path such as `runs`, `run/ID`, `run/ID/episodes`, `run/ID/episode/B/E`, `run/ID/doctor`, `run/ID/config` or
/// `compare`. `query` is the needle of `run/ID/search`.
pub fn answer(library: &Library, path: &str, query: &str) -> Result<Answer, ViewError> {
    let parts: Vec<&str> = path.split('/').collect();
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| ViewError::Question(format!("`{text}` is not a number")))
    };
    let ready = match parts.as_slice() {
        ["runs"] => json(&listed(library)),
        ["compare"] => json(&comparison(library)),
        ["run", id] => json(&Summary::new(library.run(id)?)),
        ["run", id, "config"] => json(&library.run(id)?.folder.config()?),
        ["run", id, "doctor"] => json(&examine(library.run(id)?)),
        ["run", id, "episodes"] => json(&list::episodes(library.run(id)?)),
        ["run", id, "search"] => {
            let folder = library.run(id)?.folder.clone();
            if query.is_empty() {
                return Err(ViewError::Question("nothing to search for".to_owned()));
            }
            return Ok(Answer::Search(folder, query.to_owned()));
        }
        ["run", id, "episode", batch, episode] => {
            let folder = library.run(id)?.folder.clone();
            return Ok(Answer::Episode(folder, number(batch)?, number(episode)?));
        }
        _ => Err(ViewError::Missing(format!("no page `{path}`"))),
    };
    ready.map(Answer::Ready)
}

fn listed(library: &Library) -> Vec<Listed> {
    let list = library.shown.iter().map(|shown| Listed {
        id: shown.id.clone(),
        head: head(&shown.run),
        evals: lens_report::summary::evals(&shown.run),
    });
    list.collect()
}

/// The comparison of all runs, with the groups' runs as ids.
fn comparison(library: &Library) -> serde_json::Value {
    let runs: Vec<&Run> = library.shown.iter().map(|shown| &shown.run).collect();
    let comparison = compare(&runs);
    let ids: Vec<&str> = library.shown.iter().map(|shown| shown.id.as_str()).collect();
    serde_json::json!({ "ids": ids, "comparison": comparison })
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, ViewError> {
    Ok(serde_json::to_vec(value)?)
}
