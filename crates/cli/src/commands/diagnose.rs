//! `lens diagnose`: the three diagnostics of the paper's section 3 on frozen students.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use lens_config::Config;
use lens_records::RunFolder;
use lens_train::diagnose::{Examination, Findings};
use lens_train::references::References;
use lens_train::run::{rollout, rollout_config};
use lens_train::tasks::TaskOrder;
use serde_json::json;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::plot::{Line, Plot, Range};
use crate::progress::Tracker;
use crate::results::newest_model;

/// Measure the paper's section 3 on frozen students: support, gain, response to an update
///
/// Support of the teacher's tokens by depth (figure 2a), local divergence against future gain (2b), and which tokens one
/// update moves (2c).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens diagnose configs/laboratory.toml --plot support.svg
  lens diagnose configs/laboratory.toml --students assets/lab/student-small --batches 8 --json
  lens diagnose --run runs/laboratory/seed-42")]
pub(crate) struct Diagnose {
    #[command(flatten)]
    config: ConfigArgs,
    /// The students, Hugging Face directories such as a run's checkpoints; the configuration's student by default.
    #[arg(long, value_delimiter = ',')]
    students: Vec<PathBuf>,
    /// Examine the newest checkpoint of this run with the run's own configuration, and leave the findings in it as
    /// diagnose.json, where `lens figures` finds them.
    #[arg(long, value_name = "RUN", conflicts_with_all = ["students", "files"])]
    run: Option<PathBuf>,
    /// Explorer batches each student plays.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    batches: u16,
    /// Forks per episode, spread over the range of divergences.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    forks: u16,
    /// Print JSON for scripts: every fork, every group.
    #[arg(long)]
    json: bool,
    /// Draw support by depth (figure 2a) into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Diagnose {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let (config, students) = self.config_and_students()?;
        assemble::set_threads(config.threads)?;
        let benchmark = assemble::benchmark(&config)?;
        let seed = config.seeds.first().copied().unwrap_or(0);
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let examination = Examination {
            rollout: rollout(
                &config,
                rollout_config(&config, &benchmark)?,
                seed,
                Arc::new(References::None),
            ),
            sections: config.methods.clone(),
            forks: usize::from(self.forks),
            loss: config.loss,
        };
        let mut all = Vec::new();
        for path in students {
            let mut config = config.clone();
            config.student.path.clone_from(&path);
            let mut engine = assemble::engine(&config)?;
            let batches = (1..=u64::from(self.batches))
                .map(|number| order.batch(number, config.rollout.batch_size))
                .collect();
            let mut bar = Tracker::new(u64::from(self.batches), "batch");
            let findings = examination.examine(&mut engine, batches, |done| {
                bar.move_to(done as u64);
                bar.milestone("played and forked");
            })?;
            bar.finish();
            all.push((path.display().to_string(), findings));
        }
        let students: Vec<_> = all
            .iter()
            .map(|(student, findings)| json!({ "student": student, "findings": findings }))
            .collect();
        let report = json!({ "seed": seed, "students": students });
        // Files first: a reader of the text may close the pipe before its end.
        if let Some(run) = &self.run {
            let text = format!("{report:#}\n");
            lens_train::files::write_atomically(&run.join("diagnose.json"), text.as_bytes())?;
        }
        if let Some(file) = &self.plot {
            lens_train::files::write_atomically(file, support_plot(&all).svg().as_bytes())?;
        }
        if !self.json {
            for (name, findings) in &all {
                print(name, findings, out)?;
            }
        }
        if self.json {
            writeln!(out, "{report:#}")?;
        }
        Ok(())
    }

    fn config_and_students(&self) -> Result<(Config, Vec<PathBuf>), Failure> {
        let Some(folder) = &self.run else {
            let config = self.config.resolve()?.config;
            let own = || vec![config.student.path.clone()];
            let students = if self.students.is_empty() { own() } else { self.students.clone() };
            return Ok((config, students));
        };
        let nothing = || Failure::user(format!("{} holds no run", folder.display()));
        let run = RunFolder::open(folder).ok_or_else(nothing)?;
        let student = newest_model(&run).ok_or_else(|| {
            Failure::user_with_hint(
                format!("the run in {} has no complete checkpoint", folder.display()),
                "let it train until it saves one",
            )
        })?;
        let mut args = self.config.clone();
        args.files.push(run.path().join("config.toml"));
        Ok((args.resolve()?.config, vec![student]))
    }
}

fn print(student: &str, findings: &Findings, out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(out, "{student}: {} episodes", findings.episodes)?;
    writeln!(out, "  support of the teacher's token where the models disagree, by depth")?;
    for depth in &findings.support {
        let (turn, support, positions) = (depth.turn, depth.support, depth.positions);
        writeln!(out, "    turn {turn:>3}  {support:>7.4}  {positions:>6} positions")?;
    }
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    match &findings.gain {
        None => writeln!(out, "  no fork has two complete futures")?,
        Some(gain) => {
            writeln!(out, "  local divergence against future gain")?;
            let correlation =
                gain.correlation.map_or("none".to_owned(), |value| format!("{value:.3}"));
            writeln!(out, "    complete forks {}", gain.forks)?;
            writeln!(out, "    rank correlation {correlation}")?;
            writeln!(out, "    gain of zero or less {}", percent(gain.non_positive))?;
            if let Some(hits) = gain.top_divergence_is_top_gain {
                writeln!(
                    out,
                    "    largest divergence is largest gain {} of {} trajectories",
                    percent(hits),
                    gain.trajectories
                )?;
            }
        }
    }
    writeln!(out, "  rise of the teacher's token after one update, by support and confidence")?;
    for group in &findings.responses {
        let word = |high: bool| if high { "high" } else { "low" };
        let response = group.response.as_ref().map_or("-".to_owned(), |interval| {
            format!("{:+.4} [{:+.4}, {:+.4}]", interval.estimate, interval.low, interval.high)
        });
        writeln!(
            out,
            "    support {:<4} confidence {:<4} {:>5} tokens  {response}",
            word(group.high_support),
            word(group.high_confidence),
            group.tokens
        )?;
    }
    Ok(())
}

fn support_plot(all: &[(String, Findings)]) -> Plot {
    let line = |(name, findings): &(String, Findings)| Line {
        name: name.clone(),
        points: findings
            .support
            .iter()
            .map(|depth| (depth.turn as f64, 100.0 * depth.support))
            .collect(),
        band: Vec::new(),
    };
    Plot {
        title: "Support of the teacher's token where the models disagree".to_owned(),
        x: "turn".to_owned(),
        y: "support, %".to_owned(),
        range: Range::Percent,
        lines: all.iter().map(line).collect(),
    }
}
