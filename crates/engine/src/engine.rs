//! A student that learns from a teacher, on one machine or many.

use std::path::Path;
use std::sync::Arc;

use crate::error::EngineError;
use crate::models::Models;
use crate::target::Target;

/// One row of a train batch.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnRow {
    /// The prompt's tokens; no loss on them.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// Per response token, its final coefficient in the batch loss.
    pub coefficients: Vec<f32>,
    /// What its tokens are pulled toward.
    pub target: Target,
}

/// What one optimizer step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnReport {
    /// The batch loss.
    pub loss: f64,
    /// The part of it that is not guidance internalization.
    pub focus_loss: f64,
    /// The part of it that is.
    pub internalization_loss: f64,
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether a number was not finite: then nothing was updated.
    pub skipped: bool,
    /// Tokens that went through the model.
    pub tokens: usize,
}

/// A student that learns, and what it publishes.
pub trait Engine: Send {
    /// The student as it was last published, beside its teacher.
    fn models(&self) -> Arc<dyn Models>;

    /// Optimizer steps done.
    fn version(&self) -> u64;

    /// One optimizer step on one train batch; publishes nothing.
    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError>;

    /// Whether [`Engine::models`] goes on answering with the published weights while [`Engine::learn`] changes the
    /// learner's, so that a batch can be explored meanwhile; the reason why not, otherwise.
    fn check_overlap(&self) -> Result<(), EngineError>;

    /// Makes the weights of this moment the student. `kept` are the targets that rows still refer to: what belongs to
    /// earlier versions and to none of them may be forgotten.
    fn publish(&mut self, kept: &[&Target]) -> Result<(), EngineError>;

    /// About how many bytes one checkpoint takes.
    fn checkpoint_bytes(&self) -> u64;

    /// Writes the model as a Hugging Face directory `model` inside `folder`, and into `state` inside `folder` whatever
    /// else is needed to resume exactly, `targets` included. The answer holds one entry per target, to be kept with its
    /// row and handed to [`Engine::load`].
    fn save(
        &self,
        folder: &Path,
        targets: &[&Target],
    ) -> Result<Vec<serde_json::Value>, EngineError>;

    /// Resumes from what [`Engine::save`] wrote into `folder`, publishes it, and gives the targets back. A checkpoint
    /// that cannot be used is an error and changes nothing.
    fn load(
        &mut self,
        folder: &Path,
        targets: &[serde_json::Value],
    ) -> Result<Vec<Target>, EngineError>;
}
