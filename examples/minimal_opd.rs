//! On-policy distillation from first principles: the whole loop, and nothing but the loop.
//!
//! A small student plays household games. A teacher reads what the student wrote and says, token by token, what it would
//! have written in the student's place. The student is pulled toward that, and plays again. What makes it *on-policy* is
//! that the states are the student's own: the teacher corrects mistakes that the student really makes.
//!
//! ```text
//! cargo run --release --example minimal_opd              # ten batches of sixteen games: some minutes
//! cargo run --release --example minimal_opd -- 2 4       # two batches of four games: a quick look
//! ```
//!
//! The program `lens` adds curricula, hints, forks, checkpoints and logs. They hang on the same six calls as below:
//! `play`, `score_batch`, `plain_rows`, `LossPlan::new`, `Engine::learn`, `Engine::publish`.
#![allow(clippy::print_stdout, reason = "it is a program for a terminal")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lens_agent::{Context, Episode, Judged, Plan, Prompting, RolloutConfig, play, score_batch};
use lens_engine::native::{LearnerOptions, NativeEngine};
use lens_engine::{Deadline, Engine, LearnReport, LearnRow, Policy, Sampling};
use lens_env::{Benchmark, BenchmarkOptions, Task, registry};
use lens_lm::model::WeightFormat;
use lens_lm::train::{AdamWConfig, TrainerOptions};
use lens_opd::methods::exposure::Exposure;
use lens_opd::methods::rows::{TrainRow, plain_rows};
use lens_opd::objective::Loss;
use lens_opd::objective::plan::{LossPlan, LossTerms};
use lens_opd::random::{Purpose, StreamKey};

/// How long and how hard to train.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// A Hugging Face directory with the student.
    pub(crate) student: PathBuf,
    /// A Hugging Face directory with the teacher; both must share one tokenizer.
    pub(crate) teacher: PathBuf,
    /// Times that the student plays, is scored, and learns.
    pub(crate) batches: u64,
    /// Games per batch.
    pub(crate) games: usize,
    /// Turns per game at most.
    pub(crate) turn_limit: usize,
    /// Rows per optimizer step. One turn of one game is one row.
    pub(crate) rows_per_step: usize,
    /// Learning rate of AdamW.
    pub(crate) learning_rate: f64,
    /// Games that nobody trains on, played before and after.
    pub(crate) evaluation_games: usize,
    /// Names every random draw of the run.
    pub(crate) seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/lab");
        Self {
            student: models.join("student-small"),
            teacher: models.join("teacher"),
            batches: 10,
            games: 16,
            turn_limit: 20,
            rows_per_step: 64,
            learning_rate: 2e-4,
            evaluation_games: 32,
            seed: 42,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Share of unseen games solved before training.
    pub(crate) before: f64,
    /// Share of unseen games solved after it.
    pub(crate) after: f64,
    /// What every optimizer step reported.
    pub(crate) steps: Vec<LearnReport>,
    /// Version of the published student: optimizer steps its weights have seen.
    pub(crate) version: u64,
}

/// Runs with the default settings; two numbers on the command line replace the batches and the games per batch.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = Settings::default();
    let mut numbers = std::env::args().skip(1);
    if let Some(batches) = numbers.next() {
        settings.batches = batches.parse()?;
    }
    if let Some(games) = numbers.next() {
        settings.games = games.parse()?;
    }
    let Outcome { before, after, steps, version } = train(&settings, |line| println!("{line}"))?;
    let seen: usize = steps.iter().map(|step| step.tokens).sum();
    println!("student version {version} has learned from {seen} tokens");
    println!("unseen games solved: {:.0} % before, {:.0} % after", 100.0 * before, 100.0 * after);
    Ok(())
}

/// The loop.
pub(crate) fn train(
    settings: &Settings,
    mut say: impl FnMut(&str),
) -> Result<Outcome, Box<dyn Error>> {
    // The world: the built-in text games, and the limits every game is played under.
    let benchmark = registry::open("alfworld", &BenchmarkOptions::default())?;
    let profile = benchmark.profile().clone();
    let world = world(benchmark.clone(), settings);
    let mut training = benchmark.tasks(&profile.train_split)?;
    let mut unseen = benchmark.tasks("valid_unseen")?;
    unseen.truncate(settings.evaluation_games);

    // The models. The engine owns the student that learns; `engine.models()` is the student as it was last *published*,
    // beside its frozen teacher. Learning does not change what is published, so a batch is played by one student.
    let loss = Loss::default(); // reverse KL over the whole vocabulary, `KL(student || teacher)`
    let mut engine = NativeEngine::load(
        &settings.student,
        &settings.teacher,
        WeightFormat::F32,
        LearnerOptions {
            format: WeightFormat::F32,
            loss,
            optimizer: AdamWConfig { lr: settings.learning_rate, ..AdamWConfig::default() },
            training: TrainerOptions::default(),
        },
    )?;

    let before = evaluate(&world, engine.models().student(), &unseen, settings)?;

    // Every draw is named by what it is for, so a run can be repeated to the bit on any number of threads.
    StreamKey::new(settings.seed, 0, 0, Purpose::TaskOrder, 0).open().shuffle(&mut training);
    let mut tasks = training.iter().cycle();
    let mut steps = Vec::new();
    for batch in 1..=settings.batches {
        let models = engine.models();

        // 1. Roll out: the student plays, all games side by side, each turn one batched call.
        let tasks: Vec<Task> = tasks.by_ref().take(settings.games).cloned().collect();
        let plans = plans(&tasks, batch, Purpose::Rollout, Sampling::at(1.0), settings);
        let episodes = play(&world, models.student(), None, plans, false, &mut |_, _| {})?;

        // 2. Score: the teacher reads every turn in the context the student wrote it in. The answer holds its
        //    log-probabilities, and a target per turn that only the engine can read.
        let judged = score_batch(&world, &*models, batch, &episodes, false)?;

        // 3. Rows: one per turn that was played, every token with weight 1. Other methods leave rows out, add rows
        //    or weigh tokens; this is the one place where they differ.
        let mut rows = plain_rows(&judged.batch);
        StreamKey::new(settings.seed, batch, 0, Purpose::RowOrder, 0).open().shuffle(&mut rows);

        // 4. Learn: the loss of a train batch is fixed before the first gradient, so each token's coefficient depends
        //    on its train batch alone and not on how rows are grouped for the machine.
        let first = steps.len();
        for chunk in rows.chunks(settings.rows_per_step) {
            let plan = LossPlan::new(chunk, &loss, &LossTerms::default())?;
            let report = engine.learn(&learn_rows(chunk, &plan, &episodes, &judged)?)?;
            if report.skipped {
                say("a step was skipped: a number in it was not finite");
            }
            steps.push(report);
        }

        // 5. Publish: the weights of this moment become the student. No row waits, so no target is kept.
        engine.publish(&[])?;
        let solved = episodes.iter().filter(|episode| episode.success).count();
        let learned = &steps[first..];
        let loss =
            learned.iter().map(|report| report.loss).sum::<f64>() / learned.len().max(1) as f64;
        say(&format!(
            "batch {batch}: {solved} of {} games solved, {} rows, mean loss {loss:.4}, student version {}",
            episodes.len(),
            rows.len(),
            engine.version(),
        ));
    }

    let models = engine.models();
    let after = evaluate(&world, models.student(), &unseen, settings)?;
    Ok(Outcome { before, after, steps, version: models.student().version() })
}

/// The limits every game is played under.
fn world(benchmark: Arc<dyn Benchmark>, settings: &Settings) -> RolloutConfig {
    RolloutConfig {
        prompting: Prompting::default(), // the benchmark's own prompt and tagged actions
        context: Context::Window,        // every turn's prompt stands alone ...
        history: benchmark.profile().history, // ... and shows the last steps
        turn_limit: settings.turn_limit,
        max_prompt_tokens: 1536,
        max_response_tokens: 48,
        timeout: None,
        deadline: Deadline::never(),
        benchmark,
    }
}

/// One game per task. `batch` and the game's place name its random draws.
fn plans(
    tasks: &[Task],
    batch: u64,
    purpose: Purpose,
    sampling: Sampling,
    settings: &Settings,
) -> Vec<Plan> {
    let plan = |(task, key): (&Task, u64)| Plan {
        key,
        task: task.clone(),
        exposure: Exposure::student(settings.turn_limit), // a curriculum would give less
        reference: None,
        seed: settings.seed,
        batch,
        purpose,
        sampling,
    };
    tasks.iter().zip(0..).map(plan).collect()
}

/// A method's rows name turns; the engine wants their tokens, each token's coefficient and the turn's target.
fn learn_rows(
    rows: &[TrainRow],
    plan: &LossPlan,
    episodes: &[Episode],
    judged: &Judged,
) -> Result<Vec<LearnRow>, Box<dyn Error>> {
    let mut learned = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        // An episode's key is its place in the batch, and without a replayed prefix a turn's number is its place too.
        let (episode, turn) = (row.episode as usize, row.turn);
        let played = &episodes[episode].turns[turn];
        let target = judged.targets[episode][turn].clone();
        let coefficients = plan.coefficients(index).ok_or("a row without a plan")?;
        learned.push(LearnRow {
            prompt: played.prompt.clone(),
            response: played.response.clone(),
            coefficients: coefficients.iter().map(|&coefficient| coefficient as f32).collect(),
            target: target.ok_or("a row that the teacher did not score")?,
        });
    }
    Ok(learned)
}

/// The share of tasks the student solves when it takes its most likely token.
fn evaluate(
    world: &RolloutConfig,
    student: &dyn Policy,
    tasks: &[Task],
    settings: &Settings,
) -> Result<f64, Box<dyn Error>> {
    let plans = plans(tasks, 0, Purpose::Evaluation, Sampling::GREEDY, settings);
    let episodes = play(world, student, None, plans, false, &mut |_, _| {})?;
    let solved = episodes.iter().filter(|episode| episode.success).count();
    Ok(solved as f64 / tasks.len().max(1) as f64)
}
