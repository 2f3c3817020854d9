//! Where the ticks of an axis go, and what they say.

/// Places at round numbers inside `low..=high`, about `count` of them.
pub fn linear(low: f64, high: f64, count: usize) -> Vec<f64> {
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return vec![low];
    }
    let raw = (high - low) / count.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= raw * 0.999)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    // Multiples of the step, so that 0.3 is not 0.30000000000000004.
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Powers of ten inside `low..=high`.
pub fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().ceil() as i32, high.log10().floor() as i32);
    (first..=last).map(|power| 10_f64.powi(power)).collect()
}

/// The range of values, widened to round numbers.
pub fn nice_range(low: f64, high: f64) -> (f64, f64) {
    if !(low.is_finite() && high.is_finite()) {
        return (0.0, 1.0);
    }
    if low == high {
        let pad = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
        return (low - pad, high + pad);
    }
    let ticks = linear(low, high, 5);
    let step = if ticks.len() > 1 { ticks[1] - ticks[0] } else { (high - low) / 4.0 };
    let (below, above) = ((low / step).floor() * step, (high / step).ceil() * step);
    (below, above)
}

/// A number as a tick says it: as many decimals as its neighbors need, no more.
pub fn label(value: f64, step: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e5 || (step > 0.0 && step < 1e-4) {
        return format!("{value:e}");
    }
    let decimals = if step >= 1.0 { 0 } else { (-step.log10().floor()) as usize };
    let text = format!("{value:.decimals$}");
    // A true minus sign, as print wants it.
    text.replace('-', "−")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_distinct_and_inside() {
        assert_eq!(linear(0.0, 3.0, 5), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(linear(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(-0.12, 0.31, 4), [0.0, 0.2].map(|x: f64| x).to_vec());
        assert_eq!(linear(5.0, 5.0, 4), [5.0]);
        let labels: Vec<String> = linear(0.0, 0.5, 5).iter().map(|&x| label(x, 0.1)).collect();
        assert_eq!(labels, ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
    }

    #[test]
    fn ranges_hold_their_values() {
        let (low, high) = nice_range(-0.13, 0.37);
        assert!(low <= -0.13 && high >= 0.37);
        assert_eq!(nice_range(f64::INFINITY, f64::NEG_INFINITY), (0.0, 1.0));
    }
}
