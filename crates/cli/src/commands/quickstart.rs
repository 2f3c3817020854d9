//! `lens quickstart`: train the shipped small student and show what changed.

mod learned;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lens_config::{Config, changes, resolve, resolve_text};
use lens_opd::methods::MethodName;
use lens_opd::stats::proportion::wilson;
use lens_records::RunFolder;
use lens_train::{Finish, Opening, Run};

use super::train::print_findings;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::plot::{Line, Plot, Range};
use crate::progress::TrainingBar;
use crate::results::{Results, hint_examples, newest_model, open_run};
use crate::run_seed::run_seed;
use crate::values::at_least_one;
use crate::wording::{counted, solved};

/// The learning rate. The laboratory's own is so low that methods can be told apart before they reach the same plateau;
/// this one shows what a run can reach.
const LEARNING_RATE: f64 = 1e-4;

/// The laboratory's configuration, for when no file is at hand.
pub(super) const LABORATORY: &str = include_str!("../../../../configs/laboratory.toml");

/// Train the shipped small student with LENS-OPD and show what changed
///
/// A finished run with the same settings is not repeated, and an interrupted one is resumed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens quickstart
  lens quickstart --compare --steps 60")]
pub(crate) struct Quickstart {
    /// Also train with plain OPD for the same number of optimizer steps.
    #[arg(long)]
    compare: bool,
    /// Optimizer steps.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Tasks per split in each evaluation.
    #[arg(long, default_value_t = 200, value_parser = at_least_one)]
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
    /// Start over where a run is already; the old one is moved aside.
    #[arg(long)]
    force: bool,
}

impl Quickstart {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        for name in ["teacher", "student-small"] {
            let folder = self.models.join(name);
            if !folder.is_dir() {
                return Err(Failure::user_with_hint(
                    format!("there is no model in {}", folder.display()),
                    "run lens in the project's folder, where assets/lab is, or give --models FOLDER",
                ));
            }
        }
        let stop = interrupt::stop_flag();
        let mut methods = vec![MethodName::Lens];
        if self.compare {
            methods.push(MethodName::Opd);
        }
        let mut runs = Vec::new();
        for method in methods {
            runs.push((method, self.run_method(&self.config(method)?, &stop, out)?));
        }
        let path = self.out.join("quickstart.svg");
        let read: Vec<_> = runs.iter().map(|(method, run)| (*method, Results::read(run))).collect();
        lens_train::files::write_atomically(&path, plot(&read).svg().as_bytes())?;
        let folders = runs.iter().map(|(_, run)| run.path().to_owned()).collect();
        let page = self.out.join("quickstart.html");
        let document = lens_view::export::document(&lens_view::api::Library::open(folders), 40)
            .map_err(|error| Failure::Runtime(error.into()))?;
        lens_train::files::write_atomically(&page, document.as_bytes())?;
        for ((method, run), (_, results)) in runs.iter().zip(&read) {
            report(*method, run, results, out)?;
            if let (Some(model), Some(split)) = (newest_model(run), results.splits().last()) {
                learned::print(&self.config(*method)?, self.seed, split, &model, out)?;
            }
            print_findings(run.path(), out)?;
        }
        writeln!(out, "\nplot: {}", path.display())?;
        writeln!(out, "every episode, fork and token: open {} in a browser", page.display())?;
        if let Some(model) = runs.first().and_then(|(_, run)| newest_model(run)) {
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
            format!("optimizer.lr={LEARNING_RATE}"),
            format!("train.steps={}", self.steps),
            format!("train.save_interval={}", self.steps),
            format!("train.eval_interval={}", self.steps),
            format!("seeds=[{}]", self.seed),
            format!("eval.tasks_during_training={}", self.tasks),
        ];
        let name = Path::new("configs/laboratory.toml");
        let mut config = resolve_text(name, LABORATORY, &overrides)?.config;
        config.student.path = self.models.join("student-small");
        config.teacher.path = self.models.join("teacher");
        config.output.clone_from(&self.out);
        Ok(config)
    }

    /// Trains with one method, unless that was done before.
    fn run_method(
        &self,
        config: &Config,
        stop: &Arc<AtomicBool>,
        out: &mut dyn Write,
    ) -> Result<RunFolder, Failure> {
        let folder = Run::folder(config, self.seed);
        let opening = match RunFolder::open(&folder) {
            None => Opening::New,
            Some(_) if self.force => Opening::Replace,
            Some(run) => {
                check_settings(config, &folder)?;
                if Results::read(&run).steps >= config.train.steps && newest_model(&run).is_some() {
                    writeln!(out, "reusing the finished run in {}", folder.display())?;
                    return Ok(run);
                }
                writeln!(out, "resuming the run in {}", folder.display())?;
                Opening::Resume
            }
        };
        writeln!(
            out,
            "{}: {} on built-in {} games, student {}, teacher {}",
            config.method,
            counted(config.train.steps, "optimizer step"),
            config.task.benchmark,
            config.student.path.display(),
            config.teacher.path.display()
        )?;
        out.flush()?;
        let mut bar = TrainingBar::new(config);
        let (run, finish) = run_seed(config, self.seed, opening, stop, &mut bar, |bar, run| {
            bar.start_at(run.step());
        })?;
        bar.finish();
        match finish {
            Finish::Done => open_run(run.path()),
            Finish::Interrupted => Err(Failure::Interrupted(format!(
                "stopped after {}, everything is saved; run the same command again to resume",
                counted(run.step(), "step")
            ))),
        }
    }
}

/// Refuses a run that is there with other settings: its results would not be those that were asked for.
fn check_settings(config: &Config, folder: &Path) -> Result<(), Failure> {
    let began = resolve(&[folder.join("config.toml")], &[])?.config;
    let wanted = assemble::with_models(config)?.with_absolute_paths();
    match changes::between(&began, &wanted).into_iter().find(|change| change.key != "output") {
        None => Ok(()),
        Some(change) => Err(Failure::user_with_hint(
            format!(
                "{} holds a run with other settings: `{}` is {} there and {} here",
                folder.display(),
                change.key,
                change.before,
                change.after
            ),
            "start over with --force, or choose another folder with --out FOLDER",
        )),
    }
}

fn plot(results: &[(MethodName, Results)]) -> Plot {
    let mut lines = Vec::new();
    for (method, results) in results {
        for split in results.splits() {
            let (mut points, mut band) = (Vec::new(), Vec::new());
            let mut tasks = 0;
            for evaluation in results.of_split(split) {
                let all = &evaluation.all;
                points.push((evaluation.step as f64, all.success_rate));
                let bounds = wilson(solved(all.success_rate, all.tasks), all.tasks);
                band.push((100.0 * bounds.low, 100.0 * bounds.high));
                tasks = all.tasks;
            }
            let name = format!("{method} {split} ({tasks})");
            lines.push(Line { name, points, band });
        }
    }
    Plot {
        title: "Success rate while learning (tasks), with 95 % intervals".to_owned(),
        x: "optimizer steps".to_owned(),
        y: "success, %".to_owned(),
        range: Range::Percent,
        lines,
    }
}

fn report(
    method: MethodName,
    run: &RunFolder,
    results: &Results,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    writeln!(out, "\n{method}")?;
    results.print_success(out)?;
    results.print_method(out)?;
    for example in hint_examples(run) {
        example.print(out)?;
    }
    results.print_costs(out)?;
    if let Some(model) = newest_model(run) {
        writeln!(out, "  the student is in {}", model.display())?;
    }
    Ok(())
}
