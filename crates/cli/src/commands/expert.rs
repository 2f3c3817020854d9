//! How well a benchmark's expert does, for every benchmark that has one.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use lens_env::{Benchmark, demonstrate};

use crate::failure::Failure;

/// What the expert should play, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Trial {
    /// The splits to play; all of them by default.
    #[arg(long, num_args = 1.., value_name = "SPLIT")]
    pub(crate) split: Vec<String>,
    /// Success is counted at each of these turn limits.
    #[arg(long, num_args = 1.., value_name = "TURNS", default_values_t = [30, 50, 400])]
    pub(crate) limits: Vec<usize>,
    /// Print one episode instead: the index of a task in the (first) split, counted from 0.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) show: Option<usize>,
}

impl Trial {
    pub(crate) fn run(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let all = || benchmark.splits().into_iter().map(|split| split.name).collect();
        let splits: Vec<String> = if self.split.is_empty() { all() } else { self.split.clone() };
        match (self.show, splits.first()) {
            (Some(number), Some(split)) => self.show(benchmark, split, number, out),
            _ => self.table(benchmark, &splits, out),
        }
    }

    fn longest(&self) -> usize {
        self.limits.iter().copied().max().unwrap_or(0)
    }

    fn show(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        split: &str,
        number: usize,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let tasks = benchmark.tasks(split)?;
        let task = tasks.get(number).ok_or_else(|| {
            Failure::user(format!("split \"{split}\" has {} tasks, counted from 0", tasks.len()))
        })?;
        let expert = expert_of(&**benchmark)?;
        let mut environment = Arc::clone(benchmark).environment()?;
        let played = demonstrate(
            &mut *environment,
            &*expert,
            task,
            self.longest(),
            benchmark.profile().history,
        )?;
        writeln!(out, "{}\nTask: {}\n", task.id, played.last.task)?;
        for (turn, step) in played.steps.iter().enumerate() {
            writeln!(out, "{}\n", step.window.observation.trim_end())?;
            writeln!(out, "{turn}: {}\n> {}\n", step.decision.thought, step.decision.action)?;
        }
        let verdict = if played.success() { "success" } else { "no success" };
        writeln!(
            out,
            "{}\n\n{verdict} after {} turns",
            played.last.observation.trim_end(),
            played.last.turn
        )?;
        Ok(())
    }

    fn table(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        splits: &[String],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let expert = expert_of(&**benchmark)?;
        let mut environment = Arc::clone(benchmark).environment()?;
        write!(out, "{:<14}{:<32}{:>6}", "split", "kind", "tasks")?;
        for limit in &self.limits {
            write!(out, "{:>9}", format!("at {limit}"))?;
        }
        writeln!(out, "{:>9}{:>9}", "mean", "longest")?;
        for split in splits {
            let mut lengths: BTreeMap<String, Vec<Option<usize>>> = BTreeMap::new();
            for task in benchmark.tasks(split)? {
                let played = demonstrate(
                    &mut *environment,
                    &*expert,
                    &task,
                    self.longest(),
                    benchmark.profile().history,
                )?;
                let length = played.success().then_some(played.last.turn);
                for row in [task.kind, "all".to_owned()] {
                    lengths.entry(row).or_default().push(length);
                }
            }
            let all = lengths.remove_entry("all");
            for (kind, lengths) in lengths.into_iter().chain(all) {
                self.row(split, &kind, &lengths, out)?;
            }
        }
        writeln!(
            out,
            "\nSuccess in percent at each turn limit; mean and longest count the successful episodes' turns."
        )?;
        Ok(())
    }

    fn row(
        &self,
        split: &str,
        kind: &str,
        lengths: &[Option<usize>],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        write!(out, "{split:<14}{kind:<32}{:>6}", lengths.len())?;
        for limit in &self.limits {
            let won = lengths.iter().flatten().filter(|length| *length <= limit).count();
            write!(out, "{:>9.1}", 100.0 * won as f64 / lengths.len().max(1) as f64)?;
        }
        let won: Vec<usize> = lengths.iter().copied().flatten().collect();
        let mean = won.iter().sum::<usize>() as f64 / won.len().max(1) as f64;
        writeln!(out, "{mean:>9.1}{:>9}", won.iter().max().copied().unwrap_or(0))?;
        Ok(())
    }
}

fn expert_of(benchmark: &dyn Benchmark) -> Result<Box<dyn lens_env::Expert>, Failure> {
    let none = || Failure::user(format!("{} has no expert", benchmark.profile().name));
    benchmark.expert().ok_or_else(none)
}
