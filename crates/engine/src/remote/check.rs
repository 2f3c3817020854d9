//! Trying out a served model before a run depends on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lens_opd::random::{Purpose, StreamKey};
use serde_json::json;

use super::dialect::{Kind, control};
use super::scorer::{ScoreRow, Scored, Scorer};
use super::served::{Served, ServedPolicy};
use crate::codec::{Codec, Message};
use crate::deadline::Deadline;
use crate::error::EngineError;
use crate::policy::{GenerateCall, Policy, Sampling};

/// A text whose tokens every tokenizer of a family must agree on.
const KNOWN: &str = "You are in the middle of a room. You see a desk 1, a drawer 2 and a shelf 3.";

/// What was tried, and what came of it: a word on success, or what is wrong and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was tried.
    pub what: &'static str,
    /// What came of it.
    pub result: Result<String, String>,
}

/// What a served model is needed for.
#[derive(Debug, Clone, Copy)]
pub struct Needed<'a> {
    /// The longest prompt and response together.
    pub context: usize,
    /// Whether it scores responses, with this many favorites per position.
    pub top_k: Option<usize>,
    /// Whether it takes new weights; these are published and read back.
    pub weights: Option<&'a Path>,
    /// Whether it takes new weights over NCCL.
    pub nccl: bool,
}

/// Tries out everything a run will ask of a model that is connected already.
pub fn check(served: &Arc<Served>, needed: Needed<'_>) -> Vec<Finding> {
    let policy = ServedPolicy::frozen(served.clone());
    let deadline = || Deadline::after(Duration::from_mins(2));
    let mut findings = Vec::new();
    let mut note = |what, result: Result<String, String>| findings.push(Finding { what, result });
    note("context", context(served, needed.context));
    for (endpoint, info) in served.servers() {
        for remark in &info.notes {
            note("note", Ok(format!("{}: {remark}", endpoint.url())));
        }
    }
    note("tokenizer", tokenizer(served, deadline()));
    note(
        "drawn log-probabilities",
        drawn(&policy, deadline()).map_err(|error| error.to_string()).flatten(),
    );
    if let Some(top_k) = needed.top_k {
        note(
            "scores",
            scores(&policy, top_k, deadline()).map_err(|error| error.to_string()).flatten(),
        );
        let asked = if policy.answers_asked() {
            "answered at every position".to_owned()
        } else {
            "not answered by this server (vLLM needs its V2 runner): looked up in the list of favorites instead".to_owned()
        };
        note("asked ids", Ok(asked));
    }
    if needed.nccl {
        note("weights over NCCL", members(served).map_err(|error| error.to_string()));
    }
    if let Some(weights) = needed.weights {
        let path = weights.to_string_lossy();
        let published = served.reload(&path, "check", Duration::from_mins(10));
        note(
            "publish and read back",
            published.map(|()| "done".to_owned()).map_err(|error| error.to_string()),
        );
    }
    findings
}

/// Whether every server was started so that it can join the worker's group.
fn members(served: &Served) -> Result<String, EngineError> {
    let counts = served.member_counts(Duration::from_mins(2))?;
    Ok(format!("{} processes can join the worker", counts.iter().sum::<u64>()))
}

fn context(served: &Served, needed: usize) -> Result<String, String> {
    let found = served.context();
    if found >= needed {
        return Ok(format!("{found} tokens"));
    }
    let flag = match served.kind() {
        Kind::Vllm => "--max-model-len",
        Kind::SgLang => "--context-length",
    };
    Err(format!(
        "{found} tokens, and prompt and response need {needed}: start it with {flag} {needed}"
    ))
}

/// Whether the server's tokenizer agrees with the one in the model's directory here.
fn tokenizer(served: &Served, deadline: Deadline) -> Result<String, String> {
    let ours = served.codec().tokenizer().encode(KNOWN).map_err(|error| error.to_string())?;
    for (endpoint, info) in served.servers() {
        let body = json!({"model": info.model, "prompt": KNOWN, "add_special_tokens": false});
        let answer = control(served.kind(), endpoint, "/tokenize", &body, deadline, |json| {
            json.get("tokens").is_some()
        });
        let Ok(answer) = answer else {
            return Ok(format!("{} has none; tokens go in and out as ids", endpoint.url()));
        };
        let theirs: Option<Vec<u32>> = answer["tokens"]
            .as_array()
            .and_then(|ids| ids.iter().map(|id| u32::try_from(id.as_u64()?).ok()).collect());
        if theirs.as_ref() != Some(&ours) {
            return Err(format!(
                "{} has another tokenizer than the model's directory here",
                endpoint.url()
            ));
        }
    }
    Ok("the same".to_owned())
}

fn call(policy: &ServedPolicy, sampling: Sampling) -> Result<GenerateCall, EngineError> {
    Ok(GenerateCall {
        prompt: policy.codec().prompt(&[Message::user(KNOWN)])?,
        max_prompt_tokens: usize::MAX,
        max_new_tokens: 4,
        sampling,
        stream: StreamKey::new(1, 0, 0, Purpose::Evaluation, 0),
    })
}

/// Draws at half the temperature: log-probabilities that know nothing of it are the raw ones.
fn drawn(policy: &ServedPolicy, deadline: Deadline) -> Result<Result<String, String>, EngineError> {
    let call = call(policy, Sampling::at(0.5))?;
    let written = match policy.generate(std::slice::from_ref(&call), deadline)?.remove(0) {
        Ok(written) => written,
        Err(failure) => return Ok(Err(failure.to_string())),
    };
    let row =
        ScoreRow { prompt: &call.prompt, response: &written.tokens, top_k: 0, asked: Vec::new() };
    let Ok(scored) = policy.score(&[row], deadline)?.remove(0) else {
        return Ok(Ok("given".to_owned()));
    };
    let raw = written
        .logprobs
        .iter()
        .zip(&scored)
        .all(|(drawn, scored)| scored.logprob.is_some_and(|raw| (raw - drawn).abs() < 1e-4));
    let certain = written.logprobs.iter().all(|drawn| *drawn > -1e-3);
    Ok(if raw && !certain && policy.served().kind() == Kind::Vllm {
        Err("the temperature is not in them: start it with --logprobs-mode processed_logprobs"
            .to_owned())
    } else {
        Ok("with the temperature".to_owned())
    })
}

/// Scores what the model itself wrote: finite numbers, as many favorites as asked, and not all tokens alike.
fn scores(
    policy: &ServedPolicy,
    top_k: usize,
    deadline: Deadline,
) -> Result<Result<String, String>, EngineError> {
    let call = call(policy, Sampling::GREEDY)?;
    let written = match policy.generate(std::slice::from_ref(&call), deadline)?.remove(0) {
        Ok(written) => written,
        Err(failure) => return Ok(Err(failure.to_string())),
    };
    let row =
        ScoreRow { prompt: &call.prompt, response: &written.tokens, top_k, asked: Vec::new() };
    let scored: Vec<Scored> = match policy.score(&[row], deadline) {
        Ok(mut answers) => match answers.remove(0) {
            Ok(scored) => scored,
            Err(failure) => return Ok(Err(failure.to_string())),
        },
        Err(EngineError::Request(words)) => {
            return Ok(Err(format!("{words}; start it with --max-logprobs {top_k} or more")));
        }
        Err(error) => return Err(error),
    };
    let shortest = scored.iter().map(|position| position.top.len()).min().unwrap_or(0);
    let best = scored.iter().filter_map(|position| position.top.first()).map(|top| top.1);
    let vocabulary = policy.served().codec().tokenizer().real_tokens() as f32;
    let even = -vocabulary.ln();
    let uniform = best.clone().all(|logprob| (logprob - even).abs() < 0.05);
    let missing = scored.iter().any(|position| position.logprob.is_none());
    Ok(if missing || best.count() == 0 {
        Err("a position was not measured".to_owned())
    } else if uniform {
        Err("every token is as likely as any other: are its weights loaded?".to_owned())
    } else {
        Ok(format!("{shortest} favorites per position"))
    })
}

/// Whether two models end their turns with the same tokens.
pub fn same_endings(student: &dyn Codec, teacher: &dyn Codec) -> Result<String, String> {
    let sorted = |codec: &dyn Codec| {
        let mut ids = codec.stop_tokens().to_vec();
        ids.sort_unstable();
        ids
    };
    let (ours, theirs) = (sorted(student), sorted(teacher));
    if ours == theirs {
        return Ok(format!("{ours:?}"));
    }
    Err(format!(
        "the student ends its turns with {ours:?}, the teacher with {theirs:?}: hints would run on or stop early"
    ))
}
