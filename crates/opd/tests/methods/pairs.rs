//! Several pairs per fork, the margin, and hints that change nothing.

use lens_opd::episode::Action;
use lens_opd::methods::lens_plus::LensPlus;
use lens_opd::methods::rows::RowKind;
use lens_opd::methods::sod::Sod;
use lens_opd::methods::{Driver, MethodName};
use lens_opd::refine::UnvalidatedTurns;
use lens_opd::validate::Validate;
use lens_opd::validate::fork::{
    BranchEnd, Coupling, FinishedFork, ForkRequest, ForkResult, Pair, Repeat, Side,
};
use lens_opd::validate::gate::{Terminal, clears, judge};

use crate::support::{batch, branch, draws, fork};
use crate::{build, default};

/// A fork whose pairs have these gains; the first one is the pair that may be trained on.
fn repeated(gains: &[f32]) -> FinishedFork {
    let mut stream = draws(3);
    let mut pairs = gains.iter().map(|gain| Repeat {
        base: branch(&mut stream, 2, 3, -2.0),
        guided: branch(&mut stream, 2, 3, -2.0 + gain),
    });
    let first = pairs.next().expect("at least one");
    let repeats = pairs.collect();
    let pair = Pair { base: first.base, guided: first.guided, internalization_gap: None, repeats };
    FinishedFork { episode: 0, turn: 2, result: ForkResult::Pair(Box::new(pair)) }
}

fn rules(pairs: usize, margin: f64) -> Validate {
    Validate { pairs, margin, ..Validate::default() }
}

#[test]
fn the_gain_is_the_mean_over_pairs_and_the_margin_counts_its_standard_errors() {
    let fork = repeated(&[-0.5, 0.5, 0.5, 0.5]);
    let verdict = judge(&fork, &rules(4, 0.0)).expect("scored");
    let gain = verdict.gain.expect("complete");
    assert!((gain - 0.25).abs() < 1e-6, "{gain}");
    // Deviation 0.5 over the root of four pairs.
    let error = verdict.standard_error.expect("four pairs");
    assert!((error - 0.25).abs() < 1e-6, "{error}");
    assert!(verdict.accepted && verdict.pairs == 4, "the first pair alone would be refused");
    assert!(judge(&fork, &rules(4, 0.9)).expect("scored").accepted);
    assert!(!judge(&fork, &rules(4, 1.1)).expect("scored").accepted);
}

#[test]
fn a_margin_needs_a_standard_error() {
    assert!(clears(0.1, None, 0.0) && !clears(0.1, None, 1.0));
    assert!(clears(0.1, Some(0.0), 2.0), "pairs that agree have no error");
    assert!(!clears(0.0, Some(0.0), 0.0), "a tie stays closed");
}

#[test]
fn a_cut_pair_is_left_out_of_the_mean() {
    let mut fork = repeated(&[0.5, -9.0]);
    let ForkResult::Pair(pair) = &mut fork.result else { panic!("a pair") };
    pair.repeats[0].guided.end = BranchEnd::Timeout;
    let verdict = judge(&fork, &rules(2, 0.0)).expect("scored");
    assert!(verdict.accepted && verdict.pairs == 1 && verdict.standard_error.is_none());
}

#[test]
fn outcomes_of_all_pairs_are_weighed_before_likelihoods() {
    let outcome = Validate { terminal: Terminal::Outcome, ..rules(3, 0.0) };
    let solved = BranchEnd::Ended { success: true };
    let mut fork = repeated(&[-1.0, -1.0, -1.0]);
    let ForkResult::Pair(pair) = &mut fork.result else { panic!("a pair") };
    pair.guided.end = solved;
    pair.repeats[0].guided.end = solved;
    pair.repeats[1].base.end = solved;
    assert!(judge(&fork, &outcome).expect("scored").accepted, "two solved against one");
    let ForkResult::Pair(pair) = &mut fork.result else { panic!("a pair") };
    pair.guided.end = BranchEnd::TurnLimit;
    assert!(!judge(&fork, &outcome).expect("scored").accepted, "a draw is for the likelihoods");
}

#[test]
fn common_draws_name_one_stream_for_both_branches_and_another_for_every_pair() {
    let located = default(MethodName::Lens).locate(&batch(5, 1, 2, 1)).expect("sound batch");
    let request = located.forks[0];
    let key = |request: &ForkRequest, pair, side| request.stream(7, 1, pair, side, 3);
    assert_ne!(key(&request, 0, Side::Base), key(&request, 0, Side::Guided));
    let common = ForkRequest { coupling: Coupling::Common, ..request };
    assert_eq!(key(&common, 0, Side::Base), key(&common, 0, Side::Guided));
    assert_eq!(key(&common, 0, Side::Base), key(&request, 0, Side::Base));
    assert_ne!(key(&common, 0, Side::Base), key(&common, 1, Side::Base));
}

/// The internalization rows of a batch whose forks are all accepted and act as they say.
fn internalized(method: &mut Driver, original: &str, guided: &str) -> usize {
    let action = |text: &str| Some(Action { text: text.to_owned(), tokens: 0..1 });
    let mut batch = batch(5, 1, 1, 1);
    batch.episodes[0].turns[0].action = action(original);
    let located = method.locate(&batch).expect("sound batch");
    let mut forks = vec![fork(1, 0, located.forks[0].turn, -2.0, -1.0)];
    let ForkResult::Pair(pair) = &mut forks[0].result else { panic!("a pair") };
    pair.guided.response.action = action(guided);
    let refined = method.refine(&batch, &located, &forks).expect("sound forks");
    assert_eq!(refined.record.accepted(), 1);
    refined.rows.iter().filter(|row| row.kind == RowKind::Internalize).count()
}

#[test]
fn a_hint_that_changes_nothing_is_not_internalized_if_the_configuration_says_so() {
    let skipping = || build(MethodName::Lens, |sections| sections.refine.skip_unchanged = true);
    assert_eq!(internalized(&mut default(MethodName::Lens), "look", "look"), 1);
    assert_eq!(internalized(&mut skipping(), "look", "look"), 0);
    assert_eq!(internalized(&mut skipping(), "look", "take cup 1"), 1);
    assert_eq!(internalized(&mut default(MethodName::LensPlus), "look", "look"), 0);
}

#[test]
fn lens_plus_judges_by_its_own_section_and_takes_the_rest_from_lens() {
    let plus = build(MethodName::LensPlus, |sections| {
        sections.lens_plus.pairs = 6;
        sections.validate.hint_tokens = 33;
        sections.refine.internalize_weight = 7.0;
    });
    let validate = plus.validation().expect("it forks");
    assert_eq!((validate.pairs, validate.hint_tokens), (6, 33));
    assert_eq!((validate.coupling, validate.terminal), (Coupling::Common, Terminal::Exclude));
    assert_eq!(plus.terms().internalize_weight, LensPlus::default().internalize_weight);
    let lens = default(MethodName::Lens);
    assert_eq!(lens.validation(), Some(&Validate::default()), "the paper's gate is untouched");
}

#[test]
fn turns_that_no_fork_validated_can_weigh_as_in_sod() {
    let build_with =
        |unvalidated| build(MethodName::Lens, |sections| sections.refine.unvalidated = unvalidated);
    let batch = batch(5, 1, 1, 4);
    let weights = |mut method: Driver| {
        let located = method.locate(&batch).expect("sound batch");
        let turn = located.forks[0].turn;
        let forks = [fork(1, 0, turn, -2.0, -1.0)];
        let refined = method.refine(&batch, &located, &forks).expect("sound forks");
        assert_eq!(refined.record.accepted(), 1);
        let rows = refined.rows.into_iter().filter(|row| row.kind == RowKind::Opd);
        let rows: Vec<_> = rows.map(|row| (row.turn, row.validated, row.weights)).collect();
        rows
    };
    let equal = weights(build_with(UnvalidatedTurns::Equal));
    let stepwise = weights(build_with(UnvalidatedTurns::Stepwise));
    let factors = Sod::default().turn_weights(&batch.episodes[0]).expect("scored");
    assert!(factors.iter().any(|(_, factor)| *factor != 1.0), "{factors:?}");
    for ((turn, validated, before), (_, _, after)) in equal.iter().zip(&stepwise) {
        let factor = factors.iter().find(|one| one.0 == *turn).expect("every turn has one").1;
        let factor = if *validated { 1.0 } else { factor };
        let expected = before.iter().map(|&weight| (f64::from(weight) * factor) as f32);
        assert_eq!(*after, expected.collect::<Vec<_>>(), "turn {turn}");
    }
    assert!(equal.iter().any(|row| row.1) && equal.iter().any(|row| !row.1), "both kinds occur");
}
