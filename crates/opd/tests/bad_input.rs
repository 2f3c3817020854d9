//! Bad input gives a typed error: no panic, no silent zero.

#[path = "support/mod.rs"]
mod support;

use lens_opd::episode::{DivergenceSource, ScoredBatch, ScoredToken};
use lens_opd::locate::Locate;
use lens_opd::locate::horizon::{HorizonClock, HorizonState};
use lens_opd::locate::proposal::turn_divergence;
use lens_opd::locate::support::turn_competence;
use lens_opd::methods::{Driver, MethodName, MethodSections, RunFacts};
use lens_opd::objective::buckets::TopToken;
use lens_opd::objective::forward_kl::{forward_kl, forward_kl_topk, nll};
use lens_opd::objective::plan::{LossPlan, LossTerms};
use lens_opd::objective::policy_gradient::k1_pg;
use lens_opd::objective::reverse_kl::{rkl_full, rkl_topk};
use lens_opd::objective::{Estimator, Loss, TeacherSignal, opd_token_loss};
use lens_opd::refine::Refine;
use lens_opd::refine::focus::focus;
use lens_opd::refine::internalize::{Target, internalization_loss};
use lens_opd::stats::bootstrap::{Resampling, clustered_mean};
use lens_opd::stats::metrics::{EvalEpisode, alfworld, webshop};
use lens_opd::stats::{mean, rank_correlation};
use lens_opd::validate::Validate;
use lens_opd::validate::fork::{FinishedFork, ForkResult};
use lens_opd::validate::gate::judge;
use lens_opd::validate::value::{teacher_likelihood, tempered_log_probability};
use lens_opd::{InputError, OpdError};
use proptest::prelude::*;
use support::{batch, branch, draws, fork, of_tokens, token, turn};

/// Ways to put one number into a token.
const FIELDS: [fn(&mut ScoredToken, f32); 7] = [
    |token, x| token.student_logprob = Some(x),
    |token, x| token.teacher_logprob = Some(x),
    |token, x| token.kl = Some(x),
    |token, x| token.top.iter_mut().for_each(|top| top.student_at_student = Some(x)),
    |token, x| token.top.iter_mut().for_each(|top| top.student_at_teacher = Some(x)),
    |token, x| token.top.iter_mut().for_each(|top| top.teacher_at_teacher = Some(x)),
    |token, x| token.top.iter_mut().for_each(|top| top.teacher_at_student = Some(x)),
];

const FACTS: RunFacts = RunFacts { seed: 1, max_turns: 30, steps: 250 };

fn driver(name: MethodName) -> Driver {
    Driver::new(name, &MethodSections::default(), FACTS).expect("sound parameters")
}

fn locate(kind: MethodName, batch: &ScoredBatch) -> Result<usize, OpdError> {
    driver(kind).locate(batch).map(|located| located.forks.len())
}

#[test]
fn nan_and_infinite_log_probabilities_are_refused() {
    for &kind in MethodName::ALL {
        for (index, set) in FIELDS.iter().enumerate() {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut batch = batch(1, 1, 2, 2);
                set(&mut batch.episodes[1].turns[0].tokens[0], bad);
                let found = locate(kind, &batch);
                let Err(OpdError::Turn { episode: 1, turn: 0, reason: source }) = &found else {
                    panic!("{kind:?} field {index} = {bad}: {found:?}");
                };
                assert!(
                    matches!(
                        source,
                        InputError::NotFinite { .. } | InputError::ZeroProbability { .. }
                    ),
                    "{source}"
                );
            }
        }
    }
}

#[test]
fn impossible_probabilities_and_divergences_are_refused() {
    let mut batch = batch(1, 1, 1, 1);
    batch.episodes[0].turns[0].tokens[0].teacher_logprob = Some(0.5);
    assert!(locate(MethodName::Opd, &batch).is_err(), "a probability above one");
    batch.episodes[0].turns[0].tokens[0].teacher_logprob = Some(-0.5);
    batch.episodes[0].turns[0].tokens[0].kl = Some(-0.5);
    assert!(locate(MethodName::Opd, &batch).is_err(), "a negative divergence");
    batch.episodes[0].turns[0].tokens[0].kl = Some(0.5);
    batch.episodes[0].turns[0].tokens[0].special = true;
    assert!(locate(MethodName::Opd, &batch).is_err(), "special tokens are never content");
}

#[test]
fn contradictory_batches_are_refused() {
    let mut twice = batch(1, 1, 2, 2);
    twice.episodes[1].episode = 0;
    assert!(matches!(locate(MethodName::Lens, &twice), Err(OpdError::Episode { episode: 0, .. })));
    let mut gap = batch(1, 1, 2, 3);
    gap.episodes[1].turns.remove(1);
    assert!(matches!(locate(MethodName::Lens, &gap), Err(OpdError::Episode { episode: 1, .. })));
}

#[test]
fn zero_probability_tokens_are_named() {
    let mut scored = turn(&mut draws(1), 0, 4);
    for bad in &mut scored.tokens {
        bad.teacher_logprob = Some(f32::NEG_INFINITY);
    }
    let found = turn_divergence(&scored, DivergenceSource::Sampled);
    assert!(matches!(found, Err(InputError::ZeroProbability { position: 0, .. })), "{found:?}");
    let top = [TopToken { token: 0, logprob: f32::NEG_INFINITY }];
    assert!(matches!(rkl_topk(&[0.0, 1.0], &top), Err(InputError::ZeroProbability { .. })));
    let found = k1_pg(&[0.0, 1.0], 0, Some(f32::NEG_INFINITY), Some(-1.0), &Loss::default());
    assert!(matches!(found, Err(InputError::ZeroProbability { .. })));
    let masked = [0.0, f32::NEG_INFINITY];
    assert!(matches!(
        rkl_full(&masked, &[0.0, 0.0]),
        Err(InputError::NotFinite { position: 1, .. })
    ));
    assert!(matches!(
        rkl_full(&[0.0, 0.0], &masked),
        Err(InputError::NotFinite { position: 1, .. })
    ));
}

#[test]
fn empty_content_sets_are_errors() {
    let mut stream = draws(2);
    let special = of_tokens(0, vec![token(&mut stream, true, false)]);
    let no_content = |found: Result<f64, InputError>| {
        assert!(matches!(found, Err(InputError::NoContent { .. })), "{found:?}");
    };
    no_content(turn_competence(&special, None));
    no_content(turn_divergence(&special, DivergenceSource::Full));
    assert!(matches!(focus(&special, &Refine::default(), None), Err(InputError::NoContent { .. })));
    let mut empty = branch(&mut stream, 0, 2, -1.0);
    for turn in &mut empty.continuation {
        turn.tokens.iter_mut().for_each(|token| token.content = false);
    }
    no_content(teacher_likelihood(&empty));
    let mut finished = fork(1, 0, 0, -1.0, -0.5);
    if let ForkResult::Pair(pair) = &mut finished.result {
        pair.base = empty;
    }
    let verdict = judge(&finished, &Validate::default()).expect("incomplete, not wrong");
    assert_eq!(verdict.reason.map(|r| r.to_string()).as_deref(), Some("base.no_content"));
    assert_eq!((verdict.accepted, verdict.gain), (false, None));
}

#[test]
fn missing_values_are_errors_where_they_are_needed() {
    let missing = |found: Result<f64, InputError>, name: &str| match found {
        Err(InputError::Missing { what, position: 1 }) => assert_eq!(what, name),
        other => panic!("{name}: {other:?}"),
    };
    let without = |change: fn(&mut ScoredToken)| {
        let mut stream = draws(3);
        let mut tokens: Vec<ScoredToken> =
            (0..3).map(|_| token(&mut stream, false, false)).collect();
        change(&mut tokens[1]);
        of_tokens(0, tokens)
    };
    let no_kl = without(|token| token.kl = None);
    missing(turn_divergence(&no_kl, DivergenceSource::Full), "KL divergence");
    let no_teacher = without(|token| token.teacher_logprob = None);
    missing(turn_divergence(&no_teacher, DivergenceSource::Sampled), "teacher log-probability");
    let no_top = without(|token| token.top = None);
    missing(turn_competence(&no_top, None), "top-1 tokens");
    let unknown = without(|token| {
        token.top.iter_mut().for_each(|top| top.student_at_teacher = None);
    });
    missing(turn_competence(&unknown, None), "log p_S(vT)");
    let floored = turn_competence(&unknown, Some(-20.0)).expect("the floor stands in");
    assert!(floored < turn_competence(&without(|_| ()), None).expect("scored"));
    let undecided = without(|token| {
        token.top.iter_mut().for_each(|top| top.teacher_at_student = None);
    });
    let found = focus(&undecided, &Refine::default(), None).map(|focused| focused.weights[1]);
    missing(found, "log p_T(vS)");
    let found = k1_pg(&[0.0, 1.0], 0, None, Some(-1.0), &Loss::default());
    assert!(matches!(found, Err(InputError::Missing { .. })), "never read as 0.0");
    let found = k1_pg(&[0.0, 1.0], 0, Some(-1.0), None, &Loss::default());
    assert!(matches!(found, Err(InputError::Missing { .. })), "never read as 0.0");
}

#[test]
fn a_missing_score_in_a_continuation_is_an_error_not_a_zero() {
    let mut finished = fork(1, 4, 2, -1.0, -0.5);
    if let ForkResult::Pair(pair) = &mut finished.result {
        pair.guided.continuation[0].tokens[0].teacher_logprob = None;
    }
    let found = judge(&finished, &Validate::default());
    let Err(OpdError::Turn { episode: 4, turn: 2, reason: InputError::Missing { .. } }) = found
    else {
        panic!("{found:?}");
    };
    if let ForkResult::Pair(pair) = &mut finished.result {
        pair.guided.continuation[0].tokens[0].teacher_logprob = Some(f32::NAN);
    }
    assert!(judge(&finished, &Validate::default()).is_err());
}

#[test]
fn another_vocabulary_is_refused() {
    let (three, four) = ([0.0; 3], [0.0; 4]);
    let wrong = |found: Result<_, InputError>| {
        assert!(matches!(found, Err(InputError::Vocabulary { .. })), "{found:?}");
    };
    wrong(rkl_full(&three, &four));
    wrong(forward_kl(&three, &four));
    let targets = [Target::Logits(&three)];
    let learner: [&[f32]; 1] = [&four];
    assert!(internalization_loss(true, &targets, &learner).is_err());
    let beyond = [TopToken { token: 3, logprob: -0.1 }];
    assert!(matches!(rkl_topk(&three, &beyond), Err(InputError::UnknownToken { token: 3, .. })));
    assert!(matches!(nll(&three, 3), Err(InputError::UnknownToken { vocabulary: 3, .. })));
    assert!(tempered_log_probability(&three, 3, 1.0).is_err());
}

#[test]
fn malformed_lists_of_top_tokens_are_refused() {
    let entry = |token, logprob| TopToken { token, logprob };
    let logits = [0.0, 1.0, 2.0];
    assert!(matches!(rkl_topk(&logits, &[]), Err(InputError::Empty { .. })));
    let twice = [entry(1, -1.0), entry(1, -1.0)];
    assert!(matches!(rkl_topk(&logits, &twice), Err(InputError::RepeatedToken { token: 1, .. })));
    let too_much = [entry(0, -0.1), entry(1, -0.1)];
    assert!(matches!(forward_kl_topk(&too_much, &logits), Err(InputError::OutOfRange { .. })));
    assert!(rkl_topk(&logits, &[entry(0, f32::NAN)]).is_err());
}

#[test]
fn an_estimator_without_its_signal_is_refused() {
    let sampled = TeacherSignal::Sampled { teacher: Some(-1.0), rollout: Some(-1.0) };
    for estimator in [Estimator::RklFull, Estimator::RklTopk] {
        let params = Loss { estimator, ..Loss::default() };
        let found = opd_token_loss(&params, &[0.0, 1.0], 0, sampled);
        assert!(matches!(found, Err(InputError::Missing { .. })), "{estimator:?}: {found:?}");
    }
    let params = Loss { estimator: Estimator::K1Pg, ..Loss::default() };
    assert!(opd_token_loss(&params, &[0.0], 0, TeacherSignal::Logits(&[0.0])).is_err());
    assert!(Loss { kl_coef: 0.0, ..Loss::default() }.check().is_err());
    assert!(Loss { dual_clip: 1.0, ..Loss::default() }.check().is_err());
    assert!(Loss::default().check().is_ok());
}

#[test]
fn empty_batches_rows_and_responses_are_refused() {
    let plan = |rows: &[_]| LossPlan::new(rows, &Loss::default(), &LossTerms::default());
    assert!(matches!(plan(&[]), Err(OpdError::Input(InputError::Empty { .. }))));
    let mut method = driver(MethodName::Opd);
    let batch = batch(1, 1, 1, 1);
    let located = method.locate(&batch).expect("sound batch");
    let rows = method.refine(&batch, &located, &[]).expect("no forks").rows;
    for weights in [vec![], vec![f32::NAN], vec![-1.0]] {
        let mut bad = rows.clone();
        bad[0].weights = weights;
        assert!(plan(&bad).is_err());
    }
    let sound = plan(&rows).expect("sound rows");
    assert!(matches!(sound.row_loss(0, &[]), Err(InputError::Length { .. })));
    assert!(sound.row_loss(99, &[]).is_err());
    assert!(internalization_loss(true, &[], &[]).is_err());
    assert!(rkl_full(&[], &[]).is_err());
}

#[test]
fn clocks_refuse_what_cannot_be() {
    let mut clock = HorizonClock::new(Locate::default(), &FACTS);
    for bad in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
        let before = clock.state();
        assert!(clock.tick(&[0.5, bad]).is_err(), "{bad}");
        assert_eq!(clock.state(), before);
    }
    let newer: HorizonState =
        serde_json::from_str(r#"{"version": 9, "horizon": 3, "momentum": 0.1}"#).expect("readable");
    assert!(matches!(clock.restore(&newer), Err(OpdError::NewerState { found: 9, .. })));
    let good = clock.state();
    for bad in [
        HorizonState { depth: 0, ..good },
        HorizonState { depth: 31, ..good },
        HorizonState { elapsed: f64::NAN, ..good },
        HorizonState { elapsed: -1.0, ..good },
        HorizonState { entry_gap: Some(1.5), ..good },
    ] {
        assert!(matches!(clock.restore(&bad), Err(OpdError::State { .. })), "{bad:?}");
    }
    assert_eq!(clock.state(), good);
}

#[test]
fn statistics_refuse_empty_and_infinite_samples() {
    assert!(mean(&[]).is_err());
    assert!(mean(&[1.0, f64::NAN]).is_err());
    assert!(rank_correlation(&[1.0], &[1.0, 2.0]).is_err());
    assert!(clustered_mean(&[], &Resampling::default()).is_err());
    assert!(alfworld(&[]).is_err());
    let episode = EvalEpisode { success: true, score: 1.5, turns: 3 };
    assert!(matches!(webshop(&[episode]), Err(InputError::OutOfRange { .. })));
    for tau in [0.0, -1.0, f64::NAN] {
        assert!(tempered_log_probability(&[0.0, 1.0], 0, tau).is_err(), "{tau}");
    }
}

proptest! {
    #[test]
    fn no_number_makes_a_method_panic_or_pass_silently(
        bits in any::<u32>(), field in 0_usize..7, kind in 0_usize..6,
    ) {
        let value = f32::from_bits(bits);
        let mut batch = batch(2, 1, 2, 2);
        FIELDS[field](&mut batch.episodes[0].turns[1].tokens[0], value);
        let found = locate(MethodName::ALL[kind], &batch);
        prop_assert!(value.is_finite() || found.is_err());
    }

    #[test]
    fn no_number_makes_an_estimator_panic_or_pass_silently(bits in any::<u32>(), at in 0_usize..3) {
        let value = f32::from_bits(bits);
        let mut logits = [0.5_f32, -1.0, 2.0];
        logits[at] = value;
        for found in [
            rkl_full(&logits, &[0.0; 3]),
            rkl_full(&[0.0; 3], &logits),
            forward_kl(&[0.0; 3], &logits),
            nll(&logits, 0),
            k1_pg(&[0.0; 3], 0, Some(value), Some(-1.0), &Loss::default()),
        ] {
            match found {
                Ok(loss) => {
                    prop_assert!(value.is_finite() && loss.value.is_finite());
                    prop_assert!(loss.gradient.iter().all(|g| g.is_finite()));
                }
                Err(_) => prop_assert!(!value.is_finite() || value > 0.0),
            }
        }
    }

    #[test]
    fn no_number_makes_the_gate_panic_or_pass_silently(bits in any::<u32>(), guided in any::<bool>()) {
        let value = f32::from_bits(bits);
        let mut finished: FinishedFork = fork(3, 0, 1, -1.0, -0.5);
        if let ForkResult::Pair(pair) = &mut finished.result {
            let branch = if guided { &mut pair.guided } else { &mut pair.base };
            branch.continuation[1].tokens[0].teacher_logprob = Some(value);
        }
        let found = judge(&finished, &Validate::default());
        prop_assert!(value.is_finite() || found.is_err());
    }
}
