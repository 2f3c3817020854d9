//! A student that learns here from a served teacher, beside the same pair all here.

use std::sync::Arc;

use lens_engine::native::{LearnerOptions, NativeEngine, NativeLearner};
use lens_engine::remote::{RemoteModels, ServedTeacherEngine, ServerKind};
use lens_engine::{Deadline, Engine, LearnRow, Models, ScoreCall};
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_opd::objective::{Estimator, Loss};

use crate::inference::{Fake, lab};
use crate::{connect, options, prompt};

pub(crate) fn learner_options() -> LearnerOptions {
    LearnerOptions {
        format: WeightFormat::F32,
        loss: Loss { estimator: Estimator::RklTopk, top_k: 16, ..Loss::default() },
        optimizer: AdamWConfig {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            clip: 1.0,
        },
        training: TrainerOptions::default(),
    }
}

fn engines(kind: ServerKind, url: &str) -> (ServedTeacherEngine, NativeEngine) {
    let learner = NativeLearner::load(&lab("student-small"), learner_options()).expect("a student");
    let teacher = connect(kind, &[url], options()).expect("a good server");
    let mixed = ServedTeacherEngine::new(learner, teacher).expect("they fit");
    let native = NativeEngine::load(
        &lab("student-small"),
        &lab("teacher"),
        WeightFormat::F32,
        learner_options(),
    );
    (mixed, native.expect("both are here"))
}

/// The models of a served teacher and of the same one here.
pub(crate) fn pair(kind: ServerKind, url: &str) -> (Arc<RemoteModels>, Arc<dyn Models>) {
    let (mixed, native) = engines(kind, url);
    (mixed.published().clone(), native.models())
}

/// A row to learn from what an engine's models say.
pub(crate) fn rows(engine: &dyn Engine, texts: &[&str]) -> Vec<LearnRow> {
    let models = engine.models();
    let calls: Vec<ScoreCall> = texts
        .iter()
        .map(|text| ScoreCall {
            prompt: prompt(models.student(), "What do you do next?"),
            response: models.student().codec().response(text).expect("tokens"),
            drawn: None,
            compare: false,
            trainable: true,
            temperature: 1.0,
        })
        .collect();
    let answers = models.compare(&calls, Deadline::never()).expect("compared");
    let rows = calls.into_iter().zip(answers).map(|(call, answer)| LearnRow {
        coefficients: vec![0.1; call.response.len()],
        target: answer.expect("an answer").target.expect("a target"),
        prompt: call.prompt,
        response: call.response,
    });
    rows.collect()
}

#[test]
fn learning_from_a_served_teacher_is_learning_from_the_same_teacher_here() {
    let (server, _) = Fake::new("teacher").vllm();
    let (mut mixed, mut native) = engines(ServerKind::Vllm, &server.url);
    for texts in [["go to desk 1", "take mug 1"], ["open drawer 2", "look"]] {
        let (ours, theirs) = (rows(&mixed, &texts), rows(&native, &texts));
        let ours = mixed.learn(&ours).expect("learned");
        let theirs = native.learn(&theirs).expect("learned");
        assert!(
            (ours.loss - theirs.loss).abs() < 1e-4 * theirs.loss.abs(),
            "{} {}",
            ours.loss,
            theirs.loss
        );
        assert!((ours.grad_norm - theirs.grad_norm).abs() < 1e-3 * theirs.grad_norm);
        mixed.publish(&[]).expect("published");
        native.publish(&[]).expect("published");
    }
    assert_eq!(mixed.version(), 2);
}

#[test]
fn a_saved_engine_goes_on_with_its_targets() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, _) = Fake::new("teacher").vllm();
    let (mut first, _) = engines(ServerKind::Vllm, &server.url);
    let waiting = rows(&first, &["go to desk 1"]);
    first.learn(&rows(&first, &["take mug 1"])).expect("learned");
    let saved = first.save(folder.path(), &[&waiting[0].target]).expect("saved");
    let (mut second, _) = engines(ServerKind::Vllm, &server.url);
    let targets = second.load(folder.path(), &saved).expect("loaded");
    assert_eq!(targets, [waiting[0].target.clone()]);
    assert_eq!(second.version(), 1);
    let (ours, theirs) =
        (first.learn(&waiting).expect("learned"), second.learn(&waiting).expect("learned"));
    assert_eq!(ours, theirs, "the same bits");
}
