//! `lens bench loop`: where an iteration's time goes, and what LENS costs next to plain OPD at the same horizon.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_config::{Config, method};
use lens_engine::{
    CallFailure, Codec, Completion, CrossContext, CrossContextTarget, Deadline, EngineError,
    GenerateCall, Learner, Policy, ScoreCall, ScoredRow, Teacher,
};
use lens_opd::episode::DivergenceSource;
use lens_opd::methods::lens::Clock;
use lens_opd::methods::{MethodParams, Setting};
use lens_opd::validate::gate::{Cause, Reason};
use lens_train::queue::Queue;
use lens_train::run::{explorer, setup};
use lens_train::tasks::TaskOrder;
use serde_json::json;

use crate::commands::config::ConfigArgs;
use crate::failure::Failure;
use crate::world;

/// Most that LENS may cost, as a multiple of OPD.
const GOAL: f64 = 1.6;

/// Options of `lens bench loop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Iteration {
    #[command(flatten)]
    config: ConfigArgs,
    /// Explorer batches of each method, after one to warm up.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    batches: u16,
    /// The rollout horizon of both methods.
    #[arg(long, default_value_t = 10)]
    horizon: usize,
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

/// Times by stage, shared by the wrapped models.
#[derive(Debug, Default)]
struct Clockwork {
    seconds: Mutex<[f64; STAGES.len()]>,
    /// How often the teacher has judged in this batch: forks begin after the first time.
    judged: AtomicU64,
    generated: AtomicU64,
}

impl Clockwork {
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

    fn timed<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.add(stage, started.elapsed());
        result
    }
}

/// A student whose calls are timed.
struct TimedStudent {
    inner: Arc<dyn Policy>,
    clockwork: Arc<Clockwork>,
}

impl Policy for TimedStudent {
    fn codec(&self) -> &dyn Codec {
        self.inner.codec()
    }

    fn version(&self) -> u64 {
        self.inner.version()
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let stage = if self.clockwork.in_forks() { Stage::ForkGenerate } else { Stage::Generate };
        let answers = self.clockwork.timed(stage, || self.inner.generate(calls, deadline))?;
        let tokens: usize = answers.iter().flatten().map(|answer| answer.tokens.len()).sum();
        self.clockwork.generated.fetch_add(tokens as u64, Ordering::Relaxed);
        Ok(answers)
    }

    fn cross_context(
        &self,
        calls: &[CrossContext],
    ) -> Result<Option<Vec<CrossContextTarget>>, EngineError> {
        self.clockwork.timed(Stage::ForkScore, || self.inner.cross_context(calls))
    }
}

/// A teacher whose calls are timed.
struct TimedTeacher {
    inner: Arc<dyn Teacher>,
    clockwork: Arc<Clockwork>,
}

impl Policy for TimedTeacher {
    fn codec(&self) -> &dyn Codec {
        self.inner.codec()
    }

    fn version(&self) -> u64 {
        self.inner.version()
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        self.clockwork.timed(Stage::Hints, || self.inner.generate(calls, deadline))
    }
}

impl Teacher for TimedTeacher {
    fn divergence(&self) -> DivergenceSource {
        self.inner.divergence()
    }

    fn score(
        &self,
        student: &dyn Policy,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<ScoredRow, CallFailure>>, EngineError> {
        let stage = if self.clockwork.in_forks() { Stage::ForkScore } else { Stage::Score };
        let inner = (student as &dyn Any).downcast_ref::<TimedStudent>();
        let student = inner.map_or(student, |timed| timed.inner.as_ref());
        let answers = self.clockwork.timed(stage, || self.inner.score(student, calls, deadline));
        self.clockwork.judged.fetch_add(1, Ordering::Relaxed);
        answers
    }
}

/// What one method's batches came to.
#[derive(Debug)]
struct Measured {
    seconds: [f64; STAGES.len()],
    turns: usize,
    generated: u64,
    trained_rows: usize,
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
}

impl Iteration {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        world::set_threads(config.threads)?;
        let opd = self.measure(&config, "method=opd")?;
        let lens = self.measure(&config, "method=lens")?;
        let ratio = lens.total() / opd.total();
        if self.json {
            let object = |measured: &Measured| {
                let stages: serde_json::Map<String, serde_json::Value> = STAGES
                    .iter()
                    .map(|&(stage, name)| {
                        (name.to_owned(), json!(measured.seconds[stage as usize]))
                    })
                    .collect();
                json!({
                    "seconds": stages, "total": measured.total(), "turns": measured.turns,
                    "generated_tokens": measured.generated, "trained_rows": measured.trained_rows,
                    "forks": measured.forks, "complete_pairs": measured.pairs,
                    "accepted": measured.accepted, "incomplete": measured.incomplete,
                    "over_at_the_fork": measured.over,
                })
            };
            let object = json!({
                "batches": self.batches, "horizon": self.horizon,
                "opd": object(&opd), "lens": object(&lens), "cost_of_lens": ratio,
            });
            return Ok(writeln!(out, "{object:#}")?);
        }
        writeln!(
            out,
            "{} explorer batches of {} episodes, horizon {}; seconds",
            self.batches, config.rollout.batch_size, self.horizon
        )?;
        writeln!(out, "{:<30} {:>9} {:>9}", "stage", "opd", "lens")?;
        for (stage, name) in STAGES {
            let (a, b) = (opd.seconds[stage as usize], lens.seconds[stage as usize]);
            writeln!(out, "{name:<30} {a:>9.2} {b:>9.2}")?;
        }
        writeln!(out, "{:<30} {:>9.2} {:>9.2}", "all", opd.total(), lens.total())?;
        let speed = |measured: &Measured| {
            let generating = measured.seconds[Stage::Generate as usize]
                + measured.seconds[Stage::ForkGenerate as usize];
            measured.generated as f64 / generating.max(f64::MIN_POSITIVE)
        };
        writeln!(
            out,
            "{:<30} {:>9.0} {:>9.0}",
            "tokens generated per second",
            speed(&opd),
            speed(&lens)
        )?;
        writeln!(out, "{:<30} {:>9} {:>9}", "turns played", opd.turns, lens.turns)?;
        writeln!(
            out,
            "{:<30} {:>9} {:>9}",
            "rows trained on", opd.trained_rows, lens.trained_rows
        )?;
        writeln!(
            out,
            "forks: {}, of them {} in tasks that were over at the fork turn; complete pairs {} ({:.1} % of the others, goal 99), hints kept {}",
            lens.forks,
            lens.over,
            lens.pairs,
            100.0 * lens.pairs as f64 / (lens.forks - lens.over).max(1) as f64,
            lens.accepted
        )?;
        for (reason, forks) in &lens.incomplete {
            writeln!(out, "  not complete: {reason} {forks}")?;
        }
        let verdict = if ratio <= GOAL { "reached" } else { "missed" };
        writeln!(out, "LENS costs {ratio:.2} times OPD (goal: at most {GOAL}, {verdict})")?;
        Ok(())
    }

    fn measure(&self, config: &Config, method: &str) -> Result<Measured, Failure> {
        let mut config = config.clone();
        config.method = lens_config::resolve(&[], &[method.to_owned()])?.config.method;
        let benchmark = world::benchmark(&config)?;
        let (teacher, mut learner) = world::models(&config)?;
        let seed = config.seeds.first().copied().unwrap_or(0);
        let mut params = method::method_params(&config);
        if let MethodParams::Lens(lens) = &mut params {
            lens.locate.clock = Clock::Full;
        }
        // Rollouts end at the horizon; forks go on behind it, as they do in training.
        let setting = Setting { seed, max_turns: self.horizon.clamp(1, config.task.turn_limit) };
        let mut method = params.build(setting).map_err(|error| Failure::User(error.into()))?;
        let explorer = explorer(&config, setup(&config, &benchmark), seed);
        let order = TaskOrder::new(benchmark.tasks(&config.task.train_split)?, seed);
        let mut queue = Queue::default();
        let (mut step, mut measured) = (0, None);
        let mut clockwork = Arc::new(Clockwork::default());
        for number in 0..=u64::from(self.batches) {
            if number == 1 {
                // What came before was to warm up.
                clockwork = Arc::new(Clockwork::default());
                measured = None;
            }
            clockwork.judged.store(0, Ordering::Relaxed);
            let student: Arc<dyn Policy> = Arc::new(TimedStudent {
                inner: learner.snapshot().map_err(|error| Failure::Runtime(error.into()))?,
                clockwork: clockwork.clone(),
            });
            let timed = TimedTeacher { inner: teacher.clone(), clockwork: clockwork.clone() };
            let before = clockwork.total();
            let started = Instant::now();
            let tasks = order.batch(number + 1, config.rollout.batch_size);
            let mut explored =
                explorer.explore(&mut *method, &student, &timed, number + 1, tasks)?;
            let in_models = clockwork.total() - before;
            let rest = started.elapsed().as_secs_f64() - in_models;
            clockwork.add(Stage::Environment, Duration::from_secs_f64(rest.max(0.0)));
            queue.push(std::mem::take(&mut explored.rows));
            let counts = measured.get_or_insert(Measured {
                seconds: [0.0; STAGES.len()],
                turns: 0,
                generated: 0,
                trained_rows: 0,
                forks: 0,
                pairs: 0,
                accepted: 0,
                incomplete: BTreeMap::new(),
                over: 0,
            });
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
            let (train, loss) = (&config.train, method::loss_params(&config));
            loop {
                let terms = method.terms();
                let batch = queue
                    .pop(step + 1, train.batch_size, train.max_staleness, &loss, &terms)
                    .map_err(|error| Failure::Runtime(error.into()))?;
                let Some(batch) = batch else { break };
                counts.trained_rows += batch.rows.len();
                clockwork
                    .timed(Stage::Train, || learner.learn(&batch.rows))
                    .map_err(|error| Failure::Runtime(error.into()))?;
                step += 1;
            }
        }
        let mut measured = measured.ok_or_else(|| Failure::user("at least one batch is needed"))?;
        measured.seconds = *clockwork.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        measured.generated = clockwork.generated.load(Ordering::Relaxed);
        Ok(measured)
    }
}
