//! `lens score`: what a model, or a student and its teacher, think of a response.

use std::io::Write;
use std::path::PathBuf;

use anstyle::Style;
use lens_lm::model::WeightFormat;
use lens_lm::pair::{PairOptions, PairPosition, PairRow, pair_score};
use lens_lm::score::{ScoreOptions, ScoreRequest, ScoredPosition, score};
use serde_json::{Value, json};

use super::generate::prompt_tokens;
use super::open_model::OpenModel;
use crate::failure::Failure;

const DIM: Style = Style::new().dimmed();

/// Score a response token by token.
#[derive(Debug, clap::Args)]
pub(crate) struct Score {
    /// A model directory or a GGUF file; the student where there is a teacher.
    model: PathBuf,
    /// What came before.
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// The text to score.
    #[arg(long, value_name = "TEXT")]
    response: String,
    /// Treat the prompt as a user's message and use the model's chat template (thinking switched off).
    #[arg(long)]
    chat: bool,
    /// A system message to go before it.
    #[arg(long, requires = "chat", value_name = "TEXT")]
    system: Option<String>,
    /// A second model: adds KL(student || teacher) and what the teacher prefers.
    #[arg(long, value_name = "MODEL")]
    teacher: Option<PathBuf>,
    /// Divide logits by this.
    #[arg(long, default_value_t = 1.0)]
    tau: f32,
    /// Show this many of the most likely tokens at each position.
    #[arg(long, default_value_t = 0, value_name = "K", conflicts_with = "teacher")]
    top_k: usize,
    /// Keep the weights in memory as f32, bf16 or int8.
    #[arg(long, default_value = "f32")]
    weights: WeightFormat,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

impl Score {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let open = OpenModel::open(&self.model)?;
        let prompt = prompt_tokens(&open, &self.prompt, self.chat, self.system.as_deref())?;
        let response = open.tokenizer.encode(&self.response)?;
        match &self.teacher {
            None => self.alone(&open, &prompt, &response, out),
            Some(teacher) => {
                let teacher = OpenModel::open(teacher)?;
                open.tokenizer.check_same_vocabulary(&teacher.tokenizer)?;
                self.pair(&open, &teacher, &prompt, &response, out)
            }
        }
    }

    fn alone(
        &self,
        open: &OpenModel,
        prompt: &[u32],
        response: &[u32],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let options = ScoreOptions {
            tau: self.tau,
            real_vocab: Some(open.tokenizer.real_tokens()),
            top_k: self.top_k,
            ..ScoreOptions::default()
        };
        let request = ScoreRequest { prompt, response, asked: &[] };
        let model = open.load(self.weights)?;
        let positions = score(&model, &[request], &options)?.remove(0).positions;
        let total: f64 = positions.iter().map(|position| f64::from(position.logprob)).sum();
        let token = |id: u32, logprob: f32| -> Result<Value, Failure> {
            Ok(json!({"id": id, "text": open.token_text(id)?, "logprob": logprob}))
        };
        if self.json {
            let mut rows = Vec::new();
            for (position, &id) in positions.iter().zip(response) {
                let top = position.top.iter().map(|&(id, logprob)| token(id, logprob));
                let mut row = token(id, position.logprob)?;
                row["top1"] = token(position.top1, position.top1_logprob)?;
                row["top"] = Value::Array(top.collect::<Result<_, _>>()?);
                rows.push(row);
            }
            let object =
                json!({"prompt_tokens": prompt.len(), "logprob": total, "positions": rows});
            writeln!(out, "{object:#}")?;
            return Ok(());
        }
        writeln!(out, "{DIM}{:>9}  {:<20} most likely{DIM:#}", "log p", "token")?;
        for (position, &id) in positions.iter().zip(response) {
            writeln!(
                out,
                "{:>9.4}  {:<20} {}",
                position.logprob,
                quoted(open, id)?,
                favourites(open, position)?
            )?;
        }
        let mean = total / positions.len().max(1) as f64;
        let count = positions.len();
        writeln!(out, "{total:>9.4}  {count} tokens, {mean:.4} a token")?;
        Ok(())
    }

    fn pair(
        &self,
        student: &OpenModel,
        teacher: &OpenModel,
        prompt: &[u32],
        response: &[u32],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let real_vocab = Some(student.tokenizer.real_tokens());
        let options = PairOptions { tau: self.tau, real_vocab, ..PairOptions::default() };
        let row = PairRow { prompt, response };
        let models = (student.load(self.weights)?, teacher.load(self.weights)?);
        let positions = pair_score(&models.0, &models.1, &[row], &options)?.remove(0);
        let count = positions.len().max(1) as f64;
        let mean = |value: fn(&PairPosition) -> f32| {
            positions.iter().map(|position| f64::from(value(position))).sum::<f64>() / count
        };
        let kl = mean(|position| position.kl);
        if self.json {
            let mut rows = Vec::new();
            for (position, &id) in positions.iter().zip(response) {
                rows.push(json!({
                    "id": id,
                    "text": student.token_text(id)?,
                    "kl": position.kl,
                    "student_logprob": position.student_logprob,
                    "teacher_logprob": position.teacher_logprob,
                    "student_top1": position.student_top1,
                    "teacher_top1": position.teacher_top1,
                    "student_at_student_top1": position.student_at_student_top1,
                    "student_at_teacher_top1": position.student_at_teacher_top1,
                    "teacher_at_teacher_top1": position.teacher_at_teacher_top1,
                    "teacher_at_student_top1": position.teacher_at_student_top1,
                }));
            }
            let object = json!({"prompt_tokens": prompt.len(), "mean_kl": kl, "positions": rows});
            writeln!(out, "{object:#}")?;
            return Ok(());
        }
        writeln!(
            out,
            "{DIM}{:>9} {:>10} {:>10}  {:<20} {:<20} teacher's choice{DIM:#}",
            "KL", "student", "teacher", "token", "student's choice"
        )?;
        for (position, &id) in positions.iter().zip(response) {
            let teachers = if position.teacher_top1 == position.student_top1 {
                "the same".to_owned()
            } else {
                quoted(student, position.teacher_top1)?
            };
            writeln!(
                out,
                "{:>9.4} {:>10.4} {:>10.4}  {:<20} {:<20} {teachers}",
                position.kl,
                position.student_logprob,
                position.teacher_logprob,
                quoted(student, id)?,
                quoted(student, position.student_top1)?,
            )?;
        }
        writeln!(
            out,
            "{kl:>9.4} {:>10.4} {:>10.4}  mean of {} tokens",
            mean(|position| position.student_logprob),
            mean(|position| position.teacher_logprob),
            positions.len()
        )?;
        Ok(())
    }
}

/// The most likely tokens of a position with their probabilities.
fn favourites(open: &OpenModel, position: &ScoredPosition) -> Result<String, Failure> {
    let only = [(position.top1, position.top1_logprob)];
    let listed = if position.top.is_empty() { &only[..] } else { &position.top[..] };
    let mut texts = Vec::new();
    for &(id, logprob) in listed {
        texts.push(format!("{} {:.1}%", quoted(open, id)?, 100.0 * logprob.exp()));
    }
    Ok(texts.join("  "))
}

/// A token in quotes, so that blanks and line ends show.
fn quoted(open: &OpenModel, id: u32) -> Result<String, Failure> {
    Ok(format!("{:?}", open.token_text(id)?))
}
