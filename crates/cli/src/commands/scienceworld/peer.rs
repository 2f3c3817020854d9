//! The simulator's own Python client as a process to be timed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::courses::Course;
use crate::failure::Failure;

const SCRIPT: &str = include_str!("peer.py");

/// A Python that plays what it is told.
pub(super) struct Peer {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts it.
    pub(super) fn start(python: &Path) -> Result<Self, Failure> {
        let mut child = Command::new(python)
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Failure::user(format!("cannot start {}: {error}", python.display()))
            })?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::user("the Python process has no pipes"));
        };
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    /// Has it do one thing; gives the seconds that took.
    pub(super) fn ask(&mut self, what: &str, courses: &[&Course]) -> Result<f64, Failure> {
        let courses: Vec<Value> = courses.iter().map(|course| course.to_json()).collect();
        let request = json!({ "do": what, "course": courses.first(), "courses": courses });
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let answer: Option<Value> = serde_json::from_str(&line).ok();
        answer.and_then(|answer| answer["seconds"].as_f64()).ok_or_else(|| {
            Failure::user(
                "the Python client failed; --python must be a Python in which the package scienceworld is installed",
            )
        })
    }

    /// Processor seconds used so far by it and the machines it started.
    pub(super) fn processor_seconds(&self) -> f64 {
        self.processes().iter().filter_map(|pid| processor_seconds(*pid)).sum()
    }

    /// Resident bytes of it and the machines it started.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.processes().iter().filter_map(|pid| resident_bytes(*pid)).sum()
    }

    fn processes(&self) -> Vec<u32> {
        let mut processes = vec![self.child.id()];
        let path = format!("/proc/{0}/task", self.child.id());
        for thread in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let children =
                std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        processes
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Its machines end when their standard input closes with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn processor_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
