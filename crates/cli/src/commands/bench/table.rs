//! The table of a benchmark.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use super::measurement::Measurement;
use super::peer::Python;
use crate::failure::Failure;

const HEADING: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// A measured row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) work: &'static str,
    pub(super) shape: &'static str,
    pub(super) ours: Measurement,
    pub(super) peers: Vec<(&'static str, Measurement)>,
}

pub(super) fn heading(python: &Python, peak: f64, out: &mut dyn Write) -> Result<(), Failure> {
    let threads = rayon::current_num_threads();
    writeln!(
        out,
        "{DIM}{threads} threads, peak {peak:.0} GFLOP/s (multiply-adds from registers){DIM:#}"
    )?;
    for sentence in python.sentences() {
        writeln!(out, "{DIM}{sentence}{DIM:#}")?;
    }
    writeln!(
        out,
        "{HEADING}{:<8} {:<13} {:<18} {:>11} {:>8} {:>9} {:>9}{HEADING:#}",
        "work", "shape", "engine", "tokens/s", "of peak", "memory", "ratio"
    )?;
    Ok(())
}

impl Row {
    pub(super) fn print(&self, peak: f64, out: &mut dyn Write) -> Result<(), Failure> {
        let share = self
            .ours
            .gflops
            .map_or(String::new(), |gflops| format!("{:.0}%", 100.0 * gflops / peak));
        self.line("lens", &self.ours, &share, "", out)?;
        for (name, peer) in &self.peers {
            let ratio = self.ours.tokens_per_second / peer.tokens_per_second;
            self.line(name, peer, "", &format!("{ratio:>8.2}x"), out)?;
        }
        Ok(())
    }

    fn line(
        &self,
        engine: &str,
        measured: &Measurement,
        share: &str,
        ratio: &str,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let memory = measured
            .peak_rss_bytes
            .map_or(String::new(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9));
        let line = format!(
            "{:<8} {:<13} {engine:<18} {:>11.1} {share:>8} {memory:>9} {ratio}",
            self.work, self.shape, measured.tokens_per_second
        );
        writeln!(out, "{}", line.trim_end())?;
        Ok(())
    }

    pub(super) fn json(&self, peak: f64) -> Value {
        json!({
            "work": self.work,
            "shape": self.shape,
            "ours": self.ours,
            "share_of_peak": self.ours.gflops.map(|gflops| gflops / peak),
            "peers": self.peers.iter().map(|(name, peer)| json!({
                "name": name,
                "measured": peer,
                "ratio": self.ours.tokens_per_second / peer.tokens_per_second,
            })).collect::<Vec<_>>(),
        })
    }
}
