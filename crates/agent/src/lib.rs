//! An environment and a policy become trajectories.
//!
//! [`episode`] plays a batch of tasks in lockstep: at every turn all running episodes go through one batched call.
//! [`fork`] restores states in the middle of those episodes and plays both branches of every fork the same way.
//! [`score`] lets the teacher judge what came of it. Every dropped turn, episode or fork keeps its reason.
#![forbid(unsafe_code)]

mod action;
pub mod config;
pub mod episode;
pub mod fork;
pub mod parse;
mod player;
pub mod prompting;
pub mod prompts;
mod reply;
pub mod score;

pub use config::{Context, RolloutConfig};
pub use episode::{Episode, Plan, Turn, play};
pub use fork::{BranchLog, ForkConfig, ForkRun, PairLog, run_forks};
pub use prompting::Prompting;
pub use score::{Judged, score_batch};
