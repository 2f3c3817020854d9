use lens_opd::refine::Refine;
use lens_opd::refine::focus::{Conflict, focus};
use lens_opd::refine::internalize::{Target, internalization_loss};
use serde::Deserialize;

use crate::support::of_tokens;
use crate::{Tokens, all_close, close, read};

#[derive(Deserialize)]
struct Golden {
    focus: Vec<FocusCase>,
    internalize: Internalize,
}

#[derive(Deserialize)]
struct FocusCase {
    tokens: Tokens,
    beta: f64,
    cap: f64,
    weights: Vec<f64>,
    scores: Vec<f64>,
    target_mass: f64,
    target_tokens: usize,
}

#[derive(Deserialize)]
struct Internalize {
    target: Vec<Vec<f32>>,
    learner: Vec<Vec<f32>>,
    value: f64,
    gradients: Vec<Vec<f64>>,
}

fn golden() -> Golden {
    read(include_str!("refine.json"))
}

#[test]
fn focus_weights_and_mass() {
    let cases = golden().focus;
    let capped = |g: &FocusCase| g.scores.iter().any(|s| 1.0 + g.beta * s > g.cap);
    assert!(cases.iter().any(capped), "the cap must be reached somewhere");
    for g in cases {
        let params = Refine { focus_scale: g.beta, weight_cap: g.cap, ..Refine::default() };
        let turn = of_tokens(0, g.tokens);
        let scores: Vec<f64> = turn
            .content()
            .map(|(i, token)| {
                let top = token.top.expect("scored");
                Conflict::at(&top, None, i).expect("all values are there").score()
            })
            .collect();
        all_close(&scores, &g.scores);
        let focused = focus(&turn, &params, None).expect("scored");
        all_close(&focused.weights, &g.weights);
        close(focused.mass.target_mass, g.target_mass);
        assert_eq!(focused.mass.target_tokens, g.target_tokens);
    }
}

#[test]
fn internalization() {
    let g = golden().internalize;
    let targets: Vec<Target<'_>> = g.target.iter().map(|z| Target::Logits(z)).collect();
    let learner: Vec<&[f32]> = g.learner.iter().map(Vec::as_slice).collect();
    let loss = internalization_loss(true, &targets, &learner).expect("finite logits");
    close(loss.value, g.value);
    for (found, golden) in loss.gradients.iter().zip(&g.gradients) {
        all_close(found, golden);
    }
    let closed = internalization_loss(false, &targets, &learner).expect("finite logits");
    assert_eq!(closed.value, 0.0);
    assert!(closed.gradients.iter().flatten().all(|&g| g == 0.0));
}
