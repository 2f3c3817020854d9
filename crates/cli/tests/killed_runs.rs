//! A run that is killed at any moment and resumed ends in the same bytes as one that was left alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lens_opd::random::{Purpose, StreamKey};

mod tiny;

use tiny::{build_models, sets, settings};

/// Optimizer steps of the run.
const STEPS: u32 = 140;
/// How often the run is killed.
const KILLS: u32 = 50;

/// A run of a hundred steps with a checkpoint after each: begun, or resumed if it is there.
fn train(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.arg("train").stdout(Stdio::null()).stderr(Stdio::piped());
    let run = folder.join(name).join("seed-7");
    if run.join("config.toml").exists() {
        command.arg("--resume").arg(run);
        return command;
    }
    let name = format!("name={name}");
    let steps = format!("train.steps={STEPS}");
    let more = [&steps, "train.save_interval=1", &name];
    command.args(settings(folder)).args(sets(&more));
    command
}

/// The files of the last checkpoint and the metrics, by name.
fn result(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let checkpoint = run.join("checkpoints").join(format!("step-{STEPS:06}"));
    let mut files = vec![run.join("metrics.jsonl")];
    for folder in ["model", "state"] {
        let entries = std::fs::read_dir(checkpoint.join(folder)).expect("the run is complete");
        files.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let bytes = std::fs::read(&file).expect("a file");
            (file.strip_prefix(run).expect("inside the run").to_owned(), bytes)
        })
        .collect()
}

/// The step of the newest whole checkpoint.
fn newest_checkpoint(run: &Path) -> Option<u32> {
    let entries = std::fs::read_dir(run.join("checkpoints")).ok()?;
    let step = |name: &str| name.strip_prefix("step-")?.parse().ok();
    entries.filter_map(|entry| step(entry.ok()?.file_name().to_str()?)).max()
}

#[test]
fn a_run_killed_fifty_times_ends_in_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    build_models(folder.path());
    let started = Instant::now();
    let output = train(folder.path(), "alone").output().expect("lens runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let step = started.elapsed() / STEPS;
    let alone = folder.path().join("alone").join("seed-7");

    let run = folder.path().join("killed").join("seed-7");
    let mut draws = StreamKey::new(11, 0, 0, Purpose::Data, 0).open();
    let (mut kills, mut places) = (0, BTreeSet::new());
    loop {
        let mut child = train(folder.path(), "killed").spawn().expect("lens runs");
        if kills < KILLS {
            // Up to two steps further than before, and any moment of the step after that.
            let goal = newest_checkpoint(&run).unwrap_or(0) + draws.below(3).unwrap_or(0) as u32;
            while newest_checkpoint(&run).unwrap_or(0) < goal
                && child.try_wait().expect("a child can be asked").is_none()
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(step.mul_f64(2.0 * draws.uniform()));
            if let Some(status) = child.try_wait().expect("a child can be asked") {
                assert!(status.success(), "it failed after {kills} kills: {status}");
                break;
            }
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            kills += 1;
            places.insert(newest_checkpoint(&run));
        } else {
            let output = child.wait_with_output().expect("lens runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            break;
        }
    }
    assert!(places.len() >= 8, "{kills} kills found the run in {places:?} only");
    assert!(kills >= 20, "the run was complete after {kills} kills: its lives are too long");
    let (alone, killed) = (result(&alone), result(&run));
    assert_eq!(alone.len(), killed.len());
    for ((name, one), (other_name, other)) in alone.iter().zip(&killed) {
        assert_eq!(name, other_name);
        assert!(one == other, "{} differs after {kills} kills", name.display());
    }
}

#[test]
fn a_disk_that_takes_no_more_leaves_the_last_checkpoint_valid() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    build_models(folder.path());
    let output = train(folder.path(), "alone").output().expect("lens runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // Stopped by a limit on the size of files, which fails a write in the same way as a full disk.
    let limited = |blocks: u32, command: &Command| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\""]);
        shell.arg(blocks.to_string()).arg(command.get_program()).args(command.get_args());
        shell.output().expect("a shell runs")
    };
    let run = folder.path().join("full").join("seed-7");
    let output = limited(64, &train(folder.path(), "full"));
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("seed-7"), "it names the file: {message}");
    let output = train(folder.path(), "full").output().expect("lens runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let alone = folder.path().join("alone").join("seed-7");
    assert!(result(&alone) == result(&run), "a run that met a full disk differs");
}
