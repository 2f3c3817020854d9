//! Numbers for tables and figures: means over seeds, intervals, the paper's metrics.

pub mod bootstrap;
pub mod crossed;
pub mod metrics;
pub mod power;
pub mod proportion;

use serde::{Deserialize, Serialize};

use crate::error::InputError;

/// A mean and a sample standard deviation, as in the paper's tables.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation (divisor `n - 1`); `None` for a single value.
    pub std: Option<f64>,
}

/// Mean and sample standard deviation over seeds (tables 1 to 3).
pub fn summary(values: &[f64]) -> Result<Summary, InputError> {
    let mean = mean(values)?;
    let count = values.len();
    let std = (count > 1).then(|| {
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        (squares / (count - 1) as f64).sqrt()
    });
    Ok(Summary { count, mean, std })
}

/// The mean of at least one finite value.
pub fn mean(values: &[f64]) -> Result<f64, InputError> {
    let what = "sample";
    if values.is_empty() {
        return Err(InputError::Empty { what });
    }
    if let Some((position, &value)) = values.iter().enumerate().find(|(_, x)| !x.is_finite()) {
        return Err(InputError::NotFinite { what, position, value });
    }
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}

/// Centered moving average of a curve with gaps (figures 3 and 5 to 8): each present value becomes the
/// mean of the present values at most `window / 2` places away; gaps stay gaps.
pub fn moving_average(values: &[Option<f64>], window: usize) -> Vec<Option<f64>> {
    let reach = window / 2;
    (0..values.len())
        .map(|center| {
            values[center]?;
            let end = (center + reach + 1).min(values.len());
            let near = values[center.saturating_sub(reach)..end].iter().flatten();
            let (sum, count) = near.fold((0.0, 0_usize), |(sum, count), x| (sum + x, count + 1));
            Some(sum / count as f64)
        })
        .collect()
}

/// Spearman's rank correlation; tied values share their mean rank. `None` when a side is constant.
pub fn rank_correlation(first: &[f64], second: &[f64]) -> Result<Option<f64>, InputError> {
    if first.len() != second.len() {
        let (expected, found) = (first.len(), second.len());
        return Err(InputError::Length { what: "paired sample", expected, found });
    }
    mean(first)?;
    mean(second)?;
    Ok(correlation(&ranks(first), &ranks(second)))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0.0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let size = group.len() as f64;
        for &index in group {
            ranks[index] = below + f64::midpoint(size, 1.0);
        }
        below += size;
    }
    ranks
}

fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let n = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / n, y.iter().sum::<f64>() / n);
    let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
    for (a, b) in x.iter().zip(y) {
        xy += (a - mean_x) * (b - mean_y);
        xx += (a - mean_x).powi(2);
        yy += (b - mean_y).powi(2);
    }
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}
