//! When a machine that does not answer counts as hung.

use std::time::Duration;

/// A machine that uses less than this share of the time is not working.
const WORKING_SHARE: f64 = 0.02;

/// How many times its patience a machine may work on one call.
const LONGEST: u32 = 10;

/// How long to wait for an answer.
///
/// On a busy computer an honest call can take many times its usual time, and ending the machine would only make things
/// worse. Where the machine's processor time can be read, a machine that is still working when the time is up is
/// therefore given more, up to ten times as much; one that does nothing is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The time.
    pub time: Duration,
    /// The process that does the work, if it can be watched.
    pub process: Option<u32>,
}

/// The patience used up by one call.
#[derive(Debug)]
pub(super) struct Wait {
    patience: Patience,
    waited: Duration,
    worked: Option<Duration>,
}

impl Patience {
    /// A fixed time.
    pub fn fixed(time: Duration) -> Self {
        Self { time, process: None }
    }

    pub(super) fn begin(self) -> Wait {
        Wait { patience: self, waited: Duration::ZERO, worked: None }
    }
}

impl Wait {
    /// How long to wait before asking [`Wait::is_over`].
    pub(super) fn slice(&self) -> Duration {
        match self.patience.process {
            Some(_) => self.patience.time / 2,
            None => self.patience.time,
        }
        .max(Duration::from_millis(1))
    }

    /// Whether the wait is over, after another slice of it.
    pub(super) fn is_over(&mut self) -> bool {
        self.waited += self.slice();
        let worked = self.patience.process.and_then(processor_time);
        self.judge(worked)
    }

    fn judge(&mut self, worked: Option<Duration>) -> bool {
        let before = std::mem::replace(&mut self.worked, worked);
        if self.waited < self.patience.time {
            return false;
        }
        if self.waited >= self.patience.time * LONGEST {
            return true;
        }
        match (before, worked) {
            (Some(before), Some(worked)) => {
                worked.saturating_sub(before).as_secs_f64()
                    < self.slice().as_secs_f64() * WORKING_SHARE
            }
            _ => true,
        }
    }
}

/// The processor time that a process has used, where the system tells (Linux).
pub(in super::super) fn processor_time(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets and may hold anything, so fields are counted from behind it.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64((user + system) as f64 / ticks as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(process: Option<u32>) -> Wait {
        Patience { time: Duration::from_secs(10), process }.begin()
    }

    /// Feeds slices in which the machine works for `milliseconds`; gives the seconds after which the wait was over.
    fn over_after(milliseconds: &[u64]) -> u64 {
        let mut wait = wait(Some(1));
        let mut total = Duration::ZERO;
        for slice in 0.. {
            total += Duration::from_millis(milliseconds[slice.min(milliseconds.len() - 1)]);
            wait.waited += wait.slice();
            if wait.judge(Some(total)) {
                return wait.waited.as_secs();
            }
        }
        unreachable!("every wait ends")
    }

    #[test]
    fn a_machine_that_cannot_be_watched_has_the_time_and_no_more() {
        let mut wait = wait(None);
        assert_eq!(wait.slice(), Duration::from_secs(10));
        assert!(wait.is_over());
    }

    #[test]
    fn a_machine_that_stands_still_has_the_time_and_no_more() {
        assert_eq!(over_after(&[0]), 10);
        // Idle machines tick a little.
        assert_eq!(over_after(&[2000, 30]), 10);
    }

    #[test]
    fn a_machine_that_works_has_more_time_but_not_all_of_it() {
        assert_eq!(over_after(&[300]), 100);
        assert_eq!(over_after(&[300, 300, 300, 300, 0]), 25);
    }

    #[test]
    fn processor_time_is_read_and_grows() {
        if !cfg!(target_os = "linux") {
            return;
        }
        let pid = std::process::id();
        let before = processor_time(pid).unwrap();
        let mut sum = 0_u64;
        while processor_time(pid).unwrap() <= before {
            sum = std::hint::black_box((0..100_000_u64).fold(sum, u64::wrapping_add));
        }
        assert_eq!(processor_time(u32::MAX), None);
    }
}
