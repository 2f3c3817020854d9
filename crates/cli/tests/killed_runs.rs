//! A run that is killed at any moment and resumed ends in the same bytes as one that was left alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_env::Benchmark;
use lens_env::alfworld::{self, Alfworld};
use lens_lab::corpus::{CorpusOptions, Lesson, corpus};
use lens_lab::recipe::{self, ModelPlan};
use lens_opd::random::{Purpose, StreamKey};

/// How often the run is killed.
const KILLS: u32 = 50;

/// A teacher and a student that know the format and little else.
fn build_models(folder: &Path) {
    let benchmark: Arc<dyn Benchmark> =
        Arc::new(Alfworld::built_in(&alfworld::Options::default()).expect("it is built in"));
    let mut tasks = benchmark.tasks("train").expect("a split");
    tasks.retain(|task| task.kind == "pick_and_place_simple");
    tasks.truncate(40);
    let options = CorpusOptions { seed: 3, stray: 0.0, comments: 0.5, history: 2, turn_limit: 6 };
    let texts = corpus(&benchmark, &tasks, &options).expect("it plays").expect("an expert");
    let tokenizer = recipe::tokenizer(&texts, 200).expect("a tokenizer");
    let lessons: [(&str, &'static [Lesson]); 2] = [
        ("teacher", &[Lesson::Act, Lesson::Comment, Lesson::Obey]),
        ("student", &[Lesson::Act, Lesson::Obey]),
    ];
    for (seed, (name, lessons)) in lessons.into_iter().enumerate() {
        let mut plan: ModelPlan = recipe::plans().remove(1);
        plan.config.hidden_size = 32;
        plan.config.heads = 2;
        plan.config.head_dim = 16;
        plan.config.layers = 2;
        plan.config.intermediate_size = 64;
        (plan.lessons, plan.steps, plan.lr) = (lessons, 40, 1e-2);
        let path = folder.join(name);
        recipe::build(&plan, &tokenizer, &texts, seed as u64, &path, |_, _| {}).expect("it learns");
    }
}

fn train(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lens"));
    command.arg("train").stdout(Stdio::null()).stderr(Stdio::piped());
    let run = folder.join(name).join("seed-7");
    if run.join("config.toml").exists() {
        command.arg("--resume").arg(run);
        return command;
    }
    let set = |value: String| ["--set".to_owned(), value];
    command.args(set(format!("name={name}")));
    command.args(set(format!("output={}", folder.display())));
    command.args(set(format!("student.path={}", folder.join("student").display())));
    command.args(set(format!("teacher.path={}", folder.join("teacher").display())));
    for value in [
        "seeds=[7]",
        "task.turn_limit=4",
        "locate.residence=2",
        "rollout.batch_size=4",
        "rollout.max_prompt_tokens=1500",
        "rollout.max_response_tokens=24",
        "train.batch_size=4",
        "train.steps=100",
        "train.save_interval=1",
        "train.eval_interval=100",
        "eval.max_tokens=24",
        "eval.tasks_during_training=2",
        "optimizer.lr=1e-3",
        "task.eval_splits=[\"valid_unseen\"]",
        "teacher.weights=f32",
    ] {
        command.args(set(value.to_owned()));
    }
    command
}

/// The files of the last checkpoint and the metrics, by name.
fn result(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let checkpoint = run.join("checkpoints").join("step-000100");
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

/// The name of the newest checkpoint, whole or not.
fn newest_checkpoint(run: &Path) -> Option<std::ffi::OsString> {
    let entries = std::fs::read_dir(run.join("checkpoints")).ok()?;
    entries.filter_map(|entry| Some(entry.ok()?.file_name())).max()
}

#[test]
fn a_run_killed_fifty_times_ends_in_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    build_models(folder.path());
    let started = Instant::now();
    let mut child = train(folder.path(), "alone").spawn().expect("lens runs");
    let alone = folder.path().join("alone").join("seed-7");
    while newest_checkpoint(&alone).is_none() {
        assert!(child.try_wait().expect("a child can be asked").is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
    let first = started.elapsed();
    let output = child.wait_with_output().expect("lens runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rest = started.elapsed() - first;

    let run = folder.path().join("killed").join("seed-7");
    let mut draws = StreamKey::new(11, 0, 0, Purpose::Data, 0).open();
    let (mut kills, mut places) = (0, BTreeSet::new());
    loop {
        let mut child = train(folder.path(), "killed").spawn().expect("lens runs");
        if kills < KILLS {
            // Some lives end before the first checkpoint of that life; most get a few steps further.
            let life = if draws.uniform() < 0.2 {
                first.mul_f64(draws.uniform())
            } else {
                first + rest.mul_f64(draws.uniform() / 20.0)
            };
            std::thread::sleep(life);
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
