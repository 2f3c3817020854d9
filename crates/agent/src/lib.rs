//! An environment and a policy become trajectories.
//!
//! [`episode`] plays a batch of tasks in lockstep: at every turn all running episodes go through one batched call.
//! [`fork`] restores states in the middle of those episodes and plays both branches of every fork the same way.
//! [`score`] lets the teacher judge what came of it. Every dropped turn, episode or fork keeps its reason.
#![forbid(unsafe_code)]

pub mod episode;
pub mod fork;
pub mod parse;
mod player;
pub mod prompts;
pub mod score;
pub mod setup;

pub use episode::{Episode, Plan, Turn, play};
pub use fork::{BranchLog, ForkRun, run_forks};
pub use score::score_batch;
pub use setup::{Context, Setup};
