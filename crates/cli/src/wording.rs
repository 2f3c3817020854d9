//! Numbers as people read them.

use lens_opd::stats::proportion::{Bounds, difference, wilson};

/// A count with its noun: "1 step", "2 steps".
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let number = group(count);
    if count == 1 { format!("{number} {noun}") } else { format!("{number} {noun}s") }
}

/// Digits in groups of three.
pub(crate) fn group(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A length of time: "48 s", "3 min 05 s", "2 h 10 min".
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Solved tasks of a rate in percent.
pub(crate) fn solved(rate: f64, tasks: u64) -> u64 {
    (rate * tasks as f64 / 100.0).round().max(0.0) as u64
}

/// An interval of shares in percent: "[5.9, 24.7]".
pub(crate) fn interval(bounds: Bounds) -> String {
    format!("[{:.1}, {:.1}]", 100.0 * bounds.low, 100.0 * bounds.high)
}

/// A success rate in percent with its 95 % interval: "12.5 % [5.9, 24.7]".
pub(crate) fn rate(rate: f64, tasks: u64) -> String {
    format!("{rate:.1} % {}", interval(wilson(solved(rate, tasks), tasks)))
}

/// What a change from one rate to another says, in words.
pub(crate) fn change(before: (f64, u64), after: (f64, u64)) -> String {
    let counts = |(rate, tasks): (f64, u64)| (solved(rate, tasks), tasks);
    let bounds = difference(counts(before), counts(after));
    let points = after.0 - before.0;
    if bounds.holds_zero() {
        format!("{points:+.1}, within chance")
    } else {
        format!("{points:+.1} {}", interval(bounds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_digits_are_grouped() {
        assert_eq!((counted(1, "step"), counted(2, "step")), ("1 step".into(), "2 steps".into()));
        assert_eq!((group(7), group(1234)), ("7".to_owned(), "1,234".to_owned()));
        assert_eq!(group(1_000_000), "1,000,000");
    }

    #[test]
    fn times_are_short() {
        let texts = [0.4, 48.0, 185.0, 7800.0].map(duration);
        assert_eq!(texts, ["0 s", "48 s", "3 min 05 s", "2 h 10 min"]);
    }

    #[test]
    fn a_difference_inside_its_interval_is_called_chance() {
        assert_eq!(rate(12.5, 48), "12.5 % [5.9, 24.7]");
        assert_eq!(change((12.5, 48), (20.833, 48)), "+8.3, within chance");
        assert!(change((4.2, 48), (41.7, 48)).starts_with("+37.5 ["));
    }
}
