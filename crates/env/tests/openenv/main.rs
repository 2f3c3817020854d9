//! The OpenEnv client against small servers of our own: play, forks three ways, faults.

mod recordings;
mod server;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lens_env::remote::{EnvironmentOptions, RemoteBenchmark, RemoteReport};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, openenv};
use serde_json::json;
use server::{Manner, Server, rooms, rooms_with_injection, rooms_with_snapshots};
use tokio_tungstenite::tungstenite::Message;

fn options(server: &Server) -> EnvironmentOptions {
    EnvironmentOptions {
        url: server.url.clone(),
        actions: "/observation/legal".to_owned(),
        connect_seconds: 5.0,
        answer_seconds: 5.0,
        ..EnvironmentOptions::default()
    }
}

fn friendly() -> Server {
    Server::start(Manner::default(), Arc::new(rooms))
}

fn task(benchmark: &RemoteBenchmark, split: &str, index: usize) -> Task {
    benchmark.tasks(split).expect("a split").remove(index)
}

#[test]
fn an_episode_is_played_by_the_servers_tasks_and_schema() {
    let server = friendly();
    let benchmark = openenv::open(&options(&server)).expect("it opens");
    let sizes: Vec<_> =
        benchmark.splits().into_iter().map(|split| (split.name, split.tasks)).collect();
    assert_eq!(sizes, [("train".to_owned(), 3), ("test".to_owned(), 3)]);
    let task = task(&benchmark, "test", 1);
    assert_eq!(task.id, "test/1", "the same name in another split");
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert_eq!((view.task.as_str(), view.observation.as_str()), ("walk to room 2", "Room 0."));
    assert_eq!(view.actions, Actions::Commands(vec!["east".to_owned(), "west".to_owned()]));
    let view = environment.step("east").expect("it steps");
    assert_eq!((view.observation.as_str(), view.status), ("Room 1.", Status::Running));
    let view = environment.step("east").expect("it steps");
    assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
}

/// Forks twice in the middle of an episode; gives what the branches saw and what it took.
fn forked(server: &Server) -> (Vec<String>, RemoteReport) {
    let benchmark = openenv::open(&options(server)).expect("it opens");
    let mut environment = benchmark.play();
    environment.reset(&task(&benchmark, "train", 2)).expect("it resets");
    environment.step("east").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    environment.step("west").expect("it steps");
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut branch = benchmark.play();
        seen.push(branch.restore(&saved).expect("it is restored").observation);
        for action in ["east", "stay", "east"] {
            let view = branch.step(action).expect("it steps");
            seen.push(format!("{} {:?} {}", view.observation, view.status, view.turn));
        }
    }
    (seen, benchmark.report())
}

#[test]
fn forks_by_replay_by_messages_and_by_injection_see_the_same() {
    let (replayed, report) = forked(&friendly());
    assert_eq!((report.replayed, report.restored, report.not_repeatable), (2, 0, 0));
    assert_eq!(replayed.last().map(String::as_str), Some("Room 3. Ended { success: true } 4"));
    let probed = Server::start(Manner::default(), Arc::new(rooms_with_snapshots));
    let announced = Manner {
        metadata: json!({"capabilities": {"snapshot": {"version": 1}}, "turn_limit": 9}),
        ..Manner::default()
    };
    let announced = Server::start(announced, Arc::new(rooms_with_snapshots));
    let set_state =
        Manner { metadata: json!({"capabilities": {"set_state": true}}), ..Manner::default() };
    let injected = Server::start(set_state.clone(), Arc::new(rooms_with_injection));
    for server in [probed, announced, injected] {
        let (seen, report) = forked(&server);
        assert_eq!(seen, replayed);
        assert_eq!((report.replayed, report.restored, report.not_repeatable), (0, 2, 0));
    }
    // A server that promises and starts a new episode instead is found out, and the state is replayed.
    let liar = Server::start(
        set_state,
        Arc::new(|session: &mut server::Session, request: &_| {
            let answer = rooms_with_injection(session, request);
            if request["data"].get("injected_state").is_some() {
                rooms(session, &json!({"type": "reset"}))
            } else {
                answer
            }
        }),
    );
    let (seen, report) = forked(&liar);
    assert_eq!(seen, replayed);
    assert_eq!((report.replayed, report.restored), (2, 0));
}

#[test]
fn a_wrong_snapshot_is_noticed_and_replayed() {
    let server = Server::start(
        Manner::default(),
        Arc::new(|session: &mut server::Session, request: &_| {
            let answer = rooms_with_snapshots(session, request);
            if request["type"] == "restore" {
                session.room = 7;
                return rooms(session, &json!({"type": "step", "data": {}}));
            }
            answer
        }),
    );
    let (seen, report) = forked(&server);
    assert_eq!(seen, forked(&friendly()).0);
    assert_eq!((report.replayed, report.restored), (2, 0));
}

#[test]
fn a_server_that_does_not_repeat_itself_is_noticed_and_counted() {
    let server = Server::start(
        Manner::default(),
        Arc::new(|session: &mut server::Session, request: &_| {
            if request["type"] == "step" {
                session.room = session.number;
            }
            rooms(session, request)
        }),
    );
    let benchmark = openenv::open(&options(&server)).expect("it opens");
    let mut environment = benchmark.play();
    environment.reset(&task(&benchmark, "train", 2)).expect("it resets");
    environment.step("stay").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    let error = benchmark.play().restore(&saved).expect_err("it differs");
    assert!(matches!(error, EnvError::NotRepeatable(_)), "{error}");
    assert_eq!(benchmark.report().not_repeatable, 1);
}

fn step_error(answer: impl Fn() -> Option<Message> + Send + Sync + 'static) -> String {
    let server = Server::start(
        Manner::default(),
        Arc::new(move |session: &mut server::Session, request: &serde_json::Value| {
            if request["data"]["command"] == "fault" { answer() } else { rooms(session, request) }
        }),
    );
    let options =
        EnvironmentOptions { answer_seconds: 0.5, max_message_mib: 1, ..options(&server) };
    let benchmark = openenv::open(&options).expect("it opens");
    let mut environment = benchmark.play();
    environment.reset(&task(&benchmark, "train", 2)).expect("it resets");
    let error = environment.step("fault").expect_err("it fails").to_string();
    assert_eq!(benchmark.report().failures, 1);
    environment.reset(&task(&benchmark, "train", 2)).expect("the next episode has a new session");
    error
}

#[test]
fn every_fault_ends_in_words_and_in_time() {
    type Answer = Box<dyn Fn() -> Option<Message> + Send + Sync>;
    let text = |text: &'static str| -> Answer { Box::new(move || Some(Message::text(text))) };
    let cases: Vec<(Answer, &str)> = vec![
        (Box::new(|| None), "socket"),
        (
            Box::new(|| {
                std::thread::sleep(Duration::from_secs(3));
                None
            }),
            "did not answer within 0.5 s",
        ),
        (text("rubbish"), "no JSON"),
        (text("[1]"), "no JSON object"),
        (text(r#"{"type":"party"}"#), "unknown type"),
        (text(r#"{"type":"state","data":{}}"#), "answered by a state"),
        (
            text(r#"{"type":"error","data":{"code":"EXECUTION_ERROR","message":"boom"}}"#),
            "EXECUTION_ERROR: boom",
        ),
        (
            text(r#"{"type":"error","data":{"code":"SESSION_ERROR","message":"gone"}}"#),
            "SESSION_ERROR: gone",
        ),
        (Box::new(|| Some(Message::text("x".repeat(50_000_000)))), "too long"),
        (Box::new(|| Some(Message::binary(vec![0xff, 0xfe]))), "no text"),
    ];
    for (answer, words) in cases {
        let started = Instant::now();
        let error = step_error(answer);
        assert!(error.to_lowercase().contains(&words.to_lowercase()), "{words}: {error}");
        assert!(started.elapsed() < Duration::from_secs(8), "{words}");
    }
}

#[test]
fn an_invalid_action_costs_a_turn_and_not_the_episode() {
    let server = Server::start(
        Manner::default(),
        Arc::new(|session: &mut server::Session, request: &_| {
            if request["data"]["command"] == "" {
                let errors =
                    json!([{"loc": ["command"], "msg": "String should have at least 1 character"}]);
                let data = json!({"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors});
                return Some(Message::text(json!({"type": "error", "data": data}).to_string()));
            }
            rooms(session, request)
        }),
    );
    let benchmark = openenv::open(&options(&server)).expect("it opens");
    let mut environment = benchmark.play();
    environment.reset(&task(&benchmark, "train", 2)).expect("it resets");
    let view = environment.step("").expect("it is answered");
    assert_eq!(
        view.observation,
        "Invalid action: command: String should have at least 1 character."
    );
    assert_eq!((view.turn, benchmark.report().refused_actions), (1, 1));
    assert_eq!(environment.step("east").expect("it steps").observation, "Room 1.");
}

#[test]
fn a_full_server_is_waited_for_and_then_named() {
    let manner = Manner { capacity: 1, ..Manner::default() };
    let server = Server::start(manner, Arc::new(rooms));
    let options = EnvironmentOptions { connect_seconds: 0.7, ..options(&server) };
    let benchmark = openenv::open(&options).expect("it opens");
    let first = task(&benchmark, "train", 0);
    let mut environment = benchmark.play();
    environment.reset(&first).expect("it resets");
    let error = benchmark.play().reset(&first).expect_err("there is no second").to_string();
    assert!(error.contains("CAPACITY_REACHED") && error.contains("max_concurrent_envs"), "{error}");
    let waiting =
        std::thread::spawn(move || benchmark.play().reset(&first).map(|view| view.observation));
    std::thread::sleep(Duration::from_millis(200));
    drop(environment);
    assert_eq!(waiting.join().expect("no panic").expect("a slot came free"), "Room 0.");
}

#[test]
fn no_session_is_left_after_a_thousand_episodes() {
    let server = friendly();
    let benchmark = openenv::open(&options(&server)).expect("it opens");
    let first = task(&benchmark, "train", 0);
    for _ in 0..1000 {
        let mut environment = benchmark.play();
        environment.reset(&first).expect("it resets");
        environment.step("east").expect("it steps");
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.open.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.open.load(Ordering::SeqCst), 0);
    assert_eq!(server.opened.load(Ordering::SeqCst), 1000);
}

#[test]
fn settings_that_do_not_fit_the_server_are_named() {
    let without =
        Server::start(Manner { without_tasks: true, ..Manner::default() }, Arc::new(rooms));
    let error = openenv::open(&options(&without)).err().expect("no tasks").to_string();
    assert!(error.starts_with("environment.tasks"), "{error}");
    let server = friendly();
    let wrong = EnvironmentOptions { action_field: "verb".to_owned(), ..options(&server) };
    let error = openenv::open(&wrong).err().expect("no such field").to_string();
    assert!(error.starts_with("environment.action_field") && error.contains("command"), "{error}");
    let nowhere = EnvironmentOptions { url: "http://127.0.0.1:9".to_owned(), ..options(&server) };
    let error = openenv::open(&nowhere).err().expect("nobody there").to_string();
    assert!(error.contains("127.0.0.1:9"), "{error}");
}
