use lens_opd::validate::Validate;
use lens_opd::validate::fork::{BranchEnd, FinishedFork, ForkResult, Pair};
use lens_opd::validate::gate::{Completeness, Terminal, judge};
use lens_opd::validate::value::BranchValue;
use proptest::prelude::*;

use crate::support::{branch, draws, fork};

fn evaluators() -> impl Strategy<Value = Validate> {
    let evaluator =
        prop_oneof![Just(BranchValue::TeacherLikelihood), Just(BranchValue::TokenRatio)];
    let terminal = prop_oneof![Just(Terminal::Exclude), Just(Terminal::Outcome)];
    let completeness = prop_oneof![Just(Completeness::Natural), Just(Completeness::Full)];
    (evaluator, terminal, completeness).prop_map(|(evaluator, terminal, completeness)| Validate {
        evaluator,
        terminal,
        completeness,
        ..Validate::default()
    })
}

fn ends() -> impl Strategy<Value = BranchEnd> {
    prop_oneof![
        Just(BranchEnd::Horizon),
        Just(BranchEnd::Ended { success: true }),
        Just(BranchEnd::Ended { success: false }),
        Just(BranchEnd::TurnLimit),
        Just(BranchEnd::Timeout),
        Just(BranchEnd::EngineFailure),
        Just(BranchEnd::PromptTooLong),
    ]
}

proptest! {
    #[test]
    fn the_gate_is_strict(base in -5.0_f32..0.0, guided in -5.0_f32..0.0) {
        let verdict = judge(&fork(1, 0, 2, base, guided), &Validate::default()).expect("scored");
        prop_assert_eq!(verdict.accepted, guided > base);
        prop_assert_eq!(verdict.accepted, verdict.gain.expect("complete") > 0.0);
        let tie = judge(&fork(1, 0, 2, base, base), &Validate::default()).expect("scored");
        prop_assert!(!tie.accepted && tie.gain == Some(0.0));
    }

    #[test]
    fn a_cut_or_empty_branch_never_opens_the_gate(
        rules in evaluators(),
        (base_end, guided_end) in (ends(), ends()),
        (base_turns, guided_turns) in (0_usize..4, 0_usize..4),
    ) {
        let mut stream = draws(7);
        let mut base = branch(&mut stream, 1, base_turns, -2.0);
        let mut guided = branch(&mut stream, 1, guided_turns, -1.0);
        (base.end, guided.end) = (base_end, guided_end);
        let cut = base_end.is_cut() || guided_end.is_cut();
        let empty = base_turns == 0 || guided_turns == 0;
        let solved = BranchEnd::Ended { success: true };
        let better = guided_end == solved && base_end != solved;
        let pair = Pair { base, guided, internalization_gap: None, repeats: Vec::new() };
        let finished =
            FinishedFork { episode: 0, turn: 1, result: ForkResult::Pair(Box::new(pair)) };
        let verdict = judge(&finished, &rules).expect("scored");
        prop_assert!(!(cut && verdict.accepted));
        if cut || empty {
            prop_assert_eq!(verdict.gain, None, "no gain is imputed");
            let allowed = rules.terminal == Terminal::Outcome && better && !cut;
            prop_assert_eq!(verdict.accepted, allowed);
        }
        prop_assert_eq!(verdict.accepted, verdict.reason.is_none(), "a closed gate has a reason");
    }
}
