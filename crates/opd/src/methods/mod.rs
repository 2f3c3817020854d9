//! The methods: LENS-OPD, its baselines and its siblings, behind one trait.
//!
//! A training loop does not know which method it runs. For every explorer batch it asks the [`Driver`] how to play each
//! episode, lets the teacher score the result, hands it to [`Driver::locate`], runs the forks that come back, and gives
//! everything to [`Driver::refine`], whose rows go into the buffer.
//!
//! A new method is one file with a type that implements [`Method`], and one entry in the table below: its name, its title
//! and the configuration section that holds its parameters. The trait's defaults are plain OPD, so a method states only
//! what it does differently; the driver does what all methods need (order of batches, pairing of forks, records, saved
//! state).

mod driver;
pub mod exposure;
pub mod futurebridge;
pub mod guided;
pub mod iw_opd;
pub mod lens;
pub mod lens_plus;
pub mod opd;
pub mod record;
mod registry;
pub mod rows;
pub mod sod;
pub mod state;
pub mod tcod;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::Locate;
use crate::locate::horizon::Tick;
use crate::objective::plan::LossTerms;
use crate::refine::Refine;
use crate::validate::Validate;
use crate::validate::fork::{FinishedFork, ForkRequest};
use exposure::{EpisodeSlot, Exposure};
use record::ForkRecord;
use registry::methods;
use rows::{TrainRow, plain_rows};

pub use driver::{Driver, Refined};

methods! {
    /// LENS-OPD: locate, validate, refine.
    Lens = "lens", "LENS-OPD" => lens::Lens {
        /// Locate: how deep episodes go, and which turn is audited.
        locate: Locate,
        /// Validate: forks, hints and the gate.
        validate: Validate,
        /// Refine: internalization and token focus.
        refine: Refine,
    }
    /// LENS-OPD in which turns that no fork validated weigh as in SOD, and internalization weighs more.
    LensPlus = "lens-plus", "LENS+" => lens_plus::LensPlus {
        /// What LENS+ does differently from LENS-OPD.
        lens_plus: lens_plus::LensPlus,
    }
    /// Plain on-policy distillation over full episodes.
    Opd = "opd", "OPD" => opd::Opd {}
    /// TCOD with a horizon that grows from the first turn.
    TcodF2b = "tcod-f2b", "TCOD-F2B" => tcod::TcodF2b {
        /// TCOD's fixed clocks, also used by FutureBridge.
        tcod: tcod::Tcod,
    }
    /// TCOD with a replayed prefix that shrinks from the last turn.
    TcodB2f = "tcod-b2f", "TCOD-B2F" => tcod::TcodB2f {}
    /// Teacher turns mixed in with a decaying probability.
    Guided = "guided-opd", "Guided-OPD" => guided::GuidedOpd {
        /// Guided-OPD's decay of teacher control.
        guided: guided::Guided,
    }
    /// One validated teacher turn per episode as an extra row.
    Futurebridge = "futurebridge-opd", "FutureBridge-OPD" => futurebridge::FutureBridge {}
    /// Turns weighted by how much closer to the teacher the student was at its first turn.
    Sod = "sod", "SOD" => sod::StepwiseOpd {
        /// SOD's turn weights.
        sod: sod::Sod,
    }
    /// Tokens weighted by how much disagreement still lies ahead of them.
    IwOpd = "iw-opd", "IW-OPD" => iw_opd::ImportanceWeightedOpd {
        /// IW-OPD's token weights.
        iw_opd: iw_opd::IwOpd,
    }
}

/// What the teacher must be able to say about a token the student generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeacherDetail {
    /// Its log-probability.
    SampledLogProbs,
    /// Also the teacher's favorite token, and both models' log-probabilities of both favorites.
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

impl Needs {
    /// A student and a teacher that scores it: the least any method needs.
    pub const LEAST: Self = Self {
        teacher_detail: TeacherDetail::SampledLogProbs,
        reference_actions: false,
        teacher_acts: false,
        hints: false,
        forks: false,
        snapshot_targets: false,
    };
}

/// The facts of a run that methods depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts {
    /// The run's seed.
    pub seed: u64,
    /// The environment's limit of turns, `T_max`.
    pub max_turns: usize,
    /// Optimizer steps of the whole run.
    pub steps: u64,
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

/// A fork that was asked for, with its outcome.
pub type ForkPair<'a> = (&'a ForkRequest, &'a FinishedFork);

/// What a method makes of a batch and its finished forks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Supervised {
    /// The rows to train on.
    pub rows: Vec<TrainRow>,
    /// One record per fork.
    pub forks: Vec<ForkRecord>,
    /// What else the method wants logged, by name.
    pub measures: BTreeMap<&'static str, f64>,
}

/// A way to spend the teacher's supervision. The defaults are plain OPD.
pub trait Method: Send {
    /// What it needs.
    fn needs(&self) -> Needs {
        Needs::LEAST
    }

    /// How its kinds of rows are put together in the loss.
    fn terms(&self) -> LossTerms {
        LossTerms::default()
    }

    /// How its forks are judged; `None` for a method without forks.
    fn validation(&self) -> Option<&Validate> {
        None
    }

    /// Turns at most in explorer batch `batch` (from 1).
    fn horizon(&self, batch: u64) -> usize;

    /// How to play the episode in `slot`.
    fn exposure(&self, slot: &EpisodeSlot) -> Exposure {
        Exposure::student(self.horizon(slot.batch))
    }

    /// Takes in a scored batch: ticks the clock and says which forks to run. Changes nothing if it fails.
    fn locate(&mut self, batch: &ScoredBatch) -> Result<Located, OpdError> {
        Ok(Located { forks: Vec::new(), horizon: self.horizon(batch.number), tick: None })
    }

    /// Turns a batch and its finished forks, in the order they were asked for, into rows.
    fn refine(&self, batch: &ScoredBatch, _forks: &[ForkPair<'_>]) -> Result<Supervised, OpdError> {
        Ok(Supervised { rows: plain_rows(batch), ..Supervised::default() })
    }

    /// What must be saved to resume later, in any shape; the driver's part is saved by the driver.
    fn state(&self) -> serde_json::Value {
        serde_json::Value::Null
    }

    /// Resumes from what [`Method::state`] gave. Changes nothing if it fails.
    fn restore(&mut self, _state: &serde_json::Value) -> Result<(), OpdError> {
        Ok(())
    }
}
