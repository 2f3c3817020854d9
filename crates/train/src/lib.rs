//! Training: Algorithm 1 as readable code, and everything that keeps a run from being lost.
//!
//! [`iteration`] is one explorer batch: locate, validate, refine. [`run`] repeats it, learns from the rows,
//! evaluates and saves. The loop knows methods, engines and environments by their traits alone. Nothing in it
//! depends on the clock or on how many threads there are, so a run that was killed and resumed ends in the same bytes.
#![forbid(unsafe_code)]

pub mod audit;
pub mod checkpoint;
pub mod diagnose;
pub mod error;
pub mod evaluate;
pub mod files;
pub mod inputs;
pub mod iteration;
mod meter;
pub mod queue;
pub mod references;
pub mod run;
pub mod run_log;
pub mod sft;
pub mod tasks;
pub mod tensorboard;

pub use error::TrainError;
pub use run::{Finish, Opening, Progress, Run, RunInputs};
