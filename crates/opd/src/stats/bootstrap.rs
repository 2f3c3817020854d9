//! Bootstrap intervals that respect clusters: measurements from one fork are not independent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mean;
use crate::error::InputError;
use crate::random::{Purpose, StreamKey};

/// How to resample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// Number of resamples.
    pub resamples: usize,
    /// Coverage of the interval, such as 0.95.
    pub level: f64,
    /// The run's seed.
    pub seed: u64,
    /// Tells the intervals of one run apart.
    pub index: u64,
}

impl Default for Resampling {
    fn default() -> Self {
        Self { resamples: 10_000, level: 0.95, seed: 42, index: 0 }
    }
}

/// An estimate with a percentile interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate on the sample itself.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One measurement and the fork (or task, or game) it comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clustered {
    /// The cluster.
    pub cluster: u64,
    /// The value.
    pub value: f64,
}

/// Bootstrap interval of a mean, whole clusters resampled (figure 2c).
pub fn clustered_mean(
    values: &[Clustered],
    resampling: &Resampling,
) -> Result<Interval, InputError> {
    let plain: Vec<f64> = values.iter().map(|v| v.value).collect();
    let estimate = mean(&plain)?;
    if resampling.resamples == 0 {
        return Err(InputError::Empty { what: "the bootstrap (resamples = 0)" });
    }
    if !(resampling.level > 0.0 && resampling.level < 1.0) {
        let (what, value, expected) = ("bootstrap level", resampling.level, "between 0 and 1");
        return Err(InputError::OutOfRange { what, position: 0, value, expected });
    }
    // By key, so that the order of the measurements cannot change the interval.
    let mut clusters: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    for v in values {
        let cluster = clusters.entry(v.cluster).or_default();
        *cluster = (cluster.0 + v.value, cluster.1 + 1);
    }
    let clusters: Vec<(f64, usize)> = clusters.into_values().collect();
    let key = StreamKey::new(resampling.seed, 0, resampling.index, Purpose::Bootstrap, 0);
    let mut stream = key.open();
    let mut means: Vec<f64> = (0..resampling.resamples)
        .map(|_| {
            let (mut sum, mut count) = (0.0, 0);
            for _ in 0..clusters.len() {
                let drawn = stream.below(clusters.len() as u64).unwrap_or(0) as usize;
                sum += clusters[drawn].0;
                count += clusters[drawn].1;
            }
            sum / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let tail = (1.0 - resampling.level) / 2.0;
    Ok(Interval { estimate, low: quantile(&means, tail), high: quantile(&means, 1.0 - tail) })
}

/// Two measurements of one thing, such as the two branches of a fork.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// The cluster.
    pub cluster: u64,
    /// Without guidance, or the baseline.
    pub base: f64,
    /// With guidance, or the method.
    pub treated: f64,
}

/// Bootstrap interval of the mean difference of pairs, whole clusters resampled (figures 4a and 6).
pub fn paired_difference(
    pairs: &[Paired],
    resampling: &Resampling,
) -> Result<Interval, InputError> {
    let differences: Vec<Clustered> = pairs
        .iter()
        .map(|pair| Clustered { cluster: pair.cluster, value: pair.treated - pair.base })
        .collect();
    clustered_mean(&differences, resampling)
}

/// Bootstrap interval of any statistic, whole clusters resampled. Resamples in which the statistic is not defined do not
/// count; `None` where it is not defined on the sample itself.
pub fn clustered_statistic<T>(
    items: &[T],
    cluster: impl Fn(&T) -> u64,
    resampling: &Resampling,
    statistic: impl Fn(&[&T]) -> Option<f64>,
) -> Option<Interval> {
    let estimate = statistic(&items.iter().collect::<Vec<_>>())?;
    let mut clusters: BTreeMap<u64, Vec<&T>> = BTreeMap::new();
    for item in items {
        clusters.entry(cluster(item)).or_default().push(item);
    }
    let clusters: Vec<Vec<&T>> = clusters.into_values().collect();
    let key = StreamKey::new(resampling.seed, 0, resampling.index, Purpose::Bootstrap, 2);
    let mut stream = key.open();
    let mut found: Vec<f64> = (0..resampling.resamples)
        .filter_map(|_| {
            let mut drawn = Vec::with_capacity(items.len());
            for _ in 0..clusters.len() {
                let chosen = stream.below(clusters.len() as u64).unwrap_or(0) as usize;
                drawn.extend(clusters[chosen].iter().copied());
            }
            statistic(&drawn)
        })
        .collect();
    found.sort_by(f64::total_cmp);
    if found.is_empty() {
        return None;
    }
    let tail = (1.0 - resampling.level) / 2.0;
    Some(Interval { estimate, low: quantile(&found, tail), high: quantile(&found, 1.0 - tail) })
}

/// Quantile of sorted values, linear between neighbors.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}
