//! ALFWorld on the command line: playing through a pipe, replaying, counting, timing.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn run(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lens"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lens starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("lens reads its input");
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("lens ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    (status.code().expect("lens exits by itself"), text(stdout), text(stderr))
}

const PLAY: [&str; 7] = ["play", "alfworld", "--split", "valid_unseen", "--task", "1", "--turns"];

fn play(turns: &str, input: &str) -> String {
    let (code, stdout, stderr) = run(&[&PLAY[..], &[turns]].concat(), input);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

#[test]
fn a_person_can_play_undo_ask_and_look_at_the_score() {
    let screen = play("30", "score\n1\nundo\nhint\nquit\nnever read\n");
    assert!(screen.contains("Task: "), "{screen}");
    assert!(screen.contains("   1  go to "), "{screen}");
    assert!(screen.contains("Score 0, turn 0 of 30."), "{screen}");
    let (before, after) = screen.split_once("Took back \"go to ").expect("the undo is confirmed");
    let list = |text: &str| text.split("] > ").next().unwrap_or_default().contains("   1  go to ");
    assert!(list(before) && list(after), "undo leads back to the first list:\n{screen}");
    assert!(after.contains(" Try: go to "), "{after}");
    assert!(!screen.contains("never read"), "{screen}");
}

#[test]
fn following_the_hints_solves_the_game() {
    let mut typed = String::new();
    for _ in 0..30 {
        let screen = play("30", &format!("{typed}hint\n"));
        if screen.contains("Done: success after ") {
            assert!(screen.contains("The expert has no advice here."), "{screen}");
            return;
        }
        let hint = screen.rsplit_once(" Try: ").expect("a hint").1;
        typed.push_str(hint.lines().next().expect("a command"));
        typed.push('\n');
    }
    panic!("not solved after:\n{typed}");
}

#[test]
fn strange_input_and_the_end_of_input_are_no_trouble() {
    let screen = play("2", "9999\nopen sesame\nundo\n1\nlook\nlook\nundo\n");
    assert!(screen.contains("There are actions 1 to "), "{screen}");
    assert!(screen.contains("Nothing happens."), "{screen}");
    assert!(screen.contains("Out of turns (2)"), "{screen}");
    assert!(screen.contains("The game is over: undo or quit."), "{screen}");
    assert!(screen.ends_with("> \n"), "the last prompt ends its line");
}

#[test]
fn wrong_choices_exit_1_and_say_what_there_is() {
    let (code, _, stderr) = run(&["play", "alfworld", "--split", "test"], "");
    assert_eq!(code, 1);
    assert!(stderr.contains("train, valid_seen, valid_unseen"), "{stderr}");
    let (code, _, stderr) =
        run(&["play", "alfworld", "--split", "valid_seen", "--task", "5000"], "");
    assert_eq!(code, 1);
    assert!(stderr.contains("give a number below 500"), "{stderr}");
    let (code, _, stderr) = run(&["data", "alfworld", "--data", "/nonexistent/games.zip"], "");
    assert_eq!(code, 1);
    assert!(stderr.contains("/nonexistent/games.zip"), "{stderr}");
}

#[test]
fn replaying_prints_every_difference_and_exits_1() {
    let recording =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../env/tests/alfworld/generated.jsonl.zst");
    let (code, stdout, stderr) = run(&["env", "replay", "alfworld", "--golden", recording], "");
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(" 0 mismatches"), "{stdout}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let wrong = folder.path().join("wrong.jsonl");
    let (_, listed, _) =
        run(&["env", "expert", "alfworld", "--split", "valid_unseen", "--show", "0"], "");
    let game = listed.lines().next().expect("the task's name");
    let line = format!(
        r#"{{"game":"{game}","play":"none","init":{{"obs":"Hello.","admissible":["look"],"won":false}},"steps":[]}}"#
    );
    std::fs::write(&wrong, line).expect("written");
    let path = wrong.to_string_lossy();
    let (code, stdout, stderr) = run(&["env", "replay", "alfworld", "--golden", &path], "");
    assert_eq!(code, 1);
    assert!(stdout.contains("2 mismatches") && stdout.contains("recorded \"Hello.\""), "{stdout}");
    assert!(stderr.contains("2 mismatches with the recordings"), "{stderr}");

    std::fs::write(&wrong, "{}").expect("written");
    let (code, _, stderr) = run(&["env", "replay", "alfworld", "--golden", &path], "");
    assert_eq!(code, 1);
    assert!(stderr.contains("wrong.jsonl:1: not a recording"), "{stderr}");
}

#[test]
fn data_names_the_sources_and_counts_the_built_in_games() {
    let (code, stdout, _) = run(&["data", "alfworld"], "");
    assert_eq!(code, 0);
    assert!(stdout.contains("json_2.1.2_tw-pddl.zip"), "{stdout}");
    let all = stdout.lines().find(|line| line.starts_with("all ")).expect("a line of sums");
    assert_eq!(all.split_whitespace().collect::<Vec<_>>(), ["all", "3553", "500", "500"]);
}

#[test]
fn the_expert_and_the_bench_print_their_tables() {
    let arguments = ["env", "expert", "alfworld", "--split", "valid_seen", "--limits", "30", "400"];
    let (code, stdout, _) = run(&arguments, "");
    assert_eq!(code, 0);
    let all = stdout.lines().find(|line| line.contains(" all ")).expect("a line for all kinds");
    let cells: Vec<&str> = all.split_whitespace().collect();
    assert_eq!((cells[2], cells[4]), ("500", "100.0"), "all games are solved in the end: {all}");

    let (code, stdout, _) =
        run(&["env", "bench", "alfworld", "--steps", "300", "--environments", "10"], "");
    assert_eq!(code, 0);
    for word in [
        "steps per CPU-second",
        "snapshot and restore",
        "10 environments at once",
        "a live environment",
    ] {
        assert!(stdout.contains(word), "{word} is missing from:\n{stdout}");
    }
}
