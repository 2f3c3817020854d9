//! `lens doctor`: why is a run not learning?

use std::io::Write;
use std::path::PathBuf;

use lens_report::doctor::{Severity, examine};
use lens_report::text;
use serde_json::json;

use super::figures::load;
use crate::failure::Failure;

/// Look for reasons why a run does not learn
///
/// The exit code is 1 if there is a problem.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens doctor runs/laboratory/seed-42
  lens doctor runs --json")]
pub(crate) struct Doctor {
    /// Run folders, or folders that hold runs.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut problems = 0;
        let mut all = Vec::new();
        for run in load(&self.runs)? {
            let findings = examine(&run);
            problems +=
                findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
            if self.json {
                let path = run.folder.path().display().to_string();
                all.push(json!({ "run": path, "findings": findings }));
                continue;
            }
            writeln!(out, "{}", text::clean(&run.label()))?;
            for finding in &findings {
                writeln!(out, "{}", text::finding(finding))?;
            }
            if findings.is_empty() {
                writeln!(out, "nothing found in {} batches\n", run.batches.len())?;
            }
        }
        if self.json {
            writeln!(out, "{:#}", json!(all))?;
        }
        match problems {
            0 => Ok(()),
            1 => Err(Failure::user("one problem found")),
            count => Err(Failure::user(format!("{count} problems found"))),
        }
    }
}
