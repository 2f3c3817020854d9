use lens_opd::episode::Actor;
use lens_opd::methods::MethodName;
use lens_opd::methods::exposure::{Control, EpisodeSlot};
use lens_opd::methods::guided::Guided;
use lens_opd::methods::rows::RowKind;

use crate::support::batch;
use crate::{build, default};

fn teacher_turns(version: u64, episodes: u64) -> f64 {
    let method = default(MethodName::Guided);
    let mut count = 0;
    for episode in 0..episodes {
        let slot = EpisodeSlot { batch: 7, version, episode, reference_actions: None };
        let exposure = method.exposure(&slot);
        count += (0..30).filter(|&turn| exposure.actor(turn) == Actor::Teacher).count();
    }
    count as f64 / (30 * episodes) as f64
}

#[test]
fn the_teacher_takes_its_share_of_turns() {
    let guided = Guided::default();
    for version in [0, 1, 50, 100, 150, 199] {
        let (found, wanted) = (teacher_turns(version, 100), guided.teacher_share(version, 250));
        assert!((found - wanted).abs() < 0.04, "step {version}: {found}, wanted {wanted}");
    }
    assert_eq!(teacher_turns(200, 20), 0.0, "after the decay the student acts alone");
}

#[test]
fn the_share_follows_optimizer_steps_and_ends_at_80_percent_whatever_a_batch_holds() {
    for steps_per_batch in [1_u64, 3, 7] {
        let method = default(MethodName::Guided);
        let mut last = 1.0;
        for batch in 1..=250_u64.div_ceil(steps_per_batch) {
            let version = (batch - 1) * steps_per_batch;
            let slot = EpisodeSlot { batch, version, episode: 0, reference_actions: None };
            let Control::Mixed { teacher_share, .. } = method.exposure(&slot).control else {
                panic!("control is shared");
            };
            assert!(teacher_share <= last);
            assert_eq!(teacher_share == 0.0, version >= 200, "{steps_per_batch}: step {version}");
            last = teacher_share;
        }
        assert_eq!(last, 0.0);
    }
}

#[test]
fn who_acts_depends_on_the_place_alone() {
    let method = default(MethodName::Guided);
    let actors = |batch, episode| -> Vec<Actor> {
        let exposure =
            method.exposure(&EpisodeSlot { version: 100, batch, episode, reference_actions: None });
        (0..30).map(|turn| exposure.actor(turn)).collect()
    };
    assert_eq!(actors(100, 3), actors(100, 3));
    assert_ne!(actors(100, 3), actors(100, 4));
    assert_ne!(actors(100, 3), actors(101, 3));
}

#[test]
fn teacher_turns_train_by_likelihood() {
    let mut method = default(MethodName::Guided);
    let mut batch = batch(5, 1, 2, 3);
    batch.episodes[1].turns[0].actor = Actor::Teacher;
    let located = method.locate(&batch).expect("sound batch");
    let refined = method.refine(&batch, &located, &[]).expect("no forks");
    for row in &refined.rows {
        let teacher = (row.episode, row.turn) == (1, 0);
        assert_eq!(row.kind, if teacher { RowKind::TeacherNll } else { RowKind::Opd });
    }
    assert!((refined.record.measures["teacher_share"] - 1.0).abs() < 1e-5);
    assert_eq!(refined.record.tokens.teacher_nll, batch.episodes[1].turns[0].tokens.len() as u64);
}

#[test]
fn the_mixture_is_a_parameter() {
    let terms = |mix| build(MethodName::Guided, |sections| sections.guided.mix = mix).terms();
    assert_eq!(terms(None).teacher_mix, None);
    assert_eq!(terms(Some(0.5)).teacher_mix, Some(0.5));
}
