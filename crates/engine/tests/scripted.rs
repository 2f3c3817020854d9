//! The scripted engine says what it was told to say, and an observer is told of every call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lens_engine::scripted::{Reply, Score, Scripted, ScriptedEngine, ScriptedPolicy};
use lens_engine::{
    Call, CallFailure, CrossContext, Deadline, Engine, EngineError, FinishReason, GenerateCall,
    LearnRow, Message, Models, ObservedEngine, Observer, Policy, Sampling, ScoreCall, Target,
};
use lens_opd::random::{Purpose, StreamKey};

fn call(policy: &dyn Policy, max_new_tokens: usize) -> GenerateCall {
    GenerateCall {
        prompt: policy.codec().prompt(&[Message::user("Go.")]).expect("characters"),
        max_prompt_tokens: 100,
        max_new_tokens,
        sampling: Sampling::GREEDY,
        stream: StreamKey::new(0, 0, 0, Purpose::Rollout, 0),
    }
}

fn score() -> ScoreCall {
    ScoreCall {
        prompt: vec![1, 2],
        response: vec![3, 4],
        drawn: None,
        compare: true,
        trainable: true,
        temperature: 1.0,
    }
}

fn cross() -> CrossContext {
    CrossContext { hinted_prompt: vec![1], plain_prompt: vec![2], response: vec![3] }
}

#[test]
fn a_script_is_read_in_order_and_then_made_up_from_the_prompt() {
    let policy = ScriptedPolicy::new(["one".into(), Reply::Fail(CallFailure::Engine)], |prompt| {
        Reply::Text(prompt.to_uppercase())
    });
    let calls = [call(&policy, 50), call(&policy, 50), call(&policy, 50), call(&policy, 2)];
    let answers = policy.generate(&calls, Deadline::never()).expect("no script breaks");
    let shown: Vec<Result<(String, FinishReason), CallFailure>> = answers
        .into_iter()
        .map(|answer| {
            answer.map(|completion| {
                assert_eq!(completion.tokens.len(), completion.logprobs.len());
                (policy.codec().text(&completion.tokens).expect("text"), completion.finish)
            })
        })
        .collect();
    assert_eq!(
        shown,
        [
            Ok(("one".to_owned(), FinishReason::Stop)),
            Err(CallFailure::Engine),
            Ok(("USER: GO.\n".to_owned(), FinishReason::Stop)),
            Ok(("US".to_owned(), FinishReason::Length)),
        ]
    );
    assert_eq!(policy.prompts(), ["user: Go.\n"; 4]);
}

#[test]
fn a_script_that_breaks_fails_the_whole_call() {
    let policy = ScriptedPolicy::new([Reply::Break], |_| "on".into());
    let calls = [call(&policy, 9), call(&policy, 9)];
    let error = policy.generate(&calls, Deadline::never()).expect_err("it breaks");
    assert!(matches!(error, EngineError::Request(_)), "{error}");
}

/// Remembers the kind and the failures of every call.
#[derive(Default)]
struct Notes(Mutex<Vec<(&'static str, usize, usize)>>);

impl Observer for Notes {
    fn answered(&self, call: &Call<'_>, _: Duration) {
        let note = match call {
            Call::Student(calls, answers) => ("student", calls.len(), failed(answers)),
            Call::Teacher(calls, answers) => ("teacher", calls.len(), failed(answers)),
            Call::Compare(calls, answers) => ("compare", calls.len(), failed(answers)),
            Call::Internalize(calls, answers) => ("internalize", calls.len(), failed(answers)),
        };
        self.0.lock().expect("nobody panicked").push(note);
    }
}

fn failed<T>(answers: &[Result<T, CallFailure>]) -> usize {
    answers.iter().filter(|answer| answer.is_err()).count()
}

fn scripted() -> Scripted {
    let student = ScriptedPolicy::new([Reply::Fail(CallFailure::Timeout)], |_| "yes".into());
    Scripted::new(student, ScriptedPolicy::saying("no"))
        .scoring([Score::LogProb(-2.0), Score::Fail(CallFailure::Engine)])
        .failing_targets([CallFailure::Engine])
}

#[test]
fn an_observer_is_told_of_every_call_and_changes_none() {
    let notes = Arc::new(Notes::default());
    let engine = ObservedEngine::new(ScriptedEngine::new(scripted()), notes.clone());
    let (plain, models) = (scripted(), engine.models());
    let never = Deadline::never();
    let calls = [call(models.student(), 9), call(models.student(), 9)];
    let same = |left: &dyn Models, right: &dyn Models| {
        let generated = |models: &dyn Models| {
            [models.student(), models.teacher()].map(|policy| policy.generate(&calls, never).ok())
        };
        assert_eq!(generated(left), generated(right));
        let compared = |models: &dyn Models| models.compare(&[score(), score()], never).ok();
        assert_eq!(compared(left), compared(right));
        let internalized = |models: &dyn Models| models.internalize(&[cross()], never).ok();
        assert_eq!(internalized(left), internalized(right));
        assert_eq!(left.divergence(), right.divergence());
    };
    same(&*models, &plain);
    let told = notes.0.lock().expect("nobody panicked").clone();
    assert_eq!(
        told,
        [("student", 2, 1), ("teacher", 2, 0), ("compare", 2, 1), ("internalize", 1, 1)]
    );
}

#[test]
fn a_scripted_comparison_holds_what_was_asked_for() {
    let models = scripted();
    let plain = ScoreCall { compare: false, trainable: false, ..score() };
    let answers = models.compare(&[score(), plain.clone(), plain], Deadline::never());
    let answers = answers.expect("no script breaks");
    let both = answers[0].as_ref().expect("it is answered");
    assert!(both.target.is_some() && both.positions.len() == 2);
    assert_eq!(both.positions[0].teacher_logprob, Some(-2.0));
    assert!(both.positions[0].kl.is_some() && both.positions[0].top.is_some());
    assert_eq!(answers[1], Err(CallFailure::Engine));
    let alone = answers[2].as_ref().expect("it is answered");
    assert!(alone.target.is_none() && alone.positions[0].kl.is_none());
    assert_eq!(models.judged().len(), 3);
}

#[test]
fn a_scripted_engine_counts_its_steps_and_remembers_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut engine =
        ObservedEngine::new(ScriptedEngine::new(scripted()), Arc::new(Notes::default()));
    let row = LearnRow {
        prompt: vec![1, 2],
        response: vec![3],
        coefficients: vec![1.0],
        target: Target::tokens(),
    };
    let report = engine.learn(std::slice::from_ref(&row)).expect("it counts");
    assert_eq!((report.tokens, engine.version()), (3, 1));
    engine.publish(&[]).expect("nothing to publish");
    let saved = engine.save(folder.path(), &[&row.target]).expect("it is written");
    let mut other = ScriptedEngine::new(scripted());
    assert_eq!(other.load(folder.path(), &saved).expect("it is read"), [row.target]);
    assert_eq!(other.version(), 1);
    std::fs::write(folder.path().join("state/version"), "many").expect("it is damaged");
    let error = other.load(folder.path(), &saved).expect_err("no number");
    assert!(matches!(error, EngineError::State { .. }), "{error}");
    assert_eq!(other.version(), 1, "a checkpoint that cannot be used changes nothing");
}
