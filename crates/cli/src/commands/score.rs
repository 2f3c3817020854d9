//! `lens score`: a response token by token, under one model or a student and its teacher.

use std::io::Write;
use std::path::PathBuf;

use anstyle::Style;
use lens_config::schema::WeightsName;
use lens_lm::model::Model;
use lens_lm::pair::{PairOptions, PairPosition, PairRow, pair_score};
use lens_lm::score::{ScoreOptions, ScoreRequest, ScoredPosition, score};
use serde_json::{Value, json};

use super::generate::prompt_tokens;
use super::open_model::OpenModel;
use crate::failure::Failure;
use crate::values::weights;
use crate::wording::counted;

const DIM: Style = Style::new().dimmed();

/// Score a response token by token, under one model or a student and its teacher
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens score assets/lab/teacher --prompt Hello --response there --top-k 3
  lens score assets/lab/student-small --teacher assets/lab/teacher --prompt Hello --response there")]
pub(crate) struct Score {
    /// A model directory or a GGUF file; the student where there is a teacher.
    model: PathBuf,
    /// The text before the response.
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
    /// The temperature tau that logits are divided by.
    #[arg(long, default_value_t = 1.0)]
    tau: f32,
    /// Show the K most likely tokens at each position, of both models where there is a teacher.
    #[arg(long, default_value_t = 0, value_name = "K")]
    top_k: usize,
    /// How weights are held.
    #[arg(long, default_value = "f32", value_parser = weights())]
    weights: WeightsName,
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
        let positions = self.positions(open, &open.load(self.weights)?, prompt, response)?;
        let total: f64 = positions.iter().map(|position| f64::from(position.logprob)).sum();
        if self.json {
            let mut rows = Vec::new();
            for (position, &id) in positions.iter().zip(response) {
                let mut row = token(open, id, position.logprob)?;
                row["top1"] = token(open, position.top1, position.top1_logprob)?;
                row["top"] = top_tokens(open, position)?;
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
                favorites(open, position)?
            )?;
        }
        let mean = total / positions.len().max(1) as f64;
        let count = positions.len();
        let tokens = counted(count as u64, "token");
        writeln!(out, "{total:>9.4}  {tokens}, {mean:.4} per token")?;
        Ok(())
    }

    /// What one model thinks of every token.
    fn positions(
        &self,
        open: &OpenModel,
        model: &Model,
        prompt: &[u32],
        response: &[u32],
    ) -> Result<Vec<ScoredPosition>, Failure> {
        let options = ScoreOptions {
            tau: self.tau,
            real_vocab: Some(open.tokenizer.real_tokens()),
            top_k: self.top_k,
            ..ScoreOptions::default()
        };
        let request = ScoreRequest { prompt, response, asked: &[] };
        Ok(score(model, &[request], &options)?.remove(0).positions)
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
        let mut tops = Vec::new();
        if self.top_k > 0 {
            for (name, open, model) in
                [("student", student, &models.0), ("teacher", teacher, &models.1)]
            {
                tops.push((name, self.positions(open, model, prompt, response)?));
            }
        }
        let count = positions.len().max(1) as f64;
        let mean = |value: fn(&PairPosition) -> f32| {
            positions.iter().map(|position| f64::from(value(position))).sum::<f64>() / count
        };
        let kl = mean(|position| position.kl);
        if self.json {
            let mut rows = Vec::new();
            for (index, (position, &id)) in positions.iter().zip(response).enumerate() {
                let mut row = json!({
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
                });
                for (name, positions) in &tops {
                    row[format!("{name}_top")] = top_tokens(student, &positions[index])?;
                }
                rows.push(row);
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
        for (index, (position, &id)) in positions.iter().zip(response).enumerate() {
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
            for (name, positions) in &tops {
                let listed = favorites(student, &positions[index])?;
                writeln!(out, "{DIM}{:>31}  {listed}{DIM:#}", format!("{name}:"))?;
            }
        }
        writeln!(
            out,
            "{kl:>9.4} {:>10.4} {:>10.4}  mean of {}",
            mean(|position| position.student_logprob),
            mean(|position| position.teacher_logprob),
            counted(positions.len() as u64, "token")
        )?;
        Ok(())
    }
}

/// A token as JSON.
fn token(open: &OpenModel, id: u32, logprob: f32) -> Result<Value, Failure> {
    Ok(json!({"id": id, "text": open.token_text(id)?, "logprob": logprob}))
}

/// The most likely tokens of a position as JSON.
fn top_tokens(open: &OpenModel, position: &ScoredPosition) -> Result<Value, Failure> {
    let top = position.top.iter().map(|&(id, logprob)| token(open, id, logprob));
    Ok(Value::Array(top.collect::<Result<_, _>>()?))
}

/// The most likely tokens of a position with their probabilities.
fn favorites(open: &OpenModel, position: &ScoredPosition) -> Result<String, Failure> {
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
