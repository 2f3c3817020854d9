use lens_opd::OpdError;
use lens_opd::episode::{Actor, DivergenceSource, EpisodeEnd, ScoredBatch, TurnDrop};
use lens_opd::methods::exposure::{EpisodeSlot, Exposure};
use lens_opd::methods::state::MethodState;
use lens_opd::methods::{Driver, MethodName, MethodSections, Refined, RunFacts};
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
fn drive(method: &mut Driver, number: u64) -> (ScoredBatch, Refined) {
    let mut stream = draws(number);
    let episodes = (0..4)
        .map(|key| {
            let slot =
                EpisodeSlot { version: 0, batch: number, episode: key, reference_actions: Some(8) };
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
    for &kind in MethodName::ALL {
        let mut method = default(kind);
        assert_eq!(method.name(), kind);
        for number in 1..=40 {
            let (batch, refined) = drive(&mut method, number);
            let turns: usize = batch.episodes.iter().map(|episode| episode.turns.len()).sum();
            assert!(refined.rows.len() >= turns, "{kind:?}: every turn is trained on");
            assert!(refined.rows.iter().all(|row| row.batch == number && !row.weights.is_empty()));
            let trained: usize = refined.rows.iter().map(|row| row.weights.len()).sum();
            let tokens = refined.record.tokens;
            let counted = tokens.opd + tokens.internalize + tokens.teacher_nll + tokens.bridge;
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
    for &kind in MethodName::ALL {
        let mut straight = default(kind);
        for number in 1..=23 {
            drive(&mut straight, number);
        }
        let saved = serde_json::to_string(&straight.state()).expect("plain data");
        let state: MethodState = serde_json::from_str(&saved).expect("just written");
        let mut resumed = default(kind);
        resumed.restore(&state).expect("own state");
        for number in 24..=60 {
            assert_eq!(drive(&mut straight, number), drive(&mut resumed, number), "{kind:?}");
        }
        assert_eq!(straight.state(), resumed.state());
    }
}

#[test]
fn states_of_newer_releases_and_other_methods_are_refused() {
    for &kind in MethodName::ALL {
        let mut method = default(kind);
        let newer: MethodState =
            serde_json::from_str(r#"{"version": 3, "strategy": {"name": "new"}, "horizon": null}"#)
                .expect("a newer state can be read far enough");
        let before = method.state();
        assert!(
            matches!(
                method.restore(&newer),
                Err(OpdError::NewerState { found: 3, supported: 2, .. })
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
    for &kind in MethodName::ALL {
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
    for &kind in MethodName::ALL {
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
    for &kind in MethodName::ALL {
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
    for kind in [MethodName::Lens, MethodName::Futurebridge] {
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
fn a_state_of_layout_1_is_resumed() {
    let mut method = default(MethodName::Lens);
    let old = r#"{"version": 1, "method": "lens", "batches": 7,
        "horizon": {"version": 1, "depth": 2, "elapsed": 1.5, "entry_gap": 0.25}}"#;
    method.restore(&serde_json::from_str(old).expect("it was written once")).expect("it is read");
    assert_eq!((method.state().batches, method.horizon(8)), (7, 2));
    assert_eq!(method.state().memory["elapsed"], 1.5);
}

#[test]
fn sections_round_trip_and_unknown_keys_are_refused() {
    let sections = MethodSections::default();
    let text = serde_json::to_string(&sections).expect("plain data");
    assert_eq!(serde_json::from_str::<MethodSections>(&text).expect("just written"), sections);
    assert_eq!(serde_json::from_str::<MethodSections>("{}").expect("all defaults"), sections);
    assert!(serde_json::from_str::<MethodSections>(r#"{"locate": {"residense": 5}}"#).is_err());
    assert!(serde_json::from_str::<MethodSections>(r#"{"locat": {}}"#).is_err());
}

#[test]
fn names_are_unique_and_read_back() {
    for &name in MethodName::ALL {
        assert_eq!(name.as_str().parse(), Ok(name));
        assert_eq!(serde_json::to_value(name).expect("a word"), name.as_str());
        assert!(!name.title().is_empty());
    }
    let error = "lenz".parse::<MethodName>().expect_err("no such method").to_string();
    assert!(error.contains("`lenz`") && error.contains("tcod-f2b"), "{error}");
}

#[test]
fn impossible_parameters_are_refused_by_a_key_that_exists() {
    for (text, key) in [
        (r#"{"locate": {"residence": 0}}"#, "locate.residence"),
        (r#"{"locate": {"residence": 1}}"#, "locate.residence"),
        (r#"{"locate": {"pace_min": 2.0}}"#, "locate.pace_max"),
        (r#"{"locate": {"pace_max": 6.0}}"#, "locate.residence"),
        (r#"{"locate": {"max_horizon": 31}}"#, "locate.max_horizon"),
        (r#"{"locate": {"proposals_per_episode": 0}}"#, "locate.proposals_per_episode"),
        (r#"{"locate": {"floor": 0.5}}"#, "locate.floor"),
        (r#"{"locate": {"epsilon": 0.0}}"#, "locate.epsilon"),
        (r#"{"validate": {"continuation_turns": 0}}"#, "validate.continuation_turns"),
        (r#"{"validate": {"temperature": 0.0}}"#, "validate.temperature"),
        (r#"{"validate": {"hint_tokens": 0}}"#, "validate.hint_tokens"),
        (r#"{"refine": {"internalize_weight": -1.0}}"#, "refine.internalize_weight"),
        (r#"{"refine": {"focus_scale": -1.0}}"#, "refine.focus_scale"),
        (r#"{"refine": {"weight_cap": 0.5}}"#, "refine.weight_cap"),
        (r#"{"refine": {"epsilon": 0.0}}"#, "refine.epsilon"),
        (r#"{"tcod": {"residence": 0}}"#, "tcod.residence"),
        (r#"{"tcod": {"start": 0}}"#, "tcod.start"),
        (r#"{"guided": {"mix": 1.5}}"#, "guided.mix"),
        (r#"{"guided": {"decay_share": -0.1}}"#, "guided.decay_share"),
        (r#"{"guided": {"start": 0.5, "end": 0.6}}"#, "guided.end"),
    ] {
        let sections: MethodSections = serde_json::from_str(text).expect("known keys");
        match Driver::new(MethodName::Opd, &sections, crate::FACTS).err() {
            Some(OpdError::Parameter { key: found, .. }) => assert_eq!(found, key, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
        let mut place =
            &serde_json::to_value(schemars::schema_for!(MethodSections)).expect("plain");
        let root = place;
        for part in key.split('.') {
            place = &place["properties"][part];
            if let Some(name) = place["$ref"].as_str() {
                place = root.pointer(&name[1..]).expect("a definition");
            }
            assert!(place.is_object(), "{key} is not a key of the schema");
        }
    }
    let no_turns = RunFacts { max_turns: 0, ..crate::FACTS };
    let refused = Driver::new(MethodName::Lens, &MethodSections::default(), no_turns);
    assert!(matches!(refused.err(), Some(OpdError::Parameter { key: "task.turn_limit", .. })));
}

#[test]
fn needs_tell_the_loop_what_to_provide() {
    let needs = |kind| default(kind).needs();
    assert!(needs(MethodName::Lens).hints && needs(MethodName::Lens).forks);
    assert!(!needs(MethodName::Lens).teacher_acts, "the teacher never acts in LENS");
    assert!(needs(MethodName::Guided).teacher_acts && !needs(MethodName::Guided).forks);
    assert!(needs(MethodName::TcodB2f).reference_actions);
    let bridge = needs(MethodName::Futurebridge);
    assert!(bridge.reference_actions && bridge.teacher_acts && bridge.forks && !bridge.hints);
    let plain = needs(MethodName::Opd);
    assert_eq!(plain, needs(MethodName::TcodF2b));
    assert!(!(plain.forks || plain.hints || plain.teacher_acts || plain.reference_actions));
    let off = build(MethodName::Lens, |sections| sections.refine.internalize = false);
    assert!(!off.needs().snapshot_targets);
}

#[test]
fn only_guided_hands_control_to_the_teacher() {
    for &kind in MethodName::ALL {
        let method = default(kind);
        let slot = EpisodeSlot { version: 0, batch: 1, episode: 0, reference_actions: Some(8) };
        let exposure = method.exposure(&slot);
        let teacher_turns = (0..30).filter(|&turn| exposure.actor(turn) == Actor::Teacher).count();
        assert_eq!(teacher_turns > 0, kind == MethodName::Guided, "{kind:?}");
    }
}
