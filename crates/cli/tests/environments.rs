//! Environments in other processes from the command line: asked, checked, played, timed, evaluated and trained on, by
//! every protocol; and prompts that are refused before a run.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project")
}

/// Runs the program with `typed` on its standard input; gives its exit code and everything it printed.
fn lens_with(arguments: &[&str], typed: &str) -> (Option<i32>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lens"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(typed.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn lens(arguments: &[&str]) -> String {
    let (code, text) = lens_with(arguments, "");
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

/// A server that prints its address in its first line; killed at the end.
struct Served {
    child: Child,
    url: String,
    /// Kept open: a server that cannot print ends.
    _said: BufReader<ChildStdout>,
}

impl Served {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .current_dir(root())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        said.read_line(&mut line).expect("a line");
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        Self { child, url: url.expect("an address").to_owned(), _said: said }
    }

    fn agentgym() -> Self {
        let mut command = Command::new("python3");
        command.args(["examples/environments/corridor_agentgym.py", "0"]);
        Self::start(command)
    }

    fn alfworld() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
        command.args(["env", "serve", "alfworld", "--address", "127.0.0.1:0"]);
        Self::start(command)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const CORRIDOR: [&str; 3] = ["--command", "python3", "examples/environments/corridor.py"];

fn with<'a>(first: &[&'a str], last: &[&'a str]) -> Vec<&'a str> {
    first.iter().chain(last).copied().collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain")
}

fn agentgym_tasks(folder: &Path) -> PathBuf {
    let path = folder.join("tasks.jsonl");
    let line = |index: usize| {
        let split = if index < 3 { "train" } else { "test" };
        format!(
            "{{\"id\": \"{index}\", \"split\": \"{split}\", \"reset\": {{\"data_idx\": {index}}}}}\n"
        )
    };
    std::fs::write(&path, (0..5).map(line).collect::<String>()).expect("written");
    path
}

#[test]
fn a_program_is_played_with_undo() {
    let play = with(&["play", "stdio", "--split", "test", "--task", "0"], &CORRIDOR);
    let (code, text) = lens_with(&play, "1\ngo west\nundo\n1\n3\nscore\nquit\n");
    assert_eq!(code, Some(0), "{text}");
    for part in
        ["Task: find the treasure in room 2.", "Took back \"go west\"", "Score 1, turn 3 of 12"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("Done: success after 3 turns, score 1."), "{text}");
}

#[test]
fn servers_of_both_protocols_are_played() {
    let server = Served::alfworld();
    let (code, told) = lens_with(&["play", "openenv", "--url", &server.url], "look\nundo\nquit\n");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("go to") && told.contains("Took back \"look\""), "{told}");
    let folder = tempfile::tempdir().expect("a folder");
    let (server, tasks) = (Served::agentgym(), agentgym_tasks(folder.path()));
    let play = ["play", "agentgym", "--url", &server.url, "--tasks", text(&tasks)];
    let (code, told) = lens_with(&play, "go east\ntake treasure\nquit\n");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("Done: success after 2 turns"), "{told}");
}

#[test]
fn a_model_plays_along_by_the_prompt_of_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, template) = (folder.path().join("mine.toml"), folder.path().join("mine.jinja"));
    std::fs::write(&template, "Say one of {{ commands | join(', ') }}.\n").expect("written");
    let lines = format!("[prompt]\ntemplate = \"{}\"\nparser = \"json\"\n", template.display());
    std::fs::write(&config, lines).expect("written");
    let model = ["play", "stdio", "--model", "assets/lab/student-small", "--config", text(&config)];
    let (code, told) = lens_with(&with(&model, &CORRIDOR), "model\nquit\n");
    assert_eq!(code, Some(0), "{told}");
    // The laboratory's model writes tags whatever it is told, and this configuration reads JSON.
    assert!(told.contains("model:") && told.contains("There is no action in that."), "{told}");
}

#[test]
fn programs_and_servers_are_timed() {
    let bench = ["env", "bench", "stdio", "--sessions", "1,3", "--steps", "60"];
    let told = lens(&with(&bench, &CORRIDOR));
    let rows: Vec<Vec<f64>> = told
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().map(|word| word.parse().expect("a number")).collect())
        .collect();
    assert_eq!((rows.len(), rows[0][0], rows[1][0]), (2, 1.0, 3.0), "{told}");
    assert!(rows.iter().all(|row| row[1] > 0.0), "{told}");
    let server = Served::alfworld();
    let told = lens(&[
        "env",
        "bench",
        "openenv",
        "--url",
        &server.url,
        "--sessions",
        "1,8",
        "--steps",
        "80",
        "--against",
        "alfworld",
    ]);
    assert!(told.contains("ours / theirs"), "{told}");
    let last: Vec<f64> = told
        .lines()
        .last()
        .expect("a row")
        .split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect();
    assert_eq!((last.len(), last[0]), (6, 8.0), "{told}");
    assert!(last[1] > last[2], "a socket is slower than no socket: {told}");
    let (code, told) =
        lens_with(&with(&["env", "bench", "stdio", "--sessions", "0"], &CORRIDOR), "");
    assert_eq!(code, Some(1), "{told}");
}

#[test]
fn a_configuration_that_init_wrote_is_checked_evaluated_and_trained_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, runs) = (folder.path().join("mine.toml"), folder.path().join("runs"));
    let told = lens(&[
        "env",
        "init",
        "stdio",
        "--out",
        text(&config),
        "python3",
        "examples/environments/corridor.py",
    ]);
    assert!(told.contains("it works"), "{told}");
    let told = lens(&["env", "check", "stdio", "--config", text(&config), "--episodes", "5"]);
    assert!(told.contains("5 of 5 forks"), "{told}");
    let told = lens(&[
        "eval",
        "assets/lab/student-small",
        text(&config),
        "--limit",
        "2",
        "--format",
        "json",
        "--set",
        "seeds=[1]",
        "--set",
        "eval.max_tokens=64",
    ]);
    assert!(told.contains("\"split\": \"test\"") && told.contains("\"test-2\""), "{told}");
    let output = format!("output={}", runs.display());
    let small = [
        "name=mine",
        "seeds=[7]",
        "student.path=assets/lab/student-small",
        "teacher.path=assets/lab/teacher",
        "teacher.weights=f32",
        "task.turn_limit=3",
        "rollout.batch_size=2",
        "rollout.max_prompt_tokens=1500",
        "rollout.max_response_tokens=64",
        "train.steps=1",
        "train.batch_size=2",
        "eval.max_tokens=64",
        "eval.tasks_during_training=1",
        "prompt.parser=json",
        &output,
    ];
    let mut train = vec!["train", text(&config)];
    train.extend(small.iter().flat_map(|setting| ["--set", *setting]));
    lens(&train);
    let run = runs.join("mine/seed-7");
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).expect("written");
    // The laboratory's models write tags, so the JSON parser finds nothing, and says why.
    assert!(metrics.contains(r#""unparsed_turns":{"no_json":"#), "{metrics}");
    let saved = std::fs::read_to_string(run.join("config.toml")).expect("written");
    assert!(saved.contains(text(&root().join("examples/environments/corridor.py"))), "{saved}");
}

#[test]
fn an_agentgym_server_is_asked_and_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, tasks) = (Served::agentgym(), agentgym_tasks(folder.path()));
    let config = folder.path().join("mine.toml");
    let told = lens(&[
        "env",
        "init",
        "agentgym",
        &server.url,
        "--tasks",
        text(&tasks),
        "--out",
        text(&config),
    ]);
    assert!(told.contains("benchmark = \"agentgym\"") && told.contains("it works"), "{told}");
    let told = lens(&["env", "check", "agentgym", "--config", text(&config), "--episodes", "4"]);
    assert!(told.contains("4 of 4 forks"), "{told}");
    lens(&["config", "check", text(&config)]);
}

#[test]
fn a_prompt_is_checked_before_a_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, template) = (folder.path().join("mine.toml"), folder.path().join("mine.jinja"));
    let lines = format!("\n[prompt]\ntemplate = \"{}\"\n", template.display());
    std::fs::write(&config, lines).expect("written");
    let refused = |words: &[&str]| {
        let (code, told) = lens_with(&["config", "check", text(&config)], "");
        assert_eq!(code, Some(1), "{told}");
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
    };
    refused(&["mine.toml:3", "prompt.template", "mine.jinja: cannot be read"]);
    std::fs::write(&template, "Task:\n{{ task_description }}\n{% for x in %}").expect("written");
    refused(&["mine.toml:3", "prompt.template", "mine.jinja:3: syntax error"]);
    std::fs::write(&template, "Task:\n{{ task }}\n").expect("written");
    refused(&["prompt.template", "mine.jinja:2: there is no `task`"]);
    std::fs::write(&template, "Task:\n{{ task_description }}\n").expect("written");
    lens(&["config", "check", text(&config)]);
    for shipped in ["alfworld", "webshop", "scienceworld", "tool-call"] {
        let setting = format!("prompt.template=configs/prompts/{shipped}.jinja");
        lens(&["config", "check", "--set", &setting, "--set", "prompt.parser=tool"]);
    }
    let (code, told) = lens_with(&["config", "check", "--set", "prompt.parser=xml"], "");
    assert_eq!(code, Some(1));
    assert!(told.contains("prompt.parser") && told.contains("tags"), "{told}");
    let (code, told) = lens_with(&["config", "check", "--set", "environment.actions=legal"], "");
    assert_eq!(code, Some(1));
    assert!(told.contains("environment.actions") && told.contains("starts with `/`"), "{told}");
}

#[test]
fn a_served_benchmark_is_evaluated_as_the_one_in_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let template = folder.path().join("alfworld.jinja");
    let shipped =
        std::fs::read_to_string(root().join("configs/prompts/alfworld.jinja")).expect("shipped");
    // A server lists every command; ALFWorld's own prompt leaves `help` out.
    let listed = r#"{{ "'" ~ (commands | reject("eq", "help") | join("'\n'")) ~ "'" }}"#;
    let mine = shipped.replace("{{ admissible_actions }}", listed);
    assert_ne!(mine, shipped);
    std::fs::write(&template, mine).expect("written");
    let server = Served::alfworld();
    let common = [
        "seeds=[3]",
        "task.train_split=train",
        "task.eval_splits=[\"valid_unseen\"]",
        "task.turn_limit=6",
        "eval.max_tokens=64",
    ];
    let evaluated = |settings: &[&str]| -> serde_json::Value {
        let mut all = vec!["eval", "assets/lab/student-large", "--limit", "4", "--format", "json"];
        all.extend(common.iter().chain(settings).flat_map(|setting| ["--set", *setting]));
        let told = lens(&all);
        let json = &told[told.find('{').expect("JSON")..=told.rfind('}').expect("JSON")];
        serde_json::from_str(json).expect("JSON")
    };
    let own = evaluated(&["task.benchmark=alfworld"]);
    let url = format!("environment.url={}", server.url);
    let template = format!("prompt.template={}", template.display());
    let text = "environment.observation={{ observation.text }}";
    let served = evaluated(&["task.benchmark=openenv", &url, &template, text]);
    assert_eq!(own["evaluations"][0]["tasks"].as_array().map(Vec::len), Some(4), "{own}");
    assert_eq!(own["evaluations"][0]["tasks"], served["evaluations"][0]["tasks"]);
}
