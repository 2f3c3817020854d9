//! The methods: LENS-OPD and its baselines, behind one trait.
//!
//! A training loop does not know which method it runs. For every explorer batch it asks
//! [`Method::exposure`] how to play each episode, lets the teacher score the result, hands it to
//! [`Method::locate`], runs the forks that come back, and gives everything to [`Method::refine`],
//! whose rows go into the buffer. The curriculum's clock ticks once per batch, in `locate`.

mod common;
pub mod exposure;
pub mod futurebridge;
pub mod guided;
pub mod lens;
pub mod opd;
pub mod params;
pub mod record;
pub mod rows;
pub mod state;
pub mod tcod_b2f;
pub mod tcod_f2b;

use serde::{Deserialize, Serialize};

use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::horizon::Tick;
use crate::objective::plan::Terms;
use crate::validate::fork::{FinishedFork, ForkRequest};
use exposure::{Exposure, Slot};
use record::BatchRecord;
use rows::TrainRow;
use state::MethodState;

pub use params::{MethodKind, MethodParams};

/// What the teacher must be able to say about a token the student generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeacherDetail {
    /// Its log-probability.
    SampledLogProbs,
    /// Also the teacher's favourite token, and both models' log-probabilities of both favourites.
    TopTokens,
}

/// What a method needs beyond episodes and the run's loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a checklist of independent abilities")]
pub struct Needs {
    /// What the teacher says about each token.
    pub teacher_detail: TeacherDetail,
    /// Whether tasks should come with the actions of a successful episode.
    pub reference_actions: bool,
    /// Whether the teacher plays turns itself.
    pub teacher_acts: bool,
    /// Whether the teacher writes hints.
    pub hints: bool,
    /// Whether environments must be restored to run forks.
    pub forks: bool,
    /// Whether the snapshot's distributions under the hinted context are training targets.
    pub snapshot_targets: bool,
}

/// The facts of a run that methods depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The run's seed.
    pub seed: u64,
    /// The environment's limit of turns, `T_max`.
    pub max_turns: usize,
}

/// Locate's answer to a scored batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Located {
    /// The forks to run, by episode and turn.
    pub forks: Vec<ForkRequest>,
    /// The horizon the batch belonged to.
    pub horizon: usize,
    /// What the batch did to a gap-adaptive clock.
    pub tick: Option<Tick>,
}

/// Refine's answer to a batch and its finished forks.
#[derive(Debug, Clone, PartialEq)]
pub struct Refined {
    /// The rows to train on, by episode and turn; shuffle them before they are queued.
    pub rows: Vec<TrainRow>,
    /// What to log.
    pub record: BatchRecord,
}

/// A way to spend the teacher's supervision.
pub trait Method: Send {
    /// Which method it is.
    fn kind(&self) -> MethodKind;

    /// What it needs.
    fn needs(&self) -> Needs;

    /// How its kinds of rows are put together in the loss.
    fn terms(&self) -> Terms;

    /// How to play the episode in `slot`.
    fn exposure(&self, slot: &Slot) -> Exposure;

    /// Takes in a scored batch: ticks the clock and says which forks to run.
    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError>;

    /// Turns a batch and its finished forks into rows. Every fork asked for must be among `forks`,
    /// in any order.
    fn refine(
        &self,
        batch: &ScoredBatch,
        located: &Located,
        forks: &[FinishedFork],
    ) -> Result<Refined, OpdError>;

    /// What must be saved to go on later.
    fn state(&self) -> MethodState;

    /// Goes on from a saved state.
    fn restore(&mut self, state: &MethodState) -> Result<(), OpdError>;
}
