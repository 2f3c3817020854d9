//! What a model wrote at one turn, or why it did not.

use lens_engine::{CallFailure, Codec, Completion, FinishReason};
use lens_env::View;
use lens_opd::episode::TurnDrop;
use lens_opd::validate::fork::BranchEnd;

use crate::config::RolloutConfig;
use crate::parse::{ActionParser, ParseFailure};

/// What a model wrote at one turn.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) text: String,
    pub(crate) action: Option<String>,
    /// Why there is no action.
    pub(crate) unparsed: Option<ParseFailure>,
    pub(crate) truncated: bool,
}

impl Reply {
    /// Reads a completion; tokens that are no text are a failure of the engine.
    pub(crate) fn from_completion(
        parser: ActionParser,
        codec: &dyn Codec,
        completion: Result<Completion, CallFailure>,
    ) -> Result<Self, CallFailure> {
        let completion = completion?;
        let text = codec.text(&completion.tokens).map_err(|_| CallFailure::Engine)?;
        let read = parser.action(&text);
        Ok(Self {
            unparsed: read.as_ref().err().copied(),
            action: read.ok(),
            truncated: completion.finish == FinishReason::Length,
            tokens: completion.tokens,
            logprobs: completion.logprobs,
            text,
        })
    }

    /// Whether the environment offers the action in `view`.
    pub(crate) fn is_admissible(&self, config: &RolloutConfig, view: &View) -> bool {
        self.action.as_deref().is_some_and(|action| config.benchmark.admits(view, action))
    }
}

/// Why a turn without a reply is not trained on.
pub(crate) fn turn_drop(failure: CallFailure) -> TurnDrop {
    match failure {
        CallFailure::PromptTooLong => TurnDrop::PromptTooLong,
        CallFailure::Timeout => TurnDrop::Timeout,
        CallFailure::Engine => TurnDrop::EngineFailed,
    }
}

/// How a branch without a reply ends.
pub(crate) fn branch_end(failure: CallFailure) -> BranchEnd {
    match failure {
        CallFailure::PromptTooLong => BranchEnd::PromptTooLong,
        CallFailure::Timeout => BranchEnd::Timeout,
        CallFailure::Engine => BranchEnd::EngineFailure,
    }
}
