//! The native engine on models of ten thousand parameters: targets, checkpoints, published versions.

mod checkpoints;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lens_engine::native::{LearnerOptions, NativeEngine};
use lens_engine::{
    CallFailure, Compared, CrossContext, Deadline, Engine, EngineError, GenerateCall, LearnRow,
    Message, Models, Sampling, ScoreCall, Target,
};
use lens_lm::error::LmError;
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_opd::objective::{Estimator, Loss};
use lens_opd::random::{Purpose, StreamKey};

const ESTIMATORS: [Estimator; 3] = [Estimator::RklFull, Estimator::RklTopk, Estimator::K1Pg];

/// A small model that is committed for the tests of `lens-lm`; all of them share one tokenizer.
fn model(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/fixtures").join(family)
}

fn options(estimator: Estimator) -> LearnerOptions {
    LearnerOptions {
        format: WeightFormat::F32,
        loss: Loss { estimator, top_k: 8, ..Loss::default() },
        optimizer: AdamWConfig { lr: 1e-2, ..AdamWConfig::default() },
        training: TrainerOptions::default(),
    }
}

/// A Qwen3 student that learns from a Qwen2 teacher.
fn engine(estimator: Estimator) -> NativeEngine {
    let (student, teacher) = (model("qwen3"), model("qwen2"));
    NativeEngine::load(&student, &teacher, WeightFormat::F32, options(estimator))
        .expect("the models are committed")
}

fn prompt(models: &dyn Models, text: &str) -> Vec<u32> {
    models.student().codec().prompt(&[Message::user(text)]).expect("it has a template")
}

/// A response that the student itself draws.
fn rolled(models: &dyn Models, text: &str) -> ScoreCall {
    let call = GenerateCall {
        prompt: prompt(models, text),
        max_prompt_tokens: 200,
        max_new_tokens: 6,
        sampling: Sampling::at(1.0),
        stream: StreamKey::new(1, 1, text.len() as u64, Purpose::Rollout, 0),
    };
    let mut answers = models
        .student()
        .generate(std::slice::from_ref(&call), Deadline::never())
        .expect("it generates");
    let drawn = answers.remove(0).expect("the prompt fits");
    ScoreCall {
        prompt: call.prompt,
        response: drawn.tokens,
        drawn: Some(drawn.logprobs),
        compare: false,
        trainable: true,
        temperature: 1.0,
    }
}

fn judged(models: &dyn Models, call: &ScoreCall) -> Compared {
    let calls = std::slice::from_ref(call);
    let mut answers = models.compare(calls, Deadline::never()).expect("it compares");
    answers.remove(0).expect("it is answered")
}

fn row(call: &ScoreCall, target: Target) -> LearnRow {
    LearnRow {
        prompt: call.prompt.clone(),
        response: call.response.clone(),
        coefficients: vec![1.0 / call.response.len() as f32; call.response.len()],
        target,
    }
}

/// A row pulled toward the student's own view of a response under a hint.
fn internalized(models: &dyn Models) -> LearnRow {
    let call = rolled(models, "Go.");
    let cross = CrossContext {
        hinted_prompt: prompt(models, "Go. Take the left door."),
        plain_prompt: call.prompt.clone(),
        response: call.response.clone(),
    };
    let mut answers = models.internalize(&[cross], Deadline::never()).expect("it scores");
    let answer = answers.remove(0).expect("it is answered");
    assert!(answer.gap.is_some_and(|gap| gap > 0.0), "a hint changes what the student thinks");
    row(&call, answer.target)
}

#[test]
fn every_estimator_gives_its_own_target_and_only_where_rows_may_be_trained_on() {
    for (estimator, kind) in
        ESTIMATORS.into_iter().zip(["TeacherStates(Some(", "TeacherTop(Some(", "Sampled {"])
    {
        for compare in [true, false] {
            let mut engine = engine(estimator);
            let models = engine.models();
            let call = ScoreCall { compare, ..rolled(&*models, "Go.") };
            let target = judged(&*models, &call).target.expect("it may be trained on");
            assert!(format!("{target:?}").starts_with(&format!("Target({kind}")), "{target:?}");
            let idle = ScoreCall { trainable: false, ..call.clone() };
            assert_eq!(judged(&*models, &idle).target, None);
            let report = engine.learn(&[row(&call, target)]).expect("it learns");
            assert!(report.loss.is_finite() && report.grad_norm > 0.0 && !report.skipped);
            assert_eq!((engine.version(), engine.models().student().version()), (1, 0));
            engine.publish(&[]).expect("it publishes");
            assert_eq!(engine.models().student().version(), 1);
            assert_eq!(models.student().version(), 0, "what was published stays as it was");
        }
    }
}

#[test]
fn a_comparison_measures_both_models_and_a_score_the_teacher_alone() {
    let engine = engine(Estimator::RklFull);
    let models = engine.models();
    let call = rolled(&*models, "Go.");
    let alone = judged(&*models, &call);
    let both = judged(&*models, &ScoreCall { compare: true, ..call.clone() });
    assert_eq!(
        (alone.positions.len(), both.positions.len()),
        (call.response.len(), call.response.len())
    );
    for ((alone, both), drawn) in
        alone.positions.iter().zip(&both.positions).zip(call.drawn.expect("the student drew it"))
    {
        assert!(alone.student_logprob.is_none() && alone.top.is_none() && alone.kl.is_none());
        let close =
            |left: Option<f32>, right: f32| left.is_some_and(|left| (left - right).abs() < 1e-4);
        assert!(close(both.teacher_logprob, alone.teacher_logprob.expect("it was asked")));
        assert!(close(both.student_logprob, drawn), "{both:?} is not {drawn}");
        assert!(both.kl.is_some_and(|kl| kl > 0.0) && both.top.is_some(), "{both:?}");
    }
}

#[test]
fn a_comparison_that_cannot_be_made_is_an_error_and_no_empty_answer() {
    let engine = engine(Estimator::K1Pg);
    let models = engine.models();
    let foreign = ScoreCall { drawn: None, ..rolled(&*models, "Go.") };
    let error = models
        .compare(std::slice::from_ref(&foreign), Deadline::never())
        .expect_err("nobody knows the student's log-probabilities");
    assert!(matches!(error, EngineError::Request(_)), "{error}");
    assert!(error.to_string().contains("student"), "{error}");
    let measured = judged(&*models, &ScoreCall { compare: true, ..foreign.clone() });
    assert!(measured.target.is_some(), "a comparison measures them");
    let idle = judged(&*models, &ScoreCall { trainable: false, ..foreign });
    assert_eq!(idle.target, None, "and where nothing is trained they are not needed");
}

#[test]
fn answers_come_in_the_order_of_the_calls_whatever_the_batch() {
    let engine = engine(Estimator::RklTopk);
    let models = engine.models();
    let calls: Vec<ScoreCall> = ["Go.", "Look around.", "Take the red mug.", "Go on."]
        .into_iter()
        .zip([false, true, true, false])
        .zip([1.0, 1.0, 1.0, 0.5])
        .map(|((text, compare), temperature)| ScoreCall {
            compare,
            temperature,
            ..rolled(&*models, text)
        })
        .collect();
    let together = models.compare(&calls, Deadline::never()).expect("it compares");
    for (call, answer) in calls.iter().zip(together) {
        assert_eq!(answer, Ok(judged(&*models, call)));
    }
}

#[test]
fn a_prompt_that_is_too_long_fails_alone() {
    let engine = engine(Estimator::RklFull);
    let models = engine.models();
    let call = |limit: usize| GenerateCall {
        prompt: prompt(&*models, "Go."),
        max_prompt_tokens: limit,
        max_new_tokens: 4,
        sampling: Sampling::at(1.0),
        stream: StreamKey::new(1, 1, 1, Purpose::Rollout, 0),
    };
    let answers = models.student().generate(&[call(200), call(3), call(200)], Deadline::never());
    let answers = answers.expect("the engine works");
    assert_eq!(answers[1], Err(CallFailure::PromptTooLong));
    assert!(answers[0].is_ok() && answers[0] == answers[2]);
}

#[test]
fn calls_past_their_deadline_time_out() {
    let engine = engine(Estimator::RklFull);
    let models = engine.models();
    let late = Deadline::after(Duration::ZERO);
    let call = rolled(&*models, "Go.");
    let compared = models.compare(&[call.clone(), call.clone()], late).expect("the engine works");
    assert_eq!(compared, [Err(CallFailure::Timeout), Err(CallFailure::Timeout)]);
    let cross = CrossContext {
        hinted_prompt: call.prompt.clone(),
        plain_prompt: call.prompt.clone(),
        response: call.response,
    };
    let scored = models.internalize(&[cross], late).expect("the engine works");
    assert_eq!(scored, [Err(CallFailure::Timeout)]);
}

#[test]
fn models_that_do_not_share_their_tokens_are_refused() {
    let teacher = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/lab/teacher");
    let error = NativeEngine::load(
        &model("qwen3"),
        &teacher,
        WeightFormat::F32,
        options(Estimator::RklFull),
    )
    .err()
    .expect("the tokenizers differ");
    assert!(matches!(error, EngineError::Model(LmError::Vocabulary { .. })), "{error}");
}
