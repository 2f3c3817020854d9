//! Our environments behind the socket: the same transcripts as in process, forks, limits, guards.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_env::remote::{EnvironmentOptions, SnapshotUse};
use lens_env::{Actions, Benchmark, BenchmarkOptions, Environment, Status, openenv, registry};
use lens_serve::{ServeError, ServeOptions, Server};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

fn built_in(name: &str) -> Arc<dyn Benchmark> {
    registry::open(name, &BenchmarkOptions::default()).expect("it is built in")
}

fn options() -> ServeOptions {
    ServeOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServeOptions::default() }
}

fn serve(name: &str) -> Server {
    Server::start(built_in(name), &options()).expect("it starts")
}

fn client(server: &Server) -> EnvironmentOptions {
    EnvironmentOptions {
        url: format!("http://{}", server.address()),
        observation: "{{ observation.text }}".to_owned(),
        ..EnvironmentOptions::default()
    }
}

/// The last listed action of a view, or anything where none is listed.
fn some_action(actions: &Actions, turn: usize) -> String {
    match actions {
        Actions::Commands(commands) if !commands.is_empty() => {
            commands[turn * 7 % commands.len()].clone()
        }
        _ => "look around".to_owned(),
    }
}

#[test]
fn a_served_episode_is_the_one_in_process() {
    for name in ["alfworld", "webshop"] {
        let (server, own) = (serve(name), built_in(name));
        let served = openenv::open(&client(&server)).expect("it opens");
        let split = own.profile().eval_splits[0].to_string();
        let tasks = own.tasks(&split).expect("a split");
        assert_eq!(served.tasks(&split).expect("the same split"), tasks);
        for task in tasks.iter().take(5) {
            let (mut here, mut there) =
                (Arc::clone(&own).environment().expect("one"), served.play());
            let (mut seen, mut told) =
                (here.reset(task).expect("it resets"), there.reset(task).expect("it resets"));
            for turn in 0..12 {
                assert_eq!(seen, told, "{name}, {}, turn {turn}", task.id);
                let action = some_action(&seen.actions, turn);
                seen = here.step(&action).expect("it steps");
                told = there.step(&action).expect("it steps");
            }
        }
    }
}

/// Says something that shows even in a test that passes.
fn tell(text: &str) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{text}\n"));
}

#[test]
fn served_science_is_the_one_in_process_forks_included() {
    let opened = registry::open("scienceworld", &BenchmarkOptions::default());
    let own = match opened {
        Ok(own) => own,
        Err(error) => {
            let required = std::env::var_os("LENS_REQUIRE_SCIENCEWORLD");
            assert!(required.is_none_or(|value| value != "1"), "required, but {error}");
            return tell(&format!("skipped: {error}"));
        }
    };
    let server = Server::start(Arc::clone(&own), &options()).expect("it starts");
    let served = openenv::open(&client(&server)).expect("it opens");
    let task = own.tasks("test").expect("a split").remove(3);
    assert_eq!(served.tasks("test").expect("the same split")[3], task);
    let (mut here, mut there) = (Arc::clone(&own).environment().expect("one"), served.play());
    let (mut seen, mut told) =
        (here.reset(&task).expect("it resets"), there.reset(&task).expect("it resets"));
    assert!(matches!(seen.actions, Actions::Templates { .. }), "templates and objects");
    for action in ["look around", "inventory", "open door to hallway", "nonsense"] {
        assert_eq!(seen, told, "before {action:?}");
        seen = here.step(action).expect("it steps");
        told = there.step(action).expect("it steps");
    }
    assert_eq!(seen, told);
    let saved = there.snapshot().expect("a snapshot");
    let mut branch = served.play();
    assert_eq!(branch.restore(&saved).expect("it is restored"), seen);
    let next = here.step("look around").expect("it steps");
    assert_eq!(branch.step("look around").expect("it steps"), next);
    assert_eq!((served.report().restored, served.report().failures), (1, 0));
}

#[test]
fn a_server_that_dies_ends_the_episode_in_words_and_in_time() {
    let server = serve("alfworld");
    let quick = EnvironmentOptions { connect_seconds: 2.0, answer_seconds: 2.0, ..client(&server) };
    let served = openenv::open(&quick).expect("it opens");
    let task = served.tasks("train").expect("a split").remove(0);
    let mut environment = served.play();
    environment.reset(&task).expect("it resets");
    let address = server.address().to_string();
    drop(server);
    let started = Instant::now();
    let error = environment.step("look").expect_err("nobody answers").to_string();
    assert!(error.contains("socket"), "{error}");
    let error = environment.reset(&task).expect_err("nobody is there").to_string();
    assert!(error.contains(&address), "{error}");
    assert!(started.elapsed() < Duration::from_secs(8));
    assert_eq!(served.report().failures, 1);
}

#[test]
fn forks_by_snapshot_and_by_replay_see_the_same() {
    let server = serve("alfworld");
    let mut seen = Vec::new();
    for snapshot in [SnapshotUse::Auto, SnapshotUse::Replay] {
        let served =
            openenv::open(&EnvironmentOptions { snapshot, ..client(&server) }).expect("it opens");
        let task = served.tasks("valid_unseen").expect("a split").remove(3);
        let mut environment = served.play();
        let mut view = environment.reset(&task).expect("it resets");
        for turn in 0..4 {
            view = environment.step(&some_action(&view.actions, turn)).expect("it steps");
        }
        let saved = environment.snapshot().expect("a snapshot");
        drop(environment);
        let mut branch = served.play();
        let restored = branch.restore(&saved).expect("it is restored");
        assert_eq!(restored, view);
        let next = branch.step(&some_action(&view.actions, 9)).expect("it steps");
        seen.push((restored, next));
        let report = served.report();
        let counts = (report.restored, report.replayed, report.not_repeatable);
        assert_eq!(counts, if snapshot == SnapshotUse::Auto { (1, 0, 0) } else { (0, 1, 0) });
    }
    assert_eq!(seen[0], seen[1]);
}

#[test]
fn the_expert_wins_through_the_socket() {
    let server = serve("alfworld");
    let own = built_in("alfworld");
    let served = openenv::open(&client(&server)).expect("it opens");
    let expert = own.expert().expect("ALFWorld has one");
    let task = served.tasks("valid_seen").expect("a split").remove(0);
    let played =
        lens_env::demonstrate(&mut served.play(), &*expert, &task, 50, 2).expect("it plays");
    assert_eq!(played.last.status, Status::Ended { success: true });
    assert!((played.last.score - 1.0).abs() < 1e-9);
}

type Socket = WebSocket<MaybeTlsStream<TcpStream>>;

fn connect(server: &Server) -> Socket {
    tungstenite::connect(format!("ws://{}/ws", server.address())).expect("it connects").0
}

fn say(socket: &mut Socket, text: &str) -> Value {
    socket.send(Message::text(text)).expect("it is sent");
    hear(socket)
}

fn hear(socket: &mut Socket) -> Value {
    loop {
        if let Message::Text(text) = socket.read().expect("an answer") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

#[test]
fn every_message_has_its_answer_and_the_session_goes_on() {
    let server = serve("alfworld");
    let mut socket = connect(&server);
    for (message, code) in [
        ("{", "INVALID_JSON"),
        ("", "INVALID_JSON"),
        (r#"{"type":"party"}"#, "UNKNOWN_TYPE"),
        (r#"{"type":null}"#, "UNKNOWN_TYPE"),
        (r#"{"type":"step"}"#, "VALIDATION_ERROR"),
        (r#"{"type":"state","data":{}}"#, "VALIDATION_ERROR"),
        (r#"{"type":"close","data":{}}"#, "VALIDATION_ERROR"),
        (r#"{"type":"reset","data":null}"#, "VALIDATION_ERROR"),
        (r#"{"type":"reset","seed":1}"#, "VALIDATION_ERROR"),
        (r#"{"type":"step","data":{"command":5}}"#, "VALIDATION_ERROR"),
        (r#"{"type":"step","data":{"command":"look","speed":1}}"#, "VALIDATION_ERROR"),
        (r#"{"type":"step","data":{"command":"look"}}"#, "EXECUTION_ERROR"),
        (r#"{"type":"snapshot"}"#, "EXECUTION_ERROR"),
        (r#"{"type":"restore","data":{"id":"s9"}}"#, "EXECUTION_ERROR"),
        (r#"{"type":"reset","data":{"split":"nosuch"}}"#, "EXECUTION_ERROR"),
        (r#"{"type":"reset","data":{"split":"train","index":999999}}"#, "EXECUTION_ERROR"),
        (r#"{"type":"reset","data":{"injected_state":"s9"}}"#, "EXECUTION_ERROR"),
    ] {
        let answer = say(&mut socket, message);
        assert_eq!(
            (&answer["type"], &answer["data"]["code"]),
            (&json!("error"), &json!(code)),
            "{message}"
        );
    }
    let reset = say(&mut socket, r#"{"type":"reset","data":{"seed":3,"episode_id":"e"}}"#);
    assert_eq!((&reset["data"]["reward"], &reset["data"]["done"]), (&Value::Null, &json!(false)));
    let step = say(&mut socket, r#"{"type":"step","data":{"command":"look","metadata":{"a":1}}}"#);
    assert_eq!(step["data"]["reward"], json!(0.0));
    let state = say(&mut socket, r#"{"type":"state"}"#);
    assert_eq!(
        (&state["data"]["episode_id"], &state["data"]["step_count"]),
        (&json!("e"), &json!(1))
    );
    // The state's token brings the state back by standard messages alone.
    let token = state["data"]["snapshot"].as_str().expect("a token");
    let injected = json!({"type": "reset", "data": {"injected_state": token}}).to_string();
    let restored = say(&mut socket, &injected);
    assert_eq!(restored["data"]["metadata"]["restored"], json!(true));
    assert_eq!(restored["data"]["observation"]["text"], step["data"]["observation"]["text"]);
    let last = say(&mut socket, "[1]");
    assert_eq!(last["data"]["code"], json!("SESSION_ERROR"));
    assert!(matches!(socket.read(), Ok(Message::Close(_)) | Err(_)));
}

fn rpc(server: &Server, method: &str, params: &Value) -> Value {
    let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).build().into();
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let sent = agent.post(format!("http://{}/mcp", server.address())).send_json(request);
    let text = sent.expect("an answer").body_mut().read_to_string().expect("text");
    serde_json::from_str(&text).expect("JSON")
}

fn attach(server: &Server, id: &str) -> Socket {
    let address = format!("ws://{}/ws?session_id={id}", server.address());
    tungstenite::connect(address).expect("it connects").0
}

#[test]
fn a_session_made_over_http_outlives_its_socket() {
    let options = ServeOptions { max_sessions: 1, ..options() };
    let server = Server::start(built_in("alfworld"), &options).expect("it starts");
    let made = rpc(&server, "openenv/session/create", &json!({}));
    let id = made["result"]["session_id"].as_str().expect("an id").to_owned();
    let full = rpc(&server, "openenv/session/create", &json!({}));
    assert_eq!(full["error"]["code"], json!(-32000));
    assert_eq!(full["error"]["data"], json!({"active_sessions": 1, "max_sessions": 1}));
    let mut first = attach(&server, &id);
    say(&mut first, r#"{"type":"reset","data":{"episode_id":"e","index":2}}"#);
    let step = say(&mut first, r#"{"type":"step","data":{"command":"look"}}"#);
    let refused = hear(&mut attach(&server, &id));
    assert_eq!(refused["data"]["code"], json!("SESSION_ERROR"));
    assert!(refused["data"]["message"].to_string().contains("already has an attached WebSocket"));
    drop(first);
    // The socket's end takes a moment to be noticed.
    let deadline = Instant::now() + Duration::from_secs(5);
    let (mut again, state) = loop {
        let mut again = attach(&server, &id);
        let _ = again.send(Message::text(r#"{"type":"state"}"#));
        let state = hear(&mut again);
        if state["type"] == json!("state") {
            break (again, state);
        }
        assert!(Instant::now() < deadline, "{state}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(
        (&state["data"]["episode_id"], &state["data"]["step_count"]),
        (&json!("e"), &json!(1))
    );
    let next = say(&mut again, r#"{"type":"step","data":{"command":"look"}}"#);
    assert_eq!(next["data"]["observation"]["text"], step["data"]["observation"]["text"]);
    let closing = rpc(&server, "openenv/session/close", &json!({"session_id": id}));
    assert_eq!(closing["result"], json!({"session_id": id, "closed": false, "closing": true}));
    drop(again);
    wait_for_no_session(&server);
    let unknown = rpc(&server, "tools/list", &json!({"session_id": id}));
    assert_eq!(unknown["error"]["code"], json!(-32602));
    assert_eq!(hear(&mut attach(&server, &id))["data"]["code"], json!("SESSION_ERROR"));
    let made = rpc(&server, "openenv/session/create", &json!({}));
    let id = made["result"]["session_id"].as_str().expect("an id").to_owned();
    let closed = rpc(&server, "openenv/session/close", &json!({"session_id": id}));
    assert_eq!((&closed["result"]["closed"], server.sessions()), (&json!(true), 0));
}

#[test]
fn a_session_that_nobody_attaches_to_is_dropped() {
    let idle = ServeOptions { idle: Duration::from_millis(100), max_sessions: 1, ..options() };
    let server = Server::start(built_in("alfworld"), &idle).expect("it starts");
    rpc(&server, "openenv/session/create", &json!({}));
    std::thread::sleep(Duration::from_millis(200));
    let made = rpc(&server, "openenv/session/create", &json!({}));
    assert!(made["result"]["session_id"].is_string(), "its place is free again: {made}");
    // A socket's own session has a name too, and goes with the socket.
    let server = serve("alfworld");
    let mut socket = connect(&server);
    let message =
        r#"{"type":"mcp","data":{"jsonrpc":"2.0","id":4,"method":"openenv/session/create"}}"#;
    assert!(say(&mut socket, message)["data"]["result"]["session_id"].is_string());
}

fn wait_for_no_session(server: &Server) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while server.sessions() > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.sessions(), 0);
}

#[test]
fn places_are_limited_and_freed() {
    let server =
        Server::start(built_in("alfworld"), &ServeOptions { max_sessions: 2, ..options() })
            .expect("it starts");
    let (mut first, mut second) = (connect(&server), connect(&server));
    say(&mut first, r#"{"type":"state"}"#);
    say(&mut second, r#"{"type":"state"}"#);
    let mut third = connect(&server);
    let refused = hear(&mut third);
    assert_eq!(refused["data"]["code"], json!("CAPACITY_REACHED"));
    assert_eq!(
        (&refused["data"]["active_sessions"], &refused["data"]["max_sessions"]),
        (&json!(2), &json!(2))
    );
    first.send(Message::text(r#"{"type":"close"}"#)).expect("it is sent");
    assert!(matches!(first.read(), Ok(Message::Close(_)) | Err(_)));
    let mut fourth = connect(&server);
    assert_eq!(say(&mut fourth, r#"{"type":"state"}"#)["type"], json!("state"));
    // A client that vanishes frees its place too.
    drop((second, fourth));
    wait_for_no_session(&server);
}

#[test]
fn idle_sessions_are_closed() {
    let idle = ServeOptions { idle: Duration::from_millis(200), ..options() };
    let server = Server::start(built_in("alfworld"), &idle).expect("it starts");
    let mut socket = connect(&server);
    say(&mut socket, r#"{"type":"state"}"#);
    assert_eq!(hear(&mut socket)["data"]["code"], json!("SESSION_ERROR"));
    wait_for_no_session(&server);
}

#[test]
fn many_sessions_play_side_by_side_and_none_is_left() {
    let server = serve("alfworld");
    let served = openenv::open(&client(&server)).expect("it opens");
    let tasks = served.tasks("train").expect("a split");
    let mut environments: Vec<_> = (0..256).map(|_| served.play()).collect();
    for (environment, task) in environments.iter_mut().zip(&tasks) {
        environment.reset(task).expect("it resets");
    }
    assert_eq!(server.sessions(), 256);
    for environment in &mut environments {
        environment.step("look").expect("it steps");
    }
    drop(environments);
    wait_for_no_session(&server);
}

fn status(server: &Server, path: &str, headers: &[(&str, &str)]) -> u16 {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().into();
    let mut request = agent.get(format!("http://{}{path}", server.address()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.call().expect("an answer").status().as_u16()
}

#[test]
fn strangers_are_kept_out() {
    let server = serve("alfworld");
    for path in [
        "/",
        "/health",
        "/metadata",
        "/schema",
        "/openapi.json",
        "/list_environments",
        "/alfworld/splits",
    ] {
        assert_eq!(status(&server, path, &[]), 200, "{path}");
    }
    assert_eq!(status(&server, "/health", &[("Host", "evil.example")]), 403);
    assert_eq!(status(&server, "/health", &[("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&server, "/nosuch/splits", &[]), 404);
    let everywhere = ServeOptions { address: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() };
    let error = Server::start(built_in("alfworld"), &everywhere).expect_err("no token");
    assert!(matches!(error, ServeError::OpenWithoutToken(_)));
    let weak = ServeOptions { token: Some("secret".to_owned()), ..everywhere };
    assert!(matches!(Server::start(built_in("alfworld"), &weak), Err(ServeError::WeakToken)));
    let guarded = ServeOptions { token: Some("0123456789abcdef".to_owned()), ..options() };
    let server = Server::start(built_in("alfworld"), &guarded).expect("it starts");
    assert_eq!(status(&server, "/health", &[]), 401);
    assert_eq!(status(&server, "/health", &[("Authorization", "Bearer 0123456789abcdef")]), 200);
    assert!(tungstenite::connect(format!("ws://{}/ws", server.address())).is_err());
}
