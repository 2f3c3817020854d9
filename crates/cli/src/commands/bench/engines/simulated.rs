//! Servers that speak vLLM's protocol and write nothing but a fixed action, as slowly as a real engine. They run in a
//! process of their own, so that their work is not counted as the driver's.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use lens_engine::Codec;
use lens_engine::native::NativeCodec;
use lens_lm::checkpoint::ModelFiles;
use lens_opd::random::{Purpose, StreamKey};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// How the servers behave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Servers.
    pub(super) servers: usize,
    /// Sequences one server writes at once; more wait.
    pub(super) slots: usize,
    /// Tokens per second of one sequence.
    pub(super) speed: f64,
}

struct Engine {
    slots: Semaphore,
    speed: f64,
    /// The action and the end of the turn.
    tokens: Vec<u32>,
}

/// Serves until the process is ended. Prints the servers' addresses first, one line of JSON.
pub(super) fn serve(pace: Pace, model: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let codec =
        NativeCodec::new(&ModelFiles::read(model)?).map_err(|error| Failure::User(error.into()))?;
    let tokens = codec.response("I look around. <action>look</action>");
    let tokens = tokens.map_err(|error| Failure::User(error.into()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut listeners = Vec::new();
    for _ in 0..pace.servers {
        listeners.push(runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?);
    }
    let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port()));
    let ports = ports.collect::<Result<Vec<u16>, std::io::Error>>()?;
    writeln!(out, "{}", json!(ports))?;
    out.flush()?;
    let all: Vec<_> = listeners
        .into_iter()
        .map(|listener| {
            let slots = Semaphore::new(pace.slots);
            let engine = Engine { slots, speed: pace.speed, tokens: tokens.clone() };
            let routes = Router::new()
                .route("/version", get(|| async { Json(json!({"version": "0.32.0"})) }))
                .route("/v1/models", get(models))
                .route("/inference/v1/generate", post(generate))
                .with_state(Arc::new(engine));
            runtime.spawn(async move { axum::serve(listener, routes).await })
        })
        .collect();
    for server in all {
        let ended = runtime.block_on(server).map_err(|error| Failure::Runtime(error.into()))?;
        ended?;
    }
    Ok(())
}

async fn models() -> Json<Value> {
    Json(json!({"data": [{"id": "simulated", "max_model_len": 1 << 20}]}))
}

/// A response of a quarter to all of the tokens that were asked for, drawn by the request's seed.
async fn generate(State(engine): State<Arc<Engine>>, Json(request): Json<Value>) -> Json<Value> {
    let number = |name: &str| request["sampling_params"][name].as_u64().unwrap_or(1);
    let (most, seed) = (number("max_tokens"), number("seed"));
    let mut stream = StreamKey::new(seed, 0, 0, Purpose::Rollout, 0).open();
    let length = most / 4 + stream.below(most - most / 4 + 1).unwrap_or(0);
    let length = (length as usize).max(engine.tokens.len());
    let permit = engine.slots.acquire().await;
    tokio::time::sleep(Duration::from_secs_f64(length as f64 / engine.speed)).await;
    drop(permit);
    let filler = engine.tokens.first().copied().unwrap_or(0);
    let mut tokens = vec![filler; length - engine.tokens.len()];
    tokens.extend(&engine.tokens);
    let content: Vec<Value> = tokens
        .iter()
        .map(|token| json!({"token_id": token, "logprob": -0.5, "rank": 1, "top_logprobs": []}))
        .collect();
    Json(json!({"choices": [{
        "index": 0, "finish_reason": "stop", "stop_reason": null, "token_ids": tokens,
        "weight_versions": [{"version": "default", "start": 0, "end": length}],
        "logprobs": {"content": content},
    }]}))
}

/// The process with the servers; it ends with this value.
pub(super) struct Process {
    child: Child,
    /// The servers' addresses.
    pub(super) urls: Vec<String>,
}

impl Process {
    /// Starts this program once more, as the servers.
    pub(super) fn start(pace: Pace, model: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "engines", "--serve", "--model"])
            .arg(model)
            .args(["--servers", &pace.servers.to_string(), "--slots", &pace.slots.to_string()])
            .args(["--speed", &pace.speed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(said) = child.stdout.take() {
            BufReader::new(said).read_line(&mut line)?;
        }
        let mut process = Self { child, urls: Vec::new() };
        let ports: Vec<u16> = serde_json::from_str(&line)
            .map_err(|_| Failure::user("the simulated servers did not start"))?;
        process.urls = ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
