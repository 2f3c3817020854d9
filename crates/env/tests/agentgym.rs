//! AgentGym's protocol: the shipped example, servers of the other shapes, and servers that misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lens_env::remote::{EnvironmentOptions, RemoteBenchmark};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, agentgym};

/// A program that prints its address; killed at the end.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn example() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/environments");
        let mut child = Command::new("python3")
            .arg(root.join("corridor_agentgym.py"))
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let mut url = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut url)
            .expect("its address");
        Self { child, url: url.trim().to_owned() }
    }

    /// How many environments are open there.
    fn open(&self) -> usize {
        let address = self.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(b"GET /open HTTP/1.1\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        let number: String = text.rsplit("\"open\": ").next().unwrap_or_default().chars().collect();
        number.trim_end_matches('}').parse().expect("a number")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tasks(folder: &Path) -> PathBuf {
    let path = folder.join("tasks.jsonl");
    let line = |index: usize| {
        let split = if index < 4 { "train" } else { "test" };
        format!(r#"{{"id": "room {index}", "split": "{split}", "reset": {{"data_idx": {index}}}}}"#)
    };
    let lines: Vec<String> = (0..6).map(line).collect();
    std::fs::write(&path, lines.join("\n")).expect("written");
    path
}

fn options(url: &str, folder: &Path) -> EnvironmentOptions {
    EnvironmentOptions {
        url: url.to_owned(),
        tasks: Some(tasks(folder)),
        connect_seconds: 2.0,
        answer_seconds: 2.0,
        ..EnvironmentOptions::default()
    }
}

fn task(benchmark: &RemoteBenchmark, index: usize) -> Task {
    benchmark.tasks("train").expect("a split").remove(index)
}

#[test]
fn the_example_is_played_forked_by_replay_and_given_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Served::example();
    let benchmark = agentgym::open(&options(&server.url, folder.path())).expect("it opens");
    assert_eq!(&*benchmark.profile().eval_splits[0], "test");
    let mut environment = benchmark.play();
    let view = environment.reset(&task(&benchmark, 1)).expect("it resets");
    assert_eq!(view.task, "find the treasure in room 2.");
    assert_eq!(view.observation, "You are in room 0.");
    assert!(matches!(&view.actions, Actions::Commands(commands) if commands.len() == 3));
    environment.step("go east").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    for _ in 0..2 {
        let mut branch = benchmark.play();
        assert_eq!(branch.restore(&saved).expect("replayed").observation, "You are in room 1.");
        branch.step("go east").expect("it steps");
        let view = branch.step("take treasure").expect("it steps");
        assert_eq!((view.score, view.status), (1.0, Status::Ended { success: true }));
    }
    let report = benchmark.report();
    assert_eq!((report.replayed, report.restored, report.not_repeatable), (2, 0, 0));
    assert!(server.open() > 0);
    drop((environment, benchmark));
    assert_eq!(server.open(), 0, "every environment was given back");
}

#[test]
fn no_environment_is_left_after_a_thousand_episodes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Served::example();
    let benchmark = agentgym::open(&options(&server.url, folder.path())).expect("it opens");
    let first = task(&benchmark, 0);
    for _ in 0..1000 {
        let mut environment = benchmark.play();
        environment.reset(&first).expect("it resets");
        environment.step("go east").expect("it steps");
    }
    assert_eq!(benchmark.report().sessions, 1, "environments are used again");
    assert_eq!(server.open(), 1);
    drop(benchmark);
    assert_eq!(server.open(), 0);
}

#[test]
fn an_error_of_the_server_ends_the_episode_and_not_the_benchmark() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Served::example();
    let mut options = options(&server.url, folder.path());
    let path = folder.path().join("far.jsonl");
    std::fs::write(&path, "{\"id\": \"far\", \"reset\": {\"data_idx\": 99}}\n{\"id\": \"near\", \"reset\": {\"data_idx\": 0}}\n")
        .expect("written");
    options.tasks = Some(path);
    let benchmark = agentgym::open(&options).expect("it opens");
    let mut environment = benchmark.play();
    let error = environment.reset(&task(&benchmark, 0)).expect_err("there is none").to_string();
    assert!(error.contains("/reset reports an error: \"there is no task 99\""), "{error}");
    assert_eq!(benchmark.report().failures, 1);
    environment.reset(&task(&benchmark, 1)).expect("the next episode has a new environment");
}

/// A server of one thread per connection that answers `path` with what `answer` says; `None` hangs up.
fn server(answer: impl Fn(&str, usize) -> Option<String> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (answer, steps) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, steps) = (Arc::clone(&answer), Arc::clone(&steps));
            std::thread::spawn(move || converse(&stream, &*answer, &steps));
        }
    });
    url
}

fn converse(
    stream: &TcpStream,
    answer: &dyn Fn(&str, usize) -> Option<String>,
    steps: &AtomicUsize,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a header");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let number = if path == "/step" { steps.fetch_add(1, Ordering::SeqCst) } else { 0 };
        let Some(text) = answer(&path, number) else { return };
        let status = if text == "missing" { "404 Not Found" } else { "200 OK" };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", text.len());
        let mut stream = stream;
        if stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(text.as_bytes()))
            .is_err()
        {
            return;
        }
    }
}

fn friendly(path: &str) -> String {
    match path.split('?').next().unwrap_or_default() {
        "/create" => r#"{"id": 4}"#.to_owned(),
        "/reset" | "/step" => r#"{"observation": "Here.", "reward": 0, "done": false}"#.to_owned(),
        _ => "missing".to_owned(),
    }
}

#[test]
fn every_fault_ends_in_words_and_in_time() {
    type Fault = fn() -> Option<String>;
    let cases: [(Fault, &str); 8] = [
        (|| None, "/step"),
        (
            || {
                std::thread::sleep(Duration::from_secs(9));
                None
            },
            "timeout",
        ),
        (|| Some("rubbish".to_owned()), "no JSON"),
        (|| Some("[]".to_owned()), "/step answered without an observation"),
        (|| Some("{\"reward\": 1}".to_owned()), "/step answered without an observation"),
        (|| Some("{\"error\": \"boom\"}".to_owned()), "/step reports an error: \"boom\""),
        (|| Some("missing".to_owned()), "has no /step"),
        (|| Some("x".repeat(50_000_000)), "/step"),
    ];
    for (fault, words) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let url =
            server(move |path, _| if path == "/step" { fault() } else { Some(friendly(path)) });
        let quick = EnvironmentOptions {
            answer_seconds: 0.5,
            connect_seconds: 0.5,
            max_message_mib: 1,
            ..options(&url, folder.path())
        };
        let benchmark = agentgym::open(&quick).expect("it opens");
        let mut environment = benchmark.play();
        environment.reset(&task(&benchmark, 0)).expect("it resets");
        let started = Instant::now();
        let error = environment.step("go").expect_err("it fails").to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(benchmark.report().failures, 1);
        environment.reset(&task(&benchmark, 0)).expect("the next episode begins");
        assert!(started.elapsed() < Duration::from_secs(5), "{words}");
    }
}

#[test]
fn a_server_that_does_not_repeat_itself_is_noticed_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = server(|path, number| {
        if path == "/step" {
            return Some(format!("{{\"observation\": \"{number}\", \"done\": false}}"));
        }
        Some(friendly(path))
    });
    let benchmark = agentgym::open(&options(&url, folder.path())).expect("it opens");
    let mut environment = benchmark.play();
    environment.reset(&task(&benchmark, 0)).expect("it resets");
    environment.step("go").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    let error = benchmark.play().restore(&saved).expect_err("it differs");
    assert!(matches!(error, EnvError::NotRepeatable(_)), "{error}");
    assert_eq!(benchmark.report().not_repeatable, 1);
}

#[test]
fn servers_of_the_other_shapes_are_understood() {
    let folder = tempfile::tempdir().expect("a folder");
    let shop = server(|path, _| {
        Some(match path {
            "/create" => "7".to_owned(),
            "/reset" => r#"["Find shoes.", null]"#.to_owned(),
            "/step" => {
                r#"{"state": "Thanks.", "reward": 0.5, "done": true, "info": null}"#.to_owned()
            }
            "/available_actions?env_idx=7" => {
                r#"{"has_search_bar": true, "clickables": ["back"]}"#.to_owned()
            }
            _ => "missing".to_owned(),
        })
    });
    let benchmark = agentgym::open(&options(&shop, folder.path())).expect("it opens");
    let mut environment = benchmark.play();
    let view = environment.reset(&task(&benchmark, 0)).expect("it resets");
    let wanted = vec!["search[<query>]".to_owned(), "click[back]".to_owned()];
    assert_eq!(
        (view.observation.as_str(), view.actions),
        ("Find shoes.", Actions::Commands(wanted))
    );
    let view = environment.step("click[back]").expect("it steps");
    assert_eq!((view.score, view.status), (0.5, Status::Ended { success: false }));

    let science = server(|path, _| {
        Some(match path {
            "/create" => r#"{"id": 0}"#.to_owned(),
            "/reset" => r#"{"task_description": "Boil water.", "observation": "A lab.", "reward": 0, "score": 0, "done": false}"#.to_owned(),
            "/step" => r#"{"observation": "It boils.", "reward": 97, "score": 100, "done": true}"#.to_owned(),
            "/action_hint?id=0" => {
                r#"{"possible_actions": ["open OBJ"], "possible_objects": ["door"]}"#.to_owned()
            }
            _ => "missing".to_owned(),
        })
    });
    let options = EnvironmentOptions { success_score: 100.0, ..options(&science, folder.path()) };
    let benchmark = agentgym::open(&options).expect("it opens");
    let mut environment = benchmark.play();
    let view = environment.reset(&task(&benchmark, 0)).expect("it resets");
    assert_eq!(view.task, "Boil water.");
    assert!(matches!(view.actions, Actions::Templates { .. }), "{:?}", view.actions);
    let view = environment.step("open door").expect("it steps");
    assert_eq!((view.score, view.status), (100.0, Status::Ended { success: true }));
}

#[test]
fn what_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = options("http://127.0.0.1:9", folder.path());
    let error = agentgym::open(&nowhere).err().expect("nobody there").to_string();
    assert!(error.contains("127.0.0.1:9"), "{error}");
    let without = EnvironmentOptions { tasks: None, ..nowhere };
    let error = agentgym::open(&without).err().expect("no tasks").to_string();
    assert!(error.starts_with("environment.tasks: the environment lists no tasks"), "{error}");
    let other = server(|_, _| Some("missing".to_owned()));
    let error = agentgym::open(&options(&other, folder.path())).err().expect("refused").to_string();
    assert!(error.contains("has no /create; is it an AgentGym server?"), "{error}");
}

/// AgentGym's own TextCraft server, where `LENS_AGENTGYM_TEXTCRAFT` says it is.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn agentgyms_own_textcraft_is_played_and_replayed() {
    let Ok(url) = std::env::var("LENS_AGENTGYM_TEXTCRAFT") else {
        eprintln!("skipped: LENS_AGENTGYM_TEXTCRAFT names no server");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let benchmark = agentgym::open(&options(&url, folder.path())).expect("it opens");
    let mut environment = benchmark.play();
    let view = environment.reset(&task(&benchmark, 1)).expect("it resets");
    assert!(view.observation.contains("Goal: craft"), "{}", view.observation);
    assert_eq!(view.actions, Actions::Free);
    environment.step("get 2 cornflower").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    let view = environment.step("inventory").expect("it steps");
    assert!(view.observation.contains("[cornflower] (2)"), "{}", view.observation);
    let mut branch = benchmark.play();
    branch.restore(&saved).expect("it repeats itself");
    assert_eq!(branch.step("inventory").expect("it steps").observation, view.observation);
    assert_eq!(benchmark.report().replayed, 1);
}
