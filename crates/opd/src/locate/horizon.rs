//! The gap-adaptive clock: the horizon grows as fast as the student closes its gap at the frontier.

use serde::{Deserialize, Serialize};

use super::Locate;
use super::support::median;
use crate::error::{InputError, OpdError};
use crate::methods::RunFacts;

/// The newest layout of [`HorizonState`] this build writes and reads.
pub const HORIZON_STATE_VERSION: u32 = 1;

/// All the clock remembers: `(K, e, G_entry)`. Serializable, so a resumed run goes on where it was.
///
/// Fields but the version have defaults, so that a newer layout can be read far enough to be refused.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HorizonState {
    /// Layout of this state.
    pub version: u32,
    /// The horizon `K`.
    #[serde(default)]
    pub depth: usize,
    /// The clock `e`: pace gathered at this depth, with the remainder of the last.
    #[serde(default)]
    pub elapsed: f64,
    /// The gap of the first valid batch at this depth, once there was one.
    #[serde(default)]
    pub entry_gap: Option<f64>,
}

/// What one batch did to the clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// The horizon the batch was measured at.
    pub depth: usize,
    /// Episodes that reached it with at least one content token.
    pub valid_episodes: usize,
    /// Their median competence `C`; `None` without valid episodes.
    pub competence: Option<f64>,
    /// The pace `v`; `None` once the clock has stopped at the deepest horizon.
    pub pace: Option<f64>,
    /// The horizon of the next batch.
    pub next_depth: usize,
}

/// The gap-adaptive clock.
#[derive(Debug, Clone, PartialEq)]
pub struct HorizonClock {
    locate: Locate,
    max_horizon: usize,
    state: HorizonState,
}

/// The clock's speed, `clip((G_entry + eps) / (1 - C + eps), min, max)` (eq. gap-adaptive-pace).
pub fn pace(entry_gap: f64, competence: f64, locate: &Locate) -> f64 {
    let ratio = (entry_gap + locate.epsilon) / (1.0 - competence + locate.epsilon);
    ratio.clamp(locate.pace_min, locate.pace_max)
}

impl HorizonClock {
    /// A clock at depth 1, for a section that was checked.
    pub fn new(locate: Locate, facts: &RunFacts) -> Self {
        let state = HorizonState {
            version: HORIZON_STATE_VERSION,
            depth: 1,
            elapsed: 0.0,
            entry_gap: None,
        };
        Self { max_horizon: locate.deepest(facts), locate, state }
    }

    /// The horizon of the next batch.
    pub fn depth(&self) -> usize {
        self.state.depth
    }

    /// What must be saved to go on later.
    pub fn state(&self) -> HorizonState {
        self.state
    }

    /// Goes on from a saved state.
    pub fn restore(&mut self, state: &HorizonState) -> Result<(), OpdError> {
        if state.version > HORIZON_STATE_VERSION {
            return Err(OpdError::NewerState {
                what: "horizon clock",
                found: state.version,
                supported: HORIZON_STATE_VERSION,
            });
        }
        let refuse = |message: String| Err(OpdError::State { message });
        if state.depth == 0 || state.depth > self.max_horizon {
            return refuse(format!("horizon {} is outside 1..={}", state.depth, self.max_horizon));
        }
        if !(state.elapsed.is_finite() && state.elapsed >= 0.0) {
            return refuse(format!("the clock stands at {}", state.elapsed));
        }
        if state.entry_gap.is_some_and(|gap| !(0.0..=1.0).contains(&gap)) {
            return refuse(format!("the entry gap is {:?}, outside 0..=1", state.entry_gap));
        }
        self.state = HorizonState { version: HORIZON_STATE_VERSION, ..*state };
        Ok(())
    }

    /// Advances by one explorer batch, given its valid episodes' competences (eq. gap-adaptive-pace).
    pub fn tick(&mut self, competences: &[f64]) -> Result<Tick, OpdError> {
        for (position, &value) in competences.iter().enumerate() {
            if !(0.0..=1.0).contains(&value) {
                let (what, expected) = ("competence", "between 0 and 1");
                return Err(InputError::OutOfRange { what, position, value, expected }.into());
            }
        }
        let depth = self.state.depth;
        let competence = median(competences);
        let running = depth < self.max_horizon;
        let pace = running.then(|| {
            competence.map_or(1.0, |competence| {
                let entry_gap = *self.state.entry_gap.get_or_insert(1.0 - competence);
                pace(entry_gap, competence, &self.locate)
            })
        });
        if let Some(pace) = pace {
            self.state.elapsed += pace;
            let residence = f64::from(self.locate.residence);
            if self.state.elapsed >= residence {
                self.state.elapsed -= residence;
                self.state.depth += 1;
                self.state.entry_gap = None;
            }
        }
        Ok(Tick {
            depth,
            valid_episodes: competences.len(),
            competence,
            pace,
            next_depth: self.state.depth,
        })
    }
}
