//! The engine on this machine's CPU, over `lens-lm`.

mod codec;
mod engine;
mod learner;
mod models;
mod policy;
mod targets;

pub use codec::NativeCodec;
pub use engine::NativeEngine;
pub use learner::{LearnerOptions, NativeLearner};
pub use models::NativeModels;
pub(crate) use models::{internalize, sampled};
pub use policy::NativePolicy;

use lens_lm::tokenizer::Tokenizer;

use crate::error::EngineError;

/// Refuses a student and a teacher whose token maps differ; gives the number of real tokens they share.
pub fn shared_tokens(student: &NativeCodec, teacher: &NativeCodec) -> Result<usize, EngineError> {
    let (ours, theirs): (&Tokenizer, &Tokenizer) = (student.tokenizer(), teacher.tokenizer());
    ours.check_same_vocabulary(theirs)?;
    Ok(ours.real_tokens())
}
