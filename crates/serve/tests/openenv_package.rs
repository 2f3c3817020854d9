//! Against the real thing: the `openenv` package from PyPI, its client against our server and its servers against our
//! client.
//!
//! Needs a Python with `pip install openenv==0.10.0`: `python3`, or what `LENS_OPENENV_PYTHON` names. Without it the tests
//! say that they are skipped; with `LENS_REQUIRE_OPENENV=1` they fail.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lens_env::remote::EnvironmentOptions;
use lens_env::remote::options::ActionFormat;
use lens_env::{Actions, Benchmark, BenchmarkOptions, Environment, Status, openenv, registry};
use lens_serve::{ServeOptions, Server};

/// The version whose behavior is checked.
const VERSION: &str = "0.10.0";

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn python() -> Option<PathBuf> {
    let python =
        std::env::var_os("LENS_OPENENV_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
    let version = "import importlib.metadata as m; print(m.version('openenv'))";
    let found = Command::new(&python).args(["-c", version]).output().ok();
    let found = found.filter(|output| output.status.success());
    let found = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if found.as_deref() == Some(VERSION) {
        return Some(python);
    }
    let why = format!("{} has openenv {found:?}, not {VERSION}", python.display());
    assert!(std::env::var_os("LENS_REQUIRE_OPENENV").is_none_or(|value| value != "1"), "{why}");
    eprintln!("skipped: {why}");
    None
}

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(name)
}

fn run(command: &mut Command) -> String {
    let output = command.env("NO_PROXY", "*").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
fn their_client_validator_and_graders_accept_our_server() {
    let Some(python) = python() else { return };
    let benchmark = registry::open("alfworld", &BenchmarkOptions::default()).expect("built in");
    let task = benchmark.tasks("train").expect("a split").remove(0);
    let mut environment = benchmark.clone().environment().expect("one");
    let mut view = environment.reset(&task).expect("it resets");
    let mut commands = Vec::new();
    for turn in 0..4 {
        let Actions::Commands(listed) = &view.actions else { panic!("ALFWorld lists commands") };
        commands.push(listed[turn * 5 % listed.len()].clone());
        view = environment.step(&commands[turn]).expect("it steps");
    }
    let options =
        ServeOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServeOptions::default() };
    let server = Server::start(benchmark, &options).expect("it starts");
    let url = format!("http://{}", server.address());
    let told = run(Command::new(&python).arg(script("check_client.py")).arg(&url).args(&commands));
    assert!(told.contains(r#"{"failures": 0}"#), "{told}");
    let validate =
        "import sys; from openenv.cli.__main__ import main; sys.argv[0] = 'openenv'; main()";
    run(Command::new(&python).args(["-c", validate, "validate", "--url", &url]));
}

/// A server of theirs; killed at the end.
struct Theirs {
    child: Child,
    url: String,
}

impl Theirs {
    fn start(python: &PathBuf, kind: &str) -> Self {
        Self::run(python, &script("servers.py"), &[kind])
    }

    /// Runs a script that takes its port last.
    fn run(python: &PathBuf, script: &Path, arguments: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let child = Command::new(python)
            .arg(script)
            .args(arguments)
            .arg(address.port().to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let deadline = Instant::now() + Duration::from_mins(2);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{} does not listen", script.display());
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { child, url: format!("http://{address}") }
    }

    fn options(&self) -> EnvironmentOptions {
        EnvironmentOptions { url: self.url.clone(), ..EnvironmentOptions::default() }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn our_client_plays_and_forks_their_text_game() {
    let Some(python) = python() else { return };
    let server = Theirs::start(&python, "stairs");
    let options = EnvironmentOptions {
        observation: "{{ observation.text }}".to_owned(),
        actions: "/observation/legal_actions".to_owned(),
        ..server.options()
    };
    let benchmark = openenv::open(&options).expect("it opens");
    let sizes: Vec<_> =
        benchmark.splits().into_iter().map(|split| (split.name, split.tasks)).collect();
    assert_eq!(sizes, [("train".to_owned(), 4), ("test".to_owned(), 2)]);
    let task = benchmark.tasks("train").expect("a split").remove(2);
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert_eq!(
        (view.task.as_str(), view.observation.as_str()),
        ("climb to floor 3", "You are on floor 0.")
    );
    environment.step("up").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    for _ in 0..2 {
        let mut branch = benchmark.play();
        assert_eq!(
            branch.restore(&saved).expect("it is replayed").observation,
            "You are on floor 1."
        );
        branch.step("up").expect("it steps");
        let view = branch.step("up").expect("it steps");
        assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
    }
    let report = benchmark.report();
    assert_eq!((report.replayed, report.not_repeatable, report.failures), (2, 0, 0));
}

#[test]
fn the_shipped_server_is_forked_by_the_token_in_its_state() {
    let Some(python) = python() else { return };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/environments");
    let server = Theirs::run(&python, &examples.join("corridor_openenv.py"), &[]);
    let options = EnvironmentOptions {
        observation: "{{ observation.text }}".to_owned(),
        actions: "/observation/legal_actions".to_owned(),
        ..server.options()
    };
    let benchmark = openenv::open(&options).expect("it opens");
    let task = benchmark.tasks("test").expect("a split").remove(1);
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert_eq!((task.id.as_str(), view.task.as_str()), ("test-3", "find the treasure in room 3."));
    environment.step("go east").expect("it steps");
    environment.step("go east").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    environment.step("go west").expect("it steps");
    for _ in 0..2 {
        let mut branch = benchmark.play();
        let view = branch.restore(&saved).expect("it is restored");
        assert_eq!((view.observation.as_str(), view.turn), ("You are in room 2.", 2));
        branch.step("go east").expect("it steps");
        let view = branch.step("take treasure").expect("it steps");
        assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
    }
    let report = benchmark.report();
    assert_eq!((report.restored, report.replayed, report.failures), (2, 0, 0));
}

fn with_task(options: EnvironmentOptions, name: &str) -> EnvironmentOptions {
    let path =
        std::env::temp_dir().join(format!("lens-openenv-{name}-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"id\": \"only\", \"reset\": {\"seed\": 1}}\n").expect("written");
    EnvironmentOptions { tasks: Some(path), ..options }
}

#[test]
fn our_client_plays_their_echo_and_their_tools() {
    let Some(python) = python() else { return };
    let server = Theirs::start(&python, "echo");
    let benchmark = openenv::open(&with_task(server.options(), "echo")).expect("it opens");
    let task = benchmark.tasks("train").expect("a split").remove(0);
    let mut environment = benchmark.play();
    assert_eq!(environment.reset(&task).expect("it resets").observation, "Say something.");
    assert_eq!(environment.step("hello ☃").expect("it steps").observation, "hello ☃");
    let view = environment.step("goodbye").expect("it steps");
    assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
    drop((environment, server));

    let server = Theirs::start(&python, "adder");
    let options = EnvironmentOptions { action_format: ActionFormat::Tool, ..server.options() };
    let benchmark = openenv::open(&with_task(options, "adder")).expect("it opens");
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert!(view.task.contains("add: Add a number to the total."), "{}", view.task);
    environment.step(r#"{"name": "add", "arguments": {"number": 2}}"#).expect("it steps");
    let view =
        environment.step(r#"{"name": "add", "arguments": {"number": 3}}"#).expect("it steps");
    assert_eq!(view.observation, "5");
    let view =
        environment.step(r#"{"name": "add", "arguments": {"number": "x"}}"#).expect("it steps");
    assert_eq!(view.observation, "Invalid action: number must be of type integer.");
}
