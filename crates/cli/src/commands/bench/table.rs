//! The table of a benchmark.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use lens_lm::kernels::dispatch::Isa;
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

/// Multiply-adds from registers with each instruction set of the processor: what a program can reach at most.
#[derive(Debug)]
pub(super) struct Peaks {
    all: Vec<(Isa, f64)>,
    /// The instruction set of the measurements and its peak in GFLOP/s.
    isa: Isa,
    pub(super) used: f64,
}

impl Peaks {
    pub(super) fn measure(isa: Isa) -> Self {
        let all: Vec<(Isa, f64)> = Isa::available()
            .into_iter()
            .map(|isa| (isa, lens_lm::bench::peak_gflops_with(isa)))
            .collect();
        let used = all.iter().find(|(other, _)| *other == isa).map_or(f64::NAN, |(_, peak)| *peak);
        Self { all, isa, used }
    }

    pub(super) fn facts(&self) -> Value {
        self.all.iter().map(|(isa, peak)| (isa.name().to_owned(), json!(peak))).collect()
    }
}

pub(super) fn heading(python: &Python, peaks: &Peaks, out: &mut dyn Write) -> Result<(), Failure> {
    let threads = rayon::current_num_threads();
    let all: Vec<String> =
        peaks.all.iter().map(|(isa, peak)| format!("{isa} {peak:.0} GFLOP/s")).collect();
    writeln!(
        out,
        "{DIM}{threads} threads; multiply-adds from registers: {}; lens uses {}{DIM:#}",
        all.join(", "),
        peaks.isa
    )?;
    for sentence in python.sentences() {
        writeln!(out, "{DIM}{sentence}{DIM:#}")?;
    }
    writeln!(
        out,
        "{HEADING}{:<8} {:<13} {:<18} {:>11} {:>8} {:>8} {:>9} {:>9}{HEADING:#}",
        "work", "shape", "engine", "tokens/s", "GFLOP/s", "of peak", "memory", "ratio"
    )?;
    Ok(())
}

impl Row {
    pub(super) fn print(&self, peak: f64, out: &mut dyn Write) -> Result<(), Failure> {
        let share = self.ours.gflops.map_or(String::new(), |gflops| {
            format!("{gflops:>8.1} {:>8}", format!("{:.0}%", 100.0 * gflops / peak))
        });
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
            "{:<8} {:<13} {engine:<18} {:>11.1} {share:>17} {memory:>9} {ratio}",
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
