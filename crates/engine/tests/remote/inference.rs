//! Inference servers that speak like vLLM and SGLang and answer with a real model on this machine. What they say was
//! written from their documented protocols; vLLM's was also compared with recordings of a real server (`recordings.rs`),
//! SGLang itself was never run here.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};

use base64::Engine as _;
use lens_engine::native::NativePolicy;
use lens_engine::{Deadline, FinishReason, GenerateCall, Policy, Sampling};
use lens_lm::model::WeightFormat;
use lens_lm::score::{ScoreOptions, ScoreRequest, score};
use lens_opd::random::{Purpose, StreamKey};
use serde_json::{Value, json};

use crate::server::{Reply, Request, Server};

/// A laboratory model.
pub(crate) fn lab(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/lab").join(name)
}

pub(crate) fn load(name: &str) -> NativePolicy {
    NativePolicy::load(&lab(name), WeightFormat::F32).expect("the laboratory model is there")
}

/// Changes an answer of the generation endpoint, or puts another reply in its place.
pub(crate) type Tweak = Box<dyn Fn(&Request, Value) -> Result<Value, Reply> + Send + Sync>;

/// What the fake servers are made of.
pub(crate) struct Fake {
    policy: RwLock<Arc<NativePolicy>>,
    pub(crate) context: usize,
    pub(crate) label: Mutex<String>,
    /// vLLM's V2 runner answers asked ids.
    pub(crate) asked_ids: bool,
    /// vLLM's dev mode.
    pub(crate) dev_mode: bool,
    pub(crate) key: Option<String>,
    pub(crate) tweak: Tweak,
    /// Directories that were loaded.
    pub(crate) loaded: Mutex<Vec<String>>,
    /// vLLM's `--weight-transfer-config`.
    pub(crate) nccl: bool,
    /// How far a transfer of weights has come.
    pub(crate) session: Mutex<Session>,
    /// The next call to this path fails.
    pub(crate) failing: Mutex<Option<&'static str>>,
    /// The process that receives tensors for this server, and the folder it saves them in.
    pub(crate) receiver: Option<(String, PathBuf)>,
}

/// How far a transfer of weights has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    Alone,
    Joined,
    Started,
    Received,
}

impl Fake {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            policy: RwLock::new(Arc::new(load(name))),
            context: 1024,
            label: Mutex::new("default".to_owned()),
            asked_ids: true,
            dev_mode: true,
            key: None,
            tweak: Box::new(|_, answer| Ok(answer)),
            loaded: Mutex::new(Vec::new()),
            nccl: true,
            session: Mutex::new(Session::Alone),
            failing: Mutex::new(None),
            receiver: None,
        }
    }

    pub(crate) fn tweaked(
        mut self,
        tweak: impl Fn(&Request, Value) -> Result<Value, Reply> + Send + Sync + 'static,
    ) -> Self {
        self.tweak = Box::new(tweak);
        self
    }

    pub(crate) fn vllm(self) -> (Server, Arc<Self>) {
        let fake = Arc::new(self);
        let handler = fake.clone();
        (Server::start(move |request| handler.answer_vllm(request)), fake)
    }

    pub(crate) fn sglang(self) -> (Server, Arc<Self>) {
        let fake = Arc::new(self);
        let handler = fake.clone();
        (Server::start(move |request| handler.answer_sglang(request)), fake)
    }

    fn policy(&self) -> Arc<NativePolicy> {
        self.policy.read().expect("held").clone()
    }

    /// Takes the weights in a directory, if there is a model in it.
    fn reload(&self, directory: &str) -> bool {
        let loaded = NativePolicy::load(Path::new(directory), WeightFormat::F32);
        let Ok(policy) = loaded else { return false };
        *self.policy.write().expect("held") = Arc::new(policy);
        self.loaded.lock().expect("held").push(directory.to_owned());
        true
    }

    /// The answers to vLLM's calls about transfers, in the order a real 0.32 insists on.
    fn vllm_transfer(&self, path: &str, body: &Value) -> Reply {
        let fail = |words: &str| {
            let message =
                format!("Call to collective_rpc method failed: Worker failed with error '{words}'");
            Reply::json(500, &json!({"error": {"message": message, "type": "InternalServerError"}}))
        };
        let mut session = self.session.lock().expect("held");
        let (next, words) = match (path, *session) {
            _ if !self.nccl => return fail("Weight transfer not configured."),
            ("/shutdown_weight_transfer_engine", Session::Started) => {
                return fail("Cannot release a trainer connection during a weight update");
            }
            ("/shutdown_weight_transfer_engine", _) => {
                (Session::Alone, "Weight transfer shut down")
            }
            ("/init_weight_transfer_engine", _) => (Session::Joined, "Weight transfer initialized"),
            (_, Session::Alone) => return fail("NCCL weight transfer not initialized."),
            ("/start_weight_update", Session::Joined) => {
                (Session::Started, "Weight update started")
            }
            ("/start_weight_update", _) => {
                return fail("start_weight_update called while a weight update is already active.");
            }
            ("/update_weights", Session::Started) => (Session::Received, "Weights updated"),
            ("/finish_weight_update", Session::Received) => {
                let label = body["weight_version"].as_str().unwrap_or_default().to_owned();
                *self.label.lock().expect("held") = label;
                (Session::Joined, "Weight update finished")
            }
            _ => return fail("called without a matching start_weight_update."),
        };
        *session = next;
        Reply::json(200, &json!({"message": words}))
    }

    /// The answers to SGLang's calls about transfers. Tensors go through a process of their own, if there is one.
    fn sglang_transfer(&self, path: &str, body: &Value) -> Reply {
        let say = |success: bool, message: &str| {
            let status = if success { 200 } else { 400 };
            Reply::json(status, &json!({"success": success, "message": message}))
        };
        if path == "/update_weight_version" {
            *self.label.lock().expect("held") =
                body["new_version"].as_str().unwrap_or_default().to_owned();
            return say(true, "");
        }
        if path == "/destroy_weights_update_group" {
            let mut session = self.session.lock().expect("held");
            let old = std::mem::replace(&mut *session, Session::Alone);
            return say(old != Session::Alone, "The group to be destroyed does not exist.");
        }
        if let Some((url, _)) = &self.receiver {
            let endpoint = lens_engine::http::Endpoint::new(url, None).expect("an address");
            let answer = endpoint.post(path, body, Deadline::never()).expect("it answers");
            if answer.status != 200 {
                return Reply::Answer(answer.status, answer.body);
            }
        }
        let mut session = self.session.lock().expect("held");
        match (path, *session) {
            ("/init_weights_update_group", _) => *session = Session::Joined,
            (_, Session::Alone) => {
                return say(false, "Please call `init_weights_update_group` first.");
            }
            _ => {
                let label = body["weight_version"].as_str().unwrap_or_default().to_owned();
                if let Some((_, folder)) = &self.receiver {
                    assert!(self.reload(&folder.to_string_lossy()), "what arrived is a model");
                }
                *self.label.lock().expect("held") = label;
            }
        }
        say(true, "")
    }

    /// Whether this call was to fail.
    fn fails(&self, path: &str) -> bool {
        let mut failing = self.failing.lock().expect("held");
        let now = failing.is_some_and(|failing| failing == path);
        if now {
            *failing = None;
        }
        now
    }

    fn refused(&self, request: &Request, guarded: bool) -> Option<Reply> {
        let key = self.key.as_ref().filter(|_| guarded)?;
        let given = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        (given != Some(key)).then(|| Reply::json(401, &json!({"error": "Unauthorized"})))
    }

    fn write(
        &self,
        prompt: Vec<u32>,
        max: usize,
        sampling: Sampling,
        seed: u64,
    ) -> lens_engine::Completion {
        let call = GenerateCall {
            max_prompt_tokens: prompt.len(),
            prompt,
            max_new_tokens: max,
            sampling,
            stream: StreamKey::new(seed, 0, 0, Purpose::Rollout, 0),
        };
        let mut answers =
            self.policy().generate(&[call], Deadline::never()).expect("the model answers");
        answers.remove(0).expect("it fits")
    }

    /// What the model says of every token after the first one, with `k` favorites and the asked ids.
    fn score(
        &self,
        tokens: &[u32],
        start: usize,
        k: usize,
        asked: &[Vec<u32>],
    ) -> Vec<lens_lm::score::ScoredPosition> {
        let request = ScoreRequest { prompt: &tokens[..start], response: &tokens[start..], asked };
        let policy = self.policy();
        let vocab = policy.native_codec().tokenizer().real_tokens();
        let options = ScoreOptions { real_vocab: Some(vocab), top_k: k, ..ScoreOptions::default() };
        score(policy.model(), &[request], &options).expect("it can be scored").remove(0).positions
    }

    pub(crate) fn answer_vllm(&self, request: &Request) -> Reply {
        let path = request.path.split('?').next().unwrap_or_default();
        let guarded = ["/v1", "/inference"].iter().any(|part| path.starts_with(part));
        if let Some(refusal) = self.refused(request, guarded) {
            return refusal;
        }
        let ok = |body: Value| Reply::json(200, &body);
        let label = self.label.lock().expect("held").clone();
        match (request.method.as_str(), path) {
            ("GET", "/health") => Reply::Answer(200, Vec::new()),
            ("GET", "/version") => ok(json!({"version": "0.32.0"})),
            ("GET", "/v1/models") => {
                ok(json!({"data": [{"id": "student", "max_model_len": self.context}]}))
            }
            ("POST", "/inference/v1/generate") => {
                let answer = self.vllm_generate(&request.json(), &label);
                match answer.and_then(|answer| (self.tweak)(request, answer)) {
                    Ok(answer) => ok(answer),
                    Err(reply) => reply,
                }
            }
            _ if !self.dev_mode => Reply::json(404, &json!({"detail": "Not Found"})),
            ("POST", path) if self.fails(path) => {
                Reply::json(500, &json!({"error": {"message": "told to fail"}}))
            }
            ("GET", "/server_info") => {
                let transfer = self.nccl.then(|| json!({"backend": "nccl"}));
                ok(json!({"vllm_config": {"weight_transfer_config": transfer}}))
            }
            ("GET", "/get_world_size") => ok(json!({"world_size": 2})),
            (
                "POST",
                "/shutdown_weight_transfer_engine"
                | "/init_weight_transfer_engine"
                | "/start_weight_update"
                | "/update_weights"
                | "/finish_weight_update",
            ) => self.vllm_transfer(path, &request.json()),
            ("POST", "/pause") => ok(json!({"status": "paused"})),
            ("POST", "/collective_rpc") => {
                let directory = request.json()["kwargs"]["weights_path"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if !self.reload(&directory) {
                    return Reply::json(
                        500,
                        &json!({"error": {"message": "Call to collective_rpc method failed"}}),
                    );
                }
                ok(json!({"results": [null]}))
            }
            ("POST", "/reset_prefix_cache") => ok(json!({"success": true})),
            ("POST", "/update_weight_version") => {
                let version = request.json()["new_version"].as_str().unwrap_or_default().to_owned();
                *self.label.lock().expect("held") = version.clone();
                ok(json!({"success": true, "new_version": version}))
            }
            ("POST", "/resume") => ok(json!({"status": "resumed"})),
            ("GET", "/weight_info") => ok(json!({"weight_version": label})),
            _ => Reply::json(404, &json!({"detail": "Not Found"})),
        }
    }

    fn vllm_generate(&self, body: &Value, label: &str) -> Result<Value, Reply> {
        let bad = |message: String| {
            Reply::json(
                400,
                &json!({"error": {"message": message, "type": "BadRequestError", "param": null, "code": 400}}),
            )
        };
        let tokens = ids(&body["token_ids"]);
        let params = &body["sampling_params"];
        let number = |name: &str, default: f64| params[name].as_f64().unwrap_or(default);
        let room = self.context.saturating_sub(tokens.len());
        if room == 0 {
            return Err(bad("the prompt is longer than the context".to_owned()));
        }
        // As the real one does, without a word.
        let max = (number("max_tokens", 16.0) as usize).min(room);
        let sampling = Sampling {
            temperature: number("temperature", 0.3) as f32,
            top_p: number("top_p", 0.5) as f32,
            top_k: Some(number("top_k", 3.0) as usize).filter(|&k| k > 0),
            min_p: number("min_p", 0.5) as f32,
        };
        let mut answer = json!({"prompt_logprobs": null, "prompt_token_id_logprobs": null});
        if let Some(k) = params["prompt_logprobs"].as_u64() {
            let scored = self.score(&tokens, 1, k as usize, &[]);
            let entries = scored.iter().zip(&tokens[1..]).map(|(position, token)| {
                let mut entry = serde_json::Map::new();
                entry.insert(token.to_string(), json!({"logprob": position.logprob, "rank": 1}));
                for (id, logprob) in &position.top {
                    entry.insert(id.to_string(), json!({"logprob": logprob, "rank": 1}));
                }
                Value::Object(entry)
            });
            answer["prompt_logprobs"] = [Value::Null].into_iter().chain(entries).collect();
        }
        if let Some(rows) = params["prompt_logprob_token_ids"].as_array() {
            if !self.asked_ids {
                return Err(
                    bad("prompt_logprob_token_ids requires the V2 model runner".to_owned()),
                );
            }
            let start = params["prompt_logprob_start"].as_u64().unwrap_or(0) as usize + 1;
            assert_eq!(rows.len(), tokens.len() - start, "one row per position");
            answer["prompt_token_id_logprobs"] = json!(self.npy(&tokens, start, rows));
        }
        let written = self.write(tokens, max, sampling, params["seed"].as_u64().unwrap_or(0));
        let content: Vec<Value> = written
            .tokens
            .iter()
            .zip(&written.logprobs)
            .map(|(token, logprob)| json!({"token_id": token, "logprob": logprob, "rank": 1, "top_logprobs": []}))
            .collect();
        answer["choices"] = json!([{
            "index": 0,
            "finish_reason": if written.finish == FinishReason::Stop { "stop" } else { "length" },
            "stop_reason": null,
            "token_ids": written.tokens,
            "weight_versions": [{"version": label, "start": 0, "end": written.tokens.len()}],
            "logprobs": {"content": content},
        }]);
        Ok(answer)
    }

    fn npy(&self, tokens: &[u32], start: usize, rows: &[Value]) -> String {
        let wanted: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| row.as_array().expect("a row").iter().filter_map(Value::as_i64).collect())
            .collect();
        let real: Vec<Vec<u32>> = wanted
            .iter()
            .map(|row| row.iter().filter_map(|&id| u32::try_from(id).ok()).collect())
            .collect();
        let width = wanted.first().map_or(0, Vec::len);
        let mut values = Vec::new();
        for (position, row) in self.score(tokens, start, 0, &real).iter().zip(&wanted) {
            let mut found = position.asked.iter();
            let next =
                |&id: &i64| if id < 0 { f32::NEG_INFINITY } else { *found.next().expect("asked") };
            values.extend(row.iter().map(next).collect::<Vec<_>>());
        }
        let header = format!(
            "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {width}), }}\n",
            rows.len()
        );
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }

    pub(crate) fn answer_sglang(&self, request: &Request) -> Reply {
        if let Some(refusal) = self.refused(request, !request.path.starts_with("/ready")) {
            return refusal;
        }
        let ok = |body: Value| Reply::json(200, &body);
        let label = self.label.lock().expect("held").clone();
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", "/ready") => Reply::Answer(200, Vec::new()),
            ("GET", "/server_info") => ok(json!({
                "version": "0.5.23", "enable_deterministic_inference": true, "allow_auto_truncate": false,
            })),
            ("GET", "/model_info") => {
                ok(json!({"served_model_name": "student", "weight_version": label}))
            }
            ("GET", "/v1/models") => ok(json!({"data": [{"max_model_len": self.context}]})),
            ("POST", "/update_weights_from_disk") => {
                let body = request.json();
                let directory = body["model_path"].as_str().unwrap_or_default().to_owned();
                if !self.reload(&directory) {
                    return Reply::json(
                        400,
                        &json!({"success": false, "message": "Failed to load; rolled back"}),
                    );
                }
                *self.label.lock().expect("held") =
                    body["weight_version"].as_str().unwrap_or_default().to_owned();
                ok(json!({"success": true, "message": "", "num_paused_requests": 0}))
            }
            (
                "POST",
                path @ ("/destroy_weights_update_group"
                | "/init_weights_update_group"
                | "/update_weight_version"
                | "/update_weights_from_distributed"),
            ) => self.sglang_transfer(path, &request.json()),
            ("POST", "/generate") => {
                let answer = self.sglang_generate(&request.json(), &label);
                match answer.and_then(|answer| (self.tweak)(request, answer)) {
                    Ok(answer) => ok(answer),
                    Err(reply) => reply,
                }
            }
            _ => Reply::json(404, &json!({"detail": "Not Found"})),
        }
    }

    fn sglang_generate(&self, body: &Value, label: &str) -> Result<Value, Reply> {
        let tokens = ids(&body["input_ids"]);
        let params = &body["sampling_params"];
        let max = params["max_new_tokens"].as_u64().unwrap_or(128) as usize;
        if tokens.len() + max > self.context {
            return Err(Reply::json(
                400,
                &json!({"error": {"message": "The input is longer than the model's context length"}}),
            ));
        }
        let mut meta = json!({"id": body["rid"], "weight_version": label, "finish_reason": {"type": "length", "length": 0}});
        let start = body["logprob_start_len"].as_i64().unwrap_or(-1);
        if start >= 0 {
            let (start, k) =
                (start as usize + 1, body["top_logprobs_num"].as_u64().unwrap_or(0) as usize);
            let union = ids(&body["token_ids_logprob"]);
            let asked = if union.is_empty() {
                Vec::new()
            } else {
                vec![union.clone(); tokens.len() - start]
            };
            let scored = self.score(&tokens, start, k, &asked);
            let policy = self.policy();
            let vocab = policy.native_codec().tokenizer().real_tokens() as u32;
            let list =
                |entries: Vec<Value>| [Value::Null].into_iter().chain(entries).collect::<Value>();
            // The real one writes id 0 for the last id of the vocabulary.
            let named = |&token: &u32| if token == vocab - 1 { 0 } else { token };
            let realized = scored
                .iter()
                .zip(&tokens[start..])
                .map(|(position, token)| json!([position.logprob, named(token), null]));
            let mut first: Vec<Value> = realized.collect();
            first.insert(0, json!([null, tokens[start - 1], null]));
            meta["input_token_logprobs"] = Value::Array(first);
            let triples = |found: &[(u32, f32)]| {
                found.iter().map(|(id, value)| json!([value, id, null])).collect::<Value>()
            };
            meta["input_top_logprobs"] =
                list(scored.iter().map(|position| triples(&position.top)).collect());
            let asked = scored.iter().map(|position| {
                let pairs: Vec<(u32, f32)> =
                    union.iter().copied().zip(position.asked.iter().copied()).collect();
                triples(&pairs)
            });
            meta["input_token_ids_logprobs"] = list(asked.collect());
        }
        let mut written_ids = Vec::new();
        if max > 0 {
            let number = |name: &str, default: f64| params[name].as_f64().unwrap_or(default);
            let sampling = Sampling {
                temperature: number("temperature", 0.3) as f32,
                top_p: number("top_p", 0.5) as f32,
                top_k: usize::try_from(params["top_k"].as_i64().unwrap_or(-1)).ok(),
                min_p: number("min_p", 0.0) as f32,
            };
            let seed = params["sampling_seed"].as_u64().unwrap_or(42);
            let written = self.write(tokens, max, sampling, seed);
            let pairs = written.tokens.iter().zip(&written.logprobs);
            meta["output_token_logprobs"] =
                pairs.map(|(id, value)| json!([value, id, null])).collect();
            if written.finish == FinishReason::Stop {
                meta["finish_reason"] = json!({"type": "stop", "matched": written.tokens.last()});
            }
            written_ids = written.tokens;
        }
        Ok(json!({"output_ids": written_ids, "meta_info": meta}))
    }
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).map(|id| id as u32).collect()
}
