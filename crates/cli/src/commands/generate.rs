//! `lens generate`: try a model from the shell.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use anstyle::Style;
use lens_config::schema::WeightsName;
use lens_lm::cache::PrefixCache;
use lens_lm::chat::{ChatOptions, Message};
use lens_lm::generate::{
    FinishReason, GenerateOptions, GenerateRequest, Generated, TokenEvent, generate_with,
};
use lens_lm::sampling::Sampling;
use lens_opd::random::{Purpose, StreamKey};
use serde_json::json;

use super::open_model::OpenModel;
use crate::failure::Failure;
use crate::values::weights;

const DIM: Style = Style::new().dimmed();

/// Continue a prompt with a model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens generate assets/lab/teacher Hello --max-new-tokens 20
  lens generate Qwen3-1.7B - --chat --temperature 0 --time")]
pub(crate) struct Generate {
    /// A model directory or a GGUF file.
    model: PathBuf,
    /// What to continue; `-` reads it from standard input.
    prompt: String,
    /// Treat the prompt as a user's message and use the model's chat template (thinking switched off).
    #[arg(long)]
    chat: bool,
    /// A system message to go before it.
    #[arg(long, requires = "chat", value_name = "TEXT")]
    system: Option<String>,
    /// Sampling temperature; 0 always takes the most likely token.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Keep the fewest most likely tokens that reach this probability together.
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    top_p: f32,
    /// Keep this many most likely tokens; 0 keeps all.
    #[arg(long, default_value_t = 0, value_name = "K")]
    top_k: usize,
    /// Keep tokens at least this fraction as likely as the most likely one.
    #[arg(long, default_value_t = 0.0, value_name = "P")]
    min_p: f32,
    /// The seed of the draws; the same seed gives the same text.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stop after this many tokens.
    #[arg(long, default_value_t = 256, value_name = "N")]
    max_new_tokens: usize,
    /// How weights are held.
    #[arg(long, default_value = "bf16", value_parser = weights())]
    weights: WeightsName,
    /// Print how long it took after the text.
    #[arg(long, conflicts_with = "json")]
    time: bool,
    /// Print tokens, log-probabilities and text as JSON, all at once.
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let prompt = if self.prompt == "-" {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| {
                Failure::user(format!("standard input: cannot read the prompt: {error}"))
            })?;
            text
        } else {
            self.prompt.clone()
        };
        let open = OpenModel::open(&self.model)?;
        let prompt = prompt_tokens(&open, &prompt, self.chat, self.system.as_deref())?;
        let request = GenerateRequest {
            max_new_tokens: self.max_new_tokens,
            stop: open.files.stop_ids(&open.tokenizer)?,
            sampling: Sampling {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                greedy: false,
            },
            key: StreamKey::new(self.seed, 0, 0, Purpose::Rollout, 0),
            prompt,
        };
        let options = GenerateOptions {
            real_vocab: Some(open.tokenizer.real_tokens()),
            ..GenerateOptions::default()
        };
        let model = open.load(self.weights)?;
        let start = Instant::now();
        // A failed write ends the command, but only once the engine has returned.
        let mut written = Ok(());
        let mut stream = open.tokenizer.stream();
        let stream_text = !self.json;
        let mut first_token = None;
        let generated = {
            let mut on_token = |event: TokenEvent| {
                first_token.get_or_insert_with(|| start.elapsed());
                if stream_text && written.is_ok() {
                    written = stream
                        .push(event.token)
                        .map_err(Failure::from)
                        .and_then(|piece| Ok(write_piece(out, &piece)?));
                }
            };
            let mut prefix = PrefixCache::new(0);
            let requests = std::slice::from_ref(&request);
            generate_with(&model, requests, &options, &mut prefix, &mut on_token)?.remove(0)
        };
        written?;
        if self.json {
            return print_json(&open, &request, &generated, out);
        }
        write_piece(out, &stream.finish()?)?;
        writeln!(out)?;
        if self.time {
            let (first, all) = (first_token.unwrap_or_default(), start.elapsed());
            let rest = all.saturating_sub(first).as_secs_f64();
            let rate = (generated.tokens.len().max(1) - 1) as f64 / rest.max(1e-9);
            writeln!(
                out,
                "{DIM}{} prompt tokens in {:.2} s, then {} tokens at {rate:.1} tokens/s; {}{DIM:#}",
                request.prompt.len(),
                first.as_secs_f64(),
                generated.tokens.len(),
                ending(generated.finish),
            )?;
        }
        Ok(())
    }
}

/// The tokens of a plain prompt, or of one user turn.
pub(crate) fn prompt_tokens(
    open: &OpenModel,
    prompt: &str,
    chat: bool,
    system: Option<&str>,
) -> Result<Vec<u32>, Failure> {
    if !chat {
        return Ok(open.tokenizer.encode(prompt)?);
    }
    let messages: Vec<Message> =
        system.map(Message::system).into_iter().chain([Message::user(prompt)]).collect();
    let template = open.files.chat_template()?;
    Ok(template.encode(&open.tokenizer, &messages, &ChatOptions::default())?)
}

fn write_piece(out: &mut dyn Write, piece: &str) -> std::io::Result<()> {
    if piece.is_empty() {
        return Ok(());
    }
    out.write_all(piece.as_bytes())?;
    out.flush()
}

fn ending(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "the model ended its turn",
        FinishReason::Length => "stopped at the token limit",
        FinishReason::Context => "the context is full",
    }
}

fn print_json(
    open: &OpenModel,
    request: &GenerateRequest,
    generated: &Generated,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let object = json!({
        "prompt_tokens": request.prompt,
        "tokens": generated.tokens,
        "text": open.tokenizer.decode_text(&generated.tokens)?,
        "logprobs": generated.logprobs,
        "logprobs_at_temperature_1": generated.logprobs_t1,
        "finish": generated.finish,
    });
    writeln!(out, "{object:#}")?;
    Ok(())
}
