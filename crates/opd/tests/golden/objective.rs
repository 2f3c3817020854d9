use lens_opd::error::InputError;
use lens_opd::methods::rows::{BatchShape, RowKind, TrainRow};
use lens_opd::objective::buckets::TopToken;
use lens_opd::objective::forward_kl::{forward_kl, forward_kl_topk, nll};
use lens_opd::objective::plan::{LossPlan, LossTerms};
use lens_opd::objective::policy_gradient::k1_pg;
use lens_opd::objective::reverse_kl::{rkl_full, rkl_topk};
use lens_opd::objective::{Aggregation, Loss, TokenLoss};
use serde::Deserialize;

use crate::{all_close, close, read};

#[derive(Deserialize)]
struct Golden {
    cases: Vec<Case>,
    policy_gradient: Vec<Policy>,
    batch: Batch,
}

#[derive(Deserialize)]
struct GoldenLoss {
    value: f64,
    gradient: Vec<f64>,
}

#[derive(Deserialize)]
struct Case {
    student: Vec<f32>,
    teacher: Vec<f32>,
    token: u32,
    top: Vec<TopToken>,
    rkl_full: GoldenLoss,
    rkl_topk: GoldenLoss,
    forward_kl: GoldenLoss,
    forward_kl_topk: GoldenLoss,
    nll: GoldenLoss,
}

#[derive(Deserialize)]
struct Policy {
    student: Vec<f32>,
    token: u32,
    teacher_logprob: f32,
    rollout_logprob: f32,
    value: f64,
    gradient: Vec<f64>,
}

#[derive(Deserialize)]
struct Batch {
    rows: Vec<Row>,
    lambda_gi: f64,
    trajectories: usize,
    value: f64,
    row_mean_value: f64,
}

#[derive(Deserialize)]
struct Row {
    batch: u64,
    episode: u64,
    turn: usize,
    kind: RowKind,
    weights: Vec<f32>,
    losses: Vec<f64>,
}

fn golden() -> Golden {
    read(include_str!("objective.json"))
}

#[track_caller]
fn same(found: Result<TokenLoss, InputError>, golden: &GoldenLoss) {
    let found = found.expect("finite logits");
    close(found.value, golden.value);
    all_close(&found.gradient, &golden.gradient);
}

#[test]
fn estimators_and_gradients() {
    for g in golden().cases {
        same(rkl_full(&g.student, &g.teacher), &g.rkl_full);
        same(rkl_topk(&g.student, &g.top), &g.rkl_topk);
        same(forward_kl(&g.teacher, &g.student), &g.forward_kl);
        same(forward_kl_topk(&g.top, &g.student), &g.forward_kl_topk);
        same(nll(&g.student, g.token), &g.nll);
    }
}

#[test]
fn clipped_policy_gradient() {
    let cases = golden().policy_gradient;
    let flat = |g: &&Policy| g.gradient.iter().all(|&g| g == 0.0);
    assert!(cases.iter().filter(flat).count() >= 3, "clipped cases must be among the vectors");
    assert!(cases.iter().filter(|g| !flat(g)).count() >= 6);
    let clip = Loss::default();
    for g in cases {
        let (teacher, rollout) = (Some(g.teacher_logprob), Some(g.rollout_logprob));
        let found = k1_pg(&g.student, g.token, teacher, rollout, &clip).expect("finite logits");
        close(found.value, g.value);
        all_close(&found.gradient, &g.gradient);
    }
}

#[test]
fn loss_of_a_train_batch() {
    let g = golden().batch;
    let rows: Vec<TrainRow> = g
        .rows
        .iter()
        .map(|row| TrainRow {
            batch: row.batch,
            episode: row.episode,
            turn: row.turn,
            kind: row.kind,
            version: 0,
            validated: false,
            weights: row.weights.clone(),
            shape: BatchShape::default(),
        })
        .collect();
    let total = |aggregation| {
        let loss = Loss { aggregation, ..Loss::default() };
        let terms = LossTerms { internalize_weight: g.lambda_gi, ..LossTerms::default() };
        let plan = LossPlan::new(&rows, &loss, &terms).expect("rows are sound");
        assert_eq!(plan.counts().trajectories, g.trajectories);
        let parts = g.rows.iter().enumerate().map(|(index, row)| {
            let tokens: Vec<TokenLoss> =
                row.losses.iter().map(|&value| TokenLoss { value, gradient: vec![] }).collect();
            plan.row_loss(index, &tokens).expect("lengths match").value
        });
        parts.sum::<f64>()
    };
    close(total(Aggregation::TokenMean), g.value);
    close(total(Aggregation::RowMean), g.row_mean_value);
}
