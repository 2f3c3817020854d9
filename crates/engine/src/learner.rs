//! Turning rows into updates.

use std::path::Path;
use std::sync::Arc;

use crate::error::EngineError;
use crate::policy::Policy;

/// What a row's tokens are pulled towards.
#[derive(Debug, Clone, PartialEq)]
pub enum Supervision {
    /// The teacher's distribution, by the run's token estimator.
    Teacher {
        /// The teacher's last hidden states, where it is on this machine; computed anew when absent.
        hidden: Option<Arc<Vec<f32>>>,
        /// The teacher's log-probability of each token, where the estimator needs it.
        teacher_logprobs: Option<Vec<f32>>,
        /// The rollout's log-probability of each token, where the estimator needs it.
        rollout_logprobs: Option<Vec<f32>>,
    },
    /// A frozen snapshot's distribution under another (hinted) context.
    Snapshot {
        /// The snapshot's last hidden states under that context.
        hidden: Arc<Vec<f32>>,
        /// The version of the snapshot, whose output head reads them.
        version: u64,
    },
    /// The tokens themselves.
    Tokens,
}

/// One row of a train batch.
#[derive(Debug, Clone, PartialEq)]
pub struct LearnRow {
    /// The prompt's tokens; no loss on them.
    pub prompt: Vec<u32>,
    /// The response's tokens.
    pub response: Vec<u32>,
    /// Per response token, its final coefficient in the batch loss.
    pub coefficients: Vec<f32>,
    /// What its tokens are pulled towards.
    pub supervision: Supervision,
}

/// What one optimiser step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnReport {
    /// The batch loss.
    pub loss: f64,
    /// The part of it that is not guidance internalisation.
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

/// A model that learns.
pub trait Learner: Send {
    /// Optimiser steps done.
    fn version(&self) -> u64;

    /// One optimiser step on one train batch.
    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError>;

    /// A frozen copy of the weights as they are now.
    fn snapshot(&mut self) -> Result<Arc<dyn Policy>, EngineError>;

    /// About how many bytes one checkpoint takes.
    fn checkpoint_bytes(&self) -> u64;

    /// Writes the model as a Hugging Face directory.
    fn save_model(&self, directory: &Path) -> Result<(), EngineError>;

    /// What else must be saved to go on exactly: optimiser state, snapshot heads still needed
    /// (versions in `heads`). File name and content.
    fn save_state(&self, heads: &[u64]) -> Result<Vec<(String, Vec<u8>)>, EngineError>;

    /// Goes on from what [`Learner::save_model`] wrote to `model` and [`Learner::save_state`] to `state`.
    fn load(&mut self, model: &Path, state: &Path) -> Result<(), EngineError>;

    /// Forgets snapshot heads older than `version`.
    fn forget_before(&mut self, version: u64);
}
