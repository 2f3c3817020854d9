//! Recordings of the `openenv` package's own servers, answered to our client word for word.
//!
//! The recordings are not part of this repository: they are beside it, or where `LENS_SHARED` says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lens_env::remote::EnvironmentOptions;
use lens_env::remote::options::ActionFormat;
use lens_env::{Actions, Benchmark, Environment, Status, openenv};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use crate::server::{Manner, Server};

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn recording(name: &str) -> Option<Vec<Value>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = std::env::var_os("LENS_SHARED").map_or(beside, PathBuf::from);
    let path = folder.join("golden/openenv").join(format!("{name}.json"));
    if !path.is_file() {
        assert!(
            std::env::var_os("LENS_REQUIRE_SHARED").is_none_or(|value| value != "1"),
            "LENS_REQUIRE_SHARED=1, but there is no {}",
            path.display()
        );
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    let text = std::fs::read_to_string(&path).expect("it can be read");
    let file: Value = serde_json::from_str(&text).expect("a recording is JSON");
    Some(file["recording"].as_array().expect("a list of frames").clone())
}

/// A server that answers every request as it was answered when it was recorded; what was never asked it does not know.
fn replayer(frames: &[Value]) -> Server {
    let payload = |frame: &Value| frame["payload"].as_str().unwrap_or_default().to_owned();
    let mut pairs: Vec<(Value, String)> = Vec::new();
    for pair in frames.windows(2) {
        if pair[0]["dir"] == "c2s" && pair[1]["dir"] == "s2c" {
            pairs.push((
                serde_json::from_str(&payload(&pair[0])).unwrap_or_default(),
                payload(&pair[1]),
            ));
        }
    }
    let pairs = Mutex::new(pairs);
    Server::start(
        Manner::default(),
        Arc::new(move |_: &mut _, request: &Value| {
            let pairs = pairs.lock().expect("no panic");
            let found = pairs.iter().find(|(asked, _)| asked == request);
            let unknown = r#"{"type":"error","data":{"message":"Unknown message type","code":"UNKNOWN_TYPE"}}"#;
            Some(Message::text(found.map_or(unknown.to_owned(), |(_, answer)| answer.clone())))
        }),
    )
}

fn options(server: &Server, folder: &Path, reset: &str) -> EnvironmentOptions {
    let tasks = folder.join("tasks.jsonl");
    std::fs::write(&tasks, format!("{{\"id\": \"recorded\", \"reset\": {reset}}}\n"))
        .expect("written");
    EnvironmentOptions {
        url: server.url.clone(),
        tasks: Some(tasks),
        ..EnvironmentOptions::default()
    }
}

#[test]
fn a_recorded_text_game_is_played() {
    let Some(frames) = recording("ws_game_session") else { return };
    let (server, folder) = (replayer(&frames), tempfile::tempdir().expect("a folder"));
    let options = EnvironmentOptions {
        actions: "/observation/admissible".to_owned(),
        success: "/metadata/won".to_owned(),
        ..options(&server, folder.path(), r#"{"seed": 42}"#)
    };
    let benchmark = openenv::open(&options).expect("it opens");
    let task = benchmark.tasks("train").expect("a split").remove(0);
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert_eq!(
        (view.task.as_str(), view.observation.as_str()),
        ("find the lamp", "You are in the hall.")
    );
    assert!(matches!(&view.actions, Actions::Commands(commands) if commands.len() == 4));
    assert_eq!(environment.step("dance").expect("it steps").observation, "Nothing happens.");
    environment.step("go kitchen").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    let view = environment.step("take lamp").expect("it steps");
    assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
    let mut branch = benchmark.play();
    assert_eq!(branch.restore(&saved).expect("replayed").observation, "You are in the kitchen.");
    assert_eq!(benchmark.report().replayed, 1);
}

#[test]
fn a_recorded_tool_environment_is_played() {
    let Some(frames) = recording("ws_tool_session") else { return };
    let (server, folder) = (replayer(&frames), tempfile::tempdir().expect("a folder"));
    let options = EnvironmentOptions {
        action_format: ActionFormat::Tool,
        ..options(&server, folder.path(), r#"{"seed": 3}"#)
    };
    let benchmark = openenv::open(&options).expect("it opens");
    let task = benchmark.tasks("train").expect("a split").remove(0);
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert!(view.task.contains("add: Add two numbers."), "{}", view.task);
    for (call, seen) in [
        (r#"{"name": "add", "arguments": {"a": 2, "b": 3}}"#, "5"),
        (
            r#"{"name": "fail", "arguments": {"reason": "because"}}"#,
            "Error: Error calling tool 'fail': because",
        ),
        (
            r#"{"name": "nope"}"#,
            "Invalid action: there is no tool \"nope\"; there are add, fail, total.",
        ),
        ("add 2 3", "Invalid action: the action is not JSON: expected value at line 1 column 1."),
    ] {
        assert_eq!(environment.step(call).expect("it steps").observation, seen);
    }
    assert_eq!(benchmark.report().refused_actions, 2);
}

#[test]
fn a_recorded_odd_server_is_read() {
    let Some(frames) = recording("ws_echo_session") else { return };
    let (server, folder) = (replayer(&frames), tempfile::tempdir().expect("a folder"));
    let options = EnvironmentOptions {
        action_field: "command".to_owned(),
        observation: "{{ observation.echoed }}".to_owned(),
        ..options(&server, folder.path(), r#"{"seed": 42}"#)
    };
    let benchmark = openenv::open(&options).expect("it opens");
    let task = benchmark.tasks("train").expect("a split").remove(0);
    let view = benchmark.play().reset(&task).expect("it resets");
    assert_eq!(
        (view.observation.as_str(), view.actions, view.score),
        ("ready", Actions::Free, 0.0)
    );
}
