//! LENS-OPD and its baselines as pure functions and state machines.
//!
//! A training loop rolls out episodes, lets the teacher score them and hands the result to a
//! [`methods::Method`]; the method answers with forks to run and rows to train. What it computes
//! depends on its arguments alone: there is no I/O, no clock and no ambient randomness here, and
//! every formula runs on plain slices, so that fast kernels can be checked against it.
//!
//! | stage of the paper | module |
//! | --- | --- |
//! | Locate: how deep to go, which turn to look at | [`locate`] |
//! | Validate: does the guidance improve the future | [`validate`] |
//! | Refine: absorb it, token by token | [`refine`] |
//! | the loss | [`objective`] |
//! | all of it together, and the baselines | [`methods`] |
#![forbid(unsafe_code)]

pub mod buffer;
pub mod diagnostics;
pub mod episode;
pub mod error;
pub mod locate;
pub mod methods;
pub mod objective;
pub mod parameter;
pub mod random;
pub mod refine;
pub mod stats;
pub mod validate;

pub use error::{InputError, OpdError};
