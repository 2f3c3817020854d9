//! Worked numbers of the sibling methods, from their papers' public implementations.

use lens_opd::episode::{DivergenceSource, EpisodeEnd, ScoredBatch, ScoredEpisode, ScoredToken};
use lens_opd::methods::{Driver, MethodName, MethodSections, RunFacts};
use lens_opd::objective::Loss;
use lens_opd::objective::plan::{Denominator, LossPlan, LossTerms};

use crate::support::of_tokens;

/// `(log mu, log T)` of every token, one list per turn.
type Turns<'a> = &'a [&'a [(f32, f32)]];

const SOD: Turns<'_> = &[
    &[(-0.5, -0.7), (-1.0, -0.6)],
    &[(-0.2, -1.2), (-0.9, -0.1), (-1.0, -2.2)],
    &[(-0.4, -0.3), (-0.3, -0.2)],
];
const IW: &[(f32, f32)] = &[(-0.5, -0.9), (-1.2, -0.4), (-0.1, -0.1), (-2.0, -5.0), (-0.7, -0.2)];

fn batch(turns: Turns<'_>) -> ScoredBatch {
    let turns = turns.iter().zip(0..).map(|(tokens, number)| {
        let tokens = tokens.iter().map(|&(student, teacher)| ScoredToken {
            student_logprob: Some(student),
            teacher_logprob: Some(teacher),
            ..ScoredToken::unscored(1, false)
        });
        of_tokens(number, tokens.collect())
    });
    let episode = ScoredEpisode {
        episode: 0,
        version: 0,
        prefix: 0,
        reference_actions: None,
        end: EpisodeEnd::Completed,
        success: false,
        turns: turns.collect(),
    };
    ScoredBatch { number: 1, divergence: DivergenceSource::Sampled, episodes: vec![episode] }
}

/// The weights a method gives, and its loss at ratio 1, by its own denominator and by weights.
fn trained(
    name: MethodName,
    turns: Turns<'_>,
    change: impl FnOnce(&mut MethodSections),
) -> (Vec<Vec<f32>>, f64, f64) {
    let mut sections = MethodSections::default();
    change(&mut sections);
    let facts = RunFacts { seed: 1, max_turns: 30, steps: 10 };
    let mut method = Driver::new(name, &sections, facts).expect("sound parameters");
    let batch = batch(turns);
    let located = method.locate(&batch).expect("sound batch");
    let rows = method.refine(&batch, &located, &[]).expect("no forks").rows;
    let loss = |terms: &LossTerms| -> f64 {
        let plan = LossPlan::new(&rows, &Loss::default(), terms).expect("sound rows");
        let rows = turns.iter().enumerate();
        rows.flat_map(|(index, tokens)| {
            plan.coefficients(index).expect("planned").iter().zip(*tokens)
        })
        .map(|(coefficient, (mu, t))| -coefficient * (f64::from(*t) - f64::from(*mu)))
        .sum()
    };
    let terms = method.terms();
    assert_eq!(terms.denominator, Denominator::Tokens);
    let by_weights = LossTerms { denominator: Denominator::Weights, ..terms };
    let (own, other) = (loss(&terms), loss(&by_weights));
    (rows.into_iter().map(|row| row.weights).collect(), own, other)
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-6 * wanted.abs().max(1.0), "{found} is not {wanted}");
}

#[track_caller]
fn all_near(found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    found.iter().zip(wanted).for_each(|(&found, &wanted)| near(f64::from(found), wanted));
}

#[test]
fn sod_weights_turns_by_the_first_turns_distance() {
    let (weights, tokens, by_weights) = trained(MethodName::Sod, SOD, |_| {});
    all_near(&weights[0], &[1.0; 2]);
    all_near(&weights[1], &[0.300_000_7; 3]);
    all_near(&weights[2], &[1.2; 2]);
    near(tokens, -0.002_857_003);
    near(by_weights, -0.003_773_399);
    let (weights, tokens, by_weights) =
        trained(MethodName::Sod, SOD, |sections| sections.sod.delta = 0.5);
    all_near(&weights[2], &[1.5; 2]);
    near(tokens, -0.011_428_431);
    near(by_weights, -0.013_559_151);
}

#[test]
fn iw_opd_weights_tokens_by_the_disagreement_ahead() {
    let (weights, tokens, by_weights) = trained(MethodName::IwOpd, &[IW], |_| {});
    all_near(&weights[0], &[1.5, 1.457_446_809, 1.372_340_426, 1.372_340_426, 1.053_191_489]);
    near(tokens, 0.604_893_617);
    near(by_weights, 0.447_716_535);
    let turns: Turns<'_> = &[&IW[..2], &IW[2..]];
    let (weights, ..) = trained(MethodName::IwOpd, turns, |_| {});
    all_near(&weights[1], &[1.372_340_426, 1.372_340_426, 1.053_191_489]);
    let by_turn = |sections: &mut MethodSections| {
        sections.iw_opd.scope = lens_opd::methods::iw_opd::Scope::Turn;
    };
    let (weights, ..) = trained(MethodName::IwOpd, turns, by_turn);
    all_near(&weights[0], &[1.5, 1.333_333_333]);
    all_near(&weights[1], &[1.5, 1.5, 1.071_428_571]);
}

#[test]
fn a_token_that_was_not_measured_is_an_error() {
    for name in [MethodName::Sod, MethodName::IwOpd] {
        let facts = RunFacts { seed: 1, max_turns: 30, steps: 10 };
        let mut method = Driver::new(name, &MethodSections::default(), facts).expect("sound");
        let mut batch = batch(&[IW]);
        batch.episodes[0].turns[0].tokens[3].teacher_logprob = None;
        let located = method.locate(&batch).expect("sound batch");
        assert!(method.refine(&batch, &located, &[]).is_err(), "{name}");
    }
}
