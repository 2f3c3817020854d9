//! Token losses and their gradients by the logits against the reference objective, one position at a time.

mod train_common;

use lens_lm::config::{Family, ModelConfig};
use lens_lm::train::{Head, Heads, PromptedRow, RowLoss, Trainer, TrainerOptions};
use lens_opd::objective::Loss;
use lens_opd::objective::TokenLoss;
use lens_opd::objective::buckets::TopToken;
use lens_opd::objective::forward_kl::{forward_kl, nll};
use lens_opd::objective::policy_gradient::k1_pg;
use lens_opd::objective::reverse_kl::{rkl_full, rkl_topk};
use train_common::*;

/// More than one chunk of the vocabulary, the last one not full.
const VOCAB: usize = 700;
const REAL: usize = 650;
const REFERENCE_WIDTH: usize = 10;

fn config() -> ModelConfig {
    ModelConfig { vocab_size: VOCAB, tied_head: false, layers: 1, ..tiny(Family::Qwen3) }
}

fn logits(head: &[f32], hidden: &[f32]) -> Vec<f32> {
    head.chunks(hidden.len())
        .take(REAL)
        .map(|row| {
            let products = row.iter().zip(hidden).map(|(&a, &b)| f64::from(a) * f64::from(b));
            products.sum::<f64>() as f32
        })
        .collect()
}

/// The teacher's `k` most likely tokens.
fn top(logits: &[f32], k: usize) -> Vec<TopToken> {
    let max = logits.iter().fold(f64::MIN, |most, &x| most.max(f64::from(x)));
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order[..k]
        .iter()
        .map(|&id| TopToken {
            token: id as u32,
            logprob: (f64::from(logits[id]) - max - sum.ln()) as f32,
        })
        .collect()
}

#[test]
fn every_loss_and_its_gradient_by_the_logits_equal_the_reference() {
    let config = config();
    let width = config.hidden_size;
    let parameters = random_parameters(&config, 1);
    let head = parameters["lm_head.weight"].data.clone();
    let mut stream = stream(2);
    let reference_head = noise(VOCAB * REFERENCE_WIDTH, 1.0, &mut stream);
    let reference = Head { weight: (&reference_head).into(), hidden: REFERENCE_WIDTH };
    let heads = Heads { teacher: Some(reference), snapshot: Some(reference) };
    let clip = Loss { kl_coef: 0.8, clip: 0.2, dual_clip: 3.0, ..Loss::default() };
    let options = TrainerOptions { real_vocab: Some(REAL), ..TrainerOptions::default() };
    let mut trainer = Trainer::new(config, parameters, options).expect("valid model");
    let mut flat_ratios = 0;
    for round in 0..60 {
        let kind = KINDS[round % KINDS.len()];
        let mut row = random_row(kind, REAL, REFERENCE_WIDTH, 6, 5, &mut stream);
        row.weights = vec![0.7];
        let prompt = PromptedRow { tokens: &row.tokens, response_start: 5 };
        let hidden = trainer.hidden_states(&[prompt]).expect("a valid row").remove(0);
        let student = logits(&head, &hidden);
        let token = row.tokens[5];
        let want: TokenLoss = match &mut row.loss {
            RowLoss::ReverseKl { teacher_hidden } => {
                rkl_full(&student, &logits(&reference_head, teacher_hidden))
            }
            RowLoss::ForwardKl { snapshot_hidden } => {
                forward_kl(&logits(&reference_head, snapshot_hidden), &student)
            }
            RowLoss::Nll => nll(&student, token),
            RowLoss::PolicyGradient { teacher_logp, rollout_logp, kl_coef, .. } => {
                // Ratios around one, so that both sides of every bound are met.
                let own = -nll(&student, token).expect("a real token").value;
                rollout_logp[0] = (own + 0.5 * stream.normal()) as f32;
                *kl_coef = clip.kl_coef as f32;
                k1_pg(&student, token, Some(teacher_logp[0]), Some(rollout_logp[0]), &clip)
            }
            RowLoss::ReverseKlTopK { k, ids, logps, tail_logps } => {
                let teacher = logits(&reference_head, &noise(REFERENCE_WIDTH, 1.0, &mut stream));
                let listed = top(&teacher, *k);
                *ids = listed.iter().map(|entry| entry.token).collect();
                *logps = listed.iter().map(|entry| entry.logprob).collect();
                let mass: f64 = logps.iter().map(|&logp| f64::from(logp).exp()).sum();
                tail_logps[0] = (1.0 - mass).ln() as f32;
                rkl_topk(&student, &listed)
            }
        }
        .expect("valid input");
        let report = trainer.accumulate(std::slice::from_ref(&row), &heads).expect("a valid row");
        let got = report.rows[0].token_loss;
        assert!(
            (got - want.value).abs() < 2e-5 * want.value.abs().max(1.0),
            "{kind:?} {got} {want:?}"
        );

        // One position: the head's gradient is the logits' gradient times the hidden state.
        let expected: Vec<f64> = want
            .gradient
            .iter()
            .flat_map(|g| hidden.iter().map(move |&h| 0.7_f32 as f64 * g * f64::from(h)))
            .collect();
        let gradient = trainer.gradient("lm_head.weight").expect("accumulated");
        if want.gradient.iter().all(|&g| g == 0.0) {
            flat_ratios += 1;
            assert!(
                gradient.iter().all(|&g| g == 0.0),
                "{kind:?}: a clipped token has no gradient"
            );
        } else {
            let error = relative_error(&gradient[..REAL * width], &expected);
            assert!(error < 2e-5, "{kind:?}: gradient differs by {error}");
        }
        assert!(gradient[REAL * width..].iter().all(|&g| g == 0.0), "padding has no gradient");
        trainer.drop_gradient();
    }
    assert!(
        (1..12).contains(&flat_ratios),
        "{flat_ratios} clipped tokens: the bounds were not met"
    );
}
