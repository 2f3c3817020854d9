//! What all sessions share: the benchmark, its tasks, the snapshots and the count of sessions.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lens_env::{Benchmark, EnvError, Profile, Snapshot, Task};

use crate::session::Episode;

/// The benchmark and what belongs to no single session.
pub struct Catalog {
    benchmark: Arc<dyn Benchmark>,
    splits: Vec<(String, Vec<Task>)>,
    turn_limit: Option<usize>,
    sessions: AtomicUsize,
    snapshots: Mutex<Snapshots>,
    max_snapshots: usize,
    last_id: AtomicU64,
}

#[derive(Default)]
struct Snapshots {
    by_id: HashMap<String, Saved>,
    oldest_first: VecDeque<String>,
}

/// A state in the middle of an episode.
#[derive(Clone)]
pub(crate) struct Saved {
    pub(crate) snapshot: Snapshot,
    pub(crate) episode: Episode,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("benchmark", &self.profile().name).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Lists the benchmark's tasks.
    pub fn new(
        benchmark: Arc<dyn Benchmark>,
        max_snapshots: usize,
        turn_limit: Option<usize>,
    ) -> Result<Self, EnvError> {
        let mut splits = Vec::new();
        for split in benchmark.splits() {
            // A split without tasks in this data is not offered.
            if split.tasks > 0 {
                let tasks = benchmark.tasks(&split.name)?;
                splits.push((split.name, tasks));
            }
        }
        Ok(Self {
            benchmark,
            splits,
            turn_limit,
            sessions: AtomicUsize::new(0),
            snapshots: Mutex::default(),
            max_snapshots: max_snapshots.max(1),
            last_id: AtomicU64::new(0),
        })
    }

    pub(crate) fn benchmark(&self) -> &Arc<dyn Benchmark> {
        &self.benchmark
    }

    pub(crate) fn profile(&self) -> &Profile {
        self.benchmark.profile()
    }

    pub(crate) fn turn_limit(&self) -> Option<usize> {
        self.turn_limit
    }

    pub(crate) fn splits(&self) -> &[(String, Vec<Task>)] {
        &self.splits
    }

    pub(crate) fn split(&self, name: &str) -> Option<&[Task]> {
        self.splits.iter().find(|(split, _)| split == name).map(|(_, tasks)| tasks.as_slice())
    }

    pub(crate) fn task(&self, id: &str) -> Option<&Task> {
        self.splits.iter().flat_map(|(_, tasks)| tasks).find(|task| task.id == id)
    }

    /// Sessions open now.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    /// Takes one of `most` places; the error is how many are taken.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Result<Place, usize> {
        let free = |open: usize| (open < most).then_some(open + 1);
        let taken = self.sessions.fetch_update(Ordering::AcqRel, Ordering::Acquire, free);
        taken.map(|_| Place(Arc::clone(self)))
    }

    /// Keeps a state and names it. Names are unique and never used again.
    pub(crate) fn save(&self, saved: Saved) -> String {
        let number = self.last_id.fetch_add(1, Ordering::Relaxed);
        let id = format!("s{number}");
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.by_id.insert(id.clone(), saved);
        snapshots.oldest_first.push_back(id.clone());
        if snapshots.oldest_first.len() > self.max_snapshots
            && let Some(oldest) = snapshots.oldest_first.pop_front()
        {
            snapshots.by_id.remove(&oldest);
        }
        id
    }

    pub(crate) fn saved(&self, id: &str) -> Option<Saved> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.by_id.get(id).cloned()
    }
}

/// A session's place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place(Arc<Catalog>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}
