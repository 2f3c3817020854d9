//! `lens lab`: build the laboratory models, examine a model, print a recipe.

mod check;
mod samples;

use std::io::Write;
use std::path::PathBuf;

use check::CheckArgs;
use clap::builder::PossibleValuesParser;
use lens_config::schema::WeightsName;
use lens_engine::{LearnReport, Policy};
use lens_env::registry;
use lens_lab::LabError;
use lens_lab::build::{Build, BuildProgress, StageRun};
use lens_lab::dagger::Rollouts;
use lens_lab::examine::{Examination, Examined};
use lens_lab::recipe::Recipe;
use samples::SamplesArgs;
use serde_json::json;

use crate::assemble;
use crate::failure::Failure;
use crate::progress::{Tracker, note_step};

/// What to do in the laboratory.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens lab build --out runs/lab --only student-small
  lens lab examine assets/lab/student-small --teacher assets/lab/teacher --games 50")]
pub(crate) enum Lab {
    /// Train a tokenizer, teachers and students from scratch, as a recipe says.
    Build(BuildArgs),
    /// Run the method for a while and compare its records with what they should show
    Check(CheckArgs),
    /// Print samples that a recipe trains on
    Samples(SamplesArgs),
    /// Compare a model's actions with the expert's, and measure what critiques are worth
    Examine(ExamineArgs),
    /// Print a shipped recipe, to change a copy of it.
    Recipe(RecipeArgs),
}

/// Train a tokenizer, teachers and students from scratch, as a recipe says.
#[derive(Debug, clap::Args)]
pub(crate) struct BuildArgs {
    /// Write the models here, one folder each.
    #[arg(long, default_value = "runs/lab")]
    out: PathBuf,
    /// Follow this recipe instead of a shipped one.
    #[arg(long, value_name = "FILE", conflicts_with = "benchmark")]
    recipe: Option<PathBuf>,
    /// Follow the shipped recipe for this benchmark.
    #[arg(long, default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// The seed of the generated tasks, the draws and the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build only this model; can be given more than once.
    #[arg(long, value_name = "MODEL")]
    only: Vec<String>,
    /// Skip the first N stages; the models in `--out` must have completed them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_stages: usize,
    /// Replace the optimizer steps of every stage.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Replace the recipe's `tasks.extra_sets`: sets of tasks to generate besides the built-in one.
    #[arg(long, value_name = "N")]
    extra_sets: Option<u64>,
    /// Before each play stage, roll out N games with the model and take half of the stage's samples from the expert's
    /// corrections (DAgger). Needs a benchmark with an expert.
    #[arg(long, value_name = "N")]
    dagger_games: Option<usize>,
    /// Demonstrate only tasks of this kind; can be given more than once.
    #[arg(long = "kind")]
    kinds: Vec<String>,
    /// Demonstrate at most N tasks of each kind.
    #[arg(long, value_name = "N")]
    tasks_per_kind: Option<usize>,
}

/// Compare a model's actions with the expert's, and measure what critiques are worth
#[derive(Debug, clap::Args)]
pub(crate) struct ExamineArgs {
    /// The model, a Hugging Face directory.
    model: PathBuf,
    /// The benchmark, which must have an expert.
    #[arg(long, default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// The split; by default one without demonstrations.
    #[arg(long)]
    split: Option<String>,
    /// Games to play.
    #[arg(long, value_name = "N", default_value_t = 100)]
    games: usize,
    /// Ask this teacher for critiques of the model's wrong plans; without it, that part is left out.
    #[arg(long, value_name = "MODEL")]
    teacher: Option<PathBuf>,
    /// The seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Print a shipped recipe, to change a copy of it.
#[derive(Debug, clap::Args)]
pub(crate) struct RecipeArgs {
    /// The benchmark.
    #[arg(default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// Print the JSON schema of recipes instead, for editors.
    #[arg(long)]
    schema: bool,
}

/// The first benchmark of the list.
fn default_benchmark() -> String {
    registry::names().next().unwrap_or_default().to_owned()
}

impl Lab {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Build(args) => args.run(out),
            Self::Check(args) => args.run(out),
            Self::Samples(args) => args.run(out),
            Self::Examine(args) => args.run(out),
            Self::Recipe(args) => args.run(out),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Train(error) => error.into(),
            error if error.is_user_error() => Self::User(error.into()),
            error => Self::Runtime(error.into()),
        }
    }
}

impl RecipeArgs {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        if self.schema {
            return Ok(writeln!(out, "{:#}", Recipe::schema())?);
        }
        Ok(write!(out, "{}", Recipe::shipped_text(&self.benchmark)?)?)
    }
}

impl BuildArgs {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut recipe = match &self.recipe {
            Some(file) => Recipe::read(file)?,
            None => Recipe::shipped(&self.benchmark)?,
        };
        if let Some(steps) = self.steps {
            recipe.set_steps(steps);
        }
        if let Some(games) = self.dagger_games {
            recipe.set_dagger_games(games);
        }
        let tasks = &mut recipe.tasks;
        tasks.extra_sets = self.extra_sets.unwrap_or(tasks.extra_sets);
        tasks.max_per_kind = self.tasks_per_kind.or(tasks.max_per_kind);
        if !self.kinds.is_empty() {
            tasks.kinds = self.kinds;
        }
        let build = Build {
            recipe,
            seed: self.seed,
            out: self.out,
            only: self.only,
            skip_stages: self.skip_stages,
        };
        let mut printed = Printed { out, bar: None, loss: f64::NAN, failure: None };
        build.run(&mut printed)?;
        printed.failure.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Prints a line per stage and moves a progress bar.
struct Printed<'a> {
    out: &'a mut dyn Write,
    bar: Option<Tracker>,
    /// The last step's loss.
    loss: f64,
    /// The first line that could not be written.
    failure: Option<std::io::Error>,
}

impl Printed<'_> {
    fn line(&mut self, line: &str) {
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        if let Err(error) = written {
            self.failure.get_or_insert(error);
        }
    }
}

fn title(run: &StageRun<'_>) -> String {
    format!("{} {}/{}", run.model.name, run.index + 1, run.model.stages.len())
}

impl BuildProgress for Printed<'_> {
    fn samples(&mut self, count: usize) {
        self.line(&format!("{count} samples from demonstrations"));
    }

    fn started(&mut self, run: &StageRun<'_>) {
        self.bar = Some(Tracker::new(run.stage.steps, &title(run)));
    }

    fn rollouts(&mut self, run: &StageRun<'_>, rollouts: &Rollouts) {
        let agreed = 100.0 * rollouts.agreed() as f64 / rollouts.turns().max(1) as f64;
        self.line(&format!(
            "{}: DAgger: {} of {} games solved, {agreed:.1} % of {} turns as the expert",
            title(run),
            rollouts.solved,
            rollouts.games,
            rollouts.turns()
        ));
    }

    fn step(&mut self, _run: &StageRun<'_>, step: u64, report: &LearnReport) {
        self.loss = report.loss;
        if let Some(bar) = &mut self.bar {
            note_step(bar, step, report.loss);
        }
    }

    fn finished(&mut self, run: &StageRun<'_>) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
        self.line(&format!(
            "{}: {} parameters, {} steps, last loss {:.4}, in {}",
            title(run),
            run.parameters,
            run.stage.steps,
            self.loss,
            run.folder.display()
        ));
    }
}

impl ExamineArgs {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let examination = Examination {
            benchmark: self.benchmark,
            split: self.split,
            games: self.games,
            seed: self.seed,
        };
        examination.check()?;
        let model = assemble::policy(&self.model, "the model to examine", WeightsName::F32)?;
        let teacher = match &self.teacher {
            Some(teacher) => Some(assemble::policy(teacher, "--teacher", WeightsName::F32)?),
            None => None,
        };
        let teacher = teacher.as_ref().map(|teacher| teacher as &dyn Policy);
        let examined = examination.run(&model, teacher)?;
        if self.json {
            return Ok(writeln!(out, "{:#}", counts(&examined))?);
        }
        print_table(&examined, out)
    }
}

/// The counts as JSON; without a teacher there are no critiques.
fn counts(examined: &Examined) -> serde_json::Value {
    let Examined { split, rollouts, instructions, critiques } = examined;
    let verbs: serde_json::Map<String, serde_json::Value> = rollouts
        .by_verb
        .iter()
        .map(|(verb, one)| {
            let counts = json!({"turns": one.turns, "agreed": one.agreed, "instead": one.instead});
            (verb.clone(), counts)
        })
        .collect();
    let mut counts = json!({
        "split": split,
        "games": rollouts.games,
        "solved": rollouts.solved,
        "verbs": verbs,
        "instructions": {"wrong_plans": instructions.plans, "followed": instructions.followed},
    });
    if let Some(critiques) = critiques {
        counts["critiques"] = json!({
            "wrong_plans": critiques.plans,
            "named": critiques.named,
            "approved": critiques.approved,
        });
    }
    counts
}

fn print_table(examined: &Examined, out: &mut dyn Write) -> Result<(), Failure> {
    let Examined { split, rollouts, instructions, critiques } = examined;
    writeln!(out, "{} of {} games of {split} solved", rollouts.solved, rollouts.games)?;
    writeln!(out, "{:<12} {:>7} {:>7}  otherwise", "expert", "turns", "same %")?;
    for (verb, one) in &rollouts.by_verb {
        let mut instead: Vec<_> = one.instead.iter().collect();
        instead.sort_by_key(|(_, turns)| std::cmp::Reverse(**turns));
        let instead: Vec<_> =
            instead.into_iter().map(|(done, turns)| format!("{done} {turns}")).collect();
        let same = 100.0 * one.agreed as f64 / one.turns.max(1) as f64;
        writeln!(out, "{verb:<12} {:>7} {same:>7.1}  {}", one.turns, instead.join(", "))?;
    }
    let share = |count: usize, plans: usize| 100.0 * count as f64 / plans.max(1) as f64;
    writeln!(
        out,
        "{} wrong plans: told the right action, the model takes it at {:.1} %",
        instructions.plans,
        share(instructions.followed, instructions.plans)
    )?;
    if let Some(critiques) = critiques {
        writeln!(
            out,
            "the teacher's critique names the right action at {:.1} %, approves of the wrong plan at {:.1} %",
            share(critiques.named, critiques.plans),
            share(critiques.approved, critiques.plans)
        )?;
    }
    Ok(())
}
