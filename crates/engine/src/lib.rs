//! What the method asks of models, behind three traits.
//!
//! A [`Policy`] writes responses, a [`Teacher`] also judges what a student wrote, a [`Learner`] turns rows into
//! updates and publishes snapshots. The traits are shaped for engines on other machines: batches of token ids go
//! in, token ids and log-probabilities come out, every answer carries the version of the weights that gave it, every
//! call has a deadline, and one bad request in a batch fails alone. [`native`] implements them on this machine's CPU.
#![forbid(unsafe_code)]

pub mod codec;
pub mod deadline;
pub mod error;
pub mod learner;
pub mod native;
pub mod policy;
pub mod teacher;

pub use codec::{Codec, Message, Role};
pub use deadline::Deadline;
pub use error::{CallFailure, EngineError};
pub use learner::{LearnReport, LearnRow, Learner, Supervision};
pub use policy::{
    Completion, CrossContext, CrossContextTarget, FinishReason, GenerateCall, Policy, Sampling,
};
pub use teacher::{Position, ScoreCall, ScoredRow, Teacher};
