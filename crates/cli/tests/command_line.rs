//! The command line as a person or a script meets it: texts, exit codes, pipes, colors.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn lens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.args(arguments).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
    command
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = lens(arguments).output().expect("lens starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code().expect("lens exits by itself"), text(stdout), text(stderr))
}

fn repository(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(path).to_string_lossy().into_owned()
}

#[test]
fn help_names_every_verb_and_the_exit_codes() {
    let (code, stdout, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for word in ["config", "play", "env", "data", "Train:", "Models:", "Exit codes: 0 done; 1 "] {
        assert!(stdout.contains(word), "{word} is missing from:\n{stdout}");
    }
}

#[test]
fn wrong_arguments_exit_1_and_say_what_was_meant() {
    let (code, _, stderr) = run(&["confg"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("a similar subcommand exists: 'config'"), "{stderr}");
}

#[test]
fn a_bad_configuration_exits_1_and_names_the_nearest_key() {
    let (code, stdout, stderr) = run(&["config", "check", "--set", "train.step=3"]);
    assert_eq!(code, 1);
    assert_eq!(stdout, "");
    assert_eq!(
        stderr,
        "error: --set: unknown key `train.step`\nhint: did you mean `train.steps`?\n"
    );
}

#[test]
fn show_tells_where_values_came_from_without_color_in_a_pipe() {
    let file = repository("configs/paper/alfworld-qwen3-4b.toml");
    let (code, stdout, _) = run(&["config", "show", &file, "--set", "train.steps=7"]);
    assert_eq!(code, 0);
    assert!(!stdout.contains('\u{1b}'), "a pipe gets no color");
    let line = |start: &str| {
        stdout.lines().find(|line| line.starts_with(start)).expect("the value is shown").to_owned()
    };
    assert!(line("steps = 7").ends_with("# --set"));
    assert!(line("lr = ").contains("tables.toml:"));
    assert!(line("beta1 = ").ends_with("# default"));
}

#[test]
fn plain_output_can_be_read_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_, first, _) = run(&["config", "show", "--plain", "--set", "seeds=[1]"]);
    let path = folder.path().join("again.toml");
    std::fs::write(&path, &first).expect("the temporary folder is writable");
    let (code, second, _) = run(&["config", "show", "--plain", &path.to_string_lossy()]);
    assert_eq!((code, second), (0, first));
}

#[test]
fn colors_can_be_forced_and_forbidden() {
    let colorful = |variable: &str| {
        let output = lens(&["config", "show"]).env(variable, "1").output().expect("lens starts");
        output.stdout.contains(&0x1b)
    };
    assert!(colorful("CLICOLOR_FORCE"));
    assert!(!colorful("NO_COLOR"));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = lens(&["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lens starts");
    drop(child.stdout.take());
    let status = child.wait().expect("lens ends");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_schema_is_json_and_knows_every_section() {
    let (code, stdout, _) = run(&["config", "schema"]);
    assert_eq!(code, 0);
    let schema: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    for key in ["locate", "validate", "refine", "include"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
}
