//! One running episode.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::EnvError;
use crate::benchmark::Task;

/// What the agent may do now.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actions {
    /// Complete commands, in the environment's order (ALFWorld, WebShop).
    Commands(Vec<String>),
    /// Command templates and the objects to put into them, listed apart (ScienceWorld).
    Templates {
        /// Commands with `OBJ` holes.
        templates: Vec<String>,
        /// Names that fit the holes.
        objects: Vec<String>,
    },
    /// Any text: the environment does not list what it understands.
    Free,
}

/// The hole of a template.
const HOLE: &str = "OBJ";

impl Actions {
    /// Whether `action` is one of these. A listed command must be given to the letter. Words in a template's holes are
    /// not checked: environments list what is in view and understand more (what the agent carries, for one).
    pub fn admit(&self, action: &str) -> bool {
        let action = action.trim();
        match self {
            Self::Commands(commands) => commands.iter().any(|command| command == action),
            Self::Templates { templates, .. } => {
                templates.iter().any(|template| fits(template, action))
            }
            Self::Free => !action.is_empty(),
        }
    }
}

/// Whether `action` is `template` with words in its holes.
pub(crate) fn fits(template: &str, action: &str) -> bool {
    let Some((before, after)) = template.split_once(HOLE) else { return template == action };
    let Some(rest) = action.strip_prefix(before) else { return false };
    // A hole takes at least one character; the rest must fit after some end of it.
    rest.char_indices()
        .skip(1)
        .map(|(end, _)| end)
        .chain([rest.len()])
        .any(|end| !rest[..end].trim().is_empty() && fits(after, &rest[end..]))
}

/// Where the episode stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Status {
    /// The agent may act.
    Running,
    /// The environment ended the episode by itself.
    Ended {
        /// Whether the task counts as done by the benchmark's own criterion.
        success: bool,
    },
}

/// Everything an agent sees before it acts, and what the books need.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// What the agent is asked to do; the same text at every turn.
    pub task: String,
    /// The environment's latest text.
    pub observation: String,
    /// What may be done now.
    pub actions: Actions,
    /// Actions taken since reset, refused ones included.
    pub turn: usize,
    /// The benchmark's own score of the state reached (ALFWorld and WebShop 0 to 1, ScienceWorld 0 to 100 and below).
    pub score: f64,
    /// Whether the episode goes on.
    pub status: Status,
}

impl View {
    /// A hash of what the agent sees (observation and possible actions): equal views hash equal on every machine,
    /// so a restored state can be checked against the recorded one.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = Fnv::default();
        self.observation.hash(&mut hasher);
        self.actions.hash(&mut hasher);
        hasher.finish()
    }
}

/// FNV-1a: `std`'s default hasher is not promised to stay the same between releases.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn write_usize(&mut self, value: usize) {
        self.write(&(value as u64).to_le_bytes());
    }
}

/// A saved state. Cheap to clone; only the kind of environment that made it can read it.
#[derive(Clone)]
pub struct Snapshot {
    state: Arc<dyn Any + Send + Sync>,
}

impl Snapshot {
    /// Wraps an environment's own state.
    pub fn new<S: Any + Send + Sync>(state: S) -> Self {
        Self { state: Arc::new(state) }
    }

    /// The state, if it is of the type asked for.
    pub fn get<S: Any>(&self) -> Result<&S, EnvError> {
        self.state.downcast_ref().ok_or_else(|| {
            EnvError::Restore("the snapshot was made by another kind of environment".to_owned())
        })
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

/// One running episode of a benchmark.
pub trait Environment: Send {
    /// Starts `task` from its beginning.
    fn reset(&mut self, task: &Task) -> Result<View, EnvError>;

    /// Carries out one action and shows what came of it. Any string is allowed; the environment answers
    /// what it does not understand with its own text, and the turn counts. After the end nothing changes.
    fn step(&mut self, action: &str) -> Result<View, EnvError>;

    /// What the agent sees now, without acting.
    fn view(&self) -> Result<View, EnvError>;

    /// Saves the state.
    fn snapshot(&mut self) -> Result<Snapshot, EnvError>;

    /// Puts a saved state back, in this or another environment of the same benchmark, and shows it. Environments
    /// that restore by replaying check every step against what was seen the first time.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_commands_are_admitted_to_the_letter() {
        let actions = Actions::Commands(vec!["go to desk 1".to_owned()]);
        assert!(actions.admit("go to desk 1") && actions.admit(" go to desk 1\n"));
        assert!(
            !actions.admit("Go to desk 1") && !actions.admit("go to desk") && !actions.admit("")
        );
    }

    #[test]
    fn templates_admit_any_words_in_their_holes() {
        let templates = ["open OBJ", "move OBJ to OBJ", "look around"].map(str::to_owned).to_vec();
        let actions = Actions::Templates { templates, objects: vec!["door".to_owned()] };
        for good in ["open door", "open the red box", "move cup to cup to table", "look around"] {
            assert!(actions.admit(good), "{good}");
        }
        for bad in ["open", "open ", "opened door", "move cup", "move  to table", "look", ""] {
            assert!(!actions.admit(bad), "{bad}");
        }
    }

    #[test]
    fn free_text_is_anything_but_nothing() {
        assert!(Actions::Free.admit("hello") && !Actions::Free.admit("  "));
    }
}
