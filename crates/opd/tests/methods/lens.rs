use lens_opd::episode::{EpisodeEnd, ScoredBatch};
use lens_opd::locate::Clock;
use lens_opd::locate::proposal::Proposal;
use lens_opd::methods::exposure::EpisodeSlot;

use lens_opd::methods::rows::RowKind;
use lens_opd::methods::{Driver, MethodName, MethodSections, Refined};
use lens_opd::objective::Loss;
use lens_opd::objective::plan::LossPlan;
use lens_opd::validate::fork::{
    BranchEnd, FinishedFork, ForkDrop, ForkKind, ForkResult, HintPrompt,
};
use lens_opd::validate::gate::Terminal;
use proptest::prelude::*;

use crate::support::{batch, fork};
use crate::{build, default};

fn lens(change: impl FnOnce(&mut MethodSections)) -> Driver {
    build(MethodName::Lens, change)
}

/// Runs one batch; each fork's guided branch is worth `gain` more than its base branch.
fn run(method: &mut Driver, batch: &ScoredBatch, gain: f32) -> Refined {
    let located = method.locate(batch).expect("sound batch");
    let forks: Vec<FinishedFork> =
        located.forks.iter().map(|f| fork(9, f.episode, f.turn, -1.0, -1.0 + gain)).collect();
    method.refine(batch, &located, &forks).expect("sound forks")
}

fn horizon(method: &Driver, batch: u64) -> usize {
    method.exposure(&EpisodeSlot { version: 0, batch, episode: 0, reference_actions: None }).horizon
}

fn internalization_rows(refined: &Refined) -> usize {
    refined.rows.iter().filter(|row| row.kind == RowKind::Internalize).count()
}

fn focused_rows(refined: &Refined) -> usize {
    refined.rows.iter().filter(|row| row.weights.iter().any(|&w| w != 1.0)).count()
}

proptest! {
    #[test]
    fn a_closed_gate_is_plain_opd_bit_for_bit(
        seed in 0_u64..1000, episodes in 1_u64..6, turns in 1_usize..5, gain in -0.9_f32..=0.0,
    ) {
        let batch = batch(seed, 1, episodes, turns);
        let closed = run(&mut default(MethodName::Lens), &batch, gain);
        prop_assert_eq!(closed.record.accepted(), 0);
        let plain = run(&mut default(MethodName::Opd), &batch, 0.0);
        prop_assert_eq!(&closed.rows, &plain.rows);
        let bits = |refined: &Refined| -> Vec<u32> {
            refined.rows.iter().flat_map(|row| &row.weights).map(|w| w.to_bits()).collect()
        };
        prop_assert_eq!(bits(&closed), bits(&plain));
        let terms = default(MethodName::Lens).terms();
        let plan = |refined: &Refined| {
            LossPlan::new(&refined.rows, &Loss::default(), &terms).expect("sound rows")
        };
        prop_assert_eq!(plan(&closed), plan(&plain));
    }
}

#[test]
fn an_open_gate_adds_an_internalization_row_and_focuses_the_turn() {
    let batch = batch(11, 1, 3, 4);
    let refined = run(&mut default(MethodName::Lens), &batch, 0.5);
    assert_eq!((refined.record.accepted(), internalization_rows(&refined)), (3, 3));
    assert_eq!(refined.record.complete_pairs(), 3);
    for record in &refined.record.forks {
        let place = (record.request.episode, record.request.turn);
        let turn = batch.episode(place.0).and_then(|e| e.turn(place.1)).expect("forked");
        let of = |kind| {
            let found = |row: &&lens_opd::methods::rows::TrainRow| {
                (row.episode, row.turn, row.kind) == (place.0, place.1, kind)
            };
            refined.rows.iter().find(found).expect("a row of that kind")
        };
        let weights = &of(RowKind::Opd).weights;
        let content: Vec<f64> = turn.content().map(|(i, _)| f64::from(weights[i])).collect();
        let mean = content.iter().sum::<f64>() / content.len() as f64;
        assert!((mean - 1.0).abs() < 1e-5, "mean weight {mean}");
        assert_eq!(weights.last(), Some(&1.0), "the special token keeps weight 1");
        assert!(of(RowKind::Opd).validated && of(RowKind::Internalize).validated);
        assert_eq!(
            of(RowKind::Internalize).weights,
            [1.0; 4],
            "the hinted response has four tokens"
        );
        let mass = record.focus.expect("focused");
        assert_eq!(mass.content_tokens, content.len());
        let gain = record.verdict.gain.expect("complete");
        assert!((gain - 0.5).abs() < 1e-6);
        assert_eq!(record.reason, None);
    }
    assert_eq!(refined.rows.len(), 12 + 3, "continuations are never trained on");
    assert!(refined.record.tokens.guided_share().expect("tokens") > 0.0);
}

#[test]
fn the_turn_of_largest_divergence_is_forked() {
    let mut batch = batch(12, 1, 2, 4);
    for episode in &mut batch.episodes {
        for (turn, kl) in episode.turns.iter_mut().zip([0.1, 0.8, 0.8, 0.2]) {
            turn.tokens.iter_mut().for_each(|token| token.kl = Some(kl));
        }
    }
    batch.episodes[1].turns[1].parsed = false;
    let located = default(MethodName::Lens).locate(&batch).expect("sound batch");
    let turns: Vec<usize> = located.forks.iter().map(|f| f.turn).collect();
    assert_eq!(turns, [1, 2], "ties to the earlier turn; a turn without an action is not valid");
    let request = located.forks[0];
    assert_eq!(
        request.kind,
        ForkKind::Hint { prompt: HintPrompt::FeedbackIncorporation, tokens: 80 }
    );
    assert_eq!((request.continuation_turns, request.temperature), (3, 1.0));
    assert!((request.divergence - 0.8).abs() < 1e-6);
}

#[test]
fn the_clock_ticks_once_per_batch() {
    let mut method = default(MethodName::Lens);
    for number in 1..=15 {
        let expected = 1 + (number - 1) / 5;
        assert_eq!(horizon(&method, number), expected as usize, "batch {number}");
        // The same batch every time: the gap stays what it was at entry, and the pace is 1.
        let refined = run(&mut method, &batch(13, number, 4, 5), 0.1);
        let tick = refined.record.tick.expect("the clock is adaptive");
        assert_eq!((tick.depth, tick.valid_episodes), (expected as usize, 4));
        assert_eq!(tick.pace, Some(1.0));
        assert!(tick.competence.is_some());
        assert_eq!(refined.record.horizon, expected as usize);
    }
}

#[test]
fn episodes_that_did_not_reach_the_frontier_do_not_count() {
    let mut method = lens(|sections| sections.locate.max_horizon = 3);
    let mut first = batch(14, 1, 4, 1);
    first.episodes[3].turns[0].tokens.iter_mut().for_each(|token| token.content = false);
    let tick = run(&mut method, &first, 0.0).record.tick.expect("adaptive");
    assert_eq!(tick.valid_episodes, 3, "a frontier turn without content is not valid");
    let empty = ScoredBatch { number: 2, episodes: Vec::new(), ..first };
    let tick = run(&mut method, &empty, 0.0).record.tick.expect("adaptive");
    assert_eq!((tick.valid_episodes, tick.competence, tick.pace), (0, None, Some(1.0)));
}

#[test]
fn table_3_ablations_are_parameters() {
    let batch = |n| batch(15, n, 3, 4);
    let fixed = lens(|sections| sections.locate.clock = Clock::FixedF2b);
    assert_eq!([1, 4, 5, 10].map(|n| horizon(&fixed, n)), [1, 1, 2, 3]);

    let mut last = lens(|sections| sections.locate.proposal = Proposal::LastTurn);
    let located = last.locate(&batch(1)).expect("sound batch");
    assert!(located.forks.iter().all(|f| f.turn == 3));

    let mut no_internalization = lens(|sections| sections.refine.internalize = false);
    let refined = run(&mut no_internalization, &batch(1), 0.5);
    assert_eq!((refined.record.accepted(), internalization_rows(&refined)), (3, 0));
    assert_eq!(focused_rows(&refined), 3);

    let mut no_focus = lens(|sections| sections.refine.focus = false);
    let refined = run(&mut no_focus, &batch(1), 0.5);
    assert_eq!((internalization_rows(&refined), focused_rows(&refined)), (3, 0));
    assert!(refined.record.forks.iter().all(|f| f.focus.is_none()));

    let mut reconsider =
        lens(|sections| sections.validate.hint_prompt = HintPrompt::Reconsideration);
    let located = reconsider.locate(&batch(1)).expect("sound batch");
    let kind = ForkKind::Hint { prompt: HintPrompt::Reconsideration, tokens: 80 };
    assert!(located.forks.iter().all(|f| f.kind == kind));
}

#[test]
fn incomplete_pairs_are_counted_by_reason_and_never_imputed() {
    let batch = batch(16, 1, 4, 2);
    let mut method = default(MethodName::Lens);
    let located = method.locate(&batch).expect("sound batch");
    let mut forks: Vec<FinishedFork> =
        located.forks.iter().map(|f| fork(9, f.episode, f.turn, -1.0, -0.5)).collect();
    let change = |fork: &mut FinishedFork, change: fn(&mut lens_opd::validate::fork::Pair)| {
        if let ForkResult::Pair(pair) = &mut fork.result {
            change(pair);
        }
    };
    change(&mut forks[0], |pair| pair.guided.end = BranchEnd::Timeout);
    change(&mut forks[1], |pair| {
        pair.base.continuation.clear();
        pair.base.end = BranchEnd::Ended { success: true };
    });
    forks[2].result = ForkResult::Dropped(ForkDrop::HintEmpty);
    change(&mut forks[3], |pair| {
        pair.guided.continuation.truncate(1);
        pair.guided.end = BranchEnd::Ended { success: false };
    });
    let refined = method.refine(&batch, &located, &forks).expect("sound forks");
    let record = &refined.record;
    let reasons: Vec<(&str, u64)> = record.reasons().into_iter().collect();
    let expected = [("base.no_continuation", 1), ("dropped.hint_empty", 1), ("guided.timeout", 1)];
    assert_eq!(reasons, expected);
    assert_eq!((record.complete_pairs(), record.accepted()), (1, 1), "a natural end is valued");
    assert!(record.forks[..3].iter().all(|f| f.verdict.gain.is_none()));
    assert_eq!(internalization_rows(&refined), 1);
}

#[test]
fn the_outcome_rule_lets_a_solved_task_decide() {
    let solved = |side_is_guided: bool| {
        let batch = batch(17, 1, 1, 2);
        let mut method = lens(|sections| sections.validate.terminal = Terminal::Outcome);
        let located = method.locate(&batch).expect("sound batch");
        let mut fork = fork(9, 0, located.forks[0].turn, -1.0, -1.0);
        if let ForkResult::Pair(pair) = &mut fork.result {
            let branch = if side_is_guided { &mut pair.guided } else { &mut pair.base };
            branch.continuation.clear();
            branch.end = BranchEnd::Ended { success: true };
        }
        let refined = method.refine(&batch, &located, &[fork]).expect("sound fork");
        let record = refined.record.forks[0].clone();
        (record.verdict.accepted, record.verdict.gain, record.reason)
    };
    assert_eq!(solved(true), (true, None, None));
    assert_eq!(solved(false), (false, None, Some("not_better".to_owned())));
}

#[test]
fn terminations_and_successes_are_recorded() {
    let mut batch = batch(18, 1, 3, 1);
    batch.episodes[0].end = EpisodeEnd::CurriculumCutoff;
    batch.episodes[1].end = EpisodeEnd::Completed;
    batch.episodes[1].success = true;
    let record = run(&mut default(MethodName::Lens), &batch, 0.0).record;
    let counts: Vec<(EpisodeEnd, u64)> = record.terminations.into_iter().collect();
    let expected =
        [(EpisodeEnd::Completed, 1), (EpisodeEnd::CurriculumCutoff, 1), (EpisodeEnd::TurnLimit, 1)];
    assert_eq!((counts.as_slice(), record.successes), (expected.as_slice(), 1));
}
