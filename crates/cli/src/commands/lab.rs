//! `lens lab`: build the laboratory models.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use lens_config::schema::WeightsName;
use lens_engine::LearnReport;
use lens_env::{Benchmark, BenchmarkOptions, Profile, Task, registry};
use lens_lab::corpus::{CorpusOptions, corpus};
use lens_lab::exercises::exercises;
use lens_lab::hints::hints;
use lens_lab::own_play::{own_play, rollout_config};
use lens_lab::recipe::{self, LabError, School};
use serde_json::json;

use crate::assemble;
use crate::failure::Failure;
use crate::progress::{Tracker, note_step};
use crate::values::at_least_one;
use crate::wording::counted;

/// Build and examine the laboratory models
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens lab build --out runs/lab --only student-small
  lens lab examine assets/lab/student-small --teacher assets/lab/teacher --games 50")]
pub(crate) enum Lab {
    /// Train the tokenizer, the teachers and the students from scratch on generated games
    Build(Build),
    /// Compare a model's actions with the expert's, turn by turn
    Examine(Examine),
}

/// Compare a model's actions with the expert's, turn by turn
#[derive(Debug, clap::Args)]
pub(crate) struct Examine {
    /// The model, a Hugging Face directory.
    model: PathBuf,
    /// The benchmark, which must have an expert.
    #[arg(long, default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// The split; one without demonstrations by default.
    #[arg(long)]
    split: Option<String>,
    /// Games to play.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = at_least_one)]
    games: usize,
    /// A teacher that comments on the model's wrong plans; without it that part is left out.
    #[arg(long, value_name = "MODEL")]
    teacher: Option<PathBuf>,
    /// The seed of the draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the counts as JSON.
    #[arg(long)]
    json: bool,
}

/// Train the tokenizer, the teachers and the students from scratch on generated games
#[derive(Debug, clap::Args)]
pub(crate) struct Build {
    /// Where the models go, one folder each.
    #[arg(long, default_value = "runs/lab")]
    out: PathBuf,
    /// The benchmark whose expert demonstrates.
    #[arg(long, default_value_t = default_benchmark(), value_parser = PossibleValuesParser::new(registry::names()))]
    benchmark: String,
    /// The seed of the games, the draws and the weights.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build only these models (teacher, student-small, ...); all by default. A missing tokenizer is always built.
    #[arg(long)]
    only: Vec<String>,
    /// Skip the first N stages; the models in --out must have completed them.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after_course: usize,
    /// Optimizer steps of every stage instead of the recipe's.
    #[arg(long)]
    steps: Option<u64>,
    /// Sets of tasks to generate besides the built-in one, if the benchmark can generate tasks.
    #[arg(long, default_value_t = 1)]
    extra_sets: u64,
    /// Before each play stage, roll out N games with the model and take half of the stage's samples from the expert's
    /// corrections (DAgger). Needs a benchmark with an expert.
    #[arg(long, value_name = "N", default_value_t = 0)]
    own_games: usize,
    /// Use only tasks of these kinds; those the benchmark names for small models by default.
    #[arg(long = "kind")]
    kinds: Vec<String>,
    /// Use at most N tasks of a kind in a set; all by default.
    #[arg(long, value_name = "N")]
    tasks_per_kind: Option<usize>,
}

/// The first benchmark of the list.
fn default_benchmark() -> String {
    registry::names().next().unwrap_or_default().to_owned()
}

/// Opens a set of a benchmark's tasks. Set 0 is the built-in one; every other is generated from a seed of its own, so
/// that none of its tasks is in a validation split of the built-in set.
fn open_set(
    benchmark: &str,
    kinds: &[String],
    seed: u64,
    set: u64,
) -> Result<Arc<dyn Benchmark>, Failure> {
    let options = BenchmarkOptions {
        kinds: kinds.to_vec(),
        seed: (set > 0).then_some(1_000_000 + seed * 1000 + set),
        ..BenchmarkOptions::default()
    };
    registry::open(benchmark, &options).map_err(|error| Failure::User(error.into()))
}

impl Lab {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Build(build) => build.run(out),
            Self::Examine(examine) => examine.run(out),
        }
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        Self::Runtime(error.into())
    }
}

impl Examine {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        if !registry::profile(&self.benchmark)?.laboratory.expert {
            return Err(Failure::user_with_hint(
                format!("{} has no expert to compare a model with", self.benchmark),
                "choose another --benchmark",
            ));
        }
        let benchmark = open_set(&self.benchmark, &[], self.seed, 0)?;
        let split = match &self.split {
            Some(split) => split.clone(),
            None => benchmark.profile().laboratory.held_out_split.to_string(),
        };
        let mut tasks = benchmark.tasks(&split)?;
        tasks.truncate(self.games);
        let options = CorpusOptions {
            comments: 1.0,
            obeyed: 1.0,
            ..recipe::corpus_options(self.seed, &*benchmark)
        };
        let policy = assemble::policy(&self.model, "the model to examine", WeightsName::F32)?;
        let teacher = match &self.teacher {
            Some(teacher) => Some(assemble::policy(teacher, "--teacher", WeightsName::F32)?),
            None => None,
        };
        let own = own_play(&rollout_config(&benchmark, &options), &policy, &tasks, 0, &options)?;
        let hints = match &teacher {
            Some(teacher) => Some(hints(teacher, &policy, &own.texts)?),
            None => None,
        };
        if self.json {
            let verbs: serde_json::Map<String, serde_json::Value> = own
                .by_verb
                .iter()
                .map(|(verb, one)| {
                    let counts =
                        json!({"turns": one.turns, "agreed": one.agreed, "instead": one.instead});
                    (verb.clone(), counts)
                })
                .collect();
            let hints = hints.map(|hints| {
                json!({
                    "wrong_plans": hints.plans,
                    "named": hints.named,
                    "approved": hints.approved,
                    "followed": hints.followed,
                })
            });
            let counts = json!({
                "split": split,
                "games": own.games,
                "solved": own.solved,
                "verbs": verbs,
                "hints": hints,
            });
            return Ok(writeln!(out, "{counts:#}")?);
        }
        writeln!(out, "{} of {} games of {split} solved", own.solved, own.games)?;
        writeln!(out, "{:<12} {:>7} {:>7}  otherwise", "expert", "turns", "same %")?;
        for (verb, one) in &own.by_verb {
            let mut instead: Vec<_> = one.instead.iter().collect();
            instead.sort_by_key(|(_, turns)| std::cmp::Reverse(**turns));
            let instead: Vec<_> =
                instead.into_iter().map(|(done, turns)| format!("{done} {turns}")).collect();
            let same = 100.0 * one.agreed as f64 / one.turns.max(1) as f64;
            writeln!(out, "{verb:<12} {:>7} {same:>7.1}  {}", one.turns, instead.join(", "))?;
        }
        let Some(hints) = hints else { return Ok(()) };
        let share = |count: usize| 100.0 * count as f64 / hints.plans.max(1) as f64;
        writeln!(
            out,
            "{} wrong plans: the teacher's comment names the right step at {:.1} %, approves of {:.1} %; told what is right, the model does it at {:.1} %",
            hints.plans,
            share(hints.named),
            share(hints.approved),
            share(hints.followed)
        )?;
        Ok(())
    }
}

impl Build {
    /// One of the sets, with the kinds of task asked for.
    fn open(&self, profile: &Profile, set: u64) -> Result<Arc<dyn Benchmark>, Failure> {
        let of_profile = || profile.laboratory.kinds.iter().map(ToString::to_string).collect();
        let kinds = if self.kinds.is_empty() { of_profile() } else { self.kinds.clone() };
        open_set(&self.benchmark, &kinds, self.seed, set)
    }

    /// The tasks of a set that are demonstrated.
    fn tasks(&self, benchmark: &dyn Benchmark) -> Result<Vec<Task>, Failure> {
        let mut tasks = benchmark.tasks(&benchmark.profile().laboratory.train_split)?;
        if let Some(most) = self.tasks_per_kind {
            let mut taken: BTreeMap<String, usize> = BTreeMap::new();
            tasks.retain(|task| {
                let taken = taken.entry(task.kind.clone()).or_default();
                *taken += 1;
                *taken <= most
            });
        }
        Ok(tasks)
    }

    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let plans: Vec<_> = recipe::plans()
            .into_iter()
            .filter(|plan| self.only.is_empty() || self.only.iter().any(|name| name == plan.name))
            .collect();
        if plans.is_empty() {
            let names: Vec<_> = recipe::plans().iter().map(|plan| plan.name).collect();
            return Err(Failure::user_with_hint(
                "--only names no model of the recipe",
                format!("there are {}", names.join(", ")),
            ));
        }
        let tokenizer_path = self.out.join("tokenizer.json");
        let profile = registry::profile(&self.benchmark)?;
        let built_in = self.open(profile, 0)?;
        let options = recipe::corpus_options(self.seed, &*built_in);
        let mut texts = corpus(&built_in, &self.tasks(&*built_in)?, &options)?;
        if profile.laboratory.generated {
            for set in 1..=self.extra_sets {
                let benchmark = self.open(profile, set)?;
                texts.extend(corpus(&benchmark, &self.tasks(&*benchmark)?, &options)?);
            }
        }
        writeln!(out, "{} texts from demonstrations", texts.len())?;
        std::fs::create_dir_all(&self.out)?;
        let tokenizer = if let Ok(tokenizer) = std::fs::read(&tokenizer_path) {
            tokenizer
        } else {
            let tokenizer = recipe::tokenizer(&texts, 4000, recipe::splitting(profile))?;
            lens_train::files::write_atomically(&tokenizer_path, &tokenizer)?;
            tokenizer
        };
        texts.extend(exercises(&texts, self.seed));
        let school = School {
            benchmark: &built_in,
            tokenizer_json: &tokenizer,
            texts: &texts,
            corpus: options,
        };
        for mut plan in plans {
            let folder = self.out.join(plan.name);
            // Where nothing can be taken there are no exercises.
            plan.courses.retain(|course| course.has_part_in(&texts));
            for course in &mut plan.courses {
                course.steps = self.steps.unwrap_or(course.steps);
                if course.is_play() && built_in.expert().is_some() {
                    course.own_games = self.own_games;
                }
            }
            let courses = plan.courses.len();
            for (number, course) in plan.courses.iter().enumerate().skip(self.after_course) {
                let what = format!("{} {}/{courses}", plan.name, number + 1);
                let mut bar = Tracker::new(course.steps, &what);
                let mut last = f64::NAN;
                let on_step = |step: u64, report: &LearnReport| {
                    last = report.loss;
                    note_step(&mut bar, step, report.loss);
                };
                let mut played = None;
                school.teach(&plan, number, &folder, |own| played = Some(own.clone()), on_step)?;
                bar.finish();
                if let Some(own) = played {
                    writeln!(
                        out,
                        "{what}: {} of {} own games solved before it; {:.1} % of {} turns as the expert",
                        own.solved,
                        own.games,
                        100.0 * own.agreed() as f64 / own.turns().max(1) as f64,
                        own.turns()
                    )?;
                }
                writeln!(
                    out,
                    "{what}: {} parameters, {}, last loss {last:.4}, in {}",
                    plan.config.parameter_count(),
                    counted(course.steps, "step"),
                    folder.display()
                )?;
                out.flush()?;
            }
        }
        Ok(())
    }
}
