//! `lens estimate`: what a configuration costs before it runs.

use std::io::Write;
use std::path::Path;

use lens_agent::prompts::turn_message;
use lens_config::schema::{MethodName, WeightsName};
use lens_config::{Config, method};
use lens_engine::native::NativeCodec;
use lens_engine::{Codec, Message};
use lens_env::Window;
use lens_lm::checkpoint::{Checkpoint, ModelFiles};
use lens_lm::config::ModelConfig;
use lens_opd::methods::Setting;
use lens_opd::methods::exposure::Slot;
use serde::Serialize;

use super::config::ConfigArgs;
use crate::failure::Failure;
use crate::world;

/// Share of the processor's peak that whole iterations reach.
const EFFICIENCY: f64 = 0.35;
/// Tasks whose first prompt is measured.
const SAMPLE: usize = 16;

/// Say what a configuration will cost: tokens, teacher calls, memory, disk, time.
///
/// Episodes are taken to last as long as the method lets them, so tokens and time are upper bounds; a student that
/// solves its tasks early needs less. Prompts are measured on the benchmark's own tasks with the student's tokenizer.
#[derive(Debug, clap::Args)]
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
        world::set_threads(config.threads)?;
        let student = files(&config.student.path, "student.path")?;
        let teacher = files(&config.teacher.path, "teacher.path")?;
        let prompt = typical_prompt(&config, &student)?;
        let peak = lens_lm::bench::peak_gflops() * 1e9;
        let shapes = (&student.config, &teacher.config);
        let costs = costs(&config, shapes, prompt, self.response_tokens, peak)?;
        if self.json {
            let object = serde_json::json!({ "seeds": config.seeds.len(), "per_seed": costs });
            return Ok(writeln!(out, "{object:#}")?);
        }
        let count = |value: u64| group(value);
        let mib = |bytes: u64| format!("{} MiB", group(bytes.div_ceil(1 << 20)));
        let lines = [
            ("optimiser steps", count(costs.steps)),
            ("explorer batches, about", count(costs.explorer_batches)),
            ("tokens of a typical prompt", count(costs.prompt_tokens as u64)),
            ("student turns, at most", count(costs.student_turns)),
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
            "{} on {}, for each of {} seed(s):",
            config.method,
            config.task.benchmark,
            config.seeds.len()
        )?;
        for (name, value) in lines {
            writeln!(out, "  {name:<34} {value:>18}")?;
        }
        Ok(())
    }
}

fn files(path: &Path, key: &str) -> Result<ModelFiles, Failure> {
    if !path.is_dir() {
        return Err(Failure::user(format!(
            "there is no model in {} ({key}); give a Hugging Face directory",
            path.display()
        )));
    }
    Ok(Checkpoint::open(path)?.files)
}

/// Mean tokens of the first prompts of some tasks, spread over the training split.
fn typical_prompt(config: &Config, student: &ModelFiles) -> Result<usize, Failure> {
    let benchmark = world::benchmark(config)?;
    let codec = NativeCodec::new(student).map_err(|error| Failure::User(error.into()))?;
    let tasks = benchmark.tasks(&config.task.train_split)?;
    let stride = (tasks.len() / SAMPLE).max(1);
    let mut environment = benchmark.clone().environment()?;
    let (mut tokens, mut prompts) = (0, 0);
    for task in tasks.iter().step_by(stride).take(SAMPLE) {
        let view = environment.reset(task)?;
        let message = turn_message(&benchmark.profile().prompt, &Window::new(&view, &[], 0));
        let prompt = codec
            .prompt(&[Message::user(message)])
            .map_err(|error| Failure::Runtime(error.into()))?;
        tokens += prompt.len();
        prompts += 1;
    }
    Ok(tokens / prompts.max(1))
}

fn costs(
    config: &Config,
    (student, teacher): (&ModelConfig, &ModelConfig),
    prompt: usize,
    response: usize,
    peak: f64,
) -> Result<Costs, Failure> {
    let (rollout, train) = (&config.rollout, &config.train);
    let response = response.min(rollout.max_response_tokens) as u64;
    let prompt_tokens = prompt.min(rollout.max_prompt_tokens);
    let prompt = prompt_tokens as u64;
    let setting = Setting { seed: 0, max_turns: config.task.turn_limit };
    let method = method::method_params(config)
        .build(setting)
        .map_err(|error| Failure::User(error.into()))?;
    let needs = method.needs();
    let episodes = (rollout.batch_size * rollout.repeat_times) as u64;
    let rows_needed = train.steps * train.batch_size as u64;
    let (mut batches, mut turns, mut forks) = (0_u64, 0_u64, 0_u64);
    while turns < rows_needed {
        batches += 1;
        let slot = Slot { batch: batches, episode: 0, reference_actions: None };
        let exposure = method.exposure(&slot);
        // The adaptive clock is taken to run at pace 1: one turn more after each residence.
        let horizon = if config.method == MethodName::Lens {
            let grown = 1 + (batches - 1) as usize / config.locate.residence.max(1) as usize;
            grown.min(config.task.turn_limit)
        } else {
            exposure.horizon
        };
        turns += episodes * (horizon.saturating_sub(exposure.prefix).max(1) as u64);
        if needs.forks {
            forks += episodes * config.locate.proposals_per_episode.max(1) as u64;
        }
    }
    // Each fork continues twice, for the fork turn and the turns after it; the base branch's first turn is there already.
    let fork_turns = forks * (2 * (config.validate.horizon as u64 + 1) - 1);
    let eval_tasks = match config.eval.tasks_during_training {
        0 => 200,
        tasks => tasks as u64,
    };
    let evaluations = 2 + batches / train.eval_interval.max(1);
    let evaluation_episodes = evaluations * eval_tasks * config.task.eval_splits.len() as u64;
    let eval_turns = evaluation_episodes * config.task.turn_limit as u64;
    let written = turns + fork_turns + eval_turns;
    let hints = forks;
    let scored = turns + fork_turns;
    let row = prompt + response;
    let (n_student, n_teacher) =
        (student.parameter_count() as f64, teacher.parameter_count() as f64);
    let flops = 2.0 * n_student * (written * row) as f64
        + 2.0 * (n_student + n_teacher) * (scored * row) as f64
        + 2.0 * n_teacher * (hints * row) as f64
        + 6.0 * n_student * (rows_needed * row) as f64;
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
    let disk = (train.keep_checkpoints as u64 + 1) * 12 * parameters + turns * 3 * row;
    Ok(Costs {
        steps: train.steps,
        explorer_batches: batches,
        prompt_tokens,
        student_turns: turns,
        fork_turns,
        generated_tokens: written * response,
        prompt_tokens_read: written * prompt,
        teacher_scored_rows: scored,
        teacher_hints: hints,
        trained_tokens: rows_needed * row,
        memory_bytes: memory,
        disk_bytes: disk,
        evaluation_episodes,
        hours: flops / (peak * EFFICIENCY) / 3600.0,
    })
}

/// Digits in groups of three.
fn group(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_config::resolve;

    fn estimate(overrides: &[&str]) -> Costs {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let config = resolve(&[], &overrides).expect("it is sound").config;
        let mut shape = lens_lab::recipe::plans().remove(1).config;
        let student = shape.clone();
        shape.layers *= 2;
        costs(&config, (&student, &shape), 300, 20, 1e11).expect("methods can be built")
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            (group(7), group(1234), group(1_000_000)),
            ("7".into(), "1,234".into(), "1,000,000".into())
        );
    }

    #[test]
    fn plain_opd_trains_on_every_turn_and_forks_nowhere() {
        let opd = estimate(&["method=opd", "train.steps=30"]);
        assert_eq!((opd.fork_turns, opd.teacher_hints), (0, 0));
        assert_eq!(
            opd.student_turns,
            30 * 64,
            "four batches of 16 episodes of 30 turns are needed"
        );
        assert_eq!(opd.explorer_batches, 4);
        assert_eq!(opd.trained_tokens, 30 * 64 * 320);
    }

    #[test]
    fn forks_come_on_top_and_short_horizons_need_more_batches() {
        let (opd, lens) = (estimate(&["method=opd"]), estimate(&["method=lens"]));
        assert!(lens.explorer_batches > opd.explorer_batches);
        assert_eq!(lens.teacher_hints, lens.explorer_batches * 16);
        assert_eq!(lens.fork_turns, lens.teacher_hints * 7);
    }
}
