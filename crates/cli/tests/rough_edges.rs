//! `lens train`, `eval`, `sft`, `score` and `play` where new users stumbled.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

mod tiny;

use tiny::{build_models, sets, settings};

/// The models, made once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            build_models(folder.path());
            folder
        })
        .path()
}

fn path(name: &str) -> String {
    folder().join(name).display().to_string()
}

fn lens(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.arg(verb);
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("lens starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("lens exits by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn train(name: &str, steps: u32, more: &[&str]) -> Command {
    let mut command = lens("train");
    let (name, steps) = (format!("name={name}"), format!("train.steps={steps}"));
    command.args(settings(folder())).args(sets(&[&name, &steps])).args(sets(more));
    command
}

fn run_folder(name: &str) -> PathBuf {
    folder().join(name).join("seed-7")
}

#[test]
fn a_closed_standard_error_does_not_stop_a_run() {
    let mut child = train("deaf", 3, &[])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lens starts");
    drop(child.stderr.take());
    let status = child.wait().expect("lens ends");
    assert_eq!(status.code(), Some(0));
    assert!(run_folder("deaf").join("checkpoints/step-000003/model").is_dir());
}

#[test]
fn a_run_ends_with_a_summary_and_piped_progress_has_totals() {
    let (code, stdout, stderr) = run(&mut train("summed", 2, &["train.eval_interval=1"]));
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "lens, seed 7: 2 steps done; the student is in",
        "checkpoints/step-000002/model",
        "before",
        "tasks",
        "  time: ",
        "explore",
        "trained on",
        "peak memory: ",
    ] {
        assert!(stdout.contains(part), "no {part:?} in:\n{stdout}");
    }
    assert!(stderr.contains("lens step 1 of 2, ") && stderr.contains(" left: loss"), "{stderr}");
    assert!(stderr.contains("after 0 steps: valid_unseen success"), "{stderr}");
    assert!(stderr.contains("after 1 step: "), "{stderr}");
    assert!(stderr.contains('['), "an interval beside every rate: {stderr}");
    let log = std::fs::read_to_string(run_folder("summed").join("log.txt")).expect("a log");
    for part in [
        "Z lens, seed 7: begins at step 0",
        "step 0: valid_unseen ",
        "batch 1: ",
        "step 1: loss ",
        "saved step-000002",
        "Z done at step 2",
    ] {
        assert!(log.contains(part), "no {part:?} in:\n{log}");
    }

    let (code, _, stderr) = run(&mut train("summed", 2, &[]));
    assert_eq!(code, 1);
    assert!(stderr.contains("a run is here already"), "{stderr}");
    assert!(
        stderr.contains("hint: resume it with --resume RUN, start over with --force"),
        "{stderr}"
    );
    let (code, _, stderr) = run(train("summed", 2, &[]).arg("--force"));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("note: the run that was here is now in"), "{stderr}");
}

#[test]
fn methods_without_forks_do_not_speak_of_hints() {
    let (code, stdout, stderr) = run(&mut train("plain", 1, &["method=opd"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(!stdout.contains("hint") && !stderr.contains("fork"), "{stdout}{stderr}");
}

#[test]
fn an_output_that_is_a_file_is_the_users_error() {
    let file = folder().join("taken");
    std::fs::write(&file, "x").expect("a file");
    let output = format!("output={}", file.display());
    let (code, _, stderr) = run(&mut train("taken", 1, &[&output]));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("taken"), "{stderr}");
}

#[test]
fn methods_that_replay_episodes_say_how_to_get_them() {
    let (code, _, stderr) = run(&mut train("bare", 1, &["method=tcod-b2f"]));
    assert_eq!(code, 1);
    assert!(
        stderr.contains("hint: collect them with `lens references collect CONFIG`"),
        "{stderr}"
    );
}

#[test]
fn a_run_folder_is_evaluated_at_its_newest_checkpoint_and_transcripts_are_kept() {
    let (code, _, stderr) = run(&mut train("played", 1, &[]));
    assert_eq!(code, 0, "{stderr}");
    let (plain, packed) = (path("played.jsonl"), path("played.jsonl.zst"));
    let eval = |more: &[&str]| {
        run(lens("eval").arg(run_folder("played")).args(["--limit", "2"]).args(more))
    };
    let (code, stdout, stderr) = eval(&["--episodes", &plain, "--format", "json"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("checkpoints/step-000001/model"), "{stderr}");
    let found: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(found["evaluations"][0]["split"], "valid_unseen", "the run's own configuration");
    let text = std::fs::read_to_string(&plain).expect("transcripts");
    let lines: Vec<lens_records::EpisodeLine> =
        text.lines().map(|line| serde_json::from_str(line).expect("an episode")).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| !line.turns.is_empty() && !line.end.is_empty()));
    assert!(lines[0].turns[0].prompt.as_ref().is_some_and(|prompt| prompt.len() > 100));

    let (code, stdout, stderr) = eval(&["--episodes", &packed, "--weights", "int8"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("95 % interval") && stdout.contains('['), "{stdout}");
    let read =
        lens_records::lines::Lines::<lens_records::EpisodeLine>::open_packed(Path::new(&packed));
    assert_eq!(read.expect("a file").count(), 2);
}

#[test]
fn fine_tuning_that_was_interrupted_is_resumed_to_the_same_model() {
    let chat = serde_json::json!({ "messages": [
        { "role": "user", "content": "Where is the apple?" },
        { "role": "assistant", "content": "On the table." },
    ]});
    let data = path("one.jsonl");
    std::fs::write(&data, chat.to_string()).expect("a file");
    let sft = |out: &str, more: &[&str]| {
        let mut command = lens("sft");
        command.args([&path("student-small"), &path(out), "--data", &data, "--lr", "1e-3"]);
        command.args(["--steps", "40", "--save-interval", "5"]).args(more);
        command
    };
    let (code, _, stderr) = run(&mut sft("whole", &[]));
    assert_eq!(code, 0, "{stderr}");
    let (code, _, stderr) = run(&mut sft("halves", &["--resume"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("nothing to resume"), "{stderr}");

    let partial = folder().join("halves.partial");
    let mut child = sft("halves", &[])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("lens starts");
    while !partial.join("request.json").exists() {
        assert!(child.try_wait().expect("a child can be asked").is_none(), "it saved nothing");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    child.kill().expect("a child can be killed");
    child.wait().expect("a child can be waited for");
    assert!(!folder().join("halves").exists(), "it was killed before its end");
    let (code, _, stderr) = run(&mut sft("halves", &["--resume", "--seed", "2"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("other arguments"), "{stderr}");
    let (code, _, stderr) = run(&mut sft("halves", &["--resume"]));
    assert_eq!(code, 0, "{stderr}");
    let weights = |name: &str| std::fs::read(folder().join(name).join("model.safetensors"));
    assert_eq!(weights("whole").expect("a model"), weights("halves").expect("a model"));
    assert!(!partial.exists(), "what is done needs no saved state");
}

#[test]
fn both_models_favorites_are_listed() {
    let mut command = lens("score");
    command.args([&path("student-small"), "--teacher", &path("teacher"), "--top-k", "3"]);
    command.args(["--prompt", "go to", "--response", " the shelf"]);
    let (code, stdout, stderr) = run(&mut command);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("student:") && stdout.contains("teacher:"), "{stdout}");
    let (code, stdout, _) = run(command.arg("--json"));
    assert_eq!(code, 0);
    let scored: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    for name in ["student_top", "teacher_top"] {
        assert_eq!(scored["positions"][0][name].as_array().map(Vec::len), Some(3), "{scored}");
    }
}

/// Starts a run that takes a while and waits until it has played something.
fn long_run(name: &str) -> (std::process::Child, BufReader<std::process::ChildStderr>) {
    let mut child = train(name, 1000, &[])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lens starts");
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("it evaluates first");
    assert!(line.starts_with("after 0 steps"), "{line}");
    (child, stderr)
}

fn signal(child: &std::process::Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
}

#[test]
fn the_first_interrupt_says_what_happens_and_the_exit_code_is_3() {
    let (mut child, stderr) = long_run("stopped");
    signal(&child, "-INT");
    let rest: Vec<String> = stderr.lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("lens ends").code(), Some(3), "{rest:?}");
    let rest = rest.join("\n");
    assert!(rest.contains("press Ctrl-C again to stop at once"), "{rest}");
    assert!(rest.contains("everything is saved; resume with: "), "{rest}");

    let mut child = lens("play")
        .args(["alfworld", "--split", "valid_unseen"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lens starts");
    let mut screen = BufReader::new(child.stdout.take().expect("a pipe"));
    screen.read_line(&mut String::new()).expect("it greets");
    // Waiting closes the input that a child still has, and a game without input ends by itself.
    let _input = child.stdin.take();
    signal(&child, "-INT");
    assert_eq!(child.wait().expect("lens ends").code(), Some(3), "a game is interrupted alike");
}

#[test]
fn a_player_gets_help_a_prompt_with_the_turn_and_no_turn_for_an_empty_line() {
    let play = |benchmark: &str, typed: &str| {
        let mut child = lens("play")
            .arg(benchmark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("lens starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(typed.as_bytes()).expect("lens reads");
        drop(stdin);
        let output = child.wait_with_output().expect("lens ends");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    let screen = play("alfworld", "\n  \nhelp\nscore\n1\n");
    assert!(screen.contains("turn 0 of 30"), "nothing was played before the score:\n{screen}");
    assert!(screen.contains("undo  take back") && screen.contains("hint  ask"), "{screen}");
    assert!(screen.contains("[1/30] > ") && screen.contains("[2/30] > "), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 100), "{screen}");

    let screen = play("webshop", "1\nred shoes\nscore\n");
    assert!(screen.contains("query: red shoes"), "{screen}");
    assert!(!screen.contains("Instruction: [SEP] <query>"), "{screen}");
    assert!(screen.contains("turn 1 of 15"), "{screen}");
}
