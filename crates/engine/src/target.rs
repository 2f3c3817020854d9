//! What a row is pulled toward, as only the engine that made it can read.

use std::sync::Arc;

/// What a row's tokens are pulled toward. Everyone but the engine that made it carries it and hands it back.
#[derive(Debug, Clone, PartialEq)]
pub struct Target(pub(crate) Kind);

/// The kinds of targets there are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// The tokens themselves.
    Tokens,
    /// The teacher's distribution over the whole vocabulary, by its last hidden states. `None`: the teacher is frozen
    /// and gives the same ones again.
    TeacherStates(Option<Arc<Vec<f32>>>),
    /// The teacher's most likely tokens, `k` of them per response token. `None` as above.
    TeacherTop(Option<Arc<TopTokens>>),
    /// Both models' log-probabilities of the sampled tokens.
    Sampled {
        /// The teacher's.
        teacher: Vec<f32>,
        /// The rollout's.
        rollout: Vec<f32>,
    },
    /// A frozen snapshot's distribution under another context, by its last hidden states.
    Snapshot {
        /// The hidden states.
        hidden: Arc<Vec<f32>>,
        /// The version of the snapshot, whose output head reads them.
        version: u64,
    },
    /// A frozen snapshot's distribution under another context, kept by the training worker.
    Kept {
        /// Its key there.
        key: i64,
        /// The version of the snapshot.
        version: u64,
    },
}

/// The most likely tokens at every response position, `k` each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopTokens {
    pub(crate) k: usize,
    pub(crate) ids: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
}

impl Target {
    /// The tokens themselves: negative log-likelihood. The one target that needs no engine.
    pub fn tokens() -> Self {
        Self(Kind::Tokens)
    }
}
