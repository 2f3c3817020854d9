//! Intervals and smoothing for pages and figures.

use lens_opd::stats::bootstrap::{Interval, Paired, Resampling, paired_difference};

/// The normal quantile of a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval of a share of `count` trials, both between 0 and 1. Unlike the textbook interval it is not
/// empty at 0 and 1, where small evaluations often are.
pub fn wilson(share: f64, count: u64) -> Option<Interval> {
    if count == 0 || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let n = count as f64;
    let z2 = Z * Z;
    let center = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let (low, high) = ((center - half).max(0.0), (center + half).min(1.0));
    Some(Interval { estimate: share, low, high })
}

/// Newcombe's 95 % interval of the difference of two independent shares, `second - first`.
pub fn difference_of_shares(first: (f64, u64), second: (f64, u64)) -> Option<Interval> {
    let (a, b) = (wilson(first.0, first.1)?, wilson(second.0, second.1)?);
    let estimate = b.estimate - a.estimate;
    let low = estimate - ((b.estimate - b.low).powi(2) + (a.high - a.estimate).powi(2)).sqrt();
    let high = estimate + ((b.high - b.estimate).powi(2) + (a.estimate - a.low).powi(2)).sqrt();
    Some(Interval { estimate, low, high })
}

/// Bootstrap interval of the mean difference of pairs, whole clusters resampled; `None` without pairs.
pub fn paired(pairs: &[Paired]) -> Option<Interval> {
    let resampling = Resampling { resamples: 4_000, ..Resampling::default() };
    paired_difference(pairs, &resampling).ok()
}

/// Mean and its standard error; `None` without values.
pub fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let summary = lens_opd::stats::summary(values).ok()?;
    let error = summary.std.map_or(f64::NAN, |std| std / (summary.count as f64).sqrt());
    Some((summary.mean, error))
}

/// The mean; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u64), |(sum, n), x| (sum + x, n + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // Newcombe (1998), table I: 81 of 263 gives 0.2553 to 0.3662; 0 of 20 gives 0 to 0.1611.
        let interval = wilson(81.0 / 263.0, 263).expect("trials");
        assert!((interval.low - 0.2553).abs() < 1e-4 && (interval.high - 0.3662).abs() < 1e-4);
        let interval = wilson(0.0, 20).expect("trials");
        assert!(interval.low == 0.0 && (interval.high - 0.1611).abs() < 1e-4);
        assert!(wilson(0.5, 0).is_none());
    }

    #[test]
    fn newcombes_difference_is_the_published_one() {
        // Newcombe (1998), interval estimation for the difference, method 10: 56/70 - 48/80 gives 0.0524 to 0.3339.
        let interval = difference_of_shares((48.0 / 80.0, 80), (56.0 / 70.0, 70)).expect("trials");
        assert!((interval.low - 0.0524).abs() < 1e-4, "{interval:?}");
        assert!((interval.high - 0.3339).abs() < 1e-4, "{interval:?}");
    }
}
