//! What differs between kinds of servers: paths, fields, and how answers are read.

use std::sync::Arc;

use serde_json::Value;

use super::scorer::{ScoreRow, Scored};
use super::transfer::Group;
use super::{sglang, vllm};
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::http::{Endpoint, Unanswered};
use crate::policy::{FinishReason, Sampling};

/// The kinds of servers that are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// vLLM 0.32 or later.
    Vllm,
    /// SGLang 0.5.23 or later.
    SgLang,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// The server's release.
    pub release: String,
    /// The name its model is served under.
    pub model: String,
    /// The longest context in tokens.
    pub context: usize,
    /// The label of its weights, as it last answered.
    pub label: String,
    /// Whether it scores asked ids at every position.
    pub asked_ids: bool,
    /// What works, but not as well as it could, and what would mend it.
    pub notes: Vec<String>,
}

/// Why a call has no usable answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// This call failed; others need not.
    Call(CallFailure, String),
    /// The engine as a whole failed.
    Engine(EngineError),
}

impl Fault {
    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Self::Call(CallFailure::Engine, reason.into())
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// A response to write.
pub(crate) struct WriteRequest<'a> {
    pub(crate) model: &'a str,
    pub(crate) id: String,
    pub(crate) prompt: &'a [u32],
    pub(crate) max_new_tokens: usize,
    pub(crate) sampling: Sampling,
    pub(crate) stop: &'a [u32],
    pub(crate) seed: u64,
}

/// A response as a server told it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Written {
    pub(crate) tokens: Vec<u32>,
    /// `None`: it was not a log-probability.
    pub(crate) logprobs: Vec<Option<f32>>,
    pub(crate) finish: FinishReason,
    /// The labels of the weights that wrote it.
    pub(crate) labels: Vec<String>,
}

/// A server's place in the worker's group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) group: Arc<Group>,
    /// The rank of the server's first process.
    pub(super) rank_offset: u64,
    /// The worker and all processes of all servers.
    pub(super) world_size: u64,
}

/// A row that was scored, and the labels of the weights that did it.
pub(crate) type ScoredRow = (Vec<Scored>, Vec<String>);

/// Makes one call of the server at hand.
pub(crate) type Caller<'a> = &'a dyn Fn(&str, &Value) -> Result<Value, Fault>;

impl Kind {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vllm => "vLLM",
            Self::SgLang => "SGLang",
        }
    }

    /// Where to write, and what to send.
    pub(crate) fn write_request(self, request: &WriteRequest<'_>) -> (&'static str, Value) {
        match self {
            Self::Vllm => vllm::write_request(request),
            Self::SgLang => sglang::write_request(request),
        }
    }

    /// Reads what was written.
    pub(crate) fn read_written(self, answer: &Value) -> Result<Written, Fault> {
        match self {
            Self::Vllm => vllm::read_written(answer),
            Self::SgLang => sglang::read_written(answer),
        }
    }

    /// Scores a row with one call or several.
    pub(crate) fn score(
        self,
        model: &str,
        row: &ScoreRow<'_>,
        real_vocab: usize,
        call: Caller<'_>,
    ) -> Result<ScoredRow, Fault> {
        match self {
            Self::Vllm => vllm::score(model, row, real_vocab, call),
            Self::SgLang => sglang::score(row, real_vocab, call),
        }
    }

    /// What the server says of itself, and why it cannot be used.
    pub(crate) fn inspect(
        self,
        endpoint: &Endpoint,
        deadline: Deadline,
    ) -> Result<ServerInfo, EngineError> {
        match self {
            Self::Vllm => vllm::inspect(endpoint, deadline),
            Self::SgLang => sglang::inspect(endpoint, deadline),
        }
    }

    /// Makes the server load the weights in `directory` and call them `label`, and reads the label back.
    pub(crate) fn reload(
        self,
        endpoint: &Endpoint,
        directory: &str,
        label: &str,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        match self {
            Self::Vllm => vllm::reload(endpoint, directory, label, deadline),
            Self::SgLang => sglang::reload(endpoint, directory, label, deadline),
        }
    }

    /// How the worker forms a group with such servers.
    pub(super) fn rendezvous(self) -> &'static str {
        match self {
            Self::Vllm => "unique_id",
            Self::SgLang => "store",
        }
    }

    /// How many of the server's processes take part in a group, or why it cannot.
    pub(super) fn member_count(
        self,
        endpoint: &Endpoint,
        deadline: Deadline,
    ) -> Result<u64, EngineError> {
        match self {
            Self::Vllm => vllm::member_count(endpoint, deadline),
            Self::SgLang => sglang::member_count(endpoint, deadline),
        }
    }

    /// Makes the server a member; waits until all others are.
    pub(super) fn join(
        self,
        endpoint: &Endpoint,
        member: &Member,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        match self {
            Self::Vllm => vllm::join(endpoint, member, deadline),
            Self::SgLang => sglang::join(endpoint, member, deadline),
        }
    }

    /// Makes the server ready for weights that will be called `label`; from here on it is of no version.
    pub(super) fn prepare(
        self,
        endpoint: &Endpoint,
        label: &str,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        match self {
            Self::Vllm => vllm::prepare(endpoint, label, deadline),
            Self::SgLang => sglang::prepare(endpoint, label, deadline),
        }
    }

    /// Makes the server receive what the worker sends; returns when it has.
    pub(super) fn receive(
        self,
        endpoint: &Endpoint,
        group: &Group,
        label: &str,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        match self {
            Self::Vllm => vllm::receive(endpoint, group, deadline),
            Self::SgLang => sglang::receive(endpoint, group, label, deadline),
        }
    }

    /// Makes the server go on with what it received, and reads the label back.
    pub(super) fn finish(
        self,
        endpoint: &Endpoint,
        label: &str,
        deadline: Deadline,
    ) -> Result<(), EngineError> {
        match self {
            Self::Vllm => vllm::finish(endpoint, label, deadline),
            Self::SgLang => sglang::check_label(endpoint, label, deadline),
        }
    }

    /// Whether a server that answered 500 is gone for good.
    pub(crate) fn is_dead(self, endpoint: &Endpoint, deadline: Deadline) -> bool {
        let path = match self {
            Self::Vllm => "/health",
            Self::SgLang => "/ready",
        };
        endpoint.get(path, deadline).is_ok_and(|answer| answer.status == 503)
    }

    /// What a refusal means, by its status.
    pub(crate) fn advice(self, status: u16) -> &'static str {
        match (self, status) {
            (_, 401) => {
                "it refuses the key: set key_env or key_file to what it was started with (--api-key)"
            }
            (Self::Vllm, 403) => "the token endpoint is off: start it with --enable-scale-out",
            (Self::Vllm, 404) => {
                "the model or the endpoint is unknown: check --served-model-name, and start a student's server with VLLM_SERVER_DEV_MODE=1"
            }
            (_, 403) => "it refuses the key for this call: it may want its --admin-api-key",
            _ => "the endpoint is unknown: is the address that of an inference server?",
        }
    }
}

/// A GET whose answer must be JSON with status 200.
pub(crate) fn get(
    kind: Kind,
    endpoint: &Endpoint,
    path: &str,
    deadline: Deadline,
) -> Result<Value, EngineError> {
    let answer = endpoint.get(path, deadline);
    let answer = answer.map_err(|reason| endpoint.unanswered(path, &reason))?;
    if answer.status != 200 {
        let advice = kind.advice(answer.status);
        let message = format!("GET {path}: {}; {advice}", answer.words());
        return Err(endpoint.error(Some(answer.status), message));
    }
    answer.json().ok_or_else(|| endpoint.error(Some(200), format!("GET {path}: not JSON")))
}

/// A control call whose failure leaves the server in an unknown state.
pub(crate) fn control(
    kind: Kind,
    endpoint: &Endpoint,
    path: &str,
    body: &Value,
    deadline: Deadline,
    good: impl Fn(&Value) -> bool,
) -> Result<Value, EngineError> {
    let lost = |status: Option<u16>, words: String| {
        endpoint.error(
            status,
            format!("POST {path}: {words}; its weights may be wrong or mixed: restart this server, then resume the run"),
        )
    };
    let answer = match endpoint.post(path, body, deadline) {
        Ok(answer) => answer,
        // The call did not arrive, so nothing changed there; but the weights are not there either.
        Err(reason @ Unanswered::Unreachable(_)) => {
            return Err(endpoint.error(
                None,
                format!("POST {path}: {reason}; start this server again, then resume the run"),
            ));
        }
        Err(reason) => return Err(lost(None, reason.to_string())),
    };
    // A refusal changes nothing.
    if matches!(answer.status, 401 | 403 | 404) {
        let message = format!("POST {path}: {}; {}", answer.words(), kind.advice(answer.status));
        return Err(endpoint.error(Some(answer.status), message));
    }
    let json = answer.json().unwrap_or(Value::Null);
    if answer.status != 200 || !good(&json) {
        return Err(lost(Some(answer.status), answer.words()));
    }
    Ok(json)
}

/// A call that touches no weights; a refusal names what else to try.
pub(super) fn set_up(
    endpoint: &Endpoint,
    path: &str,
    body: &Value,
    deadline: Deadline,
    good: impl Fn(&Value) -> bool,
) -> Result<(), EngineError> {
    let answer = endpoint.post(path, body, deadline);
    let answer = answer.map_err(|reason| endpoint.unanswered(&format!("POST {path}"), &reason))?;
    if answer.status == 200 && good(&answer.json().unwrap_or(Value::Null)) {
        return Ok(());
    }
    let message = format!("POST {path}: {}; {BY_DISK}", answer.words());
    Err(endpoint.error(Some(answer.status), message))
}

/// What always works.
pub(super) const BY_DISK: &str = "or publish by disk (learner.transfer = \"disk\")";

/// The label of weights that have not all arrived: no answer that carries it is ever taken.
pub(super) fn unfinished(label: &str) -> String {
    format!("{label}-unfinished")
}

/// The three numbers of a release such as "0.32.0rc1+cpu".
pub(crate) fn release_numbers(release: &str) -> [u64; 3] {
    let mut parts = release.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    [0; 3].map(|_| parts.next().unwrap_or(0))
}

/// The number as it was written: 0.01 as an f32 is a little less, and a server would raise it.
pub(crate) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

/// A list of token ids.
pub(crate) fn ids(value: Option<&Value>) -> Option<Vec<u32>> {
    value?.as_array()?.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::release_numbers;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(release_numbers("0.32.0+cpu"), [0, 32, 0]);
        assert_eq!(release_numbers("0.5.23.post1"), [0, 5, 23]);
        assert!(release_numbers("0.9.2") < release_numbers("0.32.0rc1"));
    }
}
