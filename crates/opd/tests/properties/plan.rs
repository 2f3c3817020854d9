use lens_opd::methods::rows::{BatchShape, RowKind, TrainRow};
use lens_opd::objective::plan::{InternalizeAggregation, LossPlan, LossTerms};
use lens_opd::objective::{Aggregation, Loss, TokenLoss};
use proptest::prelude::*;

/// A row and the loss of each of its tokens.
type Row = (TrainRow, Vec<f64>);

fn row() -> impl Strategy<Value = Row> {
    let kind = prop_oneof![
        4 => Just(RowKind::Opd), 1 => Just(RowKind::Internalize), 1 => Just(RowKind::TeacherNll), 1 => Just(RowKind::Bridge)
    ];
    (kind, 0_u64..3, 0_u64..4, prop::collection::vec((0.1_f32..5.0, -2.0_f64..8.0), 1..10))
        .prop_map(|(kind, batch, episode, tokens)| {
            let weights = tokens
                .iter()
                .map(|&(w, _)| if kind == RowKind::Internalize { 1.0 } else { w })
                .collect();
            let row = TrainRow {
                batch,
                episode,
                turn: 0,
                kind,
                version: 0,
                validated: false,
                shape: BatchShape::default(),
                weights,
            };
            (row, tokens.into_iter().map(|(_, loss)| loss).collect())
        })
}

fn token_losses(losses: &[f64]) -> Vec<TokenLoss> {
    losses.iter().map(|&value| TokenLoss { value, gradient: vec![value, -value] }).collect()
}

/// The loss as it is written down, over the whole batch at once.
fn written_down(rows: &[Row], internalize_weight: f64, eps: f64) -> f64 {
    let weighted = |row: &Row| -> f64 {
        row.0.weights.iter().zip(&row.1).map(|(&w, l)| f64::from(w) * l).sum()
    };
    let plain: Vec<&Row> = rows.iter().filter(|row| row.0.kind != RowKind::Internalize).collect();
    let top: f64 = plain.iter().map(|row| weighted(row)).sum();
    let bottom: f64 =
        plain.iter().flat_map(|row| &row.0.weights).map(|&w| f64::from(w)).sum::<f64>() + eps;
    let mut trajectories: Vec<_> = rows.iter().map(|row| (row.0.batch, row.0.episode)).collect();
    trajectories.sort_unstable();
    trajectories.dedup();
    let gi: f64 = rows
        .iter()
        .filter(|row| row.0.kind == RowKind::Internalize)
        .map(|row| row.1.iter().sum::<f64>() / row.1.len() as f64)
        .sum();
    top / bottom + internalize_weight * gi / trajectories.len() as f64
}

proptest! {
    #[test]
    fn how_rows_are_split_into_micro_batches_does_not_matter(
        rows in prop::collection::vec(row(), 1..20),
        micro_batch in 1_usize..20,
        internalize_weight in 0.0_f64..2.0,
    ) {
        let params = Loss::default();
        let terms = LossTerms {
            internalize_weight,
            internalize_aggregation: InternalizeAggregation::Batch,
            ..LossTerms::default()
        };
        let train: Vec<TrainRow> = rows.iter().map(|row| row.0.clone()).collect();
        let plan = LossPlan::new(&train, &params, &terms).expect("sound rows");
        let indexed: Vec<(usize, &Row)> = rows.iter().enumerate().collect();
        let (mut value, mut gradient) = (0.0, 0.0);
        for chunk in indexed.chunks(micro_batch) {
            let (mut chunk_value, mut chunk_gradient) = (0.0, 0.0);
            for (index, (_, losses)) in chunk {
                let loss = plan.row_loss(*index, &token_losses(losses)).expect("lengths match");
                chunk_value += loss.value;
                chunk_gradient += loss.gradients.iter().map(|g| g[0]).sum::<f64>();
            }
            value += chunk_value;
            gradient += chunk_gradient;
        }
        let whole = written_down(&rows, internalize_weight, params.epsilon);
        let slack = 1e-9 * whole.abs().max(1.0);
        prop_assert!((value - whole).abs() < slack, "{} != {}", value, whole);
        prop_assert!((gradient - whole).abs() < slack, "the gradient is split like the loss");
    }

    #[test]
    fn equal_token_losses_average_to_themselves(
        rows in prop::collection::vec(row(), 1..12), value in 0.1_f64..5.0, row_mean in any::<bool>(),
    ) {
        let aggregation = if row_mean { Aggregation::RowMean } else { Aggregation::TokenMean };
        let train: Vec<TrainRow> =
            rows.into_iter().map(|row| row.0).filter(|row| row.kind != RowKind::Internalize).collect();
        prop_assume!(!train.is_empty());
        let params = Loss { aggregation, ..Loss::default() };
        let plan = LossPlan::new(&train, &params, &LossTerms::default()).expect("sound rows");
        let total: f64 = (0..train.len())
            .map(|i| plan.coefficients(i).expect("planned").iter().sum::<f64>() * value)
            .sum();
        // The smallest possible weight is 0.1, so eps moves the mean by at most 1e-5 of it.
        prop_assert!((total - value).abs() < 2e-5 * value, "{} != {}", total, value);
    }

    #[test]
    fn a_mixture_gives_each_side_its_share(
        student in prop::collection::vec(0.5_f32..2.0, 1..20),
        teacher in prop::collection::vec(0.5_f32..2.0, 1..20),
        mix in 0.0_f64..=1.0,
    ) {
        let row = |kind, weights| TrainRow {
            batch: 1, episode: 0, turn: 0, kind, version: 0, validated: false, shape: BatchShape::default(), weights,
        };
        let rows = [row(RowKind::Opd, student), row(RowKind::TeacherNll, teacher)];
        let terms = LossTerms { teacher_mix: Some(mix), ..LossTerms::default() };
        let plan = LossPlan::new(&rows, &Loss::default(), &terms).expect("sound rows");
        let share = |i| plan.coefficients(i).expect("planned").iter().sum::<f64>();
        prop_assert!((share(0) - (1.0 - mix)).abs() < 1e-5 && (share(1) - mix).abs() < 1e-5);
    }
}
