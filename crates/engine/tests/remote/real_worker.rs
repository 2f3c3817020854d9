//! The real worker under torchrun, with a student served from the folders it publishes. Skipped with a word where Python
//! and torch are missing; an error with LENS_REQUIRE_TORCH=1. `LENS_VENV` names a virtual environment.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lens_engine::http::Retry;
use lens_engine::native::NativeEngine;
use lens_engine::remote::ServerKind::Vllm;
use lens_engine::remote::{TeacherPlace, TorchEngine, TorchOptions, Transfer, Worker};
use lens_engine::{CrossContext, Deadline, Engine, LearnRow, Position, Sampling, ScoreCall};
use lens_lm::model::WeightFormat;
use lens_opd::episode::DivergenceSource;
use lens_opd::objective::{Estimator, Loss};

use crate::inference::{Fake, lab};
use crate::{call, key, mixed, options, prompt};

pub(crate) fn python() -> Option<PathBuf> {
    let venv = std::env::var_os("LENS_VENV").map(PathBuf::from);
    let python = venv.map_or_else(|| PathBuf::from("python3"), |venv| venv.join("bin/python"));
    let usable = Command::new(&python)
        .args(["-c", "import torch, transformers, safetensors"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let required = std::env::var_os("LENS_REQUIRE_TORCH").is_some_and(|value| value == "1");
    assert!(usable || !required, "LENS_REQUIRE_TORCH=1, but {} has no torch", python.display());
    if !usable {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no Python with torch and transformers (LENS_VENV)"
        );
    }
    usable.then_some(python)
}

pub(crate) struct Running(pub(crate) Child, pub(crate) String);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn start(python: &Path, token: &Path, teacher: bool) -> Running {
    let mut command = Command::new(python);
    command.args([
        "-m",
        "lens_worker",
        "--port",
        "0",
        "--device",
        "cpu",
        "--compute",
        "f32",
        "--student",
    ]);
    command.arg(lab("student-small")).arg("--token-file").arg(token);
    // As the native engine keeps them; the worker's own default is a list per token.
    command.args(["--targets", "exact"]);
    if teacher {
        command.arg("--teacher").arg(lab("teacher"));
    }
    // One rank needs no launcher; a process of its own can be killed like a rank that dies.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = free.expect("a free port").port().to_string();
    let alone = [
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port),
    ];
    command.envs(alone);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    command.env("PYTHONPATH", package).env("OMP_NUM_THREADS", "1").stdout(Stdio::piped());
    let mut child = command.spawn().expect("python starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("it prints its address");
    let said: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    let url = said["listening"].as_str().expect("an address").to_owned();
    Running(child, url)
}

fn torch_engine(
    worker: &Running,
    student: &str,
    loss: Loss,
    folder: &Path,
    resuming: bool,
) -> TorchEngine {
    let retry = Retry { again: 5, pause: Duration::from_millis(200) };
    let worker =
        Worker::new(&worker.1, key("word"), Duration::from_mins(5), retry).expect("an address");
    let endpoint = lens_engine::http::Endpoint::new(student, None).expect("an address");
    let served = lens_engine::remote::Served::connect(
        Vllm,
        vec![endpoint],
        crate::codec("student-small"),
        options(),
    );
    let options = TorchOptions {
        loss,
        optimizer: mixed::learner_options().optimizer,
        weights: folder.join("weights"),
        reload_timeout: Duration::from_mins(1),
        resuming,
        overlap: true,
        transfer: Transfer::Disk,
    };
    let teacher = TeacherPlace::Worker(crate::codec("teacher"));
    TorchEngine::connect(worker, std::sync::Arc::new(served.expect("good")), teacher, options)
        .expect("connected")
}

fn with_hint(engine: &dyn Engine) -> LearnRow {
    let models = engine.models();
    let response = models.student().codec().response("take mug 1").expect("tokens");
    let call = CrossContext {
        hinted_prompt: prompt(models.student(), "Hint: take the mug. What do you do?"),
        plain_prompt: prompt(models.student(), "What do you do?"),
        response: response.clone(),
    };
    let kept = models
        .internalize(std::slice::from_ref(&call), Deadline::never())
        .expect("kept")
        .remove(0)
        .expect("kept");
    assert!(kept.gap.is_some_and(|gap| gap > 0.0));
    LearnRow {
        prompt: call.plain_prompt,
        coefficients: vec![0.1; response.len()],
        response,
        target: kept.target,
    }
}

#[test]
fn six_steps_in_the_real_worker_are_six_steps_here() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "word").expect("written");
    let worker = start(&python, &token, true);
    let (student, _) = Fake::new("student-small").vllm();
    let loss = Loss { estimator: Estimator::RklFull, ..Loss::default() };
    let mut torch = torch_engine(&worker, &student.url, loss, folder.path(), false);
    assert_eq!(torch.models().divergence(), DivergenceSource::Full);
    let mut learner = mixed::learner_options();
    learner.loss = loss;
    let mut native =
        NativeEngine::load(&lab("student-small"), &lab("teacher"), WeightFormat::F32, learner)
            .expect("here");
    let texts = [
        "go to desk 1",
        "take mug 1",
        "open drawer 2",
        "look",
        "examine shelf 3",
        "put mug 1 in desk 1",
    ];
    let mut saved = None;
    for (step, text) in texts.iter().enumerate() {
        let learn = |engine: &mut dyn Engine| {
            let mut rows = mixed::rows(engine, &[text, "wait"]);
            rows.push(with_hint(engine));
            let report = engine.learn(&rows).expect("learned");
            engine.publish(&[]).expect("published");
            report
        };
        let (ours, theirs) = (learn(&mut torch), learn(&mut native));
        let close = |a: f64, b: f64, part: f64| (a - b).abs() <= part * b.abs().max(1e-3);
        assert!(
            close(ours.focus_loss, theirs.focus_loss, 2e-3),
            "step {step}: {ours:?} {theirs:?}"
        );
        assert!(close(ours.grad_norm, theirs.grad_norm, 2e-2), "step {step}: {ours:?} {theirs:?}");
        assert_eq!(torch.version(), native.version());
        if step == 2 {
            let checkpoint = folder.path().join("checkpoint");
            std::fs::create_dir(&checkpoint).expect("made");
            saved = Some((torch.save(&checkpoint, &[]).expect("saved"), checkpoint));
        }
    }
    let (ours, theirs) = (torch.models(), native.models());
    let calls: Vec<_> = ["Go.", "What do you see?"]
        .iter()
        .map(|text| call(ours.student(), text, Sampling::GREEDY))
        .collect();
    let written = |models: &dyn lens_engine::Models| {
        models.student().generate(&calls, Deadline::never()).expect("written")
    };
    let (ours, theirs) = (written(&*ours), written(&*theirs));
    for (ours, theirs) in ours.into_iter().zip(theirs) {
        // The published weights are bf16.
        let (ours, theirs) = (ours.expect("written"), theirs.expect("written"));
        assert!((ours.logprobs[0] - theirs.logprobs[0]).abs() < 0.1, "{ours:?} {theirs:?}");
    }
    let (entries, checkpoint) = saved.expect("saved after the third step");
    torch.load(&checkpoint, &entries).expect("loaded");
    assert_eq!((torch.version(), torch.models().student().version()), (3, 3));
    let exported = lens_lm::checkpoint::Checkpoint::open(&checkpoint.join("model"));
    exported.expect("the exported model can be read here");
}

/// What the worker says of the published student.
fn judge(engine: &dyn Engine) -> Vec<Position> {
    let models = engine.models();
    let call = ScoreCall {
        prompt: prompt(models.student(), "What do you do?"),
        response: models.student().codec().response("open drawer 2").expect("tokens"),
        drawn: None,
        compare: true,
        trainable: false,
        temperature: 1.0,
    };
    let answer = models.compare(&[call], Deadline::never()).expect("compared").remove(0);
    answer.expect("compared").positions
}

#[test]
fn a_worker_that_is_killed_and_started_again_goes_on_from_the_checkpoint() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "word").expect("written");
    let (student, _) = Fake::new("student-small").vllm();
    let loss = Loss { estimator: Estimator::RklTopk, top_k: 16, ..Loss::default() };
    let worker = start(&python, &token, true);
    let mut torch = torch_engine(&worker, &student.url, loss, folder.path(), false);
    let rows = mixed::rows(&torch, &["go to desk 1", "wait"]);
    torch.learn(&rows).expect("learned");
    torch.publish(&[]).expect("published");
    let checkpoint = folder.path().join("checkpoint");
    std::fs::create_dir(&checkpoint).expect("made");
    let saved = torch.save(&checkpoint, &[&rows[0].target]).expect("saved");
    let next = mixed::rows(&torch, &["take mug 1"]);
    let seen = judge(&torch);
    let wanted = torch.learn(&next).expect("learned");
    assert_eq!(judge(&torch), seen, "the published student, between its steps");
    drop(worker);
    let error = torch.learn(&next).expect_err("the worker is gone").to_string();
    assert!(error.contains("restart it"), "{error}");
    let worker = start(&python, &token, true);
    let mut torch = torch_engine(&worker, &student.url, loss, folder.path(), true);
    assert_eq!(torch.load(&checkpoint, &saved).expect("loaded"), [rows[0].target.clone()]);
    assert_eq!(judge(&torch), seen, "the checkpoint's weights are the published ones");
    let found = torch.learn(&next).expect("learned again");
    assert_eq!(judge(&torch), seen);
    assert_eq!((found.loss, found.grad_norm), (wanted.loss, wanted.grad_norm), "the same bits");
}
