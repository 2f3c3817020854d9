//! The simulator's own solutions, kept on disk because some take minutes to find.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::benchmark::{Rules, SOLVER_PATIENCE};
use super::catalog::TaskType;
use super::episode::FIRST_ACTION;
use super::gateway::GatewayError;
use super::package::JAR_SHA256;
use super::pool::Pool;
use super::scoring;
use super::store;
use crate::environment::Status;
use crate::error::EnvError;

/// What the simulator's solver did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GoldPath {
    /// The solver's actions, all of them.
    pub actions: Vec<String>,
    /// The actions up to the one that completes the task in an episode played by the rules; `None` if they do not.
    pub solution: Option<Vec<String>>,
}

/// The cache of gold paths: one small file a task, named by the JAR, the simplifications, the task and the variation.
#[derive(Debug)]
pub struct GoldStore {
    folder: PathBuf,
}

impl GoldStore {
    /// The store inside a cache folder.
    pub fn new(cache: &Path, simplifications: &str) -> Self {
        let simplifications =
            if simplifications.is_empty() { "none" } else { simplifications }.replace(',', "+");
        let release = &JAR_SHA256[..12];
        Self { folder: cache.join("gold").join(format!("{release}-{simplifications}")) }
    }

    fn file(&self, kind: &TaskType, variation: i32) -> PathBuf {
        self.folder.join(kind.name).join(format!("{variation}.json"))
    }

    /// The path, if it is there. A file that cannot be understood counts as not there and will be written again.
    pub fn read(&self, kind: &TaskType, variation: i32) -> Result<Option<GoldPath>, EnvError> {
        let path = self.file(kind, variation);
        match fs::read(&path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EnvError::Read { path, source }),
        }
    }

    /// Keeps a path.
    pub fn write(&self, kind: &TaskType, variation: i32, path: &GoldPath) -> Result<(), EnvError> {
        let file = self.file(kind, variation);
        let bytes = serde_json::to_vec(path).map_err(|error| EnvError::Malformed {
            path: file.display().to_string(),
            line: None,
            message: error.to_string(),
        })?;
        store::write_whole(&file, &bytes)
    }
}

/// Has the simulator solve a task, and plays the solution by the rules.
pub(super) fn solve(
    pool: &Arc<Pool>,
    kind: &TaskType,
    variation: i32,
    rules: &Rules,
) -> Result<GoldPath, EnvError> {
    let name = kind.task(variation).id;
    let failed = |error: &GatewayError| EnvError::Backend {
        backend: "ScienceWorld",
        message: format!("{name}: no gold path: {error}"),
    };
    let mut seat = pool.seat()?;
    let world = seat.world();
    let host = Arc::clone(world.host());
    let solved = world.turn(|simulator| {
        simulator.gold_path(kind.name, variation, &rules.simplifications, SOLVER_PATIENCE)
    });
    let actions = match solved {
        Ok(Ok(actions)) => actions,
        Ok(Err(complaint)) => {
            return Err(EnvError::Backend { backend: "ScienceWorld", message: complaint });
        }
        Err(error) => {
            pool.failed(&host);
            return Err(failed(&error));
        }
    };
    // Played with the questions that an episode asks: they are what can make it come out differently.
    let played = world.turn(|simulator| {
        simulator.load(kind.name, variation, &rules.simplifications)?;
        simulator.forget_catalog()?;
        for (index, action) in
            std::iter::once(FIRST_ACTION).chain(actions.iter().map(String::as_str)).enumerate()
        {
            let (_, standing) = simulator.act(action)?;
            match scoring::status(standing, rules.move_limit) {
                Status::Running => {}
                Status::Ended { success } => return Ok(success.then_some(index)),
            }
            simulator.ask_valid_actions()?;
            simulator.objects()?;
        }
        Ok(None)
    });
    let solution = match played {
        Ok(length) => length.map(|length| actions[..length].to_vec()),
        Err(error) => {
            pool.failed(&host);
            return Err(failed(&error));
        }
    };
    Ok(GoldPath { actions, solution })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kept_apart_by_task_variation_and_simplifications() {
        let folder = tempfile::tempdir().unwrap();
        let easy = GoldStore::new(folder.path(), "easy");
        let boil = TaskType::find("boil").unwrap();
        let path = GoldPath { actions: vec!["wait".to_owned()], solution: None };
        easy.write(boil, 3, &path).unwrap();
        assert_eq!(easy.read(boil, 3).unwrap(), Some(path));
        assert_eq!(easy.read(boil, 4).unwrap(), None);
        assert_eq!(easy.read(TaskType::find("melt").unwrap(), 3).unwrap(), None);
        let plain = GoldStore::new(folder.path(), "");
        assert_eq!(plain.read(boil, 3).unwrap(), None);
    }

    #[test]
    fn a_file_cut_short_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = GoldStore::new(folder.path(), "easy");
        let boil = TaskType::find("boil").unwrap();
        let path = GoldPath { actions: vec!["wait".to_owned()], solution: None };
        store.write(boil, 0, &path).unwrap();
        fs::write(store.file(boil, 0), b"{\"actions\":[").unwrap();
        assert_eq!(store.read(boil, 0).unwrap(), None);
    }

    #[test]
    fn a_cache_that_cannot_be_written_says_what_to_set() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, b"").unwrap();
        let store = GoldStore::new(&blocked, "easy");
        let path = GoldPath { actions: Vec::new(), solution: None };
        let error = store.write(TaskType::find("boil").unwrap(), 0, &path).unwrap_err().to_string();
        assert!(error.contains("LENS_CACHE"), "{error}");
    }
}
