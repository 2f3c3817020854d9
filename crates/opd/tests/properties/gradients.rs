use lens_opd::objective::buckets::TopToken;
use lens_opd::objective::distribution::log_softmax;
use lens_opd::objective::forward_kl::{forward_kl, forward_kl_topk, nll};
use lens_opd::objective::policy_gradient::k1_pg;
use lens_opd::objective::reverse_kl::{rkl_full, rkl_topk};
use lens_opd::objective::{Estimator, Loss, TeacherSignal, TokenLoss, opd_token_loss};
use proptest::prelude::*;

/// The step of the difference quotients. Logits are multiples of 1/64, so that moving one by the step
/// is exact in `f32`.
const STEP: f32 = 1.0 / 1024.0;

/// Pairs of logit vectors over one vocabulary.
fn two_models() -> impl Strategy<Value = (Vec<f32>, Vec<f32>)> {
    (2_usize..12).prop_flat_map(|size| {
        let logits =
            || prop::collection::vec((-256_i16..256).prop_map(|z| f32::from(z) / 64.0), size);
        (logits(), logits())
    })
}

fn log_probability(logits: &[f32], token: usize) -> f32 {
    log_softmax(logits, 1.0, "logit").expect("finite")[token] as f32
}

/// The teacher's `k` most likely tokens.
fn top(logits: &[f32], k: usize) -> Vec<TopToken> {
    let log_t = log_softmax(logits, 1.0, "logit").expect("finite");
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| log_t[b].total_cmp(&log_t[a]));
    let entry = |v: usize| TopToken { token: v as u32, logprob: log_t[v] as f32 };
    order.into_iter().take(k).map(entry).collect()
}

/// The analytic gradient against central differences, and its sum against zero: adding a constant to
/// all logits changes no softmax.
fn check(logits: &[f32], loss: impl Fn(&[f32]) -> TokenLoss) -> Result<(), TestCaseError> {
    let TokenLoss { gradient, .. } = loss(logits);
    prop_assert_eq!(gradient.len(), logits.len());
    for v in 0..logits.len() {
        let at = |shift: f32| {
            let mut moved = logits.to_vec();
            moved[v] += shift;
            loss(&moved).value
        };
        let numeric = (at(STEP) - at(-STEP)) / f64::from(2.0 * STEP);
        let scale = numeric.abs().max(1.0);
        prop_assert!(
            (gradient[v] - numeric).abs() < 1e-5 * scale,
            "{} != {}",
            gradient[v],
            numeric
        );
    }
    prop_assert!(gradient.iter().sum::<f64>().abs() < 1e-9);
    Ok(())
}

proptest! {
    #[test]
    fn gradients_match_finite_differences((student, teacher) in two_models(), k in 1_usize..12) {
        let top = top(&teacher, k);
        check(&student, |z| rkl_full(z, &teacher).expect("finite"))?;
        check(&student, |z| rkl_topk(z, &top).expect("finite"))?;
        check(&student, |z| forward_kl(&teacher, z).expect("finite"))?;
        check(&student, |z| forward_kl_topk(&top, z).expect("finite"))?;
        let token = (k % student.len()) as u32;
        check(&student, |z| nll(z, token).expect("in the vocabulary"))?;
    }

    #[test]
    fn policy_gradient_matches_finite_differences(
        (student, teacher) in two_models(), token in 0_usize..12, drift in -1.5_f32..1.5,
    ) {
        let token = token % student.len();
        let rollout = (log_probability(&student, token) - drift).min(0.0);
        let log_t = log_probability(&teacher, token);
        let ratio = (f64::from(log_probability(&student, token)) - f64::from(rollout)).exp();
        // At a kink there is no derivative to compare with.
        for kink in [0.8, 1.2, 3.0] {
            prop_assume!((ratio - kink).abs() > 0.02);
        }
        let call = |z: &[f32]| k1_pg(z, token as u32, Some(log_t), Some(rollout), &Loss::default());
        check(&student, |z| call(z).expect("finite"))?;
    }

    #[test]
    fn expected_policy_gradient_is_that_of_the_full_divergence((student, teacher) in two_models()) {
        let full = rkl_full(&student, &teacher).expect("finite");
        let mut expected = vec![0.0; student.len()];
        for token in 0..student.len() {
            let own = log_probability(&student, token);
            let log_t = log_probability(&teacher, token);
            let sampled = k1_pg(&student, token as u32, Some(log_t), Some(own), &Loss::default());
            let probability = f64::from(own).exp();
            for (sum, g) in expected.iter_mut().zip(sampled.expect("finite").gradient) {
                *sum += probability * g;
            }
        }
        for (found, wanted) in expected.iter().zip(&full.gradient) {
            prop_assert!((found - wanted).abs() < 1e-5, "{} != {}", found, wanted);
        }
    }

    #[test]
    fn equal_models_have_no_loss_and_no_gradient((student, _) in two_models(), token in 0_usize..12) {
        let token = token % student.len();
        let own = Some(log_probability(&student, token));
        let full_top = top(&student, student.len());
        let losses = [
            rkl_full(&student, &student),
            forward_kl(&student, &student),
            rkl_topk(&student, &full_top),
            forward_kl_topk(&full_top, &student),
            k1_pg(&student, token as u32, own, own, &Loss::default()),
        ];
        for (index, loss) in losses.into_iter().enumerate() {
            let loss = loss.expect("finite");
            // Lists of top tokens carry the rounding of `f32`.
            let slack = if index < 2 || index == 4 { 1e-12 } else { 1e-6 };
            prop_assert!(loss.value.abs() <= slack, "loss {} of {}", loss.value, index);
            prop_assert!(loss.gradient.iter().all(|g| g.abs() <= slack));
        }
    }

    #[test]
    fn divergences_are_not_negative_and_buckets_only_lose((student, teacher) in two_models(), k in 1_usize..12) {
        let full = rkl_full(&student, &teacher).expect("finite").value;
        let bucketed = rkl_topk(&student, &top(&teacher, k)).expect("finite").value;
        prop_assert!(full >= -1e-12);
        // The tail's mass is 1 minus a sum of `f32` roundings; a small tail shows them.
        prop_assert!(bucketed >= -1e-2 && bucketed <= full + 1e-2, "{} > {}", bucketed, full);
        let whole = rkl_topk(&student, &top(&teacher, student.len())).expect("finite").value;
        prop_assert!((whole - full).abs() < 1e-5, "listing every token is the full divergence");
    }

    #[test]
    fn the_coefficient_scales_every_estimator((student, teacher) in two_models(), kl_coef in 0.1_f64..4.0) {
        let top = top(&teacher, 2);
        let sampled = TeacherSignal::Sampled {
            teacher: Some(log_probability(&teacher, 0)),
            rollout: Some(log_probability(&student, 0)),
        };
        for (estimator, signal) in [
            (Estimator::RklFull, TeacherSignal::Logits(&teacher)),
            (Estimator::RklTopk, TeacherSignal::Top(&top)),
            (Estimator::K1Pg, sampled),
        ] {
            let loss = |kl_coef| {
                let params = Loss { estimator, kl_coef, ..Loss::default() };
                opd_token_loss(&params, &student, 0, signal).expect("finite")
            };
            let (unit, scaled) = (loss(1.0), loss(kl_coef));
            prop_assert!((scaled.value - kl_coef * unit.value).abs() < 1e-9);
            for (scaled, unit) in scaled.gradient.iter().zip(&unit.gradient) {
                prop_assert!((scaled - kl_coef * unit).abs() < 1e-9);
            }
        }
    }
}
