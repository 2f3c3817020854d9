use lens_opd::episode::Actor;
use lens_opd::methods::exposure::Slot;
use lens_opd::methods::guided::GuidedParams;
use lens_opd::methods::rows::RowKind;
use lens_opd::methods::{MethodKind, MethodParams};

use crate::support::batch;
use crate::{build, default};

fn teacher_turns(batch: u64, episodes: u64) -> f64 {
    let method = default(MethodKind::Guided);
    let mut count = 0;
    for episode in 0..episodes {
        let exposure = method.exposure(&Slot { batch, episode, reference_actions: None });
        count += (0..30).filter(|&turn| exposure.actor(turn) == Actor::Teacher).count();
    }
    count as f64 / (30 * episodes) as f64
}

#[test]
fn the_teacher_takes_its_share_of_turns() {
    let params = GuidedParams::default();
    for batch in [1, 50, 100, 150, 199] {
        let (found, wanted) = (teacher_turns(batch, 100), params.teacher_share(batch));
        assert!((found - wanted).abs() < 0.04, "batch {batch}: {found}, wanted {wanted}");
    }
    assert_eq!(teacher_turns(200, 20), 0.0, "after the decay the student acts alone");
}

#[test]
fn who_acts_depends_on_the_place_alone() {
    let method = default(MethodKind::Guided);
    let actors = |batch, episode| -> Vec<Actor> {
        let exposure = method.exposure(&Slot { batch, episode, reference_actions: None });
        (0..30).map(|turn| exposure.actor(turn)).collect()
    };
    assert_eq!(actors(100, 3), actors(100, 3));
    assert_ne!(actors(100, 3), actors(100, 4));
    assert_ne!(actors(100, 3), actors(101, 3));
}

#[test]
fn teacher_turns_train_by_likelihood() {
    let mut method = default(MethodKind::Guided);
    let mut batch = batch(5, 1, 2, 3);
    batch.episodes[1].turns[0].actor = Actor::Teacher;
    let located = method.locate(&batch).expect("sound batch");
    let refined = method.refine(&batch, &located, &[]).expect("no forks");
    for row in &refined.rows {
        let teacher = (row.episode, row.turn) == (1, 0);
        assert_eq!(row.kind, if teacher { RowKind::TeacherNll } else { RowKind::Opd });
    }
    assert!((refined.record.teacher_share.expect("recorded") - 0.99994).abs() < 1e-5);
    assert_eq!(refined.record.tokens.teacher_nll, batch.episodes[1].turns[0].tokens.len() as u64);
}

#[test]
fn the_mixture_is_a_parameter() {
    let terms =
        |mix| build(&MethodParams::Guided(GuidedParams { mix, ..GuidedParams::default() })).terms();
    assert_eq!(terms(None).teacher_mix, None);
    assert_eq!(terms(Some(0.5)).teacher_mix, Some(0.5));
}
