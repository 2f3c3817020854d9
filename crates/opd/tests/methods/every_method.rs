use lens_opd::OpdError;
use lens_opd::episode::{Actor, DivergenceSource, EpisodeEnd, ScoredBatch, TurnDrop};
use lens_opd::methods::exposure::{Exposure, Slot};
use lens_opd::methods::state::MethodState;
use lens_opd::methods::{Method, MethodKind, MethodParams, Refined, Setting};
use lens_opd::random::Stream;

use crate::support::{batch, draws, fork, turn};
use crate::{build, default};

/// Plays an episode as the method wants it, with made-up scores.
fn play(
    stream: &mut Stream,
    key: u64,
    exposure: &Exposure,
    length: usize,
) -> lens_opd::episode::ScoredEpisode {
    let last = exposure.horizon.min(exposure.prefix + length);
    let turns = (exposure.prefix..last)
        .map(|number| {
            let mut turn = turn(stream, number, 4);
            turn.actor = exposure.actor(number);
            turn
        })
        .collect();
    let cut = last < 30 && last == exposure.horizon;
    lens_opd::episode::ScoredEpisode {
        episode: key,
        version: 0,
        prefix: exposure.prefix,
        reference_actions: Some(8),
        end: if cut { EpisodeEnd::CurriculumCutoff } else { EpisodeEnd::Completed },
        success: false,
        turns,
    }
}

/// One explorer batch, driven without knowing the method.
fn drive(method: &mut dyn Method, number: u64) -> (ScoredBatch, Refined) {
    let mut stream = draws(number);
    let episodes = (0..4)
        .map(|key| {
            let slot = Slot { batch: number, episode: key, reference_actions: Some(8) };
            let exposure = method.exposure(&slot);
            play(&mut stream, key, &exposure, 5)
        })
        .collect();
    let batch = ScoredBatch { number, divergence: DivergenceSource::Full, episodes };
    let located = method.locate(&batch).expect("sound batch");
    let forks: Vec<_> = located
        .forks
        .iter()
        .zip(0_u8..)
        .map(|(request, i)| {
            fork(number, request.episode, request.turn, -1.0, -1.2 + f32::from(i) * 0.3)
        })
        .collect();
    let refined = method.refine(&batch, &located, &forks).expect("all forks are there");
    (batch, refined)
}

#[test]
fn a_loop_drives_every_method_alike() {
    for kind in MethodKind::ALL {
        let mut method = default(kind);
        assert_eq!(method.kind(), kind);
        for number in 1..=40 {
            let (batch, refined) = drive(method.as_mut(), number);
            let turns: usize = batch.episodes.iter().map(|episode| episode.turns.len()).sum();
            assert!(refined.rows.len() >= turns, "{kind:?}: every turn is trained on");
            assert!(refined.rows.iter().all(|row| row.batch == number && !row.weights.is_empty()));
            let trained: usize = refined.rows.iter().map(|row| row.weights.len()).sum();
            let tokens = refined.record.tokens;
            let counted = tokens.opd + tokens.gi + tokens.teacher_nll + tokens.bridge;
            assert_eq!(counted, trained as u64, "{kind:?}");
            assert_eq!(refined.record.terminations.values().sum::<u64>(), 4);
            assert_eq!(refined.record.batch, number);
            let accepted = refined.record.accepted();
            let validated = refined.rows.iter().filter(|row| row.validated).count();
            assert_eq!(accepted > 0, validated > 0, "{kind:?}");
        }
    }
}

#[test]
fn a_resumed_method_goes_on_bit_for_bit() {
    for kind in MethodKind::ALL {
        let mut straight = default(kind);
        for number in 1..=23 {
            drive(straight.as_mut(), number);
        }
        let saved = serde_json::to_string(&straight.state()).expect("plain data");
        let state: MethodState = serde_json::from_str(&saved).expect("just written");
        let mut resumed = default(kind);
        resumed.restore(&state).expect("own state");
        for number in 24..=60 {
            assert_eq!(
                drive(straight.as_mut(), number),
                drive(resumed.as_mut(), number),
                "{kind:?}"
            );
        }
        assert_eq!(straight.state(), resumed.state());
    }
}

#[test]
fn states_of_newer_releases_and_other_methods_are_refused() {
    for kind in MethodKind::ALL {
        let mut method = default(kind);
        let newer: MethodState =
            serde_json::from_str(r#"{"version": 2, "strategy": {"name": "new"}, "horizon": null}"#)
                .expect("a newer state can be read far enough");
        let before = method.state();
        assert!(
            matches!(
                method.restore(&newer),
                Err(OpdError::NewerState { found: 2, supported: 1, .. })
            ),
            "{kind:?}"
        );
        let other = MethodState { method: "another".to_owned(), ..before.clone() };
        assert!(matches!(method.restore(&other), Err(OpdError::State { .. })), "{kind:?}");
        assert_eq!(method.state(), before, "a refused state changes nothing");
    }
}

#[test]
fn batches_must_come_in_order() {
    for kind in MethodKind::ALL {
        let mut method = default(kind);
        let refused = method.locate(&batch(1, 2, 2, 1));
        assert_eq!(refused, Err(OpdError::OutOfOrder { expected: 1, found: 2 }), "{kind:?}");
        method.locate(&batch(1, 1, 2, 1)).expect("the batch due");
        let repeated = method.locate(&batch(1, 1, 2, 1));
        assert_eq!(repeated, Err(OpdError::OutOfOrder { expected: 2, found: 1 }), "{kind:?}");
    }
}

#[test]
fn a_refused_batch_leaves_the_clock_alone() {
    for kind in MethodKind::ALL {
        let mut method = default(kind);
        let before = method.state();
        let mut bad = batch(3, 1, 4, 3);
        bad.episodes[2].turns[1].tokens[0].student_logprob = Some(f32::NAN);
        let refused = method.locate(&bad);
        assert!(matches!(refused, Err(OpdError::Turn { episode: 2, turn: 1, .. })), "{kind:?}");
        assert_eq!(method.state(), before, "{kind:?}");
    }
}

#[test]
fn dropped_turns_have_no_row_and_a_count() {
    for kind in MethodKind::ALL {
        let mut method = default(kind);
        let mut batch = batch(3, 1, 2, 3);
        batch.episodes[0].turns[1].dropped = Some(TurnDrop::PromptTooLong);
        batch.episodes[1].turns[2].tokens.clear();
        let located = method.locate(&batch).expect("sound batch");
        let forks: Vec<_> =
            located.forks.iter().map(|f| fork(1, f.episode, f.turn, -1.0, -1.0)).collect();
        assert!(located.forks.iter().all(|f| (f.episode, f.turn) != (0, 1)), "{kind:?}");
        let refined = method.refine(&batch, &located, &forks).expect("sound forks");
        assert!(refined.rows.iter().all(|row| (row.episode, row.turn) != (0, 1)));
        assert_eq!(refined.rows.len(), 4);
        let dropped = &refined.record.dropped_turns;
        assert_eq!(dropped.get(&TurnDrop::PromptTooLong), Some(&1));
        assert_eq!(dropped.get(&TurnDrop::EmptyResponse), Some(&1));
    }
}

#[test]
fn forks_must_be_the_ones_asked_for() {
    for kind in [MethodKind::Lens, MethodKind::FutureBridge] {
        let mut method = default(kind);
        let batch = batch(3, 1, 2, 3);
        let located = method.locate(&batch).expect("sound batch");
        let forks: Vec<_> =
            located.forks.iter().map(|f| fork(1, f.episode, f.turn, -1.0, -1.0)).collect();
        assert_eq!(forks.len(), 2, "{kind:?}");
        let refine = |forks: &[_]| method.refine(&batch, &located, forks);
        assert!(refine(&forks).is_ok());
        assert!(refine(&[forks[1].clone(), forks[0].clone()]).is_ok(), "any order");
        assert!(matches!(refine(&forks[..1]), Err(OpdError::Fork { .. })), "one is missing");
        let twice = [forks[0].clone(), forks[1].clone(), forks[0].clone()];
        assert!(matches!(refine(&twice), Err(OpdError::Fork { .. })), "one came twice");
        let strange = [forks[0].clone(), forks[1].clone(), fork(1, 7, 0, -1.0, -1.0)];
        assert!(matches!(refine(&strange), Err(OpdError::Fork { .. })), "one was not asked for");
    }
}

#[test]
fn parameters_round_trip_and_unknown_keys_are_refused() {
    for kind in MethodKind::ALL {
        let params = MethodParams::of(kind);
        let text = serde_json::to_string(&params).expect("plain data");
        assert_eq!(serde_json::from_str::<MethodParams>(&text).expect("just written"), params);
        let name = format!(r#"{{"name": "{}"}}"#, kind.name());
        assert_eq!(serde_json::from_str::<MethodParams>(&name).expect("all defaults"), params);
        assert_eq!(params.kind(), kind);
        let unknown = format!(r#"{{"name": "{}", "etta": 5}}"#, kind.name());
        assert!(serde_json::from_str::<MethodParams>(&unknown).is_err(), "{kind:?}");
    }
}

#[test]
fn impossible_parameters_are_refused_by_key() {
    let refused = |text: &str| -> &'static str {
        let params: MethodParams = serde_json::from_str(text).expect("known keys");
        match params.build(Setting { seed: 1, max_turns: 30 }).err() {
            Some(OpdError::Parameter { key, .. }) => key,
            other => panic!("{text}: {other:?}"),
        }
    };
    for (text, key) in [
        (r#"{"name": "lens", "locate": {"eta": 0}}"#, "eta"),
        (r#"{"name": "lens", "locate": {"pace_min": 2.0}}"#, "pace_min"),
        (r#"{"name": "lens", "locate": {"pace_max": 6.0}}"#, "pace_max"),
        (r#"{"name": "lens", "locate": {"k_max": 31}}"#, "locate.k_max"),
        (r#"{"name": "lens", "locate": {"proposals": 0}}"#, "locate.proposals"),
        (r#"{"name": "lens", "locate": {"floor": 0.5}}"#, "locate.floor"),
        (
            r#"{"name": "lens", "validate": {"continuation_turns": 0}}"#,
            "validate.continuation_turns",
        ),
        (r#"{"name": "lens", "validate": {"tau": 0.0}}"#, "validate.tau"),
        (r#"{"name": "lens", "refine": {"lambda_gi": -1.0}}"#, "refine.lambda_gi"),
        (r#"{"name": "lens", "refine": {"beta": -1.0}}"#, "refine.beta"),
        (r#"{"name": "lens", "refine": {"c_tok": 0.5}}"#, "refine.c_tok"),
        (r#"{"name": "tcod-f2b", "eta": 0}"#, "eta"),
        (r#"{"name": "tcod-f2b", "start": 0}"#, "start"),
        (r#"{"name": "tcod-b2f", "eta": 0}"#, "eta"),
        (r#"{"name": "guided-opd", "mix": 1.5}"#, "mix"),
        (r#"{"name": "guided-opd", "decay": -0.1}"#, "decay"),
        (r#"{"name": "guided-opd", "total_batches": 0}"#, "total_batches"),
        (r#"{"name": "futurebridge-opd", "continuation_turns": 0}"#, "continuation_turns"),
    ] {
        assert_eq!(refused(text), key, "{text}");
    }
    let no_turns = MethodParams::default().build(Setting { seed: 1, max_turns: 0 });
    assert!(matches!(no_turns.err(), Some(OpdError::Parameter { key: "max_turns", .. })));
}

#[test]
fn needs_tell_the_loop_what_to_provide() {
    let needs = |kind| default(kind).needs();
    assert!(needs(MethodKind::Lens).hints && needs(MethodKind::Lens).forks);
    assert!(!needs(MethodKind::Lens).teacher_acts, "the teacher never acts in LENS");
    assert!(needs(MethodKind::Guided).teacher_acts && !needs(MethodKind::Guided).forks);
    assert!(needs(MethodKind::TcodB2f).reference_actions);
    let bridge = needs(MethodKind::FutureBridge);
    assert!(bridge.reference_actions && bridge.teacher_acts && bridge.forks && !bridge.hints);
    let plain = needs(MethodKind::Opd);
    assert_eq!(plain, needs(MethodKind::TcodF2b));
    assert!(!(plain.forks || plain.hints || plain.teacher_acts || plain.reference_actions));
    let off = MethodParams::Lens(
        serde_json::from_str(r#"{"refine": {"internalize": false}}"#).expect("known key"),
    );
    assert!(!build(&off).needs().snapshot_targets);
}

#[test]
fn only_guided_hands_control_to_the_teacher() {
    for kind in MethodKind::ALL {
        let method = default(kind);
        let slot = Slot { batch: 1, episode: 0, reference_actions: Some(8) };
        let exposure = method.exposure(&slot);
        let teacher_turns = (0..30).filter(|&turn| exposure.actor(turn) == Actor::Teacher).count();
        assert_eq!(teacher_turns > 0, kind == MethodKind::Guided, "{kind:?}");
    }
}
