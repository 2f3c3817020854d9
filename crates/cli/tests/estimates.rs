//! `lens estimate` against what short runs really did, method by method.

use std::path::Path;
use std::process::{Command, Output};

use lens_opd::methods::MethodName;
use lens_records::metrics::Record;
use serde_json::Value;

mod tiny;

use tiny::{build_models, sets, settings};

fn lens(arguments: &[String]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_lens")).args(arguments).output();
    let output = output.expect("lens runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// What a run did: explorer batches, turns of the student, forks.
fn really(run: &Path) -> (u64, u64, u64) {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let (mut batches, mut turns, mut forks) = (0, 0, 0);
    for line in text.lines() {
        if let Record::Batch(batch) = serde_json::from_str(line).expect("a record") {
            batches += 1;
            turns += batch.rollout.expect("stats").turns;
            forks += batch.forks.len() as u64;
        }
    }
    (batches, turns, forks)
}

#[test]
fn counts_are_within_15_percent_of_a_real_run_for_every_method() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    build_models(folder.path());
    for method in MethodName::ALL {
        let more = [
            format!("method={method}"),
            format!("name={method}"),
            "train.steps=12".to_owned(),
            "task.turn_limit=6".to_owned(),
            "locate.residence=2".to_owned(),
            "tcod.residence=2".to_owned(),
            "task.references=expert-plans".to_owned(),
            // Enough episodes for their mean to settle, and a student that stays as the probe saw it.
            "rollout.batch_size=16".to_owned(),
            "train.batch_size=16".to_owned(),
            "optimizer.lr=1e-6".to_owned(),
        ];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let all: Vec<String> = settings(folder.path()).into_iter().chain(sets(&more)).collect();
        let estimate = ["estimate", "--json", "--probe", "128"].map(str::to_owned);
        let estimate: Vec<String> = estimate.into_iter().chain(all.clone()).collect();
        let text = lens(&estimate).stdout;
        let costs: Value = serde_json::from_slice(&text).expect("JSON");
        let guess = |key: &str| costs["per_seed"][key].as_f64().expect("a number");
        let train: Vec<String> = std::iter::once("train".to_owned()).chain(all).collect();
        lens(&train);
        let (batches, turns, forks) = really(&folder.path().join(method.as_str()).join("seed-7"));
        for (what, guessed, real) in [
            ("batches", guess("explorer_batches"), batches),
            ("turns", guess("student_turns") + guess("guided_turns"), turns),
            ("forks", guess("forks"), forks),
        ] {
            let real = real as f64;
            assert!(
                (guessed - real).abs() <= (0.15 * real).max(1.0),
                "{method}: {what} guessed {guessed}, really {real}"
            );
        }
    }
}

/// The peak that a run printed, in MB.
fn printed_peak(output: &Output) -> f64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.split_once("peak memory: ").expect("it is printed").1;
    let (number, rest) = line.split_once(' ').expect("a number");
    let number: f64 = number.parse().expect("a number");
    if rest.starts_with("GB") { 1000.0 * number } else { number }
}

#[test]
fn memory_is_within_15_percent_of_a_real_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let laboratory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/laboratory.toml");
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/lab");
    for (name, student, budget) in [("small", "student-small", 64), ("large", "student-large", 96)]
    {
        let more = [
            format!("name={name}"),
            format!("output={}", folder.path().display()),
            format!("student.path={models}/{student}"),
            format!("teacher.path={models}/teacher"),
            format!("memory.budget={budget}"),
            "method=opd".to_owned(),
            "task.turn_limit=20".to_owned(),
            "rollout.batch_size=4".to_owned(),
            "train.batch_size=64".to_owned(),
            "train.steps=1".to_owned(),
            "eval.tasks_during_training=1".to_owned(),
        ];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let all: Vec<String> = std::iter::once(laboratory.to_owned()).chain(sets(&more)).collect();
        let estimate: Vec<String> =
            ["estimate", "--json"].map(str::to_owned).into_iter().chain(all.clone()).collect();
        let costs: Value = serde_json::from_slice(&lens(&estimate).stdout).expect("JSON");
        let guessed = costs["per_seed"]["memory_bytes"].as_f64().expect("a number") / 1e6;
        let train: Vec<String> = std::iter::once("train".to_owned()).chain(all).collect();
        let real = printed_peak(&lens(&train));
        assert!((guessed - real).abs() < 0.15 * real, "{name}: guessed {guessed}, really {real}");
    }
}
