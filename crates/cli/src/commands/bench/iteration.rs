//! `lens bench loop`: where an iteration's time goes, and what LENS costs next to plain OPD at the same horizon.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_config::Config;
use lens_engine::{Call, Engine, Observed, Observer};
use lens_opd::locate::Clock;
use lens_opd::methods::{Driver, MethodName, RunFacts};
use lens_opd::validate::gate::{Cause, Reason};
use lens_train::queue::Queue;
use lens_train::references::References;
use lens_train::run::{rollout, rollout_config};
use lens_train::tasks::TaskOrder;
use serde_json::{Value, json};

use super::roofline::{Shapes, speed};
use super::trace::Trace;
use crate::assemble;
use crate::commands::config::ConfigArgs;
use crate::failure::Failure;

/// Options of `lens bench loop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Iteration {
    #[command(flatten)]
    config: ConfigArgs,
    /// The methods to measure.
    #[arg(long, value_delimiter = ',', value_name = "METHOD", default_value = "opd,lens", value_parser = crate::values::method())]
    methods: Vec<MethodName>,
    /// Explorer batches of each method, after one to warm up.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    batches: u16,
    /// The rollout horizon of every method.
    #[arg(long, default_value_t = 10)]
    horizon: usize,
    /// Write down what the models were asked, for `lens bench peers`.
    #[arg(long, value_name = "FILE", hide = true)]
    record: Option<PathBuf>,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// The stages of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Generate,
    Score,
    Hints,
    ForkGenerate,
    ForkScore,
    Environment,
    Train,
}

const STAGES: [(Stage, &str); 7] = [
    (Stage::Generate, "generate"),
    (Stage::Score, "score"),
    (Stage::Hints, "fork: hints"),
    (Stage::ForkGenerate, "fork: generate"),
    (Stage::ForkScore, "fork: score"),
    (Stage::Environment, "environments, prompts, rows"),
    (Stage::Train, "train"),
];

/// The names of the stages, in their order.
pub(super) fn stage_names() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|(_, name)| *name)
}

/// Times by stage, shared by the wrapped models.
#[derive(Debug)]
struct Clockwork {
    shapes: Shapes,
    seconds: Mutex<[f64; STAGES.len()]>,
    /// Floating-point operations the stages asked for.
    flops: Mutex<[f64; STAGES.len()]>,
    /// How often the teacher has judged in this batch: forks begin after the first time.
    judged: AtomicU64,
    generated: AtomicU64,
    trace: Option<Arc<Trace>>,
}

impl Clockwork {
    fn new(shapes: &Shapes, trace: Option<&Arc<Trace>>) -> Self {
        Self {
            shapes: shapes.clone(),
            seconds: Mutex::default(),
            flops: Mutex::default(),
            judged: AtomicU64::new(0),
            generated: AtomicU64::new(0),
            trace: trace.cloned(),
        }
    }

    fn ask(&self, stage: Stage, flops: f64) {
        let mut asked = self.flops.lock().unwrap_or_else(PoisonError::into_inner);
        asked[stage as usize] += flops;
    }

    fn add(&self, stage: Stage, time: Duration) {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        seconds[stage as usize] += time.as_secs_f64();
    }

    fn total(&self) -> f64 {
        self.seconds.lock().unwrap_or_else(PoisonError::into_inner).iter().sum()
    }

    fn in_forks(&self) -> bool {
        self.judged.load(Ordering::Relaxed) > 0
    }
}

impl Observer for Clockwork {
    fn answered(&self, call: &Call<'_>, time: Duration) {
        if let Some(trace) = &self.trace {
            trace.call(call);
        }
        let forks = self.in_forks();
        let stage = match call {
            Call::Student(_, answers) => {
                let tokens: usize =
                    answers.iter().flatten().map(|answer| answer.tokens.len()).sum();
                self.generated.fetch_add(tokens as u64, Ordering::Relaxed);
                if forks { Stage::ForkGenerate } else { Stage::Generate }
            }
            Call::Teacher(..) => Stage::Hints,
            Call::Compare(..) => {
                self.judged.fetch_add(1, Ordering::Relaxed);
                if forks { Stage::ForkScore } else { Stage::Score }
            }
            Call::Internalize(..) => Stage::ForkScore,
        };
        self.add(stage, time);
        self.ask(stage, self.shapes.of_call(call));
    }
}

/// What one method's batches came to.
#[derive(Debug)]
struct Measured {
    seconds: [f64; STAGES.len()],
    flops: [f64; STAGES.len()],
    turns: usize,
    generated: u64,
    /// Rows the batches gave; those of the last step may still wait.
    rows: usize,
    trained_rows: usize,
    steps: u64,
    forks: usize,
    pairs: usize,
    accepted: usize,
    /// Why pairs are not complete.
    incomplete: BTreeMap<String, u64>,
    /// Forks with a branch that ended its task at the fork turn: they have no future that could be compared.
    over: usize,
}

impl Measured {
    fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    fn tokens_per_second(&self) -> f64 {
        let seconds =
            self.seconds[Stage::Generate as usize] + self.seconds[Stage::ForkGenerate as usize];
        self.generated as f64 / seconds.max(f64::MIN_POSITIVE)
    }

    /// Seconds if every row had been trained on, no more and no fewer: how many optimizer steps fall into a few batches is an
    /// accident of their sizes.
    fn total_by_row(&self) -> f64 {
        let train = self.seconds[Stage::Train as usize];
        let rows = self.rows as f64 / self.trained_rows.max(1) as f64;
        self.total() - train + train * rows
    }
}

impl Iteration {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let trace = match &self.record {
            Some(path) => Some(Arc::new(Trace::create(path, &config)?)),
            None => None,
        };
        let shapes = Shapes::read(&config)?;
        let peak = lens_lm::bench::peak_gflops();
        let mut all = Vec::new();
        for &method in &self.methods {
            all.push((method, self.measure(&config, method, &shapes, trace.as_ref())?));
        }
        if let Some(trace) = trace {
            trace.finish()?;
        }
        let of = |wanted: MethodName| {
            all.iter().find(|(method, _)| *method == wanted).map(|(_, measured)| measured)
        };
        // What LENS costs, as it was and by row.
        let costs = of(MethodName::Lens).zip(of(MethodName::Opd)).map(|(lens, opd)| {
            (lens.total() / opd.total(), lens.total_by_row() / opd.total_by_row())
        });
        if self.json {
            let object = |measured: &Measured| {
                let stages = |values: &[f64; STAGES.len()]| -> serde_json::Map<String, Value> {
                    let named = STAGES.iter().zip(values);
                    named.map(|((_, name), value)| ((*name).to_owned(), json!(value))).collect()
                };
                json!({
                    "seconds": stages(&measured.seconds), "flops": stages(&measured.flops),
                    "total": measured.total(), "turns": measured.turns,
                    "generated_tokens": measured.generated, "rows": measured.rows,
                    "trained_rows": measured.trained_rows, "optimizer_steps": measured.steps,
                    "forks": measured.forks, "complete_pairs": measured.pairs,
                    "accepted": measured.accepted, "incomplete": measured.incomplete,
                    "over_at_the_fork": measured.over,
                })
            };
            let mut printed = json!({
                "batches": self.batches, "horizon": self.horizon,
                "cost_of_lens": costs.map(|(ratio, _)| ratio),
                "cost_of_lens_by_row": costs.map(|(_, by_row)| by_row),
                "peak_gflops": peak, "peak_rss_bytes": lens_lm::train::bench::peak_rss_bytes(),
            });
            for (method, measured) in &all {
                printed[method.as_str()] = object(measured);
            }
            return Ok(writeln!(out, "{printed:#}")?);
        }
        writeln!(
            out,
            "{} explorer batches of {} episodes, horizon {}; seconds, GFLOP/s and their share of the peak of f32 \
             multiply-adds, {peak:.0} GFLOP/s",
            self.batches, config.rollout.batch_size, self.horizon
        )?;
        let row = |name: &str, cells: &[String], wide: &[String]| {
            let mut line = format!("{name:<30}");
            line.extend(cells.iter().map(|cell| format!(" {cell:>9}")));
            line.extend(wide.iter().map(|cell| format!(" {cell:>16}")));
            line.trim_end().to_owned()
        };
        let each = |cell: &dyn Fn(&Measured) -> String| -> Vec<String> {
            all.iter().map(|(_, measured)| cell(measured)).collect()
        };
        let names: Vec<String> = all.iter().map(|(method, _)| method.as_str().to_owned()).collect();
        writeln!(out, "{}", row("stage", &names, &names))?;
        for (stage, name) in STAGES {
            let at = stage as usize;
            let seconds = each(&|one| format!("{:.2}", one.seconds[at]));
            let speeds = each(&|one| speed(one.flops[at], one.seconds[at], peak));
            writeln!(out, "{}", row(name, &seconds, &speeds))?;
        }
        let seconds = each(&|one| format!("{:.2}", one.total()));
        let speeds = each(&|one| speed(one.flops.iter().sum(), one.total(), peak));
        writeln!(out, "{}", row("all", &seconds, &speeds))?;
        let counts: [(&str, Vec<String>); 5] = [
            ("tokens generated per second", each(&|one| format!("{:.0}", one.tokens_per_second()))),
            ("turns played", each(&|one| one.turns.to_string())),
            ("rows to train on", each(&|one| one.rows.to_string())),
            ("rows trained on", each(&|one| one.trained_rows.to_string())),
            ("optimizer steps", each(&|one| one.steps.to_string())),
        ];
        for (name, cells) in &counts {
            writeln!(out, "{}", row(name, cells, &[]))?;
        }
        for (method, one) in all.iter().filter(|(_, one)| one.forks > 0) {
            writeln!(
                out,
                "forks of {method}: {}, of them {} in tasks that were over at the fork turn; complete pairs {} ({:.1} % of \
                 the others), hints kept {}",
                one.forks,
                one.over,
                one.pairs,
                100.0 * one.pairs as f64 / (one.forks - one.over).max(1) as f64,
                one.accepted
            )?;
            for (reason, forks) in &one.incomplete {
                writeln!(out, "  not complete: {reason} {forks}")?;
            }
        }
        if let Some((ratio, by_row)) = costs {
            writeln!(
                out,
                "LENS costs {ratio:.2} times OPD, {by_row:.2} times if each trains on all of its rows and no others"
            )?;
        }
        Ok(())
    }

    fn measure(
        &self,
        config: &Config,
        method: MethodName,
        shapes: &Shapes,
        trace: Option<&Arc<Trace>>,
    ) -> Result<Measured, Failure> {
        let name = method.as_str();
        let clockwork_of = || Arc::new(Clockwork::new(shapes, trace));
        let written = || trace.map_or(0.0, |trace| trace.seconds());
        let runtime = |error: lens_engine::EngineError| Failure::Runtime(error.into());
        let benchmark = assemble::benchmark(config)?;
        let mut engine = assemble::engine(config)?;
        let seed = config.seeds.first().copied().unwrap_or(0);
        let mut sections = config.methods.clone();
        sections.locate.clock = Clock::Full;
        sections.locate.max_horizon = 0;
        // Rollouts end at the horizon; forks go on behind it, as they do in training.
        let max_turns = self.horizon.clamp(1, config.task.turn_limit);
        let facts = RunFacts { seed, max_turns, steps: config.train.steps };
        let mut method =
            Driver::new(method, &sections, facts).map_err(|error| Failure::User(error.into()))?;
        let references = Arc::new(References::None);
        let rollout = rollout(config, rollout_config(config, &benchmark)?, seed, references);
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let mut queue = Queue::default();
        let (mut step, mut measured) = (0, None);
        let mut clockwork = clockwork_of();
        for number in 0..=u64::from(self.batches) {
            if number == 1 {
                // What came before was to warm up.
                clockwork = clockwork_of();
                measured = None;
            }
            if let Some(trace) = trace {
                trace.batch(name, number);
            }
            clockwork.judged.store(0, Ordering::Relaxed);
            engine.publish(&queue.targets()).map_err(runtime)?;
            let models = Observed::new(engine.models(), clockwork.clone());
            let before = clockwork.total();
            let writing = written();
            let started = Instant::now();
            let tasks = order.batch(number + 1, config.rollout.batch_size);
            let mut explored =
                rollout.explore(&mut method, &models, number + 1, tasks, &mut |_| {})?;
            let elsewhere = clockwork.total() - before + written() - writing;
            let rest = started.elapsed().as_secs_f64() - elsewhere;
            clockwork.add(Stage::Environment, Duration::from_secs_f64(rest.max(0.0)));
            let rows = std::mem::take(&mut explored.rows);
            let new_rows = rows.len();
            queue.push(rows);
            let counts = measured.get_or_insert(Measured {
                seconds: [0.0; STAGES.len()],
                flops: [0.0; STAGES.len()],
                turns: 0,
                generated: 0,
                rows: 0,
                trained_rows: 0,
                steps: 0,
                forks: 0,
                pairs: 0,
                accepted: 0,
                incomplete: BTreeMap::new(),
                over: 0,
            });
            counts.rows += new_rows;
            counts.turns += explored.episodes.iter().map(|one| one.turns.len()).sum::<usize>();
            counts.forks += explored.record.forks.len();
            counts.pairs += explored.record.complete_pairs();
            counts.accepted += explored.record.accepted();
            for fork in explored.record.forks.iter().filter(|fork| !fork.verdict.is_complete()) {
                let reason = fork.reason.clone().unwrap_or_default();
                *counts.incomplete.entry(reason).or_default() += 1;
                counts.over += usize::from(matches!(
                    fork.verdict.reason,
                    Some(Reason::Incomplete(_, Cause::NoContinuation))
                ));
            }
            let (train, loss) = (&config.train, &config.loss);
            loop {
                let terms = method.terms();
                let batch = queue
                    .pop(
                        step + 1,
                        train.batch_size,
                        train.staleness.limit(train.max_staleness),
                        loss,
                        &terms,
                    )
                    .map_err(|error| Failure::Runtime(error.into()))?;
                let Some(batch) = batch else { break };
                counts.trained_rows += batch.rows.len();
                counts.steps += 1;
                let started = Instant::now();
                engine.learn(&batch.rows).map_err(runtime)?;
                clockwork.add(Stage::Train, started.elapsed());
                clockwork.ask(Stage::Train, shapes.of_step(&batch.rows));
                if let Some(trace) = trace {
                    trace.learned(&batch.rows);
                }
                step += 1;
            }
        }
        let mut measured = measured.ok_or_else(|| Failure::user("at least one batch is needed"))?;
        measured.seconds = *clockwork.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        measured.flops = *clockwork.flops.lock().unwrap_or_else(PoisonError::into_inner);
        measured.generated = clockwork.generated.load(Ordering::Relaxed);
        Ok(measured)
    }
}
