//! Checkpoints and published versions.

use std::path::Path;

use lens_engine::native::{LearnerOptions, NativeEngine, NativePolicy};
use lens_engine::{
    Deadline, Engine, EngineError, GenerateCall, LearnReport, LearnRow, Policy, Sampling, Target,
};
use lens_lm::model::WeightFormat;
use lens_lm::train::{LoraOptions, Targets, TrainerOptions};
use lens_opd::objective::Estimator;
use lens_opd::random::{Purpose, StreamKey};

use crate::{ESTIMATORS, engine, internalized, judged, model, options, rolled, row};

/// What can be seen of a report, to the bit.
fn bits(report: &LearnReport) -> [u64; 5] {
    let LearnReport { loss, focus_loss, internalization_loss, grad_norm, tokens, .. } = *report;
    let numbers = [loss, focus_loss, internalization_loss, grad_norm].map(f64::to_bits);
    [numbers[0], numbers[1], numbers[2], numbers[3], tokens as u64]
}

/// An engine after one step, with rows of every kind that still wait.
fn under_way(estimator: Estimator) -> (NativeEngine, Vec<LearnRow>) {
    one_step_on(engine(estimator))
}

fn one_step_on(mut engine: NativeEngine) -> (NativeEngine, Vec<LearnRow>) {
    let models = engine.models();
    let call = rolled(&*models, "Look around.");
    let old = internalized(&*models);
    let first = row(&call, judged(&*models, &call).target.expect("a target"));
    engine.learn(std::slice::from_ref(&first)).expect("it learns");
    engine.publish(&[&old.target]).expect("it publishes");
    let models = engine.models();
    let call = rolled(&*models, "Take the red mug.");
    let rows = vec![
        row(&call, judged(&*models, &call).target.expect("a target")),
        old,
        internalized(&*models),
        row(&call, Target::tokens()),
    ];
    (engine, rows)
}

fn targets(rows: &[LearnRow]) -> Vec<&Target> {
    rows.iter().map(|row| &row.target).collect()
}

#[test]
fn a_resumed_engine_has_the_same_targets_and_learns_the_same_to_the_bit() {
    for estimator in ESTIMATORS {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut whole, rows) = under_way(estimator);
        let saved = whole.save(folder.path(), &targets(&rows)).expect("it is written");
        assert_eq!(saved.len(), rows.len());

        let mut resumed = engine(estimator);
        let read = resumed.load(folder.path(), &saved).expect("it is read");
        assert_eq!(resumed.version(), 1);
        assert_eq!(resumed.models().student().version(), 1, "what was read is published");
        let again: Vec<LearnRow> = rows
            .iter()
            .zip(&read)
            .map(|(row, target)| LearnRow { target: target.clone(), ..row.clone() })
            .collect();
        // What the frozen teacher says again is asked for again; everything else is kept.
        assert_eq!(&read[1..], &rows[1..].iter().map(|row| row.target.clone()).collect::<Vec<_>>());

        let text = "Go on.";
        assert_eq!(
            rolled(&*whole.models(), text).response,
            rolled(&*resumed.models(), text).response
        );
        for _ in 0..2 {
            let reports = [whole.learn(&rows), resumed.learn(&again)];
            let [whole, resumed] = reports.map(|report| bits(&report.expect("it learns")));
            assert_eq!(whole, resumed, "{estimator:?}");
        }
    }
}

/// Damages a checkpoint in one place.
type Damage = fn(&Path);

/// What a fresh engine reports of its first step, to tell whether another one is still like it.
fn first_step(engine: &mut NativeEngine) -> [u64; 5] {
    let models = engine.models();
    let call = rolled(&*models, "Go.");
    let target = judged(&*models, &call).target.expect("a target");
    bits(&engine.learn(&[row(&call, target)]).expect("it learns"))
}

#[test]
fn a_checkpoint_that_cannot_be_used_is_refused_and_changes_nothing() {
    let expected = first_step(&mut engine(Estimator::RklFull));
    let damages: [(&str, Damage); 6] = [
        ("a weight that is no number", |folder| {
            damaged(&folder.join("model/model.safetensors"), |bytes| {
                let end = bytes.len();
                bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
            });
        }),
        ("weights cut short", |folder| {
            damaged(&folder.join("model/model.safetensors"), |bytes| bytes.truncate(2000));
        }),
        ("a missing optimizer", |folder| {
            std::fs::remove_file(folder.join("state/optimizer.safetensors")).expect("it is there");
        }),
        ("a damaged optimizer", |folder| {
            damaged(&folder.join("state/optimizer.safetensors"), |bytes| bytes.truncate(100));
        }),
        ("a missing output head", |folder| {
            std::fs::remove_file(folder.join("state/head-000000.f32")).expect("it is there");
        }),
        ("an output head cut short", |folder| {
            damaged(&folder.join("state/head-000001.f32"), |bytes| bytes.truncate(400));
        }),
    ];
    for (what, damage) in damages {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (whole, rows) = under_way(Estimator::RklFull);
        let saved = whole.save(folder.path(), &targets(&rows)).expect("it is written");
        damage(folder.path());
        let mut fresh = engine(Estimator::RklFull);
        let error = fresh.load(folder.path(), &saved).expect_err(what);
        let place = folder.path().display().to_string();
        assert!(error.to_string().contains(&place), "{what}: it names the file: {error}");
        assert_eq!(fresh.version(), 0, "{what}");
        assert_eq!(first_step(&mut fresh), expected, "{what}");
    }
}

/// The same engine, but the student's own weights are frozen under adapters.
fn adapted(rank: usize, bf16: bool) -> NativeEngine {
    let format = if bf16 { WeightFormat::Bf16 } else { WeightFormat::F32 };
    let lora = LoraOptions { rank, alpha: 8.0, targets: Targets::ALL, seed: 1, bf16_base: bf16 };
    let training = TrainerOptions { lora: Some(lora), ..TrainerOptions::default() };
    let options = LearnerOptions { format, training, ..options(Estimator::RklFull) };
    NativeEngine::load(&model("qwen3"), &model("qwen2"), WeightFormat::F32, options)
        .expect("the models are committed")
}

#[test]
fn an_engine_that_trains_adapters_resumes_to_the_bit_from_peft_s_files() {
    for bf16 in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (mut whole, rows) = one_step_on(adapted(4, bf16));
        let saved = whole.save(folder.path(), &targets(&rows)).expect("it is written");
        let state = folder.path().join("state");
        for file in ["adapter/adapter_config.json", "adapter/adapter_model.safetensors"] {
            assert!(state.join(file).is_file(), "{file}");
        }
        assert!(!state.join("head-000000.f32").exists(), "the head is frozen");

        let mut resumed = adapted(4, bf16);
        let read = resumed.load(folder.path(), &saved).expect("it is read");
        let again: Vec<LearnRow> = rows
            .iter()
            .zip(&read)
            .map(|(row, target)| LearnRow { target: target.clone(), ..row.clone() })
            .collect();
        let text = "Go on.";
        let expected = rolled(&*whole.models(), text);
        assert_eq!(expected.response, rolled(&*resumed.models(), text).response);
        for _ in 0..2 {
            let reports = [whole.learn(&rows), resumed.learn(&again)];
            let [whole, resumed] = reports.map(|report| bits(&report.expect("it learns")));
            assert_eq!(whole, resumed);
        }
        if bf16 {
            // The model beside the adapters is written in bf16, norms included; these fixtures' norms lose digits by that.
            continue;
        }
        // It is the published student: adapters are merged into it.
        let folder = folder.path().join("model");
        let written = NativePolicy::load(&folder, WeightFormat::F32).expect("a model");
        let call = GenerateCall {
            prompt: expected.prompt.clone(),
            max_prompt_tokens: 200,
            max_new_tokens: 6,
            sampling: Sampling::at(1.0),
            stream: StreamKey::new(1, 1, text.len() as u64, Purpose::Rollout, 0),
        };
        let mut answers = written.generate(&[call], Deadline::never()).expect("it generates");
        assert_eq!(answers.remove(0).map(|answer| answer.tokens), Ok(expected.response));
    }
}

#[test]
fn adapters_that_cannot_be_used_are_refused_and_change_nothing() {
    let expected = first_step(&mut adapted(4, false));
    let damages: [(&str, Damage); 3] = [
        ("missing adapters", |folder| {
            std::fs::remove_dir_all(folder.join("state/adapter")).expect("they are there");
        }),
        ("adapters cut short", |folder| {
            let file = folder.join("state/adapter/adapter_model.safetensors");
            damaged(&file, |bytes| bytes.truncate(1000));
        }),
        ("a damaged optimizer", |folder| {
            damaged(&folder.join("state/optimizer.safetensors"), |bytes| bytes.truncate(100));
        }),
    ];
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (number, (what, damage)) in damages.into_iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let (whole, _) = one_step_on(adapted(4, false));
        whole.save(&folder, &[]).expect("it is written");
        damage(&folder);
        let mut fresh = adapted(4, false);
        let error = fresh.load(&folder, &[]).expect_err(what);
        assert!(error.to_string().contains(&folder.display().to_string()), "{what}: {error}");
        assert_eq!(first_step(&mut fresh), expected, "{what}");
    }
    let (whole, _) = one_step_on(adapted(4, false));
    whole.save(folder.path(), &[]).expect("it is written");
    let error = adapted(5, false).load(folder.path(), &[]).expect_err("another rank");
    assert!(error.to_string().contains("rank"), "{error}");
}

#[test]
fn a_student_that_nothing_refers_to_is_renewed_in_its_own_memory() {
    let (mut engine, rows) = under_way(Estimator::RklFull);
    let kept = engine.models();
    let before = rolled(&*kept, "Go on.");
    engine.learn(&rows).expect("it learns");
    engine.publish(&targets(&rows)).expect("it publishes");
    assert_eq!((kept.student().version(), engine.models().student().version()), (1, 2));
    assert_eq!(rolled(&*kept, "Go on.").response, before.response, "the old one is untouched");
    drop(kept);
    let beside = rolled(&*engine.models(), "Go on.");
    engine.publish(&targets(&rows)).expect("it publishes again, now in place");
    assert_eq!(engine.models().student().version(), 2);
    assert_eq!(rolled(&*engine.models(), "Go on.").response, beside.response);
}

fn damaged(path: &Path, change: fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("it was written");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("it can be damaged");
}

#[test]
fn a_checkpoint_of_another_model_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (teacher, student) = (model("qwen2"), model("llama"));
    let other =
        NativeEngine::load(&student, &teacher, WeightFormat::F32, options(Estimator::RklFull))
            .expect("the models are committed");
    other.save(folder.path(), &[]).expect("it is written");
    let error = engine(Estimator::RklFull).load(folder.path(), &[]).expect_err("another shape");
    assert!(matches!(error, EngineError::State { .. }), "{error}");
    assert!(error.to_string().contains("another shape"), "{error}");
}

#[test]
fn publishing_keeps_the_heads_that_targets_refer_to_and_forgets_older_ones() {
    let (mut engine, rows) = under_way(Estimator::RklFull);
    let (zero, one) = (&rows[1], &rows[2]);
    engine.learn(&[zero.clone(), one.clone()]).expect("both heads are kept");
    engine.publish(&[&zero.target, &one.target]).expect("it publishes");
    engine.learn(std::slice::from_ref(zero)).expect("the head of version 0 is still kept");
    engine.publish(&[&one.target]).expect("it publishes");
    let error = engine.learn(std::slice::from_ref(zero)).expect_err("no row referred to it");
    assert!(matches!(error, EngineError::Request(_)), "{error}");
    assert!(error.to_string().contains("snapshot 0"), "{error}");
    engine.learn(std::slice::from_ref(one)).expect("the head of version 1 is kept");
}

#[test]
fn a_batch_that_is_refused_leaves_no_gradient_behind() {
    let (mut whole, rows) = under_way(Estimator::RklFull);
    let (mut tried, same) = under_way(Estimator::RklFull);
    tried.publish(&[]).expect("it publishes");
    // The sound row goes first and leaves its gradient before the other one is refused.
    let refused = [same[3].clone(), same[1].clone()];
    tried.learn(&refused).expect_err("the head of version 0 is gone");
    let mut short = same[0].clone();
    short.coefficients.pop();
    let error = tried.learn(&[short]).expect_err("a token has no coefficient");
    assert!(matches!(error, EngineError::Train(_)), "{error}");
    assert_eq!(tried.version(), 1);
    let reports = [whole.learn(&rows[..1]), tried.learn(&same[..1])];
    let [whole, tried] = reports.map(|report| bits(&report.expect("it learns")));
    assert_eq!(whole, tried);
}

#[test]
fn the_written_model_is_the_student() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (engine, _) = under_way(Estimator::RklFull);
    engine.save(folder.path(), &[]).expect("it is written");
    let student = NativePolicy::load(&folder.path().join("model"), WeightFormat::F32)
        .expect("a Hugging Face directory");
    let expected = rolled(&*engine.models(), "Go on.");
    let call = GenerateCall {
        prompt: expected.prompt.clone(),
        max_prompt_tokens: 200,
        max_new_tokens: 6,
        sampling: Sampling::at(1.0),
        stream: StreamKey::new(1, 1, "Go on.".len() as u64, Purpose::Rollout, 0),
    };
    let mut answers = student.generate(&[call], Deadline::never()).expect("it generates");
    assert_eq!(answers.remove(0).map(|answer| answer.tokens), Ok(expected.response));
    let bytes = std::fs::metadata(folder.path().join("model/model.safetensors")).expect("weights");
    assert!(engine.checkpoint_bytes() >= 3 * (bytes.len() - 10_000), "weights and two moments");
}
