//! Recordings of a real vLLM 0.32 server, replayed: every exchange that has our shape is read by the client. They lie
//! beside the project and are not part of it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_engine::remote::ServedPolicy;
use lens_engine::remote::ServerKind::Vllm;
use lens_engine::{Deadline, EngineError, GenerateCall, Policy, Sampling};
use lens_opd::random::{Purpose, StreamKey};
use serde_json::{Value, json};

use crate::server::{Reply, Server};
use crate::{connect, options};

fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("LENS_SHARED").map_or(beside, PathBuf::from).join("golden/vllm");
    if folder.is_dir() {
        return Some(folder);
    }
    let required = std::env::var_os("LENS_REQUIRE_SHARED").is_some_and(|value| value == "1");
    assert!(!required, "LENS_REQUIRE_SHARED=1, but {} is not there", folder.display());
    let _ = writeln!(std::io::stderr(), "skipped: ../shared is not beside the project");
    None
}

fn exchanges(folder: &Path, file: &str) -> Vec<Value> {
    let entries = std::fs::read_dir(folder).expect("readable").flatten();
    let path = entries.map(|entry| entry.path()).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(file))
    });
    let text = std::fs::read_to_string(path.expect("recorded")).expect("readable");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    json["exchanges"].as_array().expect("exchanges").clone()
}

/// A server that says what the real one said: the recorded answer to the first recorded request with the same tokens.
fn replaying(folder: &Path, files: &[&str]) -> Server {
    let about = exchanges(folder, "01");
    let all: Vec<Value> = files.iter().flat_map(|file| exchanges(folder, file)).collect();
    Server::start(move |request| {
        let answer = |exchange: &Value| {
            let status = exchange["status"].as_u64().expect("a status") as u16;
            Reply::json(status, &exchange["response"])
        };
        if request.method == "GET" {
            let known = about.iter().find(|exchange| exchange["request"]["path"] == request.path);
            return known.map_or_else(|| Reply::json(404, &json!({"detail": "Not Found"})), answer);
        }
        let body = request.json();
        let found = all.iter().find(|exchange| {
            let recorded = &exchange["request"]["body"];
            let (asked, params) = (&recorded["sampling_params"], &body["sampling_params"]);
            exchange["request"]["path"] == request.path
                && recorded["token_ids"] == body["token_ids"]
                && asked["prompt_logprobs"] == params["prompt_logprobs"]
                && asked["prompt_logprob_token_ids"].is_null()
                    == params["prompt_logprob_token_ids"].is_null()
        });
        // What was never recorded: the probe, answered in the recorded shape.
        let probe = json!({"choices": [{
            "finish_reason": "length", "token_ids": [203], "weight_versions": [{"version": "default", "start": 0, "end": 1}],
            "logprobs": {"content": [{"token_id": 203, "logprob": -0.9}]},
        }]});
        found.map_or_else(|| Reply::json(200, &probe), answer)
    })
}

fn written(policy: &ServedPolicy, exchange: &Value) -> GenerateCall {
    let body = &exchange["request"]["body"];
    let params = &body["sampling_params"];
    GenerateCall {
        prompt: crate::inference::ids(&body["token_ids"]),
        max_prompt_tokens: policy.served().context(),
        max_new_tokens: params["max_tokens"].as_u64().expect("recorded") as usize,
        sampling: Sampling::at(1.0),
        stream: StreamKey::new(1, 0, 0, Purpose::Rollout, 0),
    }
}

#[test]
fn recorded_responses_are_read() {
    let Some(folder) = folder() else { return };
    let server = replaying(&folder, &["21"]);
    let served = ServedPolicy::frozen(
        connect(Vllm, &[&server.url], options()).expect("the recorded server is good"),
    );
    assert_eq!(served.served().context(), 1024);
    let recorded = &exchanges(&folder, "21")[0];
    let call = written(&served, recorded);
    let found =
        served.generate(&[call], Deadline::never()).expect("works").remove(0).expect("read");
    assert_eq!(
        found.tokens,
        crate::inference::ids(&recorded["response"]["choices"][0]["token_ids"])
    );
    assert!((found.logprobs[0] + 0.969_468_4).abs() < 1e-6);
}

#[test]
fn recorded_refusals_are_told_with_what_to_do() {
    let Some(folder) = folder() else { return };
    let off = exchanges(&folder, "08");
    let off = off
        .iter()
        .find(|exchange| exchange["request"]["path"] == "/inference/v1/generate")
        .expect("recorded")
        .clone();
    let about = exchanges(&folder, "01");
    let server = Server::start(move |request| {
        let known = about.iter().find(|exchange| exchange["request"]["path"] == request.path);
        let exchange = known.unwrap_or(&off);
        Reply::json(exchange["status"].as_u64().expect("a status") as u16, &exchange["response"])
    });
    let error = connect(Vllm, &[&server.url], options()).err().expect("refused").to_string();
    assert!(error.contains("--enable-scale-out"), "{error}");
}

#[test]
fn recorded_aborts_and_errors_never_become_answers() {
    let Some(folder) = folder() else { return };
    for file in ["23", "31", "41", "51"] {
        for exchange in exchanges(&folder, file) {
            let (request, response) = (&exchange["request"], &exchange["response"]);
            if request["path"] != "/inference/v1/generate"
                || request["body"]["token_ids"].is_null()
                || exchange["status"].is_null()
            {
                continue;
            }
            let finish = response["choices"][0]["finish_reason"].as_str();
            let good = exchange["status"] == 200 && matches!(finish, Some("stop" | "length"));
            if good || !response["…"].is_null() {
                continue;
            }
            let server = one_exchange(&folder, &exchange);
            let mut options = options();
            options.retry.again = 0;
            let served = ServedPolicy::frozen(
                connect(Vllm, &[&server.url], options).expect("the probe is good"),
            );
            let mut call = written(&served, &exchange);
            call.max_prompt_tokens = 100_000;
            match served.generate(&[call], Deadline::never()) {
                Ok(answers) => assert!(answers[0].is_err(), "{file}: {response}"),
                Err(error) => {
                    assert!(!matches!(error, EngineError::Version { .. }), "{file}: {error}");
                }
            }
        }
    }
}

fn one_exchange(folder: &Path, exchange: &Value) -> Arc<Server> {
    let about = exchanges(folder, "01");
    let exchange = exchange.clone();
    Arc::new(Server::start(move |request| {
        if request.method == "GET" {
            let known = about
                .iter()
                .find(|exchange| exchange["request"]["path"] == request.path)
                .expect("recorded");
            return Reply::json(200, &known["response"]);
        }
        if request.json()["token_ids"] == exchange["request"]["body"]["token_ids"] {
            return Reply::json(
                exchange["status"].as_u64().expect("a status") as u16,
                &exchange["response"],
            );
        }
        Reply::json(
            200,
            &json!({"choices": [{
                "finish_reason": "length", "token_ids": [203], "weight_versions": [{"version": "default", "start": 0, "end": 1}],
                "logprobs": {"content": [{"token_id": 203, "logprob": -0.9}]},
            }]}),
        )
    }))
}
