//! One model behind one or more servers of a kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lens_opd::random::StreamKey;
use serde_json::Value;

use super::dialect::{Fault, Kind, ServerInfo, WriteRequest, Written};
use super::scorer::{RowScores, ScoreRow, Scorer};
use crate::codec::{Codec, Message};
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::fan::fan_out;
use crate::http::{Answer, Endpoint, Retry, Unanswered};
use crate::native::NativeCodec;
use crate::policy::{Completion, FinishReason, GenerateCall, Policy, Sampling};

/// A server that could not be reached is left alone this long while others are there.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// A server that cannot be reached is called again this often: one that is busy is worth more patience.
const UNREACHABLE: u32 = 5;

/// This many calls in a row without one success: the servers do not work.
const HOPELESS: usize = 64;

/// The temperatures that vLLM takes as they are.
const TEMPERATURES: std::ops::RangeInclusive<f32> = 0.01..=2.0;

/// How servers are called.
#[derive(Debug, Clone, Copy)]
pub struct ServedOptions {
    /// Calls in flight at once, over all servers.
    pub concurrency: usize,
    /// The longest time one call may take.
    pub timeout: Duration,
    /// Repetitions of calls that change nothing.
    pub retry: Retry,
    /// Whether the model scores responses, so that this is tried first.
    pub scores: bool,
}

struct Server {
    endpoint: Endpoint,
    info: ServerInfo,
    in_flight: AtomicUsize,
    /// Milliseconds after `Served::began` until which it is left alone.
    left_alone_until: AtomicU64,
}

/// One model behind one or more servers of a kind, which share its load.
pub struct Served {
    kind: Kind,
    servers: Vec<Server>,
    codec: Arc<NativeCodec>,
    real_vocab: usize,
    context: usize,
    options: ServedOptions,
    failures_in_a_row: AtomicUsize,
    began: Instant,
}

impl Served {
    /// Looks at every server and lets it write one token. `codec` is that of the model they serve.
    pub fn connect(
        kind: Kind,
        endpoints: Vec<Endpoint>,
        codec: Arc<NativeCodec>,
        options: ServedOptions,
    ) -> Result<Self, EngineError> {
        if endpoints.is_empty() {
            return Err(EngineError::Request(format!(
                "{} is named, but no server's address",
                kind.name()
            )));
        }
        let deadline = Deadline::after(options.timeout.min(Duration::from_mins(2)));
        let mut servers = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let info = kind.inspect(&endpoint, deadline)?;
            let (in_flight, left_alone_until) = (AtomicUsize::new(0), AtomicU64::new(0));
            servers.push(Server { endpoint, info, in_flight, left_alone_until });
        }
        let real_vocab = codec.tokenizer().real_tokens();
        let context = servers.iter().map(|server| server.info.context).min().unwrap_or(0);
        let (failures_in_a_row, began) = (AtomicUsize::new(0), Instant::now());
        let mut served =
            Self { kind, servers, codec, real_vocab, context, options, failures_in_a_row, began };
        for index in 0..served.servers.len() {
            served.probe(index, deadline)?;
        }
        Ok(served)
    }

    /// Lets one server write a token and, if it is to score, score one: flags that are missing show here.
    fn probe(&mut self, index: usize, deadline: Deadline) -> Result<(), EngineError> {
        let prompt = self.codec.prompt(&[Message::user("Hello")])?;
        let endpoint = self.servers[index].endpoint.clone();
        let plain = |fault: Fault| match fault {
            Fault::Engine(error) => error,
            Fault::Call(_, reason) => endpoint.error(None, reason),
        };
        let call = |path: &str, body: &Value| self.ask_server(index, path, body, deadline);
        let request = WriteRequest {
            model: &self.servers[index].info.model,
            id: "probe".to_owned(),
            prompt: &prompt,
            max_new_tokens: 1,
            sampling: Sampling::GREEDY,
            stop: self.codec.stop_tokens(),
            seed: 1,
        };
        let (path, body) = self.kind.write_request(&request);
        let written = call(path, &body).and_then(|answer| self.kind.read_written(&answer));
        let written = written.map_err(plain)?;
        let label = written.labels.first().cloned().unwrap_or_default();
        let asked_ids = self.options.scores && {
            let row = ScoreRow {
                prompt: &prompt,
                response: &written.tokens,
                top_k: 0,
                asked: vec![vec![0]; written.tokens.len()],
            };
            let asked = self.kind.score(request.model, &row, self.real_vocab, &call);
            // A server that cannot says so with status 400; everything else is found out by the calls to come.
            asked.is_ok()
        };
        let info = &mut self.servers[index].info;
        (info.label, info.asked_ids) = (label, asked_ids);
        Ok(())
    }

    /// What kind of servers they are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The tokenizer and chat template of the model they serve.
    pub fn codec(&self) -> &Arc<NativeCodec> {
        &self.codec
    }

    /// The longest context that all of them take.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The servers and what they said of themselves.
    pub fn servers(&self) -> impl Iterator<Item = (&Endpoint, &ServerInfo)> {
        self.servers.iter().map(|server| (&server.endpoint, &server.info))
    }

    /// Makes every server load the weights in `directory` and call them `label`. After an error no policy of a newer
    /// version may be handed out.
    pub fn reload(&self, directory: &str, label: &str, limit: Duration) -> Result<(), EngineError> {
        let reload = |_, endpoint: &Endpoint| {
            self.kind.reload(endpoint, directory, label, Deadline::after(limit))
        };
        self.each(reload).map(|_| ())
    }

    /// The same call to every server, at once.
    pub(super) fn each<R: Send>(
        &self,
        call: impl Fn(usize, &Endpoint) -> Result<R, EngineError> + Sync,
    ) -> Result<Vec<R>, EngineError> {
        let count = self.servers.len();
        fan_out(count, count, |index| call(index, &self.servers[index].endpoint), &mut |_| {})
    }

    /// A server to call: the one with the fewest calls in flight, the first of equals, among those that are not left
    /// alone and are not `failed`, if there are any.
    fn choose(&self, failed: Option<usize>) -> usize {
        let now = self.began.elapsed().as_millis() as u64;
        let best = (0..self.servers.len()).min_by_key(|&index| {
            let server = &self.servers[index];
            let alone = server.left_alone_until.load(Ordering::Relaxed) > now;
            (alone, failed == Some(index), server.in_flight.load(Ordering::Relaxed), index)
        });
        best.unwrap_or(0)
    }

    /// Calls one server and reads its status.
    fn ask_server(
        &self,
        index: usize,
        path: &str,
        body: &Value,
        deadline: Deadline,
    ) -> Result<Value, Fault> {
        let endpoint = &self.servers[index].endpoint;
        match endpoint.post(path, body, deadline) {
            Ok(answer) => self.read(endpoint, &answer),
            Err(Unanswered::Timeout) => {
                Err(Fault::Call(CallFailure::Timeout, Unanswered::Timeout.to_string()))
            }
            Err(reason @ Unanswered::Unreachable(_)) => {
                Err(endpoint.unanswered("start it again, then resume the run", &reason).into())
            }
            Err(reason) => Err(Fault::broken(reason.to_string())),
        }
    }

    fn read(&self, endpoint: &Endpoint, answer: &Answer) -> Result<Value, Fault> {
        let status = answer.status;
        match status {
            200 => answer.json().ok_or_else(|| Fault::broken("the answer is not JSON")),
            400 | 422 => Err(Fault::Engine(EngineError::Request(format!(
                "{}: {}",
                endpoint.url(),
                answer.words()
            )))),
            401 | 403 | 404 => {
                let message = format!("{}; {}", answer.words(), self.kind.advice(status));
                Err(endpoint.error(Some(status), message).into())
            }
            500 if self.kind.is_dead(endpoint, Deadline::after(Duration::from_secs(20))) => {
                let message = format!(
                    "{}; its engine is dead: restart this server, then resume the run",
                    answer.words()
                );
                Err(endpoint.error(Some(status), message).into())
            }
            _ => Err(Fault::broken(format!("HTTP {status}: {}", answer.words()))),
        }
    }

    /// Makes a call that changes nothing, again where that is safe, each time at the server that suits best.
    fn call(
        &self,
        path: &str,
        mut body: impl FnMut(&str) -> Value,
        key: u64,
        deadline: Deadline,
    ) -> Result<(usize, Value), Fault> {
        let mut failed = None;
        for number in 0.. {
            let index = self.choose(failed);
            let server = &self.servers[index];
            let body = body(&server.info.model);
            server.in_flight.fetch_add(1, Ordering::Relaxed);
            let answer = server.endpoint.post(path, &body, deadline);
            server.in_flight.fetch_sub(1, Ordering::Relaxed);
            let (again, fault) = match answer {
                Ok(answer) if answer.is_busy() => {
                    (true, Fault::broken(format!("HTTP {}: {}", answer.status, answer.words())))
                }
                Ok(answer) => {
                    let json = self.read(&server.endpoint, &answer)?;
                    return Ok((index, json));
                }
                Err(Unanswered::Timeout) => {
                    (false, Fault::Call(CallFailure::Timeout, Unanswered::Timeout.to_string()))
                }
                Err(Unanswered::TooLarge) => {
                    (false, Fault::broken(Unanswered::TooLarge.to_string()))
                }
                Err(reason @ Unanswered::Unreachable(_)) => {
                    let until = self.began.elapsed() + LEFT_ALONE;
                    server.left_alone_until.store(until.as_millis() as u64, Ordering::Relaxed);
                    let words = "start it again, then resume the run";
                    (number < UNREACHABLE, server.endpoint.unanswered(words, &reason).into())
                }
                Err(reason @ Unanswered::Cut(_)) => (true, Fault::broken(reason.to_string())),
            };
            if !again || !self.options.retry.wait(number, key, deadline) {
                return Err(fault);
            }
            failed = Some(index);
        }
        Err(Fault::broken("the call was never made"))
    }

    /// Counts what failed: one call may fail, all of them may not.
    fn settle<T>(&self, outcome: Result<T, Fault>) -> Result<Result<T, CallFailure>, EngineError> {
        match outcome {
            Ok(value) => {
                self.failures_in_a_row.store(0, Ordering::Relaxed);
                Ok(Ok(value))
            }
            Err(Fault::Engine(error)) => Err(error),
            Err(Fault::Call(failure, reason)) => {
                let row = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
                if row < HOPELESS.max(2 * self.options.concurrency) {
                    return Ok(Err(failure));
                }
                let all = self.servers.iter().map(|server| server.endpoint.url());
                let endpoint = all.collect::<Vec<_>>().join(", ");
                let message = format!(
                    "{row} calls in a row failed, the last one so: {reason}; mend it, then resume the run"
                );
                Err(EngineError::Remote { endpoint, status: None, message })
            }
        }
    }

    fn check_labels(
        &self,
        index: usize,
        expected: Option<&str>,
        labels: &[String],
    ) -> Result<(), Fault> {
        let server = &self.servers[index];
        let expected = expected.unwrap_or(&server.info.label);
        let other = labels.iter().find(|label| *label != expected);
        let found = match (other, labels.is_empty() && !expected.is_empty()) {
            (Some(other), _) => other.clone(),
            (None, true) => "nothing".to_owned(),
            (None, false) => return Ok(()),
        };
        let (endpoint, expected) = (server.endpoint.url().to_owned(), expected.to_owned());
        Err(EngineError::Version { endpoint, expected, found }.into())
    }
}

/// A served model at one version of its weights.
#[derive(Clone)]
pub struct ServedPolicy {
    served: Arc<Served>,
    version: u64,
    /// The label its answers must carry; `None`: the one each server had at first.
    label: Option<String>,
}

impl ServedPolicy {
    /// A model that does not change.
    pub fn frozen(served: Arc<Served>) -> Self {
        Self { served, version: 0, label: None }
    }

    /// A student whose servers were given the weights of `version`.
    pub fn at(served: Arc<Served>, version: u64) -> Self {
        Self { served, version, label: Some(version.to_string()) }
    }

    /// The servers.
    pub fn served(&self) -> &Arc<Served> {
        &self.served
    }

    fn write(&self, call: &GenerateCall, deadline: Deadline) -> Result<Completion, Fault> {
        let served = &*self.served;
        let room = served.context.saturating_sub(call.prompt.len());
        if call.prompt.len() > call.max_prompt_tokens || room == 0 {
            return Err(Fault::Call(CallFailure::PromptTooLong, String::new()));
        }
        let temperature = call.sampling.temperature;
        if temperature != 0.0 && !TEMPERATURES.contains(&temperature) {
            return Err(EngineError::Request(format!(
                "a served model draws at temperature 0 or between {} and {}, not at {temperature}",
                TEMPERATURES.start(),
                TEMPERATURES.end()
            ))
            .into());
        }
        // A server would cut what does not fit without a word; this way a response that is too short shows.
        let max_new_tokens = call.max_new_tokens.min(room);
        let seed = seed(call.stream);
        let StreamKey { step, episode, branch, .. } = call.stream;
        let request = |model: &str| {
            let request = WriteRequest {
                model,
                id: format!("lens-{step}-{episode}-{branch:x}"),
                prompt: &call.prompt,
                max_new_tokens,
                sampling: call.sampling,
                stop: served.codec.stop_tokens(),
                seed,
            };
            served.kind.write_request(&request)
        };
        let (path, _) = request("");
        let (index, answer) = served.call(path, |model| request(model).1, seed, deadline)?;
        let written = served.kind.read_written(&answer)?;
        served.check_labels(index, self.label.as_deref(), &written.labels)?;
        checked(written, max_new_tokens, served.real_vocab)
    }

    fn score_row(
        &self,
        row: &ScoreRow<'_>,
        deadline: Deadline,
    ) -> Result<Vec<super::scorer::Scored>, Fault> {
        let served = &*self.served;
        if row.prompt.is_empty() || row.response.is_empty() {
            return Err(EngineError::Request(
                "a row to score needs a prompt and a response".to_owned(),
            )
            .into());
        }
        // Scoring takes a token more than it scores.
        if row.prompt.len() + row.response.len() >= served.context {
            return Err(Fault::Call(CallFailure::PromptTooLong, String::new()));
        }
        let used = AtomicUsize::new(0);
        let call = |path: &str, body: &Value| {
            let named = |model: &str| {
                let mut body = body.clone();
                if let Some(name) = body.get_mut("model") {
                    *name = Value::from(model);
                }
                body
            };
            let (index, answer) = served.call(path, named, row.response.len() as u64, deadline)?;
            used.store(index, Ordering::Relaxed);
            Ok(answer)
        };
        let (scored, labels) = served.kind.score("", row, served.real_vocab, &call)?;
        served.check_labels(used.load(Ordering::Relaxed), self.label.as_deref(), &labels)?;
        Ok(scored)
    }
}

/// A response, if everything about it is as it must be.
fn checked(
    written: Written,
    max_new_tokens: usize,
    real_vocab: usize,
) -> Result<Completion, Fault> {
    let Written { tokens, logprobs, finish, .. } = written;
    if tokens.is_empty() {
        return Err(Fault::broken("a response without tokens"));
    }
    if tokens.len() > max_new_tokens
        || (finish == FinishReason::Length && tokens.len() < max_new_tokens)
    {
        let (found, asked) = (tokens.len(), max_new_tokens);
        return Err(Fault::broken(format!("a response of {found} tokens instead of {asked}")));
    }
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= real_vocab) {
        return Err(Fault::broken(format!("token {id} is padding")));
    }
    let logprobs: Option<Vec<f32>> = logprobs.into_iter().collect();
    let logprobs = logprobs.filter(|logprobs| logprobs.len() == tokens.len());
    let logprobs =
        logprobs.ok_or_else(|| Fault::broken("a drawn token without log-probability"))?;
    Ok(Completion { tokens, logprobs, finish })
}

/// 63 bits out of a stream's name, never 0: the same name gives the same seed, whenever it is asked for.
fn seed(stream: StreamKey) -> u64 {
    (stream.open().next_u64() >> 1).max(1)
}

impl Policy for ServedPolicy {
    fn codec(&self) -> &dyn Codec {
        &*self.served.codec
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn concurrency(&self) -> Option<usize> {
        Some(self.served.options.concurrency)
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let each = |index: usize| {
            let deadline = deadline.within(self.served.options.timeout);
            let written = self.write(&calls[index], deadline);
            if let Err(Fault::Call(CallFailure::PromptTooLong, _)) = written {
                return Ok(Err(CallFailure::PromptTooLong));
            }
            self.served.settle(written)
        };
        match calls.len() {
            1 => Ok(vec![each(0)?]),
            count => fan_out(count, self.served.options.concurrency, each, &mut |_| {}),
        }
    }
}

impl Scorer for ServedPolicy {
    fn score(
        &self,
        rows: &[ScoreRow<'_>],
        deadline: Deadline,
    ) -> Result<Vec<RowScores>, EngineError> {
        let each = |index: usize| {
            let deadline = deadline.within(self.served.options.timeout);
            let scored = self.score_row(&rows[index], deadline);
            if let Err(Fault::Call(CallFailure::PromptTooLong, _)) = scored {
                return Ok(Err(CallFailure::PromptTooLong));
            }
            self.served.settle(scored)
        };
        fan_out(rows.len(), self.served.options.concurrency, each, &mut |_| {})
    }

    fn answers_asked(&self) -> bool {
        self.served.servers.iter().all(|server| server.info.asked_ids)
    }
}
