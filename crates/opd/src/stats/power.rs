//! How many seeds and games a difference needs.
//!
//! The model: the difference of two methods at seed `s` on game `g` is `d + a_s + b_g + e_sg`, with variances `A`, `B` and
//! `E` of the three parts. The mean over `S` seeds and `G` games then has the variance `A/S + B/G + E/(S*G)`.

use serde::{Deserialize, Serialize};

use super::crossed::{Cell, Grid};
use crate::error::InputError;

/// Quantiles of the normal distribution: 97.5 % for a two-sided 95 % interval, 80 % for the power.
const Z_INTERVAL: f64 = 1.959_963_984_540_054;
const Z_POWER: f64 = 0.841_621_233_572_914_3;

/// The standard deviations of a paired difference, as shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Between seeds: training again gives another student.
    pub seeds: f64,
    /// Between games, alike at every seed: one method may be better at some of them.
    pub games: f64,
    /// What is left: one game played once with each of both students.
    pub rest: f64,
}

impl Spread {
    /// Without finished runs: 5 points between seeds, and two independent games solved with 30 %.
    pub const ASSUMED: Self = Self { seeds: 0.05, games: 0.0, rest: 0.648 };

    /// Estimates the parts by an analysis of variance; missing cells count as no difference. At least two seeds and
    /// two games, or `None`.
    pub fn measured(cells: &[Cell]) -> Result<Option<Self>, InputError> {
        let grid = Grid::new(cells)?;
        let (s, g) = (grid.seeds as f64, grid.tasks as f64);
        if grid.seeds < 2 || grid.tasks < 2 {
            return Ok(None);
        }
        let rows: Vec<Vec<f64>> = (0..grid.seeds)
            .map(|seed| grid.row(seed).iter().map(|cell| cell.unwrap_or(0.0)).collect())
            .collect();
        let of_seed: Vec<f64> = rows.iter().map(|row| row.iter().sum::<f64>() / g).collect();
        let of_game: Vec<f64> =
            (0..grid.tasks).map(|game| rows.iter().map(|row| row[game]).sum::<f64>() / s).collect();
        let all = of_seed.iter().sum::<f64>() / s;
        let variance = |means: &[f64]| {
            let squares: f64 = means.iter().map(|mean| (mean - all).powi(2)).sum();
            squares / (means.len() as f64 - 1.0)
        };
        let mut squares = 0.0;
        for (row, seed) in rows.iter().zip(&of_seed) {
            for (value, game) in row.iter().zip(&of_game) {
                squares += (value - seed - game + all).powi(2);
            }
        }
        let rest = squares / ((s - 1.0) * (g - 1.0));
        let part = |means: &[f64], of: f64| (variance(means) - rest / of).max(0.0).sqrt();
        Ok(Some(Self { seeds: part(&of_seed, g), games: part(&of_game, s), rest: rest.sqrt() }))
    }

    /// The smallest difference that an interval excludes 0 for in 80 % of all cases.
    pub fn detectable(&self, seeds: usize, games: usize) -> f64 {
        // Few seeds know their own deviation badly (Guenther's correction, turned around).
        let effective = seeds as f64 - Z_INTERVAL.powi(2) / 2.0;
        if effective <= 0.0 {
            return f64::INFINITY;
        }
        let g = games as f64;
        let variance = self.per_seed(g) / effective + self.games.powi(2) / g;
        (Z_INTERVAL + Z_POWER) * variance.sqrt()
    }

    /// The fewest seeds with which a difference is detected on so many games; `None` if no number is enough, because the
    /// games themselves differ too much.
    pub fn seeds_needed(&self, difference: f64, games: usize) -> Option<usize> {
        let g = games as f64;
        let bar = (difference / (Z_INTERVAL + Z_POWER)).powi(2) - self.games.powi(2) / g;
        let seeds = (self.per_seed(g) / bar + Z_INTERVAL.powi(2) / 2.0).ceil().max(2.0);
        (bar > 0.0 && seeds < 1e6).then_some(seeds as usize)
    }

    /// The variance of one seed's mean difference over `games` games: the part that more seeds average out.
    fn per_seed(&self, games: f64) -> f64 {
        self.seeds.powi(2) + self.rest.powi(2) / games
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, StreamKey};

    #[test]
    fn the_parts_of_a_known_spread_are_found_again() {
        let truth = Spread { seeds: 0.08, games: 0.15, rest: 0.5 };
        let mut stream = StreamKey::new(3, 0, 0, Purpose::Data, 0).open();
        let seeds: Vec<f64> = (0..60).map(|_| truth.seeds * stream.normal()).collect();
        let games: Vec<f64> = (0..400).map(|_| truth.games * stream.normal()).collect();
        let mut cells = Vec::new();
        for (seed, a) in seeds.iter().enumerate() {
            for (game, b) in games.iter().enumerate() {
                let difference = 0.03 + a + b + truth.rest * stream.normal();
                cells.push(Cell { seed: seed as u64, task: game.to_string(), difference });
            }
        }
        let found = Spread::measured(&cells).expect("finite").expect("many");
        for (found, truth) in
            [(found.seeds, truth.seeds), (found.games, truth.games), (found.rest, truth.rest)]
        {
            assert!((found - truth).abs() < 0.15 * truth, "{found} is not {truth}");
        }
    }

    #[test]
    fn seeds_needed_are_the_fewest_that_detect_the_difference() {
        let spread = Spread { seeds: 0.05, games: 0.0, rest: 0.65 };
        for spread in [spread, Spread { games: 0.15, ..spread }] {
            for (difference, games) in [(0.03, 500), (0.05, 274), (0.1, 100)] {
                let seeds = spread.seeds_needed(difference, games).expect("enough");
                assert!(spread.detectable(seeds, games) <= difference, "{seeds}");
                assert!(seeds <= 2 || spread.detectable(seeds - 1, games) > difference, "{seeds}");
            }
        }
        // By hand: (2.8016 / 0.05)^2 * (0.0025 + 0.4225 / 274) + 1.92 = 14.6.
        assert_eq!(spread.seeds_needed(0.05, 274), Some(15));
    }

    #[test]
    fn games_that_differ_too_much_cannot_be_made_up_for_by_seeds() {
        let spread = Spread { seeds: 0.0, games: 0.5, rest: 0.0 };
        assert_eq!(spread.seeds_needed(0.03, 100), None);
        assert!(spread.seeds_needed(0.03, 10_000).is_some());
    }
}
