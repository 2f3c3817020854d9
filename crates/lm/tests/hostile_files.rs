//! Files made to stall or to exhaust the memory: each is refused at once.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use common::copy_of;
use lens_lm::checkpoint::{Checkpoint, ModelFiles};
use lens_lm::gguf::GgufModel;
use lens_lm::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// What `work` says; a stall fails the test instead of hanging it.
fn soon<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_mins(1)).expect("an answer in time")
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

fn checkpoint_error(directory: &Path) -> String {
    let directory = directory.to_owned();
    soon(move || Checkpoint::open(&directory).map(drop).expect_err("refused").to_string())
}

#[test]
fn a_pipe_as_a_shard_is_refused() {
    let copy = copy_of("qwen3");
    std::fs::remove_file(copy.path().join("model.safetensors")).expect("removed");
    let index = json!({"weight_map": {"model.norm.weight": "model-1.safetensors"}});
    std::fs::write(copy.path().join("model.safetensors.index.json"), index.to_string())
        .expect("written");
    pipe(&copy.path().join("model-1.safetensors"));
    let error = checkpoint_error(copy.path());
    assert!(error.contains("model-1.safetensors: not a regular file"), "{error}");
}

#[test]
fn a_pipe_as_a_gguf_file_or_tokenizer_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    pipe(&path);
    let other = path.clone();
    let error = soon(move || GgufModel::open(&path).map(drop).expect_err("refused").to_string());
    assert!(error.contains("not a regular file"), "{error}");
    let error = soon(move || Tokenizer::from_file(&other).map(drop).expect_err("refused"));
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

/// A file that claims 64 GB and takes a few bytes of disk.
fn sparse_gguf(folder: &Path, after_counts: &[u8]) -> String {
    let path = folder.join("sparse.gguf");
    let mut file = std::fs::File::create(&path).expect("created");
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(after_counts);
    file.write_all(&bytes).expect("written");
    file.set_len(64 << 30).expect("the file system has sparse files");
    soon(move || GgufModel::open(&path).map(drop).expect_err("refused").to_string())
}

#[test]
fn a_sparse_gguf_file_cannot_ask_for_gigabytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = sparse_gguf(folder.path(), &60_000_000_000_u64.to_le_bytes());
    assert!(error.contains("a metadata key is said to be 60000000000 bytes long"), "{error}");

    let mut text = 1_u64.to_le_bytes().to_vec();
    text.extend(b"k");
    text.extend(8_u32.to_le_bytes());
    text.extend(60_000_000_000_u64.to_le_bytes());
    let error = sparse_gguf(folder.path(), &text);
    assert!(error.contains("k is said to be 60000000000 bytes long"), "{error}");
}

fn with_positions(positions: &Value) -> Result<(), String> {
    let copy = copy_of("qwen3");
    let path = copy.path().join("config.json");
    let mut config: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("JSON");
    config["max_position_embeddings"] = positions.clone();
    std::fs::write(&path, config.to_string()).expect("written");
    ModelFiles::read(copy.path()).map(drop).map_err(|error| error.to_string())
}

#[test]
fn the_number_of_positions_is_bounded() {
    with_positions(&json!(10_485_760)).expect("the longest context known");
    for positions in [json!(1_000_000_000_000_u64), json!(0), json!((1 << 24) + 1)] {
        let error = with_positions(&positions).expect_err("refused");
        assert!(error.contains("`max_position_embeddings` is"), "{error}");
    }
}
