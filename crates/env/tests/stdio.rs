//! Programs as environments: the shipped examples, forks by snapshot and by replay, and programs that misbehave.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_env::remote::{EnvironmentOptions, RemoteBenchmark, SnapshotUse};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, stdio};

fn example(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/environments");
    root.join(name).display().to_string()
}

fn python(script: &str) -> EnvironmentOptions {
    let command = vec!["python3".to_owned(), "-c".to_owned(), script.to_owned()];
    EnvironmentOptions { command, ..EnvironmentOptions::default() }
}

fn corridor() -> EnvironmentOptions {
    EnvironmentOptions {
        command: vec!["python3".to_owned(), example("corridor.py")],
        ..EnvironmentOptions::default()
    }
}

fn first_task(benchmark: &dyn Benchmark, split: &str) -> Task {
    benchmark.tasks(split).expect("a split").remove(0)
}

#[test]
fn the_python_example_is_played_to_its_end() {
    let benchmark = stdio::open(&corridor()).expect("it starts");
    let profile = benchmark.profile();
    assert_eq!((profile.turn_limit, &*profile.train_split), (12, "train"));
    assert_eq!(&*profile.eval_splits[0], "test");
    let task = benchmark.tasks("test").expect("a split").remove(1);
    assert_eq!((task.id.as_str(), task.kind.as_str()), ("test-3", "far"));
    let mut environment = benchmark.play();
    let view = environment.reset(&task).expect("it resets");
    assert_eq!(view.task, "find the treasure in room 3.");
    assert!(matches!(&view.actions, Actions::Commands(commands) if commands.len() == 3));
    for _ in 0..3 {
        environment.step("go east").expect("it steps");
    }
    let view = environment.step("take treasure").expect("it steps");
    assert_eq!((view.turn, view.score), (4, 1.0));
    assert_eq!(view.status, Status::Ended { success: true });
    assert_eq!(environment.step("go west").expect("nothing happens after the end"), view);
}

#[test]
fn the_javascript_example_is_played_without_a_list_of_actions() {
    let command = vec!["node".to_owned(), example("guess.js")];
    let options = EnvironmentOptions { command, ..EnvironmentOptions::default() };
    let benchmark = stdio::open(&options).expect("it starts");
    let mut environment = benchmark.play();
    let view = environment.reset(&first_task(&*benchmark, "train")).expect("it resets");
    assert_eq!(view.actions, Actions::Free);
    let view = environment.step("36").expect("it steps");
    assert_eq!(view.observation, "It is higher than 36.");
    let saved = environment.snapshot().expect("a snapshot");
    let view = environment.step("37").expect("it steps");
    assert_eq!(view.status, Status::Ended { success: true });
    let mut other = benchmark.play();
    assert_eq!(other.restore(&saved).expect("it is replayed").observation, "It is higher than 36.");
    let report = benchmark.report();
    assert_eq!((report.replayed, report.restored, report.not_repeatable), (1, 0, 0));
}

/// Plays the same way from a restored state; gives what was seen.
fn branch(benchmark: &Arc<RemoteBenchmark>, saved: &lens_env::Snapshot) -> Vec<String> {
    let mut environment = benchmark.play();
    let mut seen = vec![environment.restore(saved).expect("it is restored").observation];
    for action in ["go west", "dance", "go east", "take treasure"] {
        seen.push(environment.step(action).expect("it steps").observation);
    }
    seen
}

#[test]
fn forks_by_snapshot_and_by_replay_see_the_same() {
    let mut seen = Vec::new();
    for snapshot in [SnapshotUse::Auto, SnapshotUse::Replay] {
        let benchmark =
            stdio::open(&EnvironmentOptions { snapshot, ..corridor() }).expect("it starts");
        let mut environment = benchmark.play();
        environment.reset(&first_task(&*benchmark, "test")).expect("it resets");
        environment.step("go east").expect("it steps");
        environment.step("go east").expect("it steps");
        let saved = environment.snapshot().expect("a snapshot");
        environment.step("take treasure").expect("it steps");
        let (base, guided) = (branch(&benchmark, &saved), branch(&benchmark, &saved));
        assert_eq!(base, guided);
        seen.push(base);
        let report = benchmark.report();
        let counts = (report.restored, report.replayed, report.not_repeatable);
        assert_eq!(counts, if snapshot == SnapshotUse::Auto { (2, 0, 0) } else { (0, 2, 0) });
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].last().map(String::as_str), Some("You take the treasure."));
}

#[test]
fn processes_are_used_again() {
    let benchmark = stdio::open(&corridor()).expect("it starts");
    let task = first_task(&*benchmark, "train");
    for _ in 0..20 {
        let mut environment = benchmark.play();
        environment.reset(&task).expect("it resets");
    }
    assert_eq!(benchmark.report().sessions, 1);
}

/// A program that greets properly, lists one task and then runs `body` for every further request `r`.
fn misbehaving(body: &str) -> EnvironmentOptions {
    python(&format!(
        r#"
import json, os, random, sys, time
def say(**message): print(json.dumps(message), flush=True)
n = 0
for line in sys.stdin:
    r = json.loads(line)
    n += 1
    if r["type"] == "hello": say(type="hello", version=1)
    elif r["type"] == "tasks": say(type="tasks", tasks=[{{"id": "a"}}])
    elif r["type"] == "reset": say(type="view", observation="Start.", task="t")
    else:
        {body}
"#
    ))
}

fn step_error(options: &EnvironmentOptions) -> EnvError {
    let benchmark = stdio::open(options).expect("it starts");
    let mut environment = benchmark.play();
    environment.reset(&first_task(&*benchmark, "train")).expect("it resets");
    // Larger than a pipe, so that a program that does not read would block whoever writes.
    let error = environment.step(&"go ".repeat(200_000)).expect_err("it fails");
    assert_eq!(benchmark.report().failures, 1);
    // The next episode gets a fresh process.
    environment.reset(&first_task(&*benchmark, "train")).expect("it resets again");
    error
}

#[test]
fn every_fault_ends_in_words_and_in_time() {
    let quick = |options: EnvironmentOptions| EnvironmentOptions {
        answer_seconds: 0.5,
        max_message_mib: 1,
        ..options
    };
    for (body, words) in [
        ("sys.exit('out of coins')", "out of coins"),
        ("time.sleep(60)", "did not answer"),
        ("os._exit(3)", "exit status: 3"),
        ("time.sleep(60)", "did not answer within 0.5 s"),
        ("print('hello?', flush=True)", "which is no message"),
        ("print('[]', flush=True)", "which is no message"),
        ("say(type='view')", "missing field `observation`"),
        ("say(type='tasks', tasks=[])", "to `step` it answered `tasks`"),
        ("say(type='error', message='no coins')", "no coins"),
        ("print('x' * 50_000_000, flush=True)", "longer than 1 MiB"),
        ("sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.flush()", "not UTF-8"),
    ] {
        let started = Instant::now();
        let error = step_error(&quick(misbehaving(body))).to_string();
        assert!(error.contains(words), "{body}: {error}");
        assert!(started.elapsed() < Duration::from_secs(10), "{body}");
    }
}

#[test]
fn an_environment_that_does_not_repeat_itself_is_noticed_and_counted() {
    let options = misbehaving("say(type='view', observation=str(random.random()))");
    let benchmark = stdio::open(&options).expect("it starts");
    let mut environment = benchmark.play();
    environment.reset(&first_task(&*benchmark, "train")).expect("it resets");
    environment.step("go").expect("it steps");
    let saved = environment.snapshot().expect("a snapshot");
    let error = benchmark.play().restore(&saved).expect_err("it differs");
    assert!(matches!(&error, EnvError::NotRepeatable(why) if why.contains("step 1")), "{error}");
    assert_eq!(benchmark.report().not_repeatable, 1);
}

#[test]
fn a_program_that_is_none_is_named() {
    for (command, words) in [
        (vec!["/nonexistent/environment"], "/nonexistent/environment"),
        (vec!["true"], "ended"),
        (
            vec!["python3", "-c", "print('{\"type\":\"hello\",\"version\":2}', flush=True)"],
            "version 2",
        ),
    ] {
        let command = command.into_iter().map(str::to_owned).collect();
        let options = EnvironmentOptions { command, ..EnvironmentOptions::default() };
        let error = stdio::open(&options).err().expect("refused").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn tasks_come_from_a_file_where_one_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("tasks.jsonl");
    std::fs::write(&path, "{\"id\": \"mine\", \"split\": \"dev\", \"reset\": {\"goal\": 1}}\n")
        .expect("written");
    let options = EnvironmentOptions { tasks: Some(path), ..corridor() };
    let benchmark = stdio::open(&options).expect("it starts");
    assert_eq!(benchmark.profile().train_split, "dev");
    let view = benchmark.play().reset(&first_task(&*benchmark, "dev")).expect("it resets");
    assert_eq!(view.task, "find the treasure in room 1.");
}
