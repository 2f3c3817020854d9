use lens_opd::episode::{ScoredToken, TopPair};
use lens_opd::refine::Refine;
use lens_opd::refine::focus::focus;
use proptest::prelude::*;

use crate::support::of_tokens;

/// A token with the given opinions; content unless special.
fn opinion() -> impl Strategy<Value = ScoredToken> {
    (any::<bool>(), 0.0_f32..6.0, 0.0_f32..6.0, prop::bool::weighted(0.2)).prop_map(
        |(agree, resistance, decision, special)| {
            let (resistance, decision) = if agree { (0.0, 0.0) } else { (resistance, decision) };
            ScoredToken {
                top: Some(TopPair {
                    student_top: 3,
                    teacher_top: if agree { 3 } else { 4 },
                    student_at_student: Some(-0.1),
                    student_at_teacher: Some(-0.1 - resistance),
                    teacher_at_teacher: Some(-0.2),
                    teacher_at_student: Some(-0.2 - decision),
                }),
                ..ScoredToken::unscored(0, special)
            }
        },
    )
}

/// Responses with at least one content token.
fn response() -> impl Strategy<Value = Vec<ScoredToken>> {
    prop::collection::vec(opinion(), 1..40)
        .prop_filter("needs content", |tokens| tokens.iter().any(|token| token.content))
}

fn params() -> impl Strategy<Value = Refine> {
    (0.0_f64..4.0, 1.0_f64..8.0).prop_map(|(focus_scale, weight_cap)| Refine {
        focus_scale,
        weight_cap,
        ..Refine::default()
    })
}

proptest! {
    #[test]
    fn mean_weight_over_the_turn_is_one(tokens in response(), params in params()) {
        let turn = of_tokens(0, tokens);
        let focused = focus(&turn, &params, None).expect("scored");
        let content: Vec<f64> = turn.content().map(|(i, _)| focused.weights[i]).collect();
        let mean = content.iter().sum::<f64>() / content.len() as f64;
        // raw weights are at least 1, so eps moves the mean by at most eps.
        prop_assert!((mean - 1.0).abs() <= params.epsilon, "mean {}", mean);
    }

    #[test]
    fn weight_is_one_outside_the_content(tokens in response(), params in params()) {
        let focused = focus(&of_tokens(0, tokens.clone()), &params, None).expect("scored");
        for (token, weight) in tokens.iter().zip(&focused.weights) {
            prop_assert!(token.content || *weight == 1.0);
        }
    }

    #[test]
    fn agreement_gets_the_same_lowest_weight(tokens in response(), params in params()) {
        let turn = of_tokens(0, tokens);
        let focused = focus(&turn, &params, None).expect("scored");
        let lowest = turn
            .content()
            .map(|(i, _)| focused.weights[i])
            .fold(f64::INFINITY, f64::min);
        for (i, token) in turn.content() {
            if token.top.expect("scored").agree() {
                prop_assert_eq!(focused.weights[i], lowest);
            }
        }
    }

    #[test]
    fn the_cap_is_applied_before_normalizing(tokens in response(), params in params()) {
        let turn = of_tokens(0, tokens);
        let focused = focus(&turn, &params, None).expect("scored");
        // Undo the normalization with an uncapped reading of the formula: what comes out must be the
        // capped raw weight, which a cap on the normalized weight would not give.
        let raw: Vec<f64> = turn
            .content()
            .map(|(_, token)| {
                let top = token.top.expect("scored");
                let gap = |a: Option<f32>, b: Option<f32>| {
                    f64::from(a.expect("given")) - f64::from(b.expect("given"))
                };
                let resistance = gap(top.student_at_student, top.student_at_teacher).max(0.0);
                let decision = gap(top.teacher_at_teacher, top.teacher_at_student);
                let score = resistance / (1.0 + (-decision).exp());
                (1.0 + params.focus_scale * score).min(params.weight_cap)
            })
            .collect();
        let scale = raw.iter().sum::<f64>() / raw.len() as f64 + params.epsilon;
        for ((i, _), raw) in turn.content().zip(raw) {
            prop_assert!((focused.weights[i] * scale - raw).abs() < 1e-9);
        }
    }

    #[test]
    fn mass_is_counted_where_it_lies(tokens in response(), params in params()) {
        let turn = of_tokens(0, tokens);
        let focused = focus(&turn, &params, None).expect("scored");
        let targets: Vec<usize> = turn
            .content()
            .filter(|(_, token)| !token.top.expect("scored").agree())
            .map(|(i, _)| i)
            .collect();
        prop_assert_eq!(focused.mass.target_tokens, targets.len());
        let mass: f64 = targets.iter().map(|&i| focused.weights[i]).sum();
        prop_assert!((focused.mass.target_mass - mass).abs() < 1e-9);
        let (share, by_count) = (
            mass / focused.mass.content_mass,
            targets.len() as f64 / focused.mass.content_tokens as f64,
        );
        prop_assert!(share >= by_count - 1e-9, "focus never takes weight away from conflicts");
    }
}
