//! The training worker: one command at a time, every command asked for again until it has answered.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::scorer::{RowScores, ScoreRow, Scored, Scorer};
use super::turns::Turns;
use super::wire::{Body, Reply};
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::http::{Answer, Endpoint, Key, Retry, Unanswered};

/// The protocol this client speaks.
const PROTOCOL: u64 = 1;

/// Pause before a busy worker is asked again.
const BUSY: Duration = Duration::from_millis(200);

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct WorkerInfo {
    /// The protocol it speaks.
    pub protocol: u64,
    /// The release of PyTorch.
    pub torch: String,
    /// Its ranks.
    pub world_size: u64,
    /// "float32" or "bfloat16".
    pub compute: String,
    /// Ids from here on are padding.
    pub real_vocab: usize,
    /// The frozen teacher's shape, if it holds one.
    pub teacher: Option<Value>,
    /// Optimizer steps done.
    pub version: u64,
    /// About how many bytes one checkpoint takes.
    pub checkpoint_bytes: u64,
    /// The largest request.
    pub max_body_bytes: u64,
    /// Tokens per micro-batch.
    pub token_budget: u64,
}

/// A client of the training worker.
#[derive(Debug)]
pub struct Worker {
    endpoint: Endpoint,
    retry: Retry,
    timeout: Duration,
    /// Taken while a command runs: the worker refuses a second one.
    turns: Turns,
}

impl Worker {
    /// A worker at `url`; `timeout` is the longest time a command may take.
    pub fn new(url: &str, key: Key, timeout: Duration, retry: Retry) -> Result<Self, EngineError> {
        let endpoint = Endpoint::new(url, Some(key))?.with_header("X-Lens-Protocol", "1");
        Ok(Self { endpoint, retry, timeout, turns: Turns::default() })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// The machine it is on, as this one calls it.
    pub(super) fn host(&self) -> &str {
        let rest = self.url().split_once("://").map_or(self.url(), |(_, rest)| rest);
        let host = rest.split('/').next().unwrap_or(rest);
        if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return address;
        }
        host.rsplit_once(':').map_or(host, |(host, _)| host)
    }

    /// What it says of itself, once its models are loaded.
    pub fn info(&self) -> Result<WorkerInfo, EngineError> {
        let answer =
            self.until_answered(self.retry, |deadline| self.endpoint.get("/v1/info", deadline))?;
        let answer = self.good("/v1/info", answer)?;
        let info: WorkerInfo = serde_json::from_slice(&answer.body)
            .map_err(|error| self.endpoint.error(None, format!("/v1/info: {error}")))?;
        if info.protocol != PROTOCOL {
            let message =
                format!("it speaks protocol {}, and this program speaks {PROTOCOL}", info.protocol);
            return Err(self.endpoint.error(None, message));
        }
        Ok(info)
    }

    /// A command with a JSON body. All of them may be repeated: they do the same again.
    pub(super) fn command(&self, path: &str, body: &Value) -> Result<Value, EngineError> {
        let text = body.to_string();
        let answer = self.send(path, "application/json", text.as_bytes())?;
        let answer = self.good(path, answer)?;
        answer.json().ok_or_else(|| self.endpoint.error(Some(200), format!("{path}: not JSON")))
    }

    /// A command with a JSON body that is not repeated where its answer was lost: others take part in it.
    pub(super) fn command_once(&self, path: &str, body: &Value) -> Result<Value, EngineError> {
        let (text, once) = (body.to_string(), Retry { again: 0, ..self.retry });
        let _turn = self.turns.wait();
        let answer = self.until_answered(once, |deadline| {
            self.endpoint.send(path, "application/json", text.as_bytes(), deadline)
        })?;
        let answer = self.good(path, answer)?;
        answer.json().ok_or_else(|| self.endpoint.error(Some(200), format!("{path}: not JSON")))
    }

    /// A command about a folder.
    pub(super) fn folder(
        &self,
        path: &str,
        folder: &Path,
        more: Value,
    ) -> Result<Value, EngineError> {
        let folder = std::path::absolute(folder).map_err(EngineError::state(folder))?;
        let mut body = json!({"directory": folder.to_string_lossy()});
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        self.command(path, &body)
    }

    /// A command with tensors, repeated until it is answered. What must not be done twice carries a request id.
    pub(super) fn tensors(&self, path: &str, body: Body) -> Result<Answer, EngineError> {
        self.send(path, "application/octet-stream", &body.bytes()?)
    }

    fn send(&self, path: &str, kind: &str, bytes: &[u8]) -> Result<Answer, EngineError> {
        let _turn = self.turns.wait();
        self.until_answered(self.retry, |deadline| self.endpoint.send(path, kind, bytes, deadline))
    }

    /// Asks until there is an answer that is not "busy". A cut connection is no answer: the command may have been done.
    fn until_answered(
        &self,
        retry: Retry,
        mut ask: impl FnMut(Deadline) -> Result<Answer, Unanswered>,
    ) -> Result<Answer, EngineError> {
        let deadline = Deadline::after(self.timeout);
        let mut number = 0;
        loop {
            let reason = match ask(deadline) {
                Ok(answer) if answer.status == 503 => {
                    if deadline.has_passed() {
                        let words = format!(
                            "{}: it stayed busy for {} s",
                            answer.words(),
                            self.timeout.as_secs()
                        );
                        return Err(self.endpoint.error(Some(503), words));
                    }
                    std::thread::sleep(BUSY.min(retry.pause));
                    continue;
                }
                Ok(answer) => return Ok(answer),
                Err(reason) => reason,
            };
            let again = matches!(reason, Unanswered::Cut(_) | Unanswered::Unreachable(_));
            if !again || !retry.wait(number, 0, deadline) {
                let advice = "the training worker is gone or stuck (a rank may have died: see its output); restart it, then resume the run from its last checkpoint";
                return Err(self.endpoint.unanswered(advice, &reason));
            }
            number += 1;
        }
    }

    /// An answer with status 200, or the error it tells of.
    pub(super) fn good(&self, path: &str, answer: Answer) -> Result<Answer, EngineError> {
        if answer.status == 200 {
            return Ok(answer);
        }
        let words = answer.words();
        Err(match answer.status {
            400 | 413 => EngineError::Request(format!("{}{path}: {words}", self.endpoint.url())),
            401 => self.endpoint.error(
                Some(401),
                format!("{words}; learner.key_env or learner.key_file must hold what is in the worker's --token-file"),
            ),
            status => self.endpoint.error(Some(status), format!("{path}: {words}")),
        })
    }

    /// Whether the answer says that memory ran out.
    pub(super) fn is_out_of_memory(answer: &Answer) -> bool {
        let kind =
            answer.json().and_then(|json| Some(json.pointer("/error/kind")?.as_str()? == "oom"));
        answer.status == 500 && kind == Some(true)
    }

    /// Tensors of an answer of the version that was asked.
    pub(super) fn reply<'a>(
        &self,
        path: &str,
        answer: &'a Answer,
        version: u64,
    ) -> Result<Reply<'a>, EngineError> {
        let unreadable =
            || self.endpoint.error(Some(200), format!("{path}: the answer cannot be read"));
        let reply = Reply::read(&answer.body).ok_or_else(unreadable)?;
        self.check_version(version, reply.number("version"))?;
        Ok(reply)
    }

    /// Refuses an answer of another version.
    pub(super) fn check_version(
        &self,
        expected: u64,
        found: Option<u64>,
    ) -> Result<(), EngineError> {
        if found == Some(expected) {
            return Ok(());
        }
        Err(EngineError::Version {
            endpoint: self.endpoint.url().to_owned(),
            expected: expected.to_string(),
            found: found.map_or_else(|| "nothing".to_owned(), |found| found.to_string()),
        })
    }

    /// An error about an answer that lacks something.
    pub(super) fn lacks(&self, path: &str, name: &str) -> EngineError {
        self.endpoint.error(Some(200), format!("{path}: the answer has no usable `{name}`"))
    }
}

/// The student's weights as the worker holds them, at one version: the one it trains, or the published one it keeps.
pub(super) struct WorkerStudent {
    pub(super) worker: std::sync::Arc<Worker>,
    pub(super) version: u64,
}

impl Scorer for WorkerStudent {
    fn score(
        &self,
        rows: &[ScoreRow<'_>],
        deadline: Deadline,
    ) -> Result<Vec<RowScores>, EngineError> {
        if deadline.has_passed() {
            return Ok(rows.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        const PATH: &str = "/v1/score";
        let tokens: usize = rows.iter().map(|row| row.response.len()).sum();
        let width = rows.iter().flat_map(|row| &row.asked).map(Vec::len).max().unwrap_or(0);
        let mut body = Body::default();
        body.rows(rows.iter().map(|row| (row.prompt, row.response)));
        body.u8s("compare", &vec![1; rows.len()]);
        body.f32s("temperature", &vec![1.0; rows.len()]);
        if width > 0 {
            let mut asked = vec![-1; tokens * width];
            let mut slots = asked.chunks_exact_mut(width);
            for row in rows {
                for (index, slot) in slots.by_ref().take(row.response.len()).enumerate() {
                    let ids = row.asked.get(index).into_iter().flatten();
                    slot.iter_mut().zip(ids).for_each(|(slot, &id)| *slot = id as i32);
                }
            }
            body.i32_matrix("asked_ids", vec![tokens, width], &asked);
        }
        body.set("expected_version", self.version);
        let worker = &*self.worker;
        let answer = worker.good(PATH, worker.tensors(PATH, body)?)?;
        let reply = worker.reply(PATH, &answer, self.version)?;
        let floats = |name: &str, count: usize| {
            reply.f32s(name, count).ok_or_else(|| worker.lacks(PATH, name))
        };
        let logprobs = floats("student_logprob", tokens)?;
        let best = floats("student_at_student", tokens)?;
        let tops =
            reply.ids("student_top", tokens).ok_or_else(|| worker.lacks(PATH, "student_top"))?;
        let asked =
            if width > 0 { floats("student_at_asked", tokens * width)? } else { Vec::new() };
        let mut at = 0;
        let answers = rows.iter().map(|row| {
            let positions = (0..row.response.len()).map(|index| {
                let (place, wanted) = (at + index, row.asked.get(index).map_or(0, Vec::len));
                let top = tops[place].zip(best[place]).filter(|_| row.top_k > 0);
                Scored {
                    logprob: logprobs[place],
                    top: top.into_iter().collect(),
                    asked: asked.iter().skip(place * width).take(wanted).copied().collect(),
                }
            });
            let positions = positions.collect();
            at += row.response.len();
            Ok(positions)
        });
        Ok(answers.collect())
    }

    fn answers_asked(&self) -> bool {
        true
    }
}
