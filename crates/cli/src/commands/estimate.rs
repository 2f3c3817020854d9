//! `lens estimate`: what a configuration costs before it runs.

use std::io::Write;
use std::path::Path;

use lens_agent::prompts::turn_message;
use lens_config::Config;
use lens_config::schema::WeightsName;
use lens_engine::native::NativeCodec;
use lens_engine::{Codec, Message};
use lens_env::Window;
use lens_lm::checkpoint::ModelFiles;
use lens_lm::config::ModelConfig;
use lens_opd::buffer::plan_train_batch;
use lens_opd::episode::{DivergenceSource, ScoredBatch};
use lens_opd::methods::Driver;
use lens_opd::methods::exposure::{Control, EpisodeSlot};
use lens_train::references::References;
use serde::Serialize;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::terminal::say;
use crate::wording::{counted, group};

/// Share of the processor's peak that whole iterations reach.
const EFFICIENCY: f64 = 0.35;
/// Share of forks that are taken to be accepted.
const ACCEPTED: f64 = 0.5;
/// Tasks whose first prompt is measured.
const SAMPLE: usize = 16;

/// Estimate what a configuration costs: tokens, teacher calls, memory, disk, time
///
/// Episodes are taken to last as long as the method lets them, so tokens and time are upper bounds; a student that
/// solves its tasks early needs less. Of the models only `config.json` is needed. Prompts of the benchmark's own tasks
/// are measured with the student's tokenizer, or counted as four bytes per token where it has none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens estimate configs/laboratory.toml
  lens estimate configs/laboratory.toml --set method=opd --set train.steps=250 --json")]
pub(crate) struct Estimate {
    #[command(flatten)]
    config: ConfigArgs,
    /// Tokens of a typical response.
    #[arg(long, default_value_t = 32)]
    response_tokens: usize,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// The costs of one seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Costs {
    steps: u64,
    explorer_batches: u64,
    prompt_tokens: usize,
    student_turns: u64,
    teacher_turns: u64,
    fork_turns: u64,
    generated_tokens: u64,
    prompt_tokens_read: u64,
    teacher_scored_rows: u64,
    teacher_hints: u64,
    trained_tokens: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    evaluation_episodes: u64,
    hours: f64,
}

impl Estimate {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let student = files(&config.student.path, "student.path")?;
        let teacher = files(&config.teacher.path, "teacher.path")?;
        let typical = Typical::measure(&config, &student)?;
        let peak = lens_lm::bench::peak_gflops() * 1e9;
        let shapes = (&student.config, &teacher.config);
        let costs = costs(&config, shapes, &typical, self.response_tokens, peak)?;
        if self.json {
            let object = serde_json::json!({ "seeds": config.seeds.len(), "per_seed": costs });
            return Ok(writeln!(out, "{object:#}")?);
        }
        let count = group;
        let mib = |bytes: u64| format!("{} MiB", group(bytes.div_ceil(1 << 20)));
        let lines = [
            ("optimizer steps", count(costs.steps)),
            ("explorer batches, about", count(costs.explorer_batches)),
            ("tokens of a typical prompt", count(costs.prompt_tokens as u64)),
            ("student turns, at most", count(costs.student_turns)),
            ("teacher turns, at most", count(costs.teacher_turns)),
            ("turns of forks, at most", count(costs.fork_turns)),
            ("tokens generated", count(costs.generated_tokens)),
            ("prompt tokens read", count(costs.prompt_tokens_read)),
            ("rows scored by the teacher", count(costs.teacher_scored_rows)),
            ("hints asked of the teacher", count(costs.teacher_hints)),
            ("tokens trained on", count(costs.trained_tokens)),
            ("episodes of evaluation", count(costs.evaluation_episodes)),
            ("memory for weights and training", mib(costs.memory_bytes)),
            ("disk for checkpoints and records", mib(costs.disk_bytes)),
            ("hours on this machine, at most", format!("{:.1}", costs.hours)),
        ];
        writeln!(
            out,
            "{} on {}, for each of {}:",
            config.method,
            config.task.benchmark,
            counted(config.seeds.len() as u64, "seed")
        )?;
        for (name, value) in lines {
            writeln!(out, "  {name:<34} {value:>18}")?;
        }
        Ok(())
    }
}

/// The small files of a model; its weights need not be there.
fn files(path: &Path, key: &str) -> Result<ModelFiles, Failure> {
    Ok(ModelFiles::read(&assemble::model_folder(path, key)?)?)
}

/// Bytes of a typical token, where there is no tokenizer to count with.
const BYTES_PER_TOKEN: usize = 4;

/// The student's codec; `None` where it has no tokenizer yet.
fn codec(student: &ModelFiles) -> Result<Option<NativeCodec>, Failure> {
    if !student.companions.files.contains_key("tokenizer.json") {
        say("note: the student has no tokenizer.json; prompts are counted as four bytes per token");
        return Ok(None);
    }
    NativeCodec::new(student).map(Some).map_err(|error| Failure::User(error.into()))
}

/// What some tasks of the benchmark look like.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Typical {
    /// Mean tokens of a first prompt.
    prompt: usize,
    /// Mean actions of a successful episode, where the configuration has some.
    reference: Option<usize>,
    /// Tasks played in one evaluation.
    eval_tasks: u64,
}

impl Typical {
    /// Measures some tasks, spread over the training split.
    fn measure(config: &Config, student: &ModelFiles) -> Result<Self, Failure> {
        let benchmark = assemble::benchmark(config)?;
        let codec = codec(student)?;
        let references = References::open(&config.task.references).unwrap_or(References::None);
        let tasks = benchmark.tasks(&config.task.train_split)?;
        let stride = (tasks.len() / SAMPLE).max(1);
        let mut environment = benchmark.clone().environment()?;
        let (mut tokens, mut prompts) = (0, 0);
        let mut lengths = Vec::new();
        for task in tasks.iter().step_by(stride).take(SAMPLE) {
            let view = environment.reset(task)?;
            let message = turn_message(&benchmark.profile().prompt, &Window::new(&view, &[], 0));
            tokens += match &codec {
                Some(codec) => codec
                    .prompt(&[Message::user(message)])
                    .map_err(|error| Failure::Runtime(error.into()))?
                    .len(),
                None => message.len().div_ceil(BYTES_PER_TOKEN),
            };
            prompts += 1;
            lengths.extend(references.actions(&*benchmark, task)?.map(|actions| actions.len()));
        }
        let mut eval_tasks = 0;
        for split in &config.task.eval_splits {
            let all = benchmark.tasks(split)?.len();
            let limit = config.eval.tasks_during_training;
            eval_tasks += if limit == 0 { all } else { all.min(limit) } as u64;
        }
        let reference =
            (!lengths.is_empty()).then(|| lengths.iter().sum::<usize>() / lengths.len());
        Ok(Self { prompt: tokens / prompts.max(1), reference, eval_tasks })
    }
}

/// What the batches of a run come to, if every episode lasts as long as the method lets it.
#[derive(Debug, Default, PartialEq)]
struct Played {
    batches: u64,
    student_turns: u64,
    teacher_turns: u64,
    forks: u64,
    /// Rows trained on; rows that are too old to be trained on do not count.
    trained_rows: u64,
}

/// Walks through the run without playing: the method's own clock at pace 1, the buffer's own rule of staleness.
/// `reference` is how long successful episodes are, where the method replays them.
fn walk(config: &Config, reference: Option<usize>) -> Result<Played, Failure> {
    let user = |error: lens_opd::OpdError| Failure::User(error.into());
    let (rollout, train) = (&config.rollout, &config.train);
    let mut method = Driver::new(config.method, &config.methods, config.facts(0)).map_err(user)?;
    let needs = method.needs();
    let episodes = (rollout.batch_size * rollout.repeat_times) as u64;
    let per_episode = if needs.hints { config.methods.locate.proposals_per_episode } else { 1 };
    let (mut played, mut step) = (Played::default(), 0);
    let mut queue: Vec<u64> = Vec::new();
    while step < train.steps {
        played.batches += 1;
        let slot = EpisodeSlot {
            batch: played.batches,
            version: step,
            episode: 0,
            reference_actions: reference,
        };
        let exposure = method.exposure(&slot);
        let turns = exposure.horizon.saturating_sub(exposure.prefix).max(1);
        let by_teacher = match exposure.control {
            Control::Student => 0.0,
            Control::Mixed { teacher_share, .. } => teacher_share,
        };
        let teacher_turns = (by_teacher * (episodes * turns as u64) as f64).round() as u64;
        played.teacher_turns += teacher_turns;
        played.student_turns += episodes * turns as u64 - teacher_turns;
        // FutureBridge never forks at the last turn.
        let forkable = if needs.hints { turns } else { turns - 1 };
        let forks = if needs.forks { episodes * per_episode.min(forkable) as u64 } else { 0 };
        played.forks += forks;
        // An empty batch has no frontier to measure: the clock ticks at pace 1.
        let empty = ScoredBatch {
            number: played.batches,
            divergence: DivergenceSource::Full,
            episodes: Vec::new(),
        };
        method.locate(&empty).map_err(user)?;
        let rows = episodes * turns as u64 + (ACCEPTED * forks as f64).round() as u64;
        queue.extend(std::iter::repeat_n(step, rows as usize));
        while step < train.steps {
            let pop = plan_train_batch(&queue, step + 1, train.batch_size, train.max_staleness);
            let gone = pop.train.len() + pop.stale.len();
            if pop.train.is_empty() {
                queue.drain(..pop.stale.len());
                break;
            }
            queue.drain(..gone);
            played.trained_rows += pop.train.len() as u64;
            step += 1;
        }
    }
    Ok(played)
}

fn costs(
    config: &Config,
    (student, teacher): (&ModelConfig, &ModelConfig),
    typical: &Typical,
    response: usize,
    peak: f64,
) -> Result<Costs, Failure> {
    let (rollout, train) = (&config.rollout, &config.train);
    let needs = Driver::new(config.method, &config.methods, config.facts(0))
        .map_err(|error| Failure::User(error.into()))?
        .needs();
    let played = walk(config, if needs.reference_actions { typical.reference } else { None })?;
    let response = response.min(rollout.max_response_tokens) as u64;
    let prompt_tokens = typical.prompt.min(rollout.max_prompt_tokens);
    let prompt = prompt_tokens as u64;
    let future = 2 * config.methods.validate.continuation_turns as u64;
    // With a hint both branches write a fork turn; a bridge is the teacher's, and the base branch acts again as it did.
    let (fork_turns, hints, bridges) = if needs.hints {
        (played.forks * (future + 2), played.forks, 0)
    } else {
        (played.forks * future, 0, played.forks)
    };
    let evaluations = 1 + train.steps.div_ceil(train.eval_interval);
    let evaluation_episodes = evaluations * typical.eval_tasks;
    let eval_turns = evaluation_episodes * config.task.turn_limit as u64;
    let written = played.student_turns + fork_turns + eval_turns;
    let by_teacher = played.teacher_turns + hints + bridges;
    let scored = played.student_turns + played.forks * future + 2 * bridges;
    let row = prompt + response;
    let (n_student, n_teacher) =
        (student.parameter_count() as f64, teacher.parameter_count() as f64);
    let flops = 2.0 * n_student * (written * row) as f64
        + 2.0 * (n_student + n_teacher) * (scored * row) as f64
        + 2.0 * n_teacher * (by_teacher * row) as f64
        + 6.0 * n_student * (played.trained_rows * row) as f64;
    let bytes = |weights: WeightsName| match weights {
        WeightsName::F32 => 4,
        WeightsName::Bf16 => 2,
        WeightsName::Int8 => 1,
    };
    let parameters = student.parameter_count() as u64;
    // Masters, gradient and two moments; a packed snapshot; the teacher; activations of one micro-batch.
    let memory = parameters * (16 + bytes(config.student.weights))
        + teacher.parameter_count() as u64 * bytes(config.teacher.weights)
        + 4 * row
            * (student.layers as u64
                * (10 * student.hidden_size + 3 * student.intermediate_size) as u64);
    let disk =
        (train.keep_checkpoints as u64 + 2) * 12 * parameters + played.student_turns * 3 * row;
    Ok(Costs {
        steps: train.steps,
        explorer_batches: played.batches,
        prompt_tokens,
        student_turns: played.student_turns,
        teacher_turns: played.teacher_turns + bridges,
        fork_turns,
        generated_tokens: written * response,
        prompt_tokens_read: written * prompt,
        teacher_scored_rows: scored,
        teacher_hints: hints,
        trained_tokens: played.trained_rows * row,
        memory_bytes: memory,
        disk_bytes: disk,
        evaluation_episodes,
        hours: flops / (peak * EFFICIENCY) / 3600.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_config::resolve;

    fn estimate(overrides: &[&str]) -> Costs {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let config = resolve(&[], &overrides).expect("it is sound").config;
        let recipe = lens_lab::recipe::Recipe::shipped("alfworld").expect("it is shipped");
        let mut shape = recipe.models[1].config(recipe.tokenizer.vocab_size);
        let student = shape.clone();
        shape.layers *= 2;
        let typical = Typical { prompt: 300, reference: Some(8), eval_tasks: 100 };
        costs(&config, (&student, &shape), &typical, 20, 1e11).expect("methods can be built")
    }

    #[test]
    fn plain_opd_throws_old_rows_away_and_forks_nowhere() {
        let opd = estimate(&["method=opd", "train.steps=30"]);
        assert_eq!((opd.fork_turns, opd.teacher_hints, opd.teacher_turns), (0, 0, 0));
        // A batch of 16 episodes of 30 turns feeds two steps before its other rows are too old.
        assert_eq!(opd.explorer_batches, 15);
        assert_eq!(opd.student_turns, 15 * 480);
        assert_eq!(opd.trained_tokens, 30 * 64 * 320);
        let all = estimate(&["method=opd", "train.steps=30", "train.max_staleness=1000"]);
        assert_eq!(all.explorer_batches, 4, "nothing is thrown away");
    }

    #[test]
    fn what_a_method_needs_decides_and_not_its_name() {
        let (opd, lens) = (estimate(&["method=opd"]), estimate(&["method=lens"]));
        assert_eq!(lens.teacher_hints, lens.explorer_batches * 16);
        assert_eq!(lens.fork_turns, lens.teacher_hints * 8, "both branches write their fork turn");
        let full = estimate(&["method=lens", "locate.clock=full"]);
        assert!(full.student_turns > lens.student_turns, "a full clock plays longer episodes");
        assert!(full.explorer_batches >= opd.explorer_batches - 10);
        let bridge = estimate(&["method=futurebridge-opd"]);
        assert_eq!(bridge.teacher_hints, 0, "a bridge is no hint");
        assert!(bridge.teacher_turns > 0 && bridge.fork_turns == bridge.teacher_turns * 6);
        let guided = estimate(&["method=guided-opd"]);
        assert!(guided.teacher_turns > guided.student_turns / 2);
    }
}
