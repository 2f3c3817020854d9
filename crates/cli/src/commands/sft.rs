//! `lens sft`: supervised fine-tuning on demonstrations.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lens_engine::native::NativeLearner;
use lens_engine::{Codec, Message, Role};
use lens_lab::corpus::{Corpus, CorpusOptions, SampleKind, corpus};
use lens_lm::checkpoint::Dtype;
use lens_train::files::write_atomically;
use lens_train::sft::{Example, SftOptions, fine_tune_until};
use serde::Deserialize;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::interrupt;
use crate::progress::{Tracker, note_step};
use crate::values::at_least_one;
use crate::wording::counted;

/// Fine-tune a model on demonstrations: chats from a file, or a benchmark's expert
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens sft assets/lab/student-small models/tuned --data chats.jsonl --steps 500
  lens sft assets/lab/student-small models/tuned --data chats.jsonl --steps 500 --resume")]
pub(crate) struct Sft {
    /// The model to start from, a Hugging Face directory.
    model: PathBuf,
    /// Where the result goes, a Hugging Face directory. Progress is saved beside it, in OUT.partial.
    out: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// A JSON Lines file with one {"messages": [{"role": ..., "content": ...}, ...]} per line. The last message must be
    /// the assistant's and is what is learned. Without it the expert of the configuration's benchmark demonstrates.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Optimizer steps.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    steps: u64,
    /// Examples in one step.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// The highest learning rate; it rises over the first twentieth of the steps and falls to a tenth.
    #[arg(long, default_value_t = 1e-5)]
    lr: f64,
    /// How much a prompt token counts in the first half of the steps, next to a response token's 1.
    #[arg(long, default_value_t = 0.0)]
    prompt_weight: f32,
    /// The seed of the examples' order and of the expert's demonstrations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tasks the expert demonstrates, at most.
    #[arg(long, default_value_t = 1000, value_parser = at_least_one)]
    tasks: usize,
    /// Steps between saves.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    save_interval: u64,
    /// Resume an interrupted call with the same arguments.
    #[arg(long)]
    resume: bool,
}

/// A line of the data file.
#[derive(Debug, Deserialize)]
struct Chat {
    messages: Vec<ChatMessage>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: String,
}

impl Sft {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return Err(Failure::user(format!("--lr {}: it must be above 0", self.lr)));
        }
        if !(self.prompt_weight.is_finite() && self.prompt_weight >= 0.0) {
            return Err(Failure::user(format!(
                "--prompt-weight {}: it must be 0 or more",
                self.prompt_weight
            )));
        }
        if self.out.exists() {
            return Err(Failure::user_with_hint(
                format!("output directory `{}` already exists", self.out.display()),
                "choose another",
            ));
        }
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let mut options = assemble::learner_options(&config);
        options.optimizer.lr = self.lr;
        let model = assemble::model_folder(&self.model, "the model to start from")?;
        let mut learner =
            NativeLearner::load(&model, options).map_err(|error| Failure::User(error.into()))?;
        let saved = Saved::new(&self, &model)?;
        if self.resume {
            saved.load(&mut learner)?;
        }
        let examples = match &self.data {
            Some(file) => file_examples(file, &**learner.codec())?,
            None => self.expert_examples(&config, &**learner.codec())?,
        };
        writeln!(out, "{}", counted(examples.len() as u64, "example"))?;
        out.flush()?;
        let last = self.learn(&mut learner, &examples, &saved)?;
        learner
            .save_model_as(&self.out, Dtype::Bf16)
            .map_err(|error| Failure::Runtime(error.into()))?;
        saved.remove();
        writeln!(
            out,
            "{}, last loss {last:.4}; the model is in {}",
            counted(self.steps, "step"),
            self.out.display()
        )?;
        Ok(())
    }

    /// Learns up to the last step, saving now and then; the last loss.
    fn learn(
        &self,
        learner: &mut NativeLearner,
        examples: &[Example],
        saved: &Saved,
    ) -> Result<f64, Failure> {
        let options = SftOptions {
            steps: self.steps,
            batch_size: usize::from(self.batch),
            lr: self.lr,
            warmup: self.steps / 20,
            prompt_weight: self.prompt_weight,
            seed: self.seed,
        };
        let stop = interrupt::stop_flag();
        let mut bar = Tracker::new(self.steps, "sft step");
        bar.start_at(learner.version());
        let mut last = f64::NAN;
        let example = |_: &dyn Codec, number: usize| Ok(examples[number].clone());
        while learner.version() < self.steps {
            let until = (learner.version() + self.save_interval).min(self.steps);
            let before = learner.version();
            let halt = || stop.load(Ordering::Relaxed);
            fine_tune_until(
                learner,
                examples.len(),
                example,
                &options,
                until,
                halt,
                |step, report| {
                    last = report.loss;
                    note_step(&mut bar, step, report.loss);
                },
            )?;
            if learner.version() < until && !halt() || learner.version() == before {
                return Err(Failure::Runtime(anyhow::anyhow!(
                    "steps were skipped because a loss or gradient is not finite; lower --lr"
                )));
            }
            if halt() || until < self.steps {
                saved.store(learner)?;
            }
            if halt() && learner.version() < self.steps {
                bar.finish();
                return Err(Failure::Interrupted(format!(
                    "stopped after {}, everything is saved; run the same command with --resume",
                    counted(learner.version(), "step")
                )));
            }
        }
        bar.finish();
        Ok(last)
    }

    fn expert_examples(
        &self,
        config: &lens_config::Config,
        codec: &dyn Codec,
    ) -> Result<Vec<Example>, Failure> {
        let benchmark = assemble::benchmark(config)?;
        let mut tasks = benchmark.tasks(&config.task.train_split)?;
        tasks.truncate(self.tasks);
        let options = CorpusOptions {
            seed: self.seed,
            history: config.rollout.history,
            corpus: Corpus::act_only(config.task.turn_limit),
        };
        let samples = corpus(&benchmark, &tasks, &options)?;
        if samples.is_empty() {
            return Err(Failure::user_with_hint(
                format!(
                    "{} has no expert and no reference solutions for split `{}`",
                    benchmark.profile().name,
                    config.task.train_split
                ),
                "pass demonstrations with --data FILE",
            ));
        }
        samples
            .iter()
            .filter(|sample| sample.kind == SampleKind::Act)
            .map(|sample| example(codec, &[Message::user(&sample.message)], &sample.answer))
            .collect::<Result<_, _>>()
            .map_err(|error| Failure::Runtime(error.into()))
    }
}

fn example(
    codec: &dyn Codec,
    messages: &[Message],
    answer: &str,
) -> Result<Example, lens_engine::EngineError> {
    Ok(Example { prompt: codec.prompt(messages)?, response: codec.response(answer)? })
}

/// The chats of a JSON Lines file.
fn file_examples(file: &Path, codec: &dyn Codec) -> Result<Vec<Example>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let error = anyhow::Error::new(error);
        Failure::User(error.context(format!("cannot read demonstrations `{}`", file.display())))
    })?;
    let mut examples = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |message: &dyn std::fmt::Display| {
            Failure::user(format!("{}:{}: {message}", file.display(), number + 1))
        };
        let chat: Chat = serde_json::from_str(line).map_err(|error| wrong(&plain(&error)))?;
        let Some((answer, before)) = chat.messages.split_last() else {
            return Err(wrong(&"\"messages\" is empty"));
        };
        if answer.role != "assistant" {
            return Err(wrong(&format!(
                "the last message has the role \"{}\"; it must be \"assistant\", because it is what is learned",
                answer.role
            )));
        }
        let messages = before
            .iter()
            .map(|message| {
                let role = [Role::System, Role::User, Role::Assistant]
                    .into_iter()
                    .find(|role| role.word() == message.role)
                    .ok_or_else(|| {
                        wrong(&format!(
                            "unknown role \"{}\"; expected system, user or assistant",
                            message.role
                        ))
                    })?;
                Ok(Message { role, text: message.content.clone() })
            })
            .collect::<Result<Vec<Message>, Failure>>()?;
        examples.push(example(codec, &messages, &answer.content).map_err(|error| wrong(&error))?);
    }
    if examples.is_empty() {
        return Err(Failure::user(format!("{} has no demonstrations", file.display())));
    }
    Ok(examples)
}

/// What is wrong with a line of JSON, with its column instead of the line inside the line.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    match error.classify() {
        serde_json::error::Category::Data => message.to_owned(),
        _ => format!("not a JSON object (column {})", error.column()),
    }
}

/// What an interrupted call left behind: the model, the optimizer's state and what was asked for.
struct Saved {
    folder: PathBuf,
    request: String,
}

impl Saved {
    fn new(sft: &Sft, model: &Path) -> Result<Self, Failure> {
        let request = serde_json::json!({
            "model": std::path::absolute(model)?,
            "data": sft.data.as_ref().map(std::path::absolute).transpose()?,
            "config": sft.config.files,
            "set": sft.config.overrides,
            "steps": sft.steps,
            "batch": sft.batch,
            "lr": sft.lr,
            "prompt_weight": sft.prompt_weight,
            "seed": sft.seed,
            "tasks": sft.tasks,
        });
        let folder = sft.out.with_added_extension("partial");
        Ok(Self { folder, request: format!("{request:#}") })
    }

    /// Writes beside the last state and then takes its place, so that one of them is always whole.
    fn store(&self, learner: &NativeLearner) -> Result<(), Failure> {
        let next = self.folder.with_added_extension("next");
        let runtime = |error: lens_engine::EngineError| Failure::Runtime(error.into());
        if next.exists() {
            std::fs::remove_dir_all(&next)?;
        }
        std::fs::create_dir_all(next.join("state"))?;
        learner.save_model(&next.join("model")).map_err(runtime)?;
        learner.save_state(&next.join("state"), &[]).map_err(runtime)?;
        write_atomically(&next.join("request.json"), self.request.as_bytes())?;
        self.remove();
        Ok(std::fs::rename(&next, &self.folder)?)
    }

    fn load(&self, learner: &mut NativeLearner) -> Result<(), Failure> {
        // A kill between removing and renaming leaves the next state, which is whole.
        let next = self.folder.with_added_extension("next");
        if !self.folder.exists() && next.join("request.json").exists() {
            std::fs::rename(&next, &self.folder)?;
        }
        let Ok(request) = std::fs::read_to_string(self.folder.join("request.json")) else {
            return Err(Failure::user_with_hint(
                format!("there is nothing to resume in {}", self.folder.display()),
                "start without --resume",
            ));
        };
        if request != self.request {
            return Err(Failure::user_with_hint(
                format!("{} was saved with other arguments", self.folder.display()),
                "resume with the arguments in its request.json, or start without --resume",
            ));
        }
        learner
            .load_state(&self.folder.join("model"), &self.folder.join("state"), &[])
            .map_err(|error| Failure::User(error.into()))
    }

    fn remove(&self) {
        // What cannot be removed does no harm: the next call without --resume overwrites it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
