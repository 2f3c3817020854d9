//! What an episode is exposed to: how far it goes, what is replayed first, and who acts.

use serde::{Deserialize, Serialize};

use crate::episode::Actor;
use crate::random::{Purpose, StreamKey};

/// The place of an episode that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodeSlot {
    /// The explorer batch, from 1.
    pub batch: u64,
    /// Optimizer steps done when the batch starts.
    pub version: u64,
    /// The episode's key inside it.
    pub episode: u64,
    /// How many reference actions its task has, if it has any.
    pub reference_actions: Option<usize>,
}

/// Who acts during an episode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Always the student.
    Student,
    /// The teacher with probability `teacher_share`, drawn anew at every turn.
    Mixed {
        /// The teacher's probability.
        teacher_share: f64,
        /// The run's seed.
        seed: u64,
        /// The explorer batch.
        batch: u64,
        /// The episode's key inside it.
        episode: u64,
    },
}

/// How one episode is to be played.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Exposure {
    /// Turns at most, counted from reset, the replayed ones included.
    pub horizon: usize,
    /// Reference actions to replay first, without loss and without calling a model.
    pub prefix: usize,
    /// Who acts.
    pub control: Control,
}

impl Exposure {
    /// The student plays up to `horizon` turns from reset.
    pub fn student(horizon: usize) -> Self {
        Self { horizon, prefix: 0, control: Control::Student }
    }

    /// Who acts at turn `turn`. The answer depends on the turn alone, not on what was asked before.
    pub fn actor(&self, turn: usize) -> Actor {
        match self.control {
            Control::Student => Actor::Student,
            Control::Mixed { teacher_share, seed, batch, episode } => {
                let key = StreamKey::new(seed, batch, episode, Purpose::Control, turn as u32);
                if key.open().uniform() < teacher_share { Actor::Teacher } else { Actor::Student }
            }
        }
    }
}
