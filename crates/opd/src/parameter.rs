//! Checks of parameters. An error names the key as a configuration file spells it.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::error::OpdError;

/// An upper bound for counts of turns, batches and tokens: far above any run, far below an overflow.
pub const MANY: u64 = 1_000_000;

/// Refuses a count outside `range`.
pub fn count(key: &'static str, value: u64, range: RangeInclusive<u64>) -> Result<(), OpdError> {
    within(key, value, range)
}

/// Refuses a number outside `range`, NaN included.
pub fn number(key: &'static str, value: f64, range: RangeInclusive<f64>) -> Result<(), OpdError> {
    within(key, value, range)
}

/// Refuses a number that is not above 0 and at most `most`.
pub fn positive(key: &'static str, value: f64, most: f64) -> Result<(), OpdError> {
    require(key, value, value > 0.0 && value <= most, || format!("above 0 and at most {most}"))
}

/// Refuses `value` unless `good`; `expected` completes "must be".
pub fn require(
    key: &'static str,
    value: impl Display,
    good: bool,
    expected: impl FnOnce() -> String,
) -> Result<(), OpdError> {
    if good {
        return Ok(());
    }
    Err(OpdError::Parameter { key, value: value.to_string(), expected: expected() })
}

fn within<T: PartialOrd + Display + Copy>(
    key: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), OpdError> {
    let (least, most) = (*range.start(), *range.end());
    require(key, value, range.contains(&value), || format!("between {least} and {most}"))
}
