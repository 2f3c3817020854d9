//! `lens` and ScienceWorld: what it says without the simulator, and that it leaves no process behind with it.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use lens_env::scienceworld::java::Java;
use lens_env::scienceworld::package::{self, Package};
use rustix::process::{Pid, Signal};

fn lens(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.args(arguments);
    command
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn without_the_simulator_it_says_how_to_get_it() {
    let empty = tempfile::tempdir().expect("a folder");
    let output = lens(&["data", "scienceworld"])
        .env("LENS_SCIENCEWORLD", empty.path())
        .output()
        .expect("lens starts");
    let (code, stdout, stderr) = texts(&output);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.contains(package::DOWNLOAD), "{stdout}");
    let total = stdout.lines().find(|line| line.starts_with("all")).expect("a line of totals");
    let sizes: Vec<&str> = total.split_whitespace().skip(1).collect();
    assert_eq!(sizes, ["2294", "1308", "3592", "1796", "1819"]);
    assert!(stderr.contains("the ScienceWorld simulator in"), "{stderr}");
    assert!(stderr.contains("is missing"), "{stderr}");
}

#[test]
fn without_java_it_names_the_package_to_install() {
    let output = lens(&["play", "scienceworld", "--java", "/nonexistent/java"]).output();
    let (code, _, stderr) = texts(&output.expect("lens starts"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("a Java runtime (/nonexistent/java"), "{stderr}");
    assert!(stderr.contains("default-jre-headless"), "{stderr}");
}

#[test]
fn a_wrong_simplification_is_refused_before_anything_starts() {
    let output = lens(&["play", "scienceworld", "--simplifications", "easy,openDoors"]).output();
    let (code, _, stderr) = texts(&output.expect("lens starts"));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("simplification \"easy\" is not in ScienceWorld"), "{stderr}");
}

/// Whether Java and the simulator are there. If not, says so, and fails where they are required.
fn available() -> bool {
    match Java::find().and_then(|_| Package::find(None, &package::cache_folder())) {
        Ok(_) => true,
        Err(error) => {
            let required =
                std::env::var_os("LENS_REQUIRE_SCIENCEWORLD").is_some_and(|value| value == "1");
            assert!(!required, "LENS_REQUIRE_SCIENCEWORLD=1, but {error}");
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            false
        }
    }
}

/// A game that waits for its player, and the machines that it started.
struct Game {
    lens: Child,
    machines: Vec<u32>,
    /// Kept open, for what it still has to say.
    _stdout: ChildStdout,
}

impl Game {
    fn start() -> Self {
        let mut lens = lens(&["play", "scienceworld", "--task", "boil/0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C goes to a whole process group: give it one.
            .process_group(0)
            .spawn()
            .expect("lens starts");
        let mut stdout = lens.stdout.take().expect("a pipe");
        let mut shown = Vec::new();
        let mut byte = [0];
        while !shown.ends_with(b"] > ") {
            let count = stdout.read(&mut byte).expect("lens writes");
            assert!(count > 0, "lens ended: {}", String::from_utf8_lossy(&shown));
            shown.extend(byte);
        }
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains("This room is called the hallway."), "{shown}");
        let machines = children(lens.id());
        assert_eq!(machines.len(), 1, "one machine for one player");
        assert!(machines.iter().all(|pid| is_alive(*pid)));
        Self { lens, machines, _stdout: stdout }
    }

    fn await_machines_gone(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while let Some(pid) = self.machines.iter().find(|pid| is_alive(**pid)) {
            assert!(Instant::now() < end, "process {pid} is still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let lists = threads
        .flatten()
        .map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let parse = |list: String| -> Vec<u32> {
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    lists.flat_map(parse).collect()
}

/// Whether a process is there and is no zombie.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

#[test]
fn a_game_that_is_quit_leaves_no_process() {
    if !available() {
        return;
    }
    let mut game = Game::start();
    let mut stdin = game.lens.stdin.take().expect("a pipe");
    stdin.write_all(b"open door\n0\nundo\nquit\n").expect("lens reads");
    let status = game.lens.wait().expect("lens ends");
    assert_eq!(status.code(), Some(0));
    game.await_machines_gone();
}

#[test]
fn a_game_that_is_interrupted_or_killed_leaves_no_process() {
    if !available() {
        return;
    }
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut game = Game::start();
        let group = Pid::from_raw(game.lens.id().cast_signed()).expect("a process group");
        rustix::process::kill_process_group(group, signal).expect("the group is there");
        game.lens.wait().expect("lens ends");
        game.await_machines_gone();
    }
}
