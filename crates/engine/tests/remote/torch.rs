//! The engine over a training worker and student servers: steps once, weights whole, versions right.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lens_engine::http::Retry;
use lens_engine::remote::ServerKind::Vllm;
use lens_engine::remote::{TeacherPlace, TorchEngine, TorchOptions, Transfer, Worker};
use lens_engine::{
    CallFailure, CrossContext, Deadline, Engine, EngineError, LearnRow, Models, Sampling, ScoreCall,
};
use lens_opd::episode::DivergenceSource;
use lens_opd::objective::{Estimator, Loss};
use safetensors::tensor::SafeTensors;
use tempfile::TempDir;

use crate::inference::{Fake, lab};
use crate::server::Server;
use crate::worker::{self, Fault, State};
use crate::{call, connect, key, mixed, options, prompt};

struct Setup {
    engine: TorchEngine,
    state: Arc<Mutex<State>>,
    students: Arc<Fake>,
    student_server: Server,
    worker: Server,
    teacher_server: Server,
    folder: TempDir,
}

pub(crate) fn torch_options(folder: &Path, resuming: bool) -> TorchOptions {
    let learner = mixed::learner_options();
    TorchOptions {
        loss: learner.loss,
        optimizer: learner.optimizer,
        weights: folder.join("weights"),
        reload_timeout: Duration::from_secs(20),
        resuming,
        overlap: false,
        transfer: Transfer::Disk,
    }
}

pub(crate) fn client(url: &str) -> Worker {
    let retry = Retry { again: 5, pause: Duration::from_millis(5) };
    Worker::new(url, key(worker::TOKEN), Duration::from_secs(20), retry).expect("an address")
}

fn setup(state: State) -> Result<Setup, EngineError> {
    setup_with(state, mixed::learner_options().loss)
}

fn setup_with(state: State, loss: Loss) -> Result<Setup, EngineError> {
    setup_as(state, |options| options.loss = loss)
}

fn setup_as(state: State, change: impl FnOnce(&mut TorchOptions)) -> Result<Setup, EngineError> {
    let folder = tempfile::tempdir().expect("a folder");
    let (student_server, students) = Fake::new("student-large").vllm();
    let (teacher_server, _) = Fake::new("teacher").vllm();
    let (worker_server, state) = worker::start(lab("student-large"), state);
    let served = connect(Vllm, &[&student_server.url], options())?;
    let teacher = TeacherPlace::Served(connect(Vllm, &[&teacher_server.url], options())?);
    let mut options = torch_options(folder.path(), false);
    change(&mut options);
    let engine = TorchEngine::connect(client(&worker_server.url), served, teacher, options)?;
    Ok(Setup {
        engine,
        state,
        students,
        student_server,
        worker: worker_server,
        teacher_server,
        folder,
    })
}

#[test]
fn a_run_of_steps_publishes_each_version_and_keeps_two() {
    let mut all = setup(State::default()).expect("connected");
    let Setup { engine, state, students, folder, .. } = &mut all;
    assert_eq!(*students.label.lock().expect("held"), "0", "the first weights are published too");
    assert_eq!(engine.models().divergence(), DivergenceSource::TopK);
    let refused = engine.check_overlap().expect_err("nothing is kept");
    assert!(refused.to_string().contains("train.overlap"), "{refused}");
    for version in 1..=3 {
        let rows = mixed::rows(&*engine, &["go to desk 1", "take mug 1"]);
        let report = engine.learn(&rows).expect("learned");
        assert_eq!((report.loss, report.skipped, report.tokens), (0.5, false, 10));
        engine.publish(&[]).expect("published");
        assert_eq!((engine.version(), engine.models().student().version()), (version, version));
        let models = engine.models();
        let calls = [call(models.student(), "Go.", Sampling::GREEDY)];
        models
            .student()
            .generate(&calls, Deadline::never())
            .expect("the version is right")
            .remove(0)
            .expect("written");
    }
    assert_eq!(state.lock().expect("held").applied, 3);
    let mut kept: Vec<String> = std::fs::read_dir(folder.path().join("weights"))
        .expect("there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    kept.sort();
    assert_eq!(kept, ["v000002", "v000003"]);
    assert_eq!(students.loaded.lock().expect("held").len(), 4);
}

fn scored(text: &str, models: &dyn Models) -> ScoreCall {
    ScoreCall {
        prompt: prompt(models.student(), text),
        response: models.student().codec().response("take mug 1").expect("tokens"),
        drawn: None,
        compare: true,
        trainable: false,
        temperature: 1.0,
    }
}

#[test]
fn the_published_student_writes_during_a_step_and_is_judged_after_it_as_before() {
    let (go, hold) = std::sync::mpsc::channel();
    let state = State { hold: Some(hold), ..State::default() };
    let mut all = setup_as(state, |options| options.overlap = true).expect("connected");
    let Setup { engine, worker, .. } = &mut all;
    engine.check_overlap().expect("the worker keeps what is published");
    let (rows, models) = (mixed::rows(&*engine, &["go to desk 1"]), engine.models());
    let models = &*models;
    let view = || {
        let answers = models.compare(&[scored("Go.", models)], Deadline::never()).expect("works");
        answers.into_iter().next().expect("one").expect("compared")
    };
    let before = view();
    let asked = worker.count("/v1/score");
    std::thread::scope(|scope| {
        let step = scope.spawn(|| engine.learn(&rows).expect("learned"));
        while worker.count("/v1/learn") == 0 {
            std::thread::yield_now();
        }
        let calls = [call(models.student(), "Go.", Sampling::GREEDY)];
        let written = models.student().generate(&calls, Deadline::never()).expect("works");
        written.into_iter().next().expect("one").expect("a step keeps no one from writing");
        let judged = scope.spawn(view);
        let hinted = CrossContext {
            hinted_prompt: vec![1, 2, 3],
            plain_prompt: vec![1, 3],
            response: vec![4, 5],
        };
        let kept = scope.spawn(move || models.internalize(&[hinted], Deadline::never()));
        assert_eq!(worker.count("/v1/score"), asked, "the step was there first");
        go.send(()).expect("the step goes on");
        step.join().expect("learned");
        assert_eq!(judged.join().expect("judged").positions, before.positions);
        kept.join().expect("kept").expect("works").remove(0).expect("of the published version");
    });
    assert_eq!((engine.version(), models.student().version()), (1, 0));
    assert_eq!(view().positions, before.positions);
    engine.publish(&[]).expect("published");
    let error = models.compare(&[scored("Go.", models)], Deadline::never());
    let error = error.expect_err("the copy is of version 1 now").to_string();
    assert!(error.contains("409") && error.contains("expects 0"), "{error}");
    let now = engine.models();
    let after = now.compare(&[scored("Go.", &*now)], Deadline::never()).expect("works").remove(0);
    assert_ne!(after.expect("compared").positions, before.positions);
}

#[test]
fn a_step_whose_answer_is_lost_is_done_once() {
    for faults in [
        vec![Fault::CutBefore],
        vec![Fault::CutAfter],
        vec![Fault::CutAfter, Fault::CutBefore, Fault::CutAfter],
        vec![Fault::CutAfter, Fault::Busy, Fault::Busy],
        vec![Fault::Busy, Fault::CutBefore],
    ] {
        let mut all = setup(State::default()).expect("connected");
        let Setup { engine, state, .. } = &mut all;
        state.lock().expect("held").faults =
            faults.iter().map(|&fault| ("/v1/learn", fault)).collect();
        let rows = mixed::rows(&*engine, &["go to desk 1"]);
        engine.learn(&rows).expect("learned in the end");
        let state = state.lock().expect("held");
        assert_eq!((state.applied, state.version, engine.version()), (1, 1, 1), "{faults:?}");
        assert!(
            state.asked.iter().all(|asked| asked["request_id"] == state.asked[0]["request_id"])
        );
    }
}

#[test]
fn out_of_memory_halves_the_budget_once_under_a_new_id() {
    let mut all = setup(State::default()).expect("connected");
    let Setup { engine, state, .. } = &mut all;
    state.lock().expect("held").faults = vec![("/v1/learn", Fault::OutOfMemory)];
    let rows = mixed::rows(&*engine, &["go to desk 1"]);
    engine.learn(&rows).expect("learned with less at a time");
    assert_eq!(state.lock().expect("held").asked[0]["token_budget"], "8192");
    state.lock().expect("held").faults = vec![("/v1/learn", Fault::OutOfMemory); 2];
    let error = engine.learn(&rows).expect_err("it does not fit").to_string();
    assert!(error.contains("out of memory"), "{error}");
    assert_eq!((engine.version(), state.lock().expect("held").applied), (1, 1));
}

#[test]
fn trap_19_the_ratio_is_taken_to_what_the_server_drew_with() {
    let loss = Loss { estimator: Estimator::K1Pg, ..mixed::learner_options().loss };
    let mut all = setup_with(State::default(), loss).expect("connected");
    let Setup { engine, worker, .. } = &mut all;
    let models = engine.models();
    let calls = [call(models.student(), "Go.", Sampling::at(1.0))];
    let written = models.student().generate(&calls, Deadline::never()).expect("works");
    let written = written.into_iter().next().expect("one").expect("written");
    let scored = ScoreCall {
        prompt: calls[0].prompt.clone(),
        response: written.tokens.clone(),
        drawn: Some(written.logprobs.clone()),
        compare: true,
        trainable: true,
        temperature: 1.0,
    };
    let compared = models.compare(&[scored], Deadline::never()).expect("works").remove(0);
    let compared = compared.expect("compared");
    // The worker sees the same tokens with other eyes: it says -2 of each of them.
    assert!(compared.positions.iter().all(|position| position.student_logprob == Some(-2.0)));
    let teacher: Vec<f32> = compared.positions.iter().filter_map(|at| at.teacher_logprob).collect();
    let row = LearnRow {
        coefficients: vec![0.1; written.tokens.len()],
        target: compared.target.expect("a target"),
        prompt: calls[0].prompt.clone(),
        response: written.tokens,
    };
    engine.learn(&[row]).expect("learned");
    let sent = worker.seen().into_iter().rfind(|request| request.path == "/v1/learn");
    let sent = sent.expect("a step was asked for").body;
    let tensors = SafeTensors::deserialize(&sent).expect("safetensors");
    let floats = |name: &str| -> Vec<f32> {
        let bytes = tensors.tensor(name).expect("sent").data().to_vec();
        bytes
            .chunks_exact(4)
            .filter_map(|word| Some(f32::from_le_bytes(word.try_into().ok()?)))
            .collect()
    };
    assert_eq!(floats("rollout_logprobs"), written.logprobs, "as the server drew, to the bit");
    assert_eq!(floats("teacher_logprobs"), teacher);
    assert!(tensors.tensor("student_logprobs").is_err(), "the numerator is the worker's own");
}

#[test]
fn scores_that_are_not_numbers_are_not_measured() {
    let loss = Loss { estimator: Estimator::K1Pg, ..mixed::learner_options().loss };
    let all = setup_with(State { nan: true, ..State::default() }, loss).expect("connected");
    let models = all.engine.models();
    let scored = |drawn: Option<Vec<f32>>| ScoreCall {
        prompt: vec![1, 2, 3],
        response: vec![4, 5],
        drawn,
        compare: true,
        trainable: true,
        temperature: 1.0,
    };
    let calls = [scored(Some(vec![-1.0, -1.0])), scored(None)];
    let mut answers = models.compare(&calls, Deadline::never()).expect("the run goes on");
    // Without the server's own log-probabilities there is nothing to take the ratio to.
    assert_eq!(answers.pop().expect("two").err(), Some(CallFailure::Engine));
    let known = answers.pop().expect("two").expect("what was drawn is known");
    for position in &known.positions {
        assert_eq!((position.student_logprob, position.kl, position.top), (None, None, None));
        assert!(position.teacher_logprob.is_some());
    }
}

#[test]
fn a_skipped_step_is_no_step_and_the_next_one_has_another_id() {
    let mut all = setup(State { skip: true, ..State::default() }).expect("connected");
    let Setup { engine, state, .. } = &mut all;
    let rows = mixed::rows(&*engine, &["go to desk 1"]);
    let report = engine.learn(&rows).expect("an answer");
    assert!(report.skipped && report.loss.is_nan());
    state.lock().expect("held").skip = false;
    engine.learn(&rows).expect("learned");
    let state = state.lock().expect("held");
    assert_eq!((engine.version(), state.applied), (1, 1));
    assert_ne!(state.asked[0]["request_id"], state.asked[1]["request_id"]);
}

#[test]
fn a_worker_that_another_driver_moved_on_is_refused() {
    let mut all = setup(State::default()).expect("connected");
    let Setup { engine, state, .. } = &mut all;
    let rows = mixed::rows(&*engine, &["go to desk 1"]);
    state.lock().expect("held").version = 5;
    let error = engine.learn(&rows).expect_err("refused").to_string();
    assert!(error.contains("another version") && error.contains("409"), "{error}");
    assert_eq!(state.lock().expect("held").applied, 0);
}

#[test]
fn damaged_weights_never_reach_a_server() {
    let mut all = setup(State::default()).expect("connected");
    let Setup { engine, state, students, .. } = &mut all;
    engine.learn(&mixed::rows(&*engine, &["look"])).expect("learned");
    state.lock().expect("held").faults = vec![("/v1/publish", Fault::Damage)];
    let error = engine.publish(&[]).expect_err("refused").to_string();
    assert!(error.contains("model.safetensors"), "{error}");
    assert_eq!(students.loaded.lock().expect("held").len(), 1, "only the first weights");
    assert_eq!(*students.label.lock().expect("held"), "0");
    engine.publish(&[]).expect("the next one is whole");
    assert_eq!(*students.label.lock().expect("held"), "1");
}

#[test]
fn a_student_server_that_cannot_take_the_weights_is_named() {
    let all = setup(State::default()).expect("connected");
    let Setup {
        mut engine,
        student_server,
        worker: _worker,
        teacher_server: _teacher,
        folder: _folder,
        ..
    } = all;
    engine.learn(&mixed::rows(&engine, &["look"])).expect("learned");
    let url = student_server.url.clone();
    drop(student_server);
    let error = engine.publish(&[]).expect_err("nobody there").to_string();
    assert!(error.contains(&url) && error.contains("resume"), "{error}");
    assert_eq!(
        engine.models().student().version(),
        0,
        "no policy of the new version was handed out"
    );
}

#[test]
fn a_dead_worker_is_told_with_what_to_do() {
    let all = setup(State::default()).expect("connected");
    let Setup {
        mut engine,
        worker,
        student_server: _student,
        teacher_server: _teacher,
        folder: _folder,
        ..
    } = all;
    let rows = mixed::rows(&engine, &["look"]);
    drop(worker);
    let error = engine.learn(&rows).expect_err("gone").to_string();
    assert!(error.contains("restart it") && error.contains("checkpoint"), "{error}");
    assert_eq!(engine.version(), 0);
}

#[test]
fn a_driver_that_was_killed_resumes_from_the_checkpoint() {
    let all = setup(State::default()).expect("connected");
    let Setup {
        mut engine,
        state,
        students,
        student_server,
        worker: server,
        teacher_server,
        folder,
    } = all;
    engine.learn(&mixed::rows(&engine, &["look"])).expect("learned");
    engine.publish(&[]).expect("published");
    let hinted = [CrossContext {
        hinted_prompt: vec![1, 2, 3],
        plain_prompt: vec![1, 3],
        response: vec![4, 5],
    }];
    let kept = engine
        .models()
        .internalize(&hinted, Deadline::never())
        .expect("kept")
        .remove(0)
        .expect("kept");
    assert_eq!(kept.gap, Some(0.25));
    let checkpoint = folder.path().join("checkpoint");
    std::fs::create_dir(&checkpoint).expect("made");
    let saved = engine.save(&checkpoint, &[&kept.target]).expect("saved");
    assert!(checkpoint.join("model/config.json").exists());
    engine.learn(&mixed::rows(&engine, &["go"])).expect("a step that is lost with the driver");
    drop(engine);
    assert_eq!(state.lock().expect("held").version, 2);

    let again = |resuming| {
        let served = connect(Vllm, &[&student_server.url], options()).expect("good");
        let teacher =
            TeacherPlace::Served(connect(Vllm, &[&teacher_server.url], options()).expect("good"));
        TorchEngine::connect(
            client(&server.url),
            served,
            teacher,
            torch_options(folder.path(), resuming),
        )
    };
    let error = again(false).err().expect("a new run needs a fresh worker").to_string();
    assert!(error.contains("at step 2") && error.contains("restart"), "{error}");
    let mut engine = again(true).expect("connected");
    let models = engine.models();
    let calls = [call(models.student(), "Go.", Sampling::GREEDY)];
    let error = models
        .student()
        .generate(&calls, Deadline::never())
        .expect_err("nothing was loaded")
        .to_string();
    assert!(error.contains("restart the worker"), "{error}");
    let targets = engine.load(&checkpoint, &saved).expect("loaded");
    assert_eq!(targets, [kept.target]);
    assert_eq!((engine.version(), state.lock().expect("held").version), (1, 1));
    assert_eq!(*students.label.lock().expect("held"), "1");
    engine.learn(&mixed::rows(&engine, &["go"])).expect("the lost step, done again");
    engine.publish(&targets.iter().collect::<Vec<_>>()).expect("published");
    assert_eq!(
        state.lock().expect("held").forgotten.last(),
        Some(&1),
        "what waiting rows refer to is kept"
    );
}

#[test]
fn a_wrong_token_is_told() {
    let (server, _) = worker::start(lab("student-large"), State::default());
    let worker = Worker::new(&server.url, key("other"), Duration::from_secs(5), Retry::default())
        .expect("an address");
    let error = worker.info().expect_err("refused").to_string();
    assert!(error.contains("learner.key_file") && !error.contains("other\""), "{error}");
}
