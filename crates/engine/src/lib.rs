//! What the method asks of models, and who answers.
//!
//! A [`Policy`] is a frozen model that writes responses. [`Models`] are one published version of the student beside its
//! teacher: everything a rollout asks of models, writing and judging alike. An [`Engine`] owns the student that learns
//! and publishes [`Models`]. Student, teacher and learner share a vocabulary, a target format and a checkpoint, so they
//! are one thing and not three.
//!
//! The traits are shaped for engines on other machines. Batches of token ids go in, token ids and log-probabilities come
//! out; every answer carries the version of the weights that gave it; calls that can hang have a deadline; one bad
//! request in a batch fails alone, and a comparison that cannot be made is an error where it happens. What a row is
//! pulled toward, a [`Target`], is the engine's own: hidden states, top-k lists or a key into another process, opaque to
//! everyone who carries it. What was given up: two versions of a student cannot be compared with each other, because
//! servers hold one version at a time.
//!
//! [`native`] answers on this machine's CPU, [`remote`] asks servers and the training worker, [`scripted`] answers from a script, without a model, for tests.
#![forbid(unsafe_code)]

pub mod codec;
pub mod deadline;
pub mod engine;
pub mod error;
pub mod fan;
pub mod http;
pub mod models;
pub mod native;
pub mod observed;
pub mod policy;
pub mod remote;
pub mod scripted;
pub mod target;

pub use codec::{Codec, Message, Role};
pub use deadline::Deadline;
pub use engine::{Engine, LearnReport, LearnRow};
pub use error::{CallFailure, EngineError};
pub use fan::fan_out;
pub use models::{Compared, CrossContext, Internalized, Models, Position, ScoreCall};
pub use observed::{Call, Observed, ObservedEngine, Observer};
pub use policy::{Completion, FinishReason, GenerateCall, Policy, Sampling};
pub use target::Target;
