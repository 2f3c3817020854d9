//! `lens lab check`: can the method be judged with this student and this teacher?

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_config::schema::WeightsName;
use lens_config::{Config, resolve, resolve_text};
use lens_engine::native::NativePolicy;
use lens_env::Benchmark;
use lens_lab::critique::CritiqueReport;
use lens_lab::examine::Examination;
use lens_lab::regime::{Played, Row, StudentSize, model_rows, run_rows};
use lens_opd::methods::MethodName;
use lens_records::RunFolder;
use lens_report::Run;
use lens_train::run::{evaluator, rollout_config};
use lens_train::{Finish, Opening};
use serde_json::json;

use crate::assemble;
use crate::commands::quickstart::LABORATORY;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::TrainingBar;
use crate::run_seed::run_seed;
use crate::values::at_least_one;

/// Run the method for a while and compare its records with what they should show
///
/// Prints a table with an aim per row. The exit code is 0 whatever the rows say, unless --strict is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens lab check assets/lab/student-small assets/lab/teacher
  lens lab check assets/lab/student-large assets/lab/teacher --size large --steps 60 --json")]
pub(crate) struct CheckArgs {
    /// The student, a Hugging Face directory.
    student: PathBuf,
    /// The teacher, a Hugging Face directory.
    teacher: PathBuf,
    /// A configuration file instead of the laboratory's.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Which of the paper's students this one stands for.
    #[arg(long, value_enum, default_value = "small")]
    size: Size,
    /// Optimizer steps of the run.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Games that each model plays, of the first evaluation split.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = at_least_one)]
    games: usize,
    /// The seed.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Set a key of the configuration, such as `validate.coupling=common`; can be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where the run's folder is made; a run of an earlier check there is replaced.
    #[arg(long, default_value = "runs")]
    out: PathBuf,
    /// Fail if a row misses its aim.
    #[arg(long)]
    strict: bool,
    /// Print the rows as JSON.
    #[arg(long)]
    json: bool,
}

/// Which of the paper's students a student stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Size {
    Small,
    Large,
}

impl From<Size> for StudentSize {
    fn from(size: Size) -> Self {
        match size {
            Size::Small => Self::Small,
            Size::Large => Self::Large,
        }
    }
}

impl CheckArgs {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.configuration()?;
        let mut rows = self.model_rows(&config)?;
        rows.extend(self.run_rows(&config)?);
        if self.json {
            writeln!(out, "{:#}", json!({ "rows": rows }))?;
        } else {
            print_rows(&rows, out)?;
        }
        let missed = rows.iter().filter(|row| row.reached != Some(true)).count();
        if self.strict && missed > 0 {
            return Err(Failure::Runtime(anyhow::anyhow!(
                "{missed} of {} rows miss their aim",
                rows.len()
            )));
        }
        Ok(())
    }

    fn configuration(&self) -> Result<Config, Failure> {
        let mut overrides = vec![
            "name=lab-check".to_owned(),
            format!("method={}", MethodName::Lens),
            format!("train.steps={}", self.steps),
            format!("train.save_interval={}", self.steps),
            // The models play before the run; the run need not.
            format!("train.eval_interval={}", self.steps + 1),
            "eval.tasks_during_training=1".to_owned(),
            format!("seeds=[{}]", self.seed),
        ];
        overrides.extend(self.overrides.iter().cloned());
        let mut config = match &self.config {
            Some(file) => resolve(std::slice::from_ref(file), &overrides)?.config,
            None => {
                resolve_text(Path::new("configs/laboratory.toml"), LABORATORY, &overrides)?.config
            }
        };
        config.student.path.clone_from(&self.student);
        config.teacher.path.clone_from(&self.teacher);
        config.output.clone_from(&self.out);
        Ok(config)
    }

    /// Lets both models play, and asks the teacher about the student's wrong plans.
    fn model_rows(&self, config: &Config) -> Result<Vec<Row>, Failure> {
        let benchmark = assemble::benchmark(config)?;
        let load = |path: &Path, what| assemble::policy(path, what, WeightsName::F32);
        let student = load(&self.student, "the student")?;
        let teacher = load(&self.teacher, "the teacher")?;
        let examination = Examination {
            benchmark: config.task.benchmark.clone(),
            split: config.task.eval_splits.first().cloned(),
            games: self.games.min(EXAMINED),
            seed: self.seed,
        };
        let critiques = if examination.check().is_ok() {
            examination.run(&student, Some(&teacher))?.critiques.unwrap_or_default()
        } else {
            CritiqueReport::default()
        };
        let student = self.play(config, &benchmark, &student)?;
        let teacher = self.play(config, &benchmark, &teacher)?;
        Ok(model_rows(self.size.into(), student, teacher, critiques))
    }

    fn play(
        &self,
        config: &Config,
        benchmark: &Arc<dyn Benchmark>,
        policy: &NativePolicy,
    ) -> Result<Played, Failure> {
        let evaluator = evaluator(config, &rollout_config(config, benchmark)?);
        let mut played = Played { games: 0, solved: 0 };
        for split in config.task.eval_splits.iter().take(1) {
            let mut tasks = benchmark.tasks(split)?;
            tasks.truncate(self.games);
            let result = evaluator.evaluate(policy, split, &tasks, self.seed, 0, |_| {})?;
            let solved = result.all.success_rate * tasks.len() as f64 / 100.0;
            played.games += tasks.len() as u64;
            played.solved += solved.round() as u64;
        }
        Ok(played)
    }

    fn run_rows(&self, config: &Config) -> Result<Vec<Row>, Failure> {
        let stop = interrupt::stop_flag();
        let mut bar = TrainingBar::new(config);
        let (run, finish) =
            run_seed(config, self.seed, Opening::Replace, &stop, &mut bar, |bar, run| {
                bar.start_at(run.step());
            })?;
        bar.finish();
        if finish == Finish::Interrupted {
            return Err(Failure::Interrupted("stopped before the table was complete".to_owned()));
        }
        let folder = RunFolder::open(run.path()).ok_or_else(|| {
            Failure::user(format!("the run's records in {} are gone", run.path().display()))
        })?;
        run_rows(&Run::load(folder)).map_err(|problem| Failure::Runtime(problem.into()))
    }
}

/// Games whose wrong plans the teacher is asked about; they give some hundreds.
const EXAMINED: usize = 60;

fn print_rows(rows: &[Row], out: &mut dyn Write) -> Result<(), Failure> {
    let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).len()).max().unwrap_or(0);
    let (quantity, measured) = (width(|row| row.quantity), width(|row| &row.measured));
    writeln!(out, "{:<quantity$}  {:<measured$}  {:<6}  aim", "quantity", "measured", "")?;
    for row in rows {
        let reached = match row.reached {
            Some(true) => "ok",
            Some(false) => "missed",
            None => "-",
        };
        writeln!(
            out,
            "{:<quantity$}  {:<measured$}  {reached:<6}  {}",
            row.quantity, row.measured, row.aim
        )?;
    }
    let reached = rows.iter().filter(|row| row.reached == Some(true)).count();
    Ok(writeln!(out, "\n{reached} of {} rows reach their aim", rows.len())?)
}
