use lens_opd::methods::MethodName;
use lens_opd::methods::exposure::EpisodeSlot;

use crate::default;
use crate::support::batch;

fn slot(batch: u64, reference_actions: Option<usize>) -> EpisodeSlot {
    EpisodeSlot { version: 0, batch, episode: 0, reference_actions }
}

#[test]
fn opd_always_plays_in_full() {
    let method = default(MethodName::Opd);
    for n in [1, 5, 500] {
        let exposure = method.exposure(&slot(n, Some(8)));
        assert_eq!((exposure.horizon, exposure.prefix), (30, 0));
    }
}

#[test]
fn f2b_grows_from_the_first_turn() {
    let method = default(MethodName::TcodF2b);
    for (n, horizon) in [(1, 1), (4, 1), (5, 2), (9, 2), (10, 3), (144, 29), (145, 30), (400, 30)] {
        let exposure = method.exposure(&slot(n, Some(8)));
        assert_eq!((exposure.horizon, exposure.prefix), (horizon, 0), "batch {n}");
    }
}

#[test]
fn b2f_replays_ever_less_of_the_reference() {
    for kind in [MethodName::TcodB2f, MethodName::Futurebridge] {
        let method = default(kind);
        for (n, prefix) in [(1, 7), (5, 6), (34, 1), (35, 0), (200, 0)] {
            let exposure = method.exposure(&slot(n, Some(8)));
            assert_eq!((exposure.horizon, exposure.prefix), (30, prefix), "{kind:?} batch {n}");
        }
        assert_eq!(method.exposure(&slot(1, None)).prefix, 0, "no reference: an ordinary episode");
        assert_eq!(method.exposure(&slot(1, Some(0))).prefix, 0);
        assert_eq!(method.exposure(&slot(1, Some(75))).prefix, 29, "the student always has a turn");
    }
}

#[test]
fn b2f_reports_the_mean_prefix() {
    let mut method = default(MethodName::TcodB2f);
    let mut batch = batch(4, 1, 2, 2);
    batch.episodes[0].prefix = 5;
    for (turn, number) in batch.episodes[0].turns.iter_mut().zip(5..) {
        turn.turn = number;
    }
    let located = method.locate(&batch).expect("sound batch");
    let refined = method.refine(&batch, &located, &[]).expect("no forks");
    assert_eq!(refined.record.mean_prefix, Some(2.5));
    let turns: Vec<usize> =
        refined.rows.iter().filter(|row| row.episode == 0).map(|row| row.turn).collect();
    assert_eq!(turns, [5, 6], "replayed turns have no rows");
}
