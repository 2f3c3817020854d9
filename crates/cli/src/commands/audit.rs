//! `lens audit`: the truth about the gate.

mod files;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lens_config::{Config, render};
use lens_engine::{Engine, Models, Sampling};
use lens_opd::methods::Driver;
use lens_opd::validate::Validate;
use lens_opd::validate::gate::Terminal;
use lens_records::FORMAT;
use lens_records::RunFolder;
use lens_records::audit::{AfterLine, AuditLine, AuditSettings, GateSettings};
use lens_report::audit::{AuditReport, figures, print};
use lens_train::audit::{self as measure, GATE_PAIRS, Place, Prepared, coupling_word};
use lens_train::files::write_atomically;
use lens_train::inputs;
use lens_train::run::rollout_config;
use lens_train::tasks::TaskOrder;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::Tracker;
use crate::results::newest_model;
use files::{AuditFile, Keyed};

/// Branches played side by side; more need more memory and gain little.
const BRANCHES: usize = 384;

/// Measure what hints really change, and how well every gate and proposal rule finds it
///
/// At a sample of forks both branches are played to the end of the task many times. The share solved with the hint less
/// the share solved without it is the truth that gates are compared with. Run an interrupted audit again to resume it:
/// forks that are done are kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens audit configs/laboratory.toml --forks 64 --episodes 4 --continuations 16
  lens audit --run runs/laboratory/seed-42 --forks 32
  lens audit configs/laboratory.toml --after runs/laboratory/seed-42/checkpoints/step-000040/model")]
pub(crate) struct Audit {
    #[command(flatten)]
    config: ConfigArgs,
    /// Audit the newest checkpoint of this run, with the run's own configuration.
    #[arg(long, value_name = "RUN", conflicts_with = "files")]
    run: Option<PathBuf>,
    /// Episodes of which the turn that the configuration proposes is audited.
    #[arg(long, default_value_t = 48)]
    forks: u16,
    /// Episodes of which every turn is audited, to compare rules of proposal.
    #[arg(long, default_value_t = 4)]
    episodes: u16,
    /// Continuations played to the end from each branch.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..))]
    continuations: u16,
    /// The seed of tasks and draws; the configuration's first one by default.
    #[arg(long)]
    seed: Option<u64>,
    /// A student after training: play the same states with it and say how much of the hints it does by itself.
    #[arg(long, value_name = "MODEL")]
    after: Option<PathBuf>,
    /// The folder of the results; by default `audit` in the run's folder, or beside the runs of the configuration.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let stop = interrupt::stop_flag_saying("the forks under way are finished and saved first");
        if self.forks == 0 && self.episodes == 0 {
            return Err(Failure::user("nothing to audit: --forks and --episodes are both 0"));
        }
        let (config, folder) = self.config_and_folder()?;
        assemble::set_threads(config.threads)?;
        let seed = self.seed.or(config.seeds.first().copied()).unwrap_or(0);
        let driver = Driver::new(config.method, &config.methods, config.facts(seed))
            .map_err(|error| Failure::User(error.into()))?;
        let validate = driver.validation().copied().unwrap_or(config.methods.validate);
        let benchmark = assemble::benchmark(&config)?;
        let audit = measure::Audit {
            config: rollout_config(&config, &benchmark)?,
            sampling: Sampling::at(config.rollout.temperature as f32),
            seed,
            validate,
            proposal: config.methods.locate.proposal,
            continuations: usize::from(self.continuations),
        };
        let settings = self.settings(&config, &audit, &validate)?;
        let mut lines = AuditFile::open(&folder.join("audit.jsonl"), &settings)?;
        let models = assemble::engine(&config)?.models();
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let tasks = order.batch(1, usize::from(self.forks) + usize::from(self.episodes));
        let mut playing = Tracker::new(tasks.len() as u64, "episode");
        let prepared =
            audit.prepare(&*models, tasks, usize::from(self.episodes), &mut |ended, _| {
                playing.move_to(ended as u64);
                playing.doing("playing the episodes to fork");
            })?;
        playing.finish();
        self.each(&prepared, &mut lines, &stop, "auditing", |places| {
            Ok(audit.audit(&*models, &prepared, places)?)
        })?;
        let after = self.after(&config, &audit, &prepared, &settings, &folder, &stop)?;
        let audited: Vec<AuditLine> = lines.into_lines();
        let report = AuditReport::new(settings, &audited, &after);
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Runtime(error.into()))?;
        write_atomically(&folder.join("audit.json"), json.as_bytes())?;
        for figure in figures(&report).iter().filter(|figure| !figure.is_empty()) {
            let path = folder.join(&figure.name);
            write_atomically(&path.with_extension("svg"), figure.svg().as_bytes())?;
            write_atomically(&path.with_extension("csv"), figure.csv().as_bytes())?;
        }
        if self.json {
            return Ok(writeln!(out, "{json}")?);
        }
        write!(out, "{}", print(&report))?;
        Ok(writeln!(out, "\nthe report, its figures and every fork are in {}", folder.display())?)
    }

    /// The configuration with the student to audit, and where the results go.
    fn config_and_folder(&self) -> Result<(Config, PathBuf), Failure> {
        let (config, own) = if let Some(folder) = &self.run {
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
            let mut config = args.resolve()?.config;
            config.student.path = student;
            (config, folder.join("audit"))
        } else {
            let config = self.config.resolve()?.config;
            let own = config.output.join(&config.name).join("audit");
            (config, own)
        };
        let folder = self.out.clone().unwrap_or(own);
        std::fs::create_dir_all(&folder)?;
        Ok((config, folder))
    }

    fn settings(
        &self,
        config: &Config,
        audit: &measure::Audit,
        validate: &Validate,
    ) -> Result<AuditSettings, Failure> {
        let text = render::to_toml(&config.clone().with_absolute_paths());
        let [short, long] = audit.turns();
        Ok(AuditSettings {
            format: FORMAT,
            student: config.student.path.display().to_string(),
            configuration: inputs::hash_text(&text),
            inputs: inputs::fingerprint(&assemble::with_models(config)?)?,
            seed: audit.seed,
            forks: self.forks.into(),
            episodes: self.episodes.into(),
            continuations: self.continuations.into(),
            pairs: GATE_PAIRS as u64,
            turns: [short as u64, long as u64],
            gate: GateSettings {
                evaluator: validate.evaluator.as_str().to_owned(),
                coupling: coupling_word(validate.coupling).to_owned(),
                pairs: validate.pairs as u64,
                margin: validate.margin,
                outcome_first: validate.terminal == Terminal::Outcome,
            },
        })
    }

    /// The same states played by the student after training; nothing without one.
    fn after(
        &self,
        config: &Config,
        audit: &measure::Audit,
        prepared: &Prepared,
        settings: &AuditSettings,
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<Vec<AfterLine>, Failure> {
        let Some(path) = &self.after else { return Ok(Vec::new()) };
        let mut config = config.clone();
        config.student.path.clone_from(path);
        let settings = AuditSettings {
            student: path.display().to_string(),
            inputs: inputs::fingerprint(&assemble::with_models(&config)?)?,
            ..settings.clone()
        };
        let mut lines = AuditFile::open(&folder.join("after.jsonl"), &settings)?;
        let models: std::sync::Arc<dyn Models> = assemble::engine(&config)?.models();
        self.each(prepared, &mut lines, stop, "after training", |places| {
            Ok(audit.after(&*models, prepared, places)?)
        })?;
        Ok(lines.into_lines())
    }

    /// Measures every turn that the file does not hold yet, many at once, and saves as it goes.
    fn each<L: Keyed>(
        &self,
        prepared: &Prepared,
        lines: &mut AuditFile<L>,
        stop: &AtomicBool,
        what: &str,
        mut measure: impl FnMut(&[Place]) -> Result<Vec<L>, Failure>,
    ) -> Result<(), Failure> {
        let key = |place: &Place| (place.episode, place.candidate.turn as u64);
        let open: Vec<Place> =
            prepared.places.iter().filter(|place| !lines.holds(key(place))).cloned().collect();
        let total = prepared.places.len() as u64;
        let mut bar = Tracker::new(total, "fork");
        bar.start_at(total - open.len() as u64);
        let width = (BRANCHES / (2 * usize::from(self.continuations))).clamp(1, 32);
        let mut done = total - open.len() as u64;
        for places in open.chunks(width) {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted(
                    "stopped, everything is saved; run the same command again to resume".to_owned(),
                ));
            }
            bar.doing(what);
            lines.add(measure(places)?)?;
            done += places.len() as u64;
            bar.move_to(done);
            bar.milestone(what);
        }
        bar.finish();
        Ok(())
    }
}
