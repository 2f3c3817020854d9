//! The gap-adaptive clock: the horizon grows as fast as the student closes its gap at the frontier.

use serde::{Deserialize, Serialize};

use super::support::median;
use crate::error::{InputError, OpdError};

/// The newest layout of [`HorizonState`] this build writes and reads.
pub const HORIZON_STATE_VERSION: u32 = 1;

/// The clock's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HorizonParams {
    /// Nominal number of batches spent at each depth, `eta`.
    pub eta: u32,
    /// Guards the ratio of gaps.
    pub eps: f64,
    /// The slowest pace.
    pub pace_min: f64,
    /// The fastest pace.
    pub pace_max: f64,
    /// The deepest horizon, `K_max`.
    pub max_depth: usize,
}

/// All the clock remembers: `(K, e, G_entry)`. Serialisable, so a resumed run goes on where it was.
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
    params: HorizonParams,
    state: HorizonState,
}

/// The clock's speed, `clip((G_entry + eps) / (1 - C + eps), min, max)` (eq. gap-adaptive-pace).
pub fn pace(entry_gap: f64, competence: f64, params: &HorizonParams) -> f64 {
    let ratio = (entry_gap + params.eps) / (1.0 - competence + params.eps);
    ratio.clamp(params.pace_min, params.pace_max)
}

impl HorizonParams {
    /// Refuses constants with which the clock could not run.
    pub fn check(&self) -> Result<(), OpdError> {
        let bad = |key, value: String, expected| OpdError::Parameter { key, value, expected };
        if self.eta == 0 {
            return Err(bad("eta", self.eta.to_string(), "must be at least 1"));
        }
        if self.max_depth == 0 {
            return Err(bad("k_max", "0".to_owned(), "must be at least 1"));
        }
        if !(self.eps.is_finite() && self.eps > 0.0) {
            return Err(bad("eps", self.eps.to_string(), "must be positive"));
        }
        if !(self.pace_min > 0.0 && self.pace_min <= self.pace_max) {
            return Err(bad("pace_min", self.pace_min.to_string(), "must be in (0, pace_max]"));
        }
        // One advance per batch at most: the remainder would otherwise pile up.
        if !(self.pace_max.is_finite() && self.pace_max <= f64::from(self.eta)) {
            return Err(bad("pace_max", self.pace_max.to_string(), "must be at most eta"));
        }
        Ok(())
    }
}

impl HorizonClock {
    /// A clock at depth 1.
    pub fn new(params: HorizonParams) -> Result<Self, OpdError> {
        params.check()?;
        let state = HorizonState {
            version: HORIZON_STATE_VERSION,
            depth: 1,
            elapsed: 0.0,
            entry_gap: None,
        };
        Ok(Self { params, state })
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
        if state.depth == 0 || state.depth > self.params.max_depth {
            return refuse(format!(
                "horizon {} is outside 1..={}",
                state.depth, self.params.max_depth
            ));
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
        let running = depth < self.params.max_depth;
        let pace = running.then(|| {
            competence.map_or(1.0, |competence| {
                let entry_gap = *self.state.entry_gap.get_or_insert(1.0 - competence);
                pace(entry_gap, competence, &self.params)
            })
        });
        if let Some(pace) = pace {
            self.state.elapsed += pace;
            let eta = f64::from(self.params.eta);
            if self.state.elapsed >= eta {
                self.state.elapsed -= eta;
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
