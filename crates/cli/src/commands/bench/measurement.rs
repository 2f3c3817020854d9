//! One measurement, ours or a peer's.

use std::process::Output;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// What a measuring process prints as its last line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    pub(super) tokens_per_second: f64,
    /// Useful arithmetic; peers do not say.
    #[serde(default)]
    pub(super) gflops: Option<f64>,
    #[serde(default)]
    pub(super) peak_rss_bytes: Option<u64>,
}

impl Measurement {
    pub(super) fn keep_best(best: &mut Option<Self>, new: Self) {
        match best {
            Some(best) if best.tokens_per_second >= new.tokens_per_second => {}
            _ => *best = Some(new),
        }
    }
}

/// What a process printed: its last line, or all of it. `what` names the process in errors.
pub(super) fn printed<T: for<'de> Deserialize<'de>>(
    what: &str,
    output: &Output,
) -> Result<T, Failure> {
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = complaint.trim().lines().last().unwrap_or("it said nothing").to_owned();
        return Err(Failure::Runtime(anyhow::anyhow!("{what} failed ({}): {last}", output.status)));
    }
    let line = text.trim().lines().last().unwrap_or_default();
    serde_json::from_str(line).or_else(|_| serde_json::from_str(text.trim())).map_err(|error| {
        Failure::Runtime(anyhow::anyhow!(
            "{what} printed {line:?}, which is no measurement: {error}"
        ))
    })
}

impl From<lens_lm::bench::InferenceResult> for Measurement {
    fn from(result: lens_lm::bench::InferenceResult) -> Self {
        Self {
            tokens_per_second: result.tokens_per_second,
            gflops: Some(result.gflops),
            peak_rss_bytes: result.peak_rss_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(tokens_per_second: f64) -> Measurement {
        Measurement { tokens_per_second, gflops: None, peak_rss_bytes: None }
    }

    #[test]
    fn the_best_of_several_counts() {
        let mut best = None;
        for speed in [2.0, 5.0, 3.0] {
            Measurement::keep_best(&mut best, measured(speed));
        }
        assert_eq!(best, Some(measured(5.0)));
    }

    #[test]
    fn a_peers_line_is_read_whatever_came_before_it() {
        let run = |script: &str| {
            let output = std::process::Command::new("sh").args(["-c", script]).output();
            printed::<Measurement>("the peer", &output.expect("sh runs"))
        };
        let line =
            r#"echo warming up; echo '{"name": "x", "tokens_per_second": 12.5, "seconds": [1]}'"#;
        assert_eq!(run(line).expect("a measurement"), measured(12.5));
        let Err(Failure::Runtime(error)) = run("echo broken >&2; exit 3") else {
            panic!("a failed peer is a failure");
        };
        assert!(
            error.to_string().contains("the peer failed") && error.to_string().ends_with("broken")
        );
        assert!(run("echo nonsense").is_err());
    }
}
