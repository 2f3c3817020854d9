//! The words users meet: the help of every command, and the errors that happen most. `INSTA_UPDATE=always cargo test`
//! writes them anew; the difference is then reviewed like code.

use std::path::{Path, PathBuf};
use std::process::Command;

fn lens(arguments: &[&str], folder: &Path) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lens"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("COLUMNS")
        .env_remove("HF_HUB_CACHE")
        .env("HF_HOME", folder.join("no-cache"))
        .env("NO_COLOR", "1")
        .output()
        .expect("lens starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().expect("lens exits by itself"),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The subcommands that a help text lists below "Commands:".
fn listed(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned))
        .filter(|word| !word.is_empty() && word != "help")
        .collect()
}

/// Writes the help of a command and of those below it.
fn collect_help(words: &[String], help: &mut Vec<(String, String)>) {
    let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    arguments.push("--help");
    let (code, stdout, stderr) = lens(&arguments, Path::new("."));
    assert_eq!((code, stderr.as_str()), (0, ""), "{words:?}");
    help.push((words.join("-"), stdout.clone()));
    for word in listed(&stdout) {
        let mut below = words.to_vec();
        below.push(word);
        collect_help(&below, help);
    }
}

#[test]
fn the_help_of_every_command() {
    let (code, top, _) = lens(&["--help"], Path::new("."));
    assert_eq!(code, 0);
    insta::assert_snapshot!("help", top);
    let verbs: Vec<String> = top
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().map(str::to_owned))
        .collect();
    assert!(verbs.len() >= 17, "{verbs:?}");
    let mut help = Vec::new();
    for verb in verbs {
        collect_help(&[verb], &mut help);
    }
    for (name, text) in help {
        insta::assert_snapshot!(format!("help-{name}"), text);
    }
}

#[test]
fn help_is_american_and_names_no_version_below_the_top() {
    let mut help = Vec::new();
    for verb in ["quickstart", "train", "eval", "sft", "lab", "model", "env", "data", "config"] {
        collect_help(&[verb.to_owned()], &mut help);
    }
    for (name, text) in help {
        for word in ["optimis", "catalogue", "colour", "favour", "behaviour", "nobody", "whoever"] {
            assert!(!text.to_lowercase().contains(word), "{name}: {word}");
        }
        assert!(!text.contains("--version"), "{name} has a version of its own");
    }
}

/// An error with the folder's name left out, and its exit code.
fn error(arguments: &[&str], folder: &Path) -> String {
    let (code, stdout, stderr) = lens(arguments, folder);
    assert_eq!(stdout, "", "{arguments:?}");
    let stderr = stderr.replace(&format!("{}/", folder.display()), "");
    let root = format!("{}/", repository("").components().collect::<PathBuf>().display());
    format!("$ lens {}\n{}exit code {code}", arguments.join(" "), stderr.replace(&root, ""))
}

#[test]
fn the_errors_users_meet() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = &folder.path().canonicalize().expect("a real path");
    let fixture = repository("crates/lm/tests/fixtures/qwen3").canonicalize().expect("a model");
    std::os::unix::fs::symlink(&fixture, folder.join("model")).expect("a link");
    std::fs::write(folder.join("broken.toml"), "name = \"x\"\n[train\n").expect("a file");
    std::fs::write(folder.join("typo.toml"), "[trian]\nsteps = 3\n").expect("a file");
    std::fs::write(folder.join("chats.jsonl"), "\nnot json\n").expect("a file");
    std::fs::create_dir(folder.join("empty")).expect("a folder");
    let cases: &[(&str, &[&str])] = &[
        ("missing-config", &["train", "nope.toml"]),
        ("broken-config", &["config", "check", "broken.toml"]),
        ("unknown-key", &["config", "check", "--set", "train.step=3"]),
        ("unknown-section", &["config", "check", "typo.toml"]),
        ("bad-value", &["config", "check", "--set", "train.steps=many"]),
        ("bad-word", &["config", "check", "--set", "student.weights=f64"]),
        ("out-of-range", &["config", "check", "--set", "train.batch_size=0"]),
        ("bad-set", &["train", "--set", "train.steps"]),
        ("missing-model", &["train"]),
        ("missing-folder", &["estimate", "--set", "student.path=./nowhere"]),
        ("missing-files", &["config", "check", "--files"]),
        ("unknown-method", &["config", "check", "--set", "method=ppo"]),
        ("unknown-benchmark", &["config", "check", "--set", "task.benchmark=chess"]),
        ("unknown-split", &["eval", "model", "--split", "test", "--limit", "1"]),
        ("resume-nothing", &["train", "--resume", "empty"]),
        ("limit-zero", &["eval", "model", "--limit", "0"]),
        ("unknown-weights", &["eval", "model", "--weights", "f64"]),
        ("bad-demonstrations", &["sft", "model", "tuned", "--data", "chats.jsonl"]),
        ("existing-output", &["sft", "model", "model"]),
        ("nothing-to-resume", &["sft", "model", "tuned", "--data", "chats.jsonl", "--resume"]),
        ("no-shipped-models", &["quickstart"]),
        ("unknown-task", &["play", "alfworld", "--split", "valid_seen", "--task", "5000"]),
        ("unknown-command", &["trian"]),
    ];
    for (name, arguments) in cases {
        insta::assert_snapshot!(format!("error-{name}"), error(arguments, folder));
    }
}

#[test]
fn an_unknown_algorithm_is_refused_unless_part_of_the_file_will_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("grpo.yaml");
    let text = "name: mine\nalgorithm:\n  algorithm_type: grpo\n  optimizer:\n    lr: 0.001\n";
    std::fs::write(&file, text).expect("a file");
    let (code, stdout, stderr) = lens(&["config", "import-trinity", "grpo.yaml"], folder.path());
    assert_eq!(code, 1);
    assert!(stdout.contains("lr = 0.001") && !stdout.contains("method ="), "{stdout}");
    insta::assert_snapshot!("error-unknown-algorithm", stderr);
    let (code, _, stderr) =
        lens(&["config", "import-trinity", "grpo.yaml", "--partial"], folder.path());
    assert_eq!(code, 0);
    assert!(stderr.starts_with("warning: "), "{stderr}");
}
