//! LENS trains on environments in Python: forks by replay and by snapshot, over pipes and over sockets, make the same
//! pairs, and with them the same run.
//!
//! The program needs `python3`; the server needs a Python with `pip install openenv==0.10.0`, named by
//! `LENS_OPENENV_PYTHON`. Without it that part says that it is skipped; with `LENS_REQUIRE_OPENENV=1` it fails.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lens_config::{Config, resolve};
use lens_engine::native::{LearnerOptions, NativeEngine};
use lens_env::remote::{EnvironmentOptions, RemoteBenchmark, RemoteReport, SnapshotUse};
use lens_env::{openenv, stdio};
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_opd::validate::fork::ForkResult;
use lens_train::iteration::Explored;
use lens_train::{Finish, Opening, Progress, Run, RunInputs};

const STEPS: u64 = 2;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn labyrinth() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/labyrinth.py");
    script.display().to_string()
}

/// Every pair of the run: both branches' texts and observations, values and gains.
#[derive(Default)]
struct Pairs {
    pairs: Vec<String>,
    dropped: Vec<String>,
    rooms: usize,
}

impl Progress for Pairs {
    fn explored(&mut self, explored: &Explored) {
        for (run, fork) in explored.forks.iter().zip(&explored.record.forks) {
            if let ForkResult::Dropped(reason) = &run.finished.result {
                self.dropped.push(format!("{reason:?}"));
                continue;
            }
            let seen = |turns: &lens_agent::BranchLog| {
                let turns = turns.turns.iter();
                turns
                    .map(|turn| format!("{} -> {}", turn.observation, turn.text))
                    .collect::<Vec<_>>()
            };
            let (base, guided) = (seen(&run.base), seen(&run.guided));
            self.rooms += base.iter().chain(&guided).filter(|turn| turn.contains("room")).count();
            self.pairs.push(format!("{:?} {base:?} {guided:?} {fork:?}", run.hint));
        }
    }
}

fn config(output: &Path, name: &str) -> Config {
    let overrides = [
        "seeds=[7]",
        "task.benchmark=stdio",
        "task.turn_limit=5",
        "locate.residence=2",
        "rollout.batch_size=4",
        "rollout.max_prompt_tokens=1500",
        "rollout.max_response_tokens=64",
        "train.batch_size=6",
        "train.save_interval=100",
        "train.eval_interval=100",
        "eval.max_tokens=64",
        "eval.tasks_during_training=2",
        "optimizer.lr=1e-3",
        "teacher.weights=f32",
    ];
    let mut all: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
    all.extend([format!("name={name}"), format!("train.steps={STEPS}")]);
    let mut config = resolve(&[], &all).expect("it is right").config;
    config.output = output.to_owned();
    config.teacher.path = root().join("assets/lab/teacher");
    config.student.path = root().join("assets/lab/student-small");
    config
}

/// Trains two steps and returns every pair, the metrics, and how states were put back.
fn trained(benchmark: &Arc<RemoteBenchmark>, name: &str) -> (Pairs, String, RemoteReport) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(folder.path(), name);
    let options = LearnerOptions {
        format: WeightFormat::F32,
        loss: config.loss,
        optimizer: AdamWConfig { lr: config.optimizer.lr, ..AdamWConfig::default() },
        training: TrainerOptions::default(),
    };
    let (student, teacher) = (&config.student.path, &config.teacher.path);
    let engine =
        NativeEngine::load(student, teacher, WeightFormat::F32, options).expect("it loads");
    let inputs = RunInputs {
        config: config.clone(),
        seed: 7,
        benchmark: benchmark.clone(),
        engine: Box::new(engine),
    };
    let mut pairs = Pairs::default();
    let mut run = Run::open(inputs, Opening::New, &mut pairs).expect("it opens");
    assert_eq!(run.run(&AtomicBool::new(false), &mut pairs).expect("it runs"), Finish::Done);
    let metrics = std::fs::read_to_string(Run::folder(&config, 7).join("metrics.jsonl"));
    (pairs, metrics.expect("metrics"), benchmark.report())
}

fn program(kind: &str, snapshot: SnapshotUse) -> Arc<RemoteBenchmark> {
    let command = vec!["python3".to_owned(), labyrinth(), kind.to_owned()];
    stdio::open(&EnvironmentOptions { command, snapshot, ..EnvironmentOptions::default() })
        .expect("it starts")
}

#[test]
fn forks_of_a_python_program_by_snapshot_and_by_replay_make_the_same_pairs() {
    let (fast, fast_metrics, report) = trained(&program("stdio", SnapshotUse::Auto), "labyrinth");
    assert!(!fast.pairs.is_empty() && fast.dropped.is_empty(), "{:?}", fast.dropped);
    assert!(fast.rooms > fast.pairs.len(), "the branches go through rooms");
    assert!(report.restored >= 2 * fast.pairs.len() as u64 && report.replayed == 0, "{report:?}");
    let (slow, slow_metrics, report) = trained(&program("stdio", SnapshotUse::Replay), "labyrinth");
    assert!(report.replayed >= 2 * slow.pairs.len() as u64 && report.restored == 0, "{report:?}");
    assert_eq!((report.not_repeatable, report.failures), (0, 0));
    assert_eq!(fast.pairs, slow.pairs);
    assert_eq!(fast_metrics, slow_metrics, "and all else the run measured");
}

#[test]
fn an_environment_that_does_not_repeat_itself_loses_its_forks_by_that_reason_and_trains_on() {
    let (seen, metrics, report) = trained(&program("dice", SnapshotUse::Auto), "dice");
    let unrepeatable = seen.dropped.iter().filter(|reason| *reason == "NotRepeatable").count();
    assert!(unrepeatable > 0, "{:?}", seen.dropped);
    assert_eq!(report.not_repeatable as usize, unrepeatable);
    assert!(metrics.contains("not_repeatable"), "the reason is counted: {metrics}");
}

/// A server; killed at the end.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn python_with_openenv() -> Option<PathBuf> {
    let named = std::env::var_os("LENS_OPENENV_PYTHON");
    let python = named.map_or_else(|| "python3".into(), PathBuf::from);
    let version = "import importlib.metadata as m; print(m.version('openenv'))";
    let found = Command::new(&python).args(["-c", version]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let required = std::env::var_os("LENS_REQUIRE_OPENENV").is_some_and(|value| value == "1");
    assert!(!required, "LENS_REQUIRE_OPENENV=1, but {} has no openenv", python.display());
    eprintln!("skipped: {} has no openenv", python.display());
    None
}

#[test]
fn forks_of_a_python_server_by_snapshot_and_by_replay_make_the_pairs_of_the_program() {
    let Some(python) = python_with_openenv() else { return };
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let arguments = [labyrinth(), "openenv".to_owned(), address.port().to_string()];
    let mut server = Command::new(python);
    server.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let _server = Served(server.spawn().expect("it starts"));
    let deadline = Instant::now() + Duration::from_mins(2);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "it does not listen");
        std::thread::sleep(Duration::from_millis(100));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let tasks = folder.path().join("tasks.jsonl");
    let line = |split: &str, door: usize| {
        format!(
            "{{\"id\": \"{split}-{door}\", \"split\": \"{split}\", \"reset\": {{\"door\": {door}}}}}\n"
        )
    };
    let lines: String =
        ["train", "test"].iter().flat_map(|split| (0..6).map(|door| line(split, door))).collect();
    std::fs::write(&tasks, lines).expect("written");
    let served = |snapshot| {
        let options = EnvironmentOptions {
            url: format!("http://{address}"),
            tasks: Some(tasks.clone()),
            observation: "{{ observation.text }}".to_owned(),
            snapshot,
            ..EnvironmentOptions::default()
        };
        openenv::open(&options).expect("it opens")
    };
    let (wanted, wanted_metrics, _) = trained(&program("stdio", SnapshotUse::Auto), "labyrinth");
    for (snapshot, fast) in [(SnapshotUse::Auto, true), (SnapshotUse::Replay, false)] {
        let (pairs, metrics, report) = trained(&served(snapshot), "labyrinth");
        assert_eq!((report.restored > 0, report.replayed > 0), (fast, !fast), "{report:?}");
        assert_eq!((report.not_repeatable, report.failures), (0, 0));
        assert_eq!(pairs.pairs, wanted.pairs);
        assert_eq!(metrics, wanted_metrics);
    }
}
