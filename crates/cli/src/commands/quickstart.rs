//! `lens quickstart`: teach the shipped small student and show that it learned.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lens_config::{Config, resolve};
use lens_opd::methods::MethodName;
use lens_train::{Finish, Opening, Run};

use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::plot::{Line, Plot};
use crate::progress::TrainingBars;
use crate::run_seed::run_seed;

/// Teach the shipped small student with LENS-OPD on built-in games, and show that it learned.
#[derive(Debug, clap::Args)]
pub(crate) struct Quickstart {
    /// Also run plain OPD with the same number of optimizer steps.
    #[arg(long)]
    compare: bool,
    /// Optimizer steps.
    #[arg(long, default_value_t = 40)]
    steps: u64,
    /// Tasks per split in each evaluation.
    #[arg(long, default_value_t = 48)]
    tasks: usize,
    /// The seed.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Where run folders are made.
    #[arg(long, default_value = "runs")]
    out: PathBuf,
    /// The folder with the shipped models.
    #[arg(long, default_value = "assets/lab")]
    models: PathBuf,
}

impl Quickstart {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        for name in ["teacher", "student-small"] {
            let folder = self.models.join(name);
            if !folder.is_dir() {
                return Err(Failure::user(format!(
                    "there is no model in {}; run lens in the project's folder, where assets/lab is, or give --models",
                    folder.display()
                )));
            }
        }
        let stop = interrupt::stop_flag()?;
        let mut methods = vec![MethodName::Lens];
        if self.compare {
            methods.push(MethodName::Opd);
        }
        let mut curves = Vec::new();
        let mut summaries = Vec::new();
        for method in methods {
            let config = self.config(method)?;
            let (bars, model) = self.one(&config, &stop, out)?;
            let splits: Vec<String> = config.task.eval_splits.clone();
            for split in &splits {
                let points: Vec<(f64, f64)> = bars
                    .evaluations
                    .iter()
                    .filter(|(_, name, _)| name == split)
                    .map(|(step, _, rate)| (*step as f64, *rate))
                    .collect();
                curves.push(Line { name: format!("{method} {split}"), points });
            }
            summaries.push((method, bars, model));
        }
        for (method, bars, model) in &summaries {
            report(*method, bars, model, out)?;
        }
        let path = self.out.join("quickstart.svg");
        let plot = Plot {
            title: "Success rate while learning".to_owned(),
            x: "optimizer steps".to_owned(),
            y: "success, %".to_owned(),
            lines: curves,
        };
        lens_train::files::write_atomically(&path, plot.svg().as_bytes())?;
        writeln!(out, "\nplot: {}", path.display())?;
        if let Some((_, _, model)) = summaries.first() {
            let model = model.display();
            let lens = assemble::called_as();
            writeln!(out, "measure it: {lens} eval {model} configs/laboratory.toml")?;
            writeln!(
                out,
                "play with it: {lens} play alfworld --split valid_unseen --model {model}"
            )?;
        }
        Ok(())
    }

    fn config(&self, method: MethodName) -> Result<Config, Failure> {
        let overrides = [
            format!("name=quickstart-{method}"),
            format!("method={method}"),
            format!("train.steps={}", self.steps),
            format!("train.save_interval={}", self.steps),
            format!("seeds=[{}]", self.seed),
            format!("eval.tasks_during_training={}", self.tasks),
            "train.eval_interval=20".to_owned(),
            "eval.workers=64".to_owned(),
        ];
        let mut config = resolve(&[], &overrides)?.config;
        laboratory(&mut config, &self.models);
        config.output.clone_from(&self.out);
        Ok(config)
    }

    fn one(
        &self,
        config: &Config,
        stop: &Arc<AtomicBool>,
        out: &mut dyn Write,
    ) -> Result<(TrainingBars, PathBuf), Failure> {
        writeln!(
            out,
            "{}: {} optimizer steps on built-in {} games, student {}, teacher {}",
            config.method,
            config.train.steps,
            config.task.benchmark,
            config.student.path.display(),
            config.teacher.path.display()
        )?;
        out.flush()?;
        let folder = Run::folder(config, self.seed);
        let resume = folder.join("config.toml").exists();
        let opening = if resume { Opening::Resume } else { Opening::New };
        let mut bars = TrainingBars::new(config);
        let (run, finish) = run_seed(config, self.seed, opening, stop, &mut bars, |bars, run| {
            bars.resumed_at(run.step());
        })?;
        bars.finish();
        match finish {
            Finish::Done => Ok((bars, run.model_folder())),
            Finish::Interrupted => Err(Failure::Interrupted(format!(
                "stopped after {} steps, everything is saved; run the same command again to go on",
                run.step()
            ))),
        }
    }
}

/// The laboratory's settings, the same as `configs/laboratory.toml`, for when no file is at hand.
pub(crate) fn laboratory(config: &mut Config, models: &Path) {
    config.student.path = models.join("student-small");
    config.teacher.path = models.join("teacher");
    config.teacher.weights = lens_config::schema::WeightsName::F32;
    config.rollout.max_prompt_tokens = 1536;
    config.rollout.max_response_tokens = 48;
    config.eval.max_tokens = 48;
    config.optimizer.lr = 2e-4;
    config.methods.locate.residence = 2;
    config.methods.tcod.residence = 2;
    config.task.references = "expert-plans".to_owned();
}

fn report(
    method: MethodName,
    bars: &TrainingBars,
    model: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "\n{method}")?;
    writeln!(out, "  {:<16} {:>10} {:>10}", "success, %", "before", "after")?;
    let mut splits: Vec<&String> = bars.evaluations.iter().map(|(_, split, _)| split).collect();
    splits.sort();
    splits.dedup();
    for split in splits {
        let rates: Vec<f64> = bars
            .evaluations
            .iter()
            .filter(|(_, name, _)| name == split)
            .map(|(_, _, rate)| *rate)
            .collect();
        if let (Some(first), Some(last)) = (rates.first(), rates.last()) {
            writeln!(out, "  {split:<16} {first:>10.1} {last:>10.1}")?;
        }
    }
    if let (Some(first), Some(last)) = (bars.horizons.first(), bars.horizons.last()) {
        writeln!(
            out,
            "  horizon: {first} turn(s) at the start, {last} at the end, {} batches",
            bars.horizons.len()
        )?;
    }
    let (asked, complete, accepted) = bars.forks;
    if asked > 0 {
        writeln!(out, "  hints: {asked} asked for, {complete} validated, {accepted} kept")?;
        for example in &bars.examples {
            let verdict = if example.accepted { "kept" } else { "refused" };
            writeln!(out, "    task: {}", example.task)?;
            writeln!(out, "      the student planned: {}", example.planned)?;
            writeln!(out, "      the teacher said:    {}", example.hint)?;
            writeln!(out, "      with it, it did:     {}", example.guided)?;
            writeln!(out, "      gain {:+.3}: {verdict}", example.gain)?;
        }
    }
    writeln!(out, "  the student is in {}", model.display())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_settings_are_those_of_the_laboratory_file() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/laboratory.toml");
        let of_file = resolve(&[file], &[]).expect("it is sound").config;
        let mut built_in = resolve(&[], &[]).expect("defaults are sound").config;
        laboratory(&mut built_in, Path::new("assets/lab"));
        // What a run is called and how long it is differs on purpose.
        built_in.name.clone_from(&of_file.name);
        built_in.seeds.clone_from(&of_file.seeds);
        built_in.train.clone_from(&of_file.train);
        built_in.eval.workers = of_file.eval.workers;
        assert_eq!(built_in, of_file);
    }
}
