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
