//! Two methods on the same seeds and tasks: how large the difference is, and how sure.
//!
//! A score is a mean over seeds and tasks, and both were drawn: another seed trains another student, another list of tasks
//! is harder or easier. An interval that resamples only one of them is too narrow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bootstrap::{Interval, Resampling, quantile};
use super::{mean, summary};
use crate::error::InputError;
use crate::random::{Purpose, StreamKey};

/// The difference of two methods on one task at one seed: method less baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The seed of both runs.
    pub seed: u64,
    /// The task both played.
    pub task: String,
    /// For success -1, 0 or 1.
    pub difference: f64,
}

/// What paired runs say about two methods.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The mean difference with its interval.
    pub difference: Interval,
    /// Deviation of the seeds' differences; `None` for a single seed.
    pub deviation: Option<f64>,
    /// Probability that the method is better: the share of resamples above 0, ties by half.
    pub better: f64,
    /// Seeds both have.
    pub seeds: usize,
    /// Tasks both have.
    pub tasks: usize,
}

/// Differences by seed and task; a cell that is missing is `None`.
pub(super) struct Grid {
    pub(super) seeds: usize,
    pub(super) tasks: usize,
    values: Vec<Option<f64>>,
}

impl Grid {
    /// Sorted by seed and task, so that the order of the cells cannot change a result.
    pub(super) fn new(cells: &[Cell]) -> Result<Self, InputError> {
        mean(&cells.iter().map(|cell| cell.difference).collect::<Vec<_>>())?;
        let mut seeds = BTreeMap::new();
        let mut tasks = BTreeMap::new();
        for cell in cells {
            seeds.insert(cell.seed, 0);
            tasks.insert(cell.task.as_str(), 0);
        }
        seeds.values_mut().enumerate().for_each(|(index, place)| *place = index);
        tasks.values_mut().enumerate().for_each(|(index, place)| *place = index);
        let mut values = vec![None; seeds.len() * tasks.len()];
        for cell in cells {
            values[seeds[&cell.seed] * tasks.len() + tasks[cell.task.as_str()]] =
                Some(cell.difference);
        }
        Ok(Self { seeds: seeds.len(), tasks: tasks.len(), values })
    }

    pub(super) fn row(&self, seed: usize) -> &[Option<f64>] {
        &self.values[seed * self.tasks..(seed + 1) * self.tasks]
    }

    /// The mean with every seed and task counted so often; `None` where no counted cell is there.
    fn weighted_mean(&self, seeds: &[u32], tasks: &[u32]) -> Option<f64> {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (seed, &times) in seeds.iter().enumerate().filter(|(_, times)| **times > 0) {
            let (mut row_sum, mut row_weight) = (0.0, 0.0);
            for (value, &task) in self.row(seed).iter().zip(tasks) {
                if let Some(value) = value {
                    row_sum += value * f64::from(task);
                    row_weight += f64::from(task);
                }
            }
            sum += row_sum * f64::from(times);
            weight += row_weight * f64::from(times);
        }
        (weight > 0.0).then(|| sum / weight)
    }
}

/// The mean difference of two methods with a bootstrap interval over seeds and tasks, both resampled.
pub fn crossed_difference(
    cells: &[Cell],
    resampling: &Resampling,
) -> Result<Comparison, InputError> {
    let grid = Grid::new(cells)?;
    let once = |count: usize| vec![1; count];
    let estimate = grid.weighted_mean(&once(grid.seeds), &once(grid.tasks)).unwrap_or(0.0);
    let by_seed: Vec<f64> = (0..grid.seeds)
        .map(|seed| {
            let row: Vec<f64> = grid.row(seed).iter().flatten().copied().collect();
            row.iter().sum::<f64>() / row.len().max(1) as f64
        })
        .collect();
    let key = StreamKey::new(resampling.seed, 0, resampling.index, Purpose::Bootstrap, 1);
    let mut stream = key.open();
    let mut draw = |count: usize| {
        let mut times = vec![0_u32; count];
        for _ in 0..count {
            times[stream.below(count as u64).unwrap_or(0) as usize] += 1;
        }
        times
    };
    let mut means = Vec::with_capacity(resampling.resamples);
    for _ in 0..resampling.resamples {
        let (seeds, tasks) = (draw(grid.seeds), draw(grid.tasks));
        means.extend(grid.weighted_mean(&seeds, &tasks));
    }
    if means.is_empty() {
        return Err(InputError::Empty { what: "the bootstrap (resamples = 0)" });
    }
    means.sort_by(f64::total_cmp);
    let share = |of: fn(f64) -> bool| {
        means.iter().filter(|&&mean| of(mean)).count() as f64 / means.len() as f64
    };
    let tail = (1.0 - resampling.level) / 2.0;
    Ok(Comparison {
        difference: Interval {
            estimate,
            low: quantile(&means, tail),
            high: quantile(&means, 1.0 - tail),
        },
        deviation: summary(&by_seed)?.std,
        better: share(|mean| mean > 0.0) + share(|mean| mean == 0.0) / 2.0,
        seeds: grid.seeds,
        tasks: grid.tasks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(seeds: u64, tasks: u64, value: impl Fn(u64, u64) -> f64) -> Vec<Cell> {
        let cell =
            |seed, task: u64| Cell { seed, task: task.to_string(), difference: value(seed, task) };
        (0..seeds).flat_map(|seed| (0..tasks).map(move |task| cell(seed, task))).collect()
    }

    fn compare(cells: &[Cell]) -> Comparison {
        let resampling = Resampling { resamples: 2000, ..Resampling::default() };
        crossed_difference(cells, &resampling).expect("sound cells")
    }

    #[test]
    fn a_difference_that_comes_from_one_seed_is_not_sure() {
        // Every task is won at seed 0 and tied elsewhere: hundreds of tasks do not make up for four seeds.
        let found = compare(&cells(4, 300, |seed, _| f64::from(u8::from(seed == 0))));
        assert!((found.difference.estimate - 0.25).abs() < 1e-12);
        assert!(found.difference.low == 0.0 && found.difference.high >= 0.5, "{found:?}");
        assert!((found.deviation.expect("four seeds") - 0.5).abs() < 1e-12);
        // No draw of four seeds without seed 0 is better: (3/4)^4 = 0.32, ties by half.
        assert!((found.better - 0.84).abs() < 0.03, "{found:?}");
    }

    #[test]
    fn a_difference_that_comes_from_one_task_is_not_sure_either() {
        let found = compare(&cells(50, 4, |_, task| f64::from(u8::from(task == 0))));
        assert!(found.difference.low == 0.0 && found.difference.high >= 0.5, "{found:?}");
    }

    #[test]
    fn the_order_of_cells_changes_nothing_and_missing_ones_are_left_out() {
        let mut some = cells(3, 40, |seed, task| ((seed * 7 + task * 3) % 3) as f64 - 1.0);
        some.retain(|cell| !(cell.seed == 2 && cell.task == "5"));
        let mut reversed = some.clone();
        reversed.reverse();
        assert_eq!(compare(&some), compare(&reversed));
        let sum: f64 = some.iter().map(|cell| cell.difference).sum();
        let found = compare(&some);
        assert!((found.difference.estimate - sum / some.len() as f64).abs() < 1e-12);
        assert_eq!((found.seeds, found.tasks), (3, 40));
    }
}
