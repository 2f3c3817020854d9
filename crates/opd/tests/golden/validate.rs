use lens_opd::validate::Validate;
use lens_opd::validate::fork::{Branch, BranchEnd, FinishedFork, ForkResult, Pair};
use lens_opd::validate::gate::judge;
use lens_opd::validate::value::{teacher_likelihood, tempered_log_probability, token_ratio};
use serde::Deserialize;

use crate::support::{draws, of_tokens, turn};
use crate::{Tokens, close, read};

#[derive(Deserialize)]
struct Golden {
    tempered: Vec<Tempered>,
    pairs: Vec<GoldenPair>,
}

#[derive(Deserialize)]
struct Tempered {
    logits: Vec<f32>,
    token: u32,
    tau: f64,
    log_probability: f64,
}

#[derive(Deserialize)]
struct GoldenPair {
    base: Vec<Tokens>,
    guided: Vec<Tokens>,
    base_likelihood: f64,
    guided_likelihood: f64,
    gain: f64,
    accepted: bool,
    base_ratio: f64,
    guided_ratio: f64,
}

fn golden() -> Golden {
    read(include_str!("validate.json"))
}

fn branch(continuation: &[Tokens]) -> Branch {
    let continuation: Vec<_> =
        continuation.iter().zip(1..).map(|(t, number)| of_tokens(number, t.clone())).collect();
    let end = if continuation.len() == 3 {
        BranchEnd::Horizon
    } else {
        BranchEnd::Ended { success: false }
    };
    Branch { response: turn(&mut draws(1), 0, 4), continuation, end, score: None }
}

#[test]
fn teacher_log_probability_at_temperature() {
    for g in golden().tempered {
        let found = tempered_log_probability(&g.logits, g.token, g.tau).expect("finite logits");
        close(found, g.log_probability);
    }
}

#[test]
fn evaluators_and_gate() {
    let pairs = golden().pairs;
    assert!(pairs.iter().any(|g| g.accepted) && pairs.iter().any(|g| !g.accepted));
    for g in pairs {
        let (base, guided) = (branch(&g.base), branch(&g.guided));
        close(teacher_likelihood(&base).expect("scored"), g.base_likelihood);
        close(teacher_likelihood(&guided).expect("scored"), g.guided_likelihood);
        close(token_ratio(&base).expect("scored"), g.base_ratio);
        close(token_ratio(&guided).expect("scored"), g.guided_ratio);
        let pair = Pair { base, guided, internalization_gap: None, repeats: Vec::new() };
        let result = ForkResult::Pair(Box::new(pair));
        let verdict = judge(&FinishedFork { episode: 0, turn: 0, result }, &Validate::default())
            .expect("scored");
        close(verdict.base_value.expect("complete"), g.base_likelihood);
        close(verdict.guided_value.expect("complete"), g.guided_likelihood);
        close(verdict.gain.expect("complete"), g.gain);
        assert_eq!(verdict.accepted, g.accepted);
    }
}
