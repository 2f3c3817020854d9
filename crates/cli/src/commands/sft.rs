//! `lens sft`: supervised fine-tuning on demonstrations.

use std::io::Write;
use std::path::{Path, PathBuf};

use lens_engine::native::NativeLearner;
use lens_engine::{Codec, Message, Role};
use lens_lab::corpus::{CorpusOptions, Lesson, corpus};
use lens_lm::checkpoint::Dtype;
use lens_train::sft::{Example, SftOptions, fine_tune};
use serde::Deserialize;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::progress::{bar, note_step};

/// Teach a model demonstrations: chats from a file, or the play of a benchmark's expert.
#[derive(Debug, clap::Args)]
pub(crate) struct Sft {
    /// The model to start from, a Hugging Face directory.
    model: PathBuf,
    /// Where the result goes, a Hugging Face directory.
    out: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// A JSON Lines file, one {"messages": [{"role": ..., "content": ...}, ...]} a line; the last message must be the
    /// assistant's and is what is learned. Without it the expert of the configuration's benchmark demonstrates.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Optimiser steps.
    #[arg(long, default_value_t = 200)]
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
    /// The most tasks the expert demonstrates.
    #[arg(long, default_value_t = 1000)]
    tasks: usize,
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
            return Err(Failure::user(format!(
                "{} is there already; give a folder that is not",
                self.out.display()
            )));
        }
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        if !self.model.is_dir() {
            return Err(Failure::user(format!(
                "there is no model in {}; give a Hugging Face directory",
                self.model.display()
            )));
        }
        let mut options = assemble::learner_options(&config);
        options.optimizer.lr = self.lr;
        let mut learner = NativeLearner::load(&self.model, options)
            .map_err(|error| Failure::User(error.into()))?;
        let examples = match &self.data {
            Some(file) => file_examples(file, &**learner.codec())?,
            None => self.expert_examples(&config, &**learner.codec())?,
        };
        writeln!(out, "{} examples", examples.len())?;
        let options = SftOptions {
            steps: self.steps,
            batch_size: usize::from(self.batch),
            lr: self.lr,
            warmup: self.steps / 20,
            prompt_weight: self.prompt_weight,
            seed: self.seed,
        };
        let bar = bar(self.steps, "sft");
        let mut last = f64::NAN;
        let example = |_: &dyn Codec, number: usize| Ok(examples[number].clone());
        fine_tune(&mut learner, examples.len(), example, &options, |step, report| {
            last = report.loss;
            note_step(&bar, "sft", step, self.steps, report.loss);
        })?;
        bar.finish_and_clear();
        learner
            .save_model_as(&self.out, Dtype::Bf16)
            .map_err(|error| Failure::Runtime(error.into()))?;
        writeln!(
            out,
            "{} steps, last loss {last:.4}; the model is in {}",
            self.steps,
            self.out.display()
        )?;
        Ok(())
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
            stray: 0.0,
            retold: 0.0,
            slips: 0.0,
            comments: 0.0,
            obeyed: 0.0,
            history: config.rollout.history,
            turn_limit: config.task.turn_limit,
        };
        let texts = corpus(&benchmark, &tasks, &options)?;
        if texts.is_empty() {
            return Err(Failure::user(format!(
                "nobody demonstrates {} on the split {}; give --data FILE",
                benchmark.profile().name,
                config.task.train_split
            )));
        }
        texts
            .iter()
            .filter(|text| text.lesson == Lesson::Act)
            .map(|text| example(codec, &[Message::user(&text.message)], &text.answer))
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
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::user(format!("{}: {error}", file.display())))?;
    let mut examples = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |message: &dyn std::fmt::Display| {
            Failure::user(format!("{}:{}: {message}", file.display(), number + 1))
        };
        let chat: Chat = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let Some((answer, before)) = chat.messages.split_last() else {
            return Err(wrong(&"\"messages\" is empty"));
        };
        if answer.role != "assistant" {
            return Err(wrong(&format!(
                "the last message is by \"{}\"; it must be the assistant's, it is what is learned",
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
                            "there is no role \"{}\"; use system, user or assistant",
                            message.role
                        ))
                    })?;
                Ok(Message { role, text: message.content.clone() })
            })
            .collect::<Result<Vec<Message>, Failure>>()?;
        examples.push(example(codec, &messages, &answer.content).map_err(|error| wrong(&error))?);
    }
    if examples.is_empty() {
        return Err(Failure::user(format!("{} holds no chat", file.display())));
    }
    Ok(examples)
}
