//! Engines on other machines, against real sockets on loopback.

mod faults;
mod inference;
mod mixed;
mod real_worker;
mod recordings;
mod server;
mod sglang;
mod torch;
mod transfer;
mod traps;
mod vllm;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use lens_engine::http::{Endpoint, Key, Retry};
use lens_engine::native::NativeCodec;
use lens_engine::remote::{Served, ServedOptions, ServedPolicy, ServerKind};
use lens_engine::{EngineError, GenerateCall, Message, Policy, Sampling};
use lens_lm::checkpoint::ModelFiles;
use lens_opd::random::{Purpose, StreamKey};

const QUICK: Retry = Retry { again: 5, pause: Duration::from_millis(5) };

fn options() -> ServedOptions {
    ServedOptions { concurrency: 8, timeout: Duration::from_secs(30), retry: QUICK, scores: true }
}

fn codec(name: &str) -> Arc<NativeCodec> {
    let files = ModelFiles::read(&inference::lab(name)).expect("the laboratory model is there");
    Arc::new(NativeCodec::new(&files).expect("a tokenizer and a template"))
}

fn key(word: &str) -> Key {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), word).expect("written");
    Key::from_file(file.path()).expect("a key")
}

fn connect(
    kind: ServerKind,
    urls: &[&str],
    options: ServedOptions,
) -> Result<Arc<Served>, EngineError> {
    let endpoints = urls.iter().map(|url| Endpoint::new(url, None)).collect::<Result<_, _>>()?;
    Ok(Arc::new(Served::connect(kind, endpoints, codec("student-large"), options)?))
}

fn policy(kind: ServerKind, url: &str) -> ServedPolicy {
    ServedPolicy::frozen(connect(kind, &[url], options()).expect("the server is good"))
}

fn prompt(policy: &dyn Policy, text: &str) -> Vec<u32> {
    policy.codec().prompt(&[Message::user(text)]).expect("it can be encoded")
}

fn call(policy: &dyn Policy, text: &str, sampling: Sampling) -> GenerateCall {
    GenerateCall {
        prompt: prompt(policy, text),
        max_prompt_tokens: 900,
        max_new_tokens: 12,
        sampling,
        stream: StreamKey::new(7, 3, text.len() as u64, Purpose::Rollout, 2),
    }
}
