//! Noticing that training is going wrong while checkpoints from before are still there.

use lens_engine::LearnReport;

/// How many times its usual size a number may have.
const FACTOR: f64 = 25.0;
/// Steps before anything counts as usual, and between two warnings.
const STEPS: u64 = 8;

/// Follows loss and gradient and warns when one leaves its range.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    loss: Usual,
    gradient: Usual,
    warned: Option<u64>,
}

/// A running mean of a number's size.
#[derive(Debug, Default)]
struct Usual {
    mean: f64,
    count: u64,
}

impl Usual {
    /// Whether `value` is far above what was usual so far; then it does not become usual.
    fn is_exceeded(&mut self, value: f64) -> bool {
        let size = value.abs();
        if self.count >= STEPS && size > FACTOR * self.mean.max(1e-6) {
            return true;
        }
        self.count += 1;
        self.mean += (size - self.mean) / self.count.min(20) as f64;
        false
    }
}

impl Watchdog {
    /// Takes in a step; the warning it deserves, if any.
    pub(super) fn step(&mut self, step: u64, report: &LearnReport) -> Option<String> {
        let measured = [
            ("loss", report.loss, &mut self.loss),
            ("gradient", report.grad_norm, &mut self.gradient),
        ];
        let mut warning = None;
        for (name, value, usual) in measured {
            let mean = usual.mean;
            if usual.is_exceeded(value) {
                warning.get_or_insert_with(|| {
                    format!(
                        "step {step}: the {name} is {value:.3}, {:.0} times its usual size; the run may be \
                         diverging, and optimizer.lr may be too high",
                        value.abs() / mean.max(1e-6)
                    )
                });
            }
        }
        let quiet = self.warned.is_none_or(|last| step >= last + STEPS);
        let warning = warning.filter(|_| quiet);
        if warning.is_some() {
            self.warned = Some(step);
        }
        warning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(loss: f64, grad_norm: f64) -> LearnReport {
        LearnReport {
            loss,
            focus_loss: loss,
            internalization_loss: 0.0,
            grad_norm,
            skipped: false,
            tokens: 1,
        }
    }

    #[test]
    fn a_blow_up_is_noticed_once_and_noise_is_not() {
        let mut watchdog = Watchdog::default();
        for step in 1..=30 {
            let noise = 1.0 + (step % 7) as f64 / 3.0;
            assert_eq!(watchdog.step(step, &report(0.2 * noise, 0.5 * noise)), None);
        }
        let warning = watchdog.step(31, &report(0.3, 400.0)).expect("it is far off");
        assert!(warning.contains("gradient") && warning.contains("optimizer.lr"), "{warning}");
        assert_eq!(watchdog.step(32, &report(90.0, 400.0)), None, "one warning is enough");
    }
}
