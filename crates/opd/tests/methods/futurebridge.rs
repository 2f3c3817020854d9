use lens_opd::episode::ScoredBatch;
use lens_opd::methods::MethodName;
use lens_opd::methods::rows::RowKind;
use lens_opd::validate::fork::{BranchEnd, FinishedFork, ForkKind, ForkResult};

use crate::default;
use crate::support::{batch, fork};

/// A batch of one episode whose turns disagree with the teacher by the given amounts.
fn disagreeing(by: &[f32]) -> ScoredBatch {
    let mut batch = batch(6, 1, 1, by.len());
    for (turn, by) in batch.episodes[0].turns.iter_mut().zip(by) {
        for token in &mut turn.tokens {
            token.student_logprob = Some(-0.5);
            token.teacher_logprob = Some(-0.5 - by);
        }
    }
    batch
}

fn forked_turns(batch: &ScoredBatch) -> Vec<usize> {
    let located = default(MethodName::Futurebridge).locate(batch).expect("sound batch");
    assert!(located.forks.iter().all(|f| f.kind == ForkKind::Bridge && f.continuation_turns == 3));
    located.forks.iter().map(|f| f.turn).collect()
}

/// A fork whose continuations the teacher prefers at the given number of 9 tokens.
fn preferring(base: usize, bridge: usize) -> FinishedFork {
    let mut fork = fork(6, 0, 1, -1.0, -1.0);
    if let ForkResult::Pair(pair) = &mut fork.result {
        for (branch, preferred) in [(&mut pair.base, base), (&mut pair.guided, bridge)] {
            let tokens = branch.continuation.iter_mut().flat_map(|turn| &mut turn.tokens);
            for (token, i) in tokens.zip(0..) {
                token.student_logprob = Some(if i < preferred { -2.0 } else { -0.5 });
            }
        }
    }
    fork
}

fn refine(fork: &FinishedFork) -> (bool, Option<String>, usize) {
    let batch = disagreeing(&[0.1, 0.9, 0.2]);
    let mut method = default(MethodName::Futurebridge);
    let located = method.locate(&batch).expect("sound batch");
    let refined = method.refine(&batch, &located, std::slice::from_ref(fork)).expect("sound fork");
    let bridges = refined.rows.iter().filter(|row| row.kind == RowKind::Bridge).count();
    let record = &refined.record.forks[0];
    (record.verdict.accepted, record.reason.clone(), bridges)
}

#[test]
fn the_most_disagreeing_turn_but_the_last_is_bridged() {
    assert_eq!(forked_turns(&disagreeing(&[0.1, 0.9, 0.2, 3.0])), [1], "the last turn is left out");
    assert_eq!(forked_turns(&disagreeing(&[0.7, 0.7, 0.2])), [0], "ties go to the earlier turn");
    assert!(forked_turns(&disagreeing(&[0.7])).is_empty(), "one turn is too few");
}

#[test]
fn no_bridge_without_reference_or_action() {
    let mut batch = disagreeing(&[0.1, 0.9, 0.2]);
    batch.episodes[0].turns[1].parsed = false;
    assert_eq!(forked_turns(&batch), [0]);
    batch.episodes[0].reference_actions = None;
    assert!(forked_turns(&batch).is_empty());
}

#[test]
fn a_bridge_is_kept_only_if_its_token_ratio_is_larger() {
    assert_eq!(refine(&preferring(4, 5)), (true, None, 1));
    assert_eq!(refine(&preferring(5, 5)), (false, Some("not_better".to_owned()), 0));
    assert!(!refine(&preferring(5, 4)).0);
}

#[test]
fn a_branch_that_ends_early_spoils_the_pair() {
    let mut early = preferring(4, 9);
    if let ForkResult::Pair(pair) = &mut early.result {
        pair.guided.continuation.truncate(2);
        pair.guided.end = BranchEnd::Ended { success: true };
    }
    assert_eq!(refine(&early), (false, Some("guided.ended_early".to_owned()), 0));
    let mut unparsed = preferring(4, 9);
    if let ForkResult::Pair(pair) = &mut unparsed.result {
        pair.base.continuation[2].parsed = false;
    }
    assert_eq!(refine(&unparsed), (false, Some("base.unparsed_action".to_owned()), 0));
}

#[test]
fn an_invalid_action_in_a_continuation_spoils_the_pair() {
    let mut invalid = preferring(4, 9);
    if let ForkResult::Pair(pair) = &mut invalid.result {
        pair.guided.continuation[0].admissible = false;
    }
    assert_eq!(refine(&invalid), (false, Some("guided.inadmissible_action".to_owned()), 0));
}

#[test]
fn a_bridge_row_holds_the_teachers_turn_with_weight_one() {
    let batch = disagreeing(&[0.1, 0.9, 0.2]);
    let mut method = default(MethodName::Futurebridge);
    let located = method.locate(&batch).expect("sound batch");
    let fork = preferring(1, 8);
    let refined = method.refine(&batch, &located, std::slice::from_ref(&fork)).expect("sound fork");
    let row = refined.rows.iter().find(|row| row.kind == RowKind::Bridge).expect("accepted");
    let ForkResult::Pair(pair) = &fork.result else { panic!("a pair was made") };
    assert_eq!(row.weights, vec![1.0; pair.guided.response.tokens.len()]);
    assert!(row.validated && (row.episode, row.turn) == (0, 1));
    assert_eq!(refined.rows.len(), 4, "the continuation is never trained on");
}
