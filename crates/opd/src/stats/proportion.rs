//! Intervals for success rates: how much of a difference is chance.

use serde::{Deserialize, Serialize};

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// An interval of shares, each between 0 and 1 (differences: between -1 and 1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Bounds {
    /// Whether 0 lies inside: then a difference cannot be told from chance.
    pub fn holds_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// Wilson's 95 % interval of a share: `successes` of `trials`. Without a trial it is everything.
pub fn wilson(successes: u64, trials: u64) -> Bounds {
    if trials == 0 {
        return Bounds { low: 0.0, high: 1.0 };
    }
    let (n, share) = (trials as f64, successes.min(trials) as f64 / trials as f64);
    let center = share + Z * Z / (2.0 * n);
    let reach = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    let low = if successes == 0 { 0.0 } else { (center - reach) / scale };
    let high = if successes >= trials { 1.0 } else { (center + reach) / scale };
    Bounds { low, high }
}

/// Newcombe's 95 % interval of the difference `after - before` of two independent shares, from their Wilson intervals.
pub fn difference(before: (u64, u64), after: (u64, u64)) -> Bounds {
    let share = |(successes, trials): (u64, u64)| successes as f64 / trials.max(1) as f64;
    let (first, second) = (share(before), share(after));
    let (of_first, of_second) = (wilson(before.0, before.1), wilson(after.0, after.1));
    let reach = |one: f64, other: f64| one.hypot(other);
    Bounds {
        low: second - first - reach(second - of_second.low, of_first.high - first),
        high: second - first + reach(of_second.high - second, first - of_first.low),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(bounds: Bounds, low: f64, high: f64) {
        assert!((bounds.low - low).abs() < 5e-4 && (bounds.high - high).abs() < 5e-4, "{bounds:?}");
    }

    #[test]
    fn wilson_gives_the_textbook_numbers() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        close(wilson(81, 263), 0.2553, 0.3662);
        close(wilson(15, 148), 0.0624, 0.1605);
        close(wilson(0, 20), 0.0, 0.1611);
        close(wilson(1, 29), 0.0061, 0.1718);
        assert_eq!(wilson(20, 20).high, 1.0);
        close(wilson(0, 0), 0.0, 1.0);
    }

    #[test]
    fn a_difference_of_four_games_in_forty_eight_is_chance() {
        // Newcombe 1998, part II, method 10: 56 of 70 against 48 of 80.
        close(difference((48, 80), (56, 70)), 0.0524, 0.3339);
        assert!(difference((6, 48), (10, 48)).holds_zero());
        assert!(!difference((2, 48), (20, 48)).holds_zero());
    }
}
