//! Scoring by two models at once: the divergence of the student from the teacher and what each prefers.

use crate::cache::PrefixCache;
use crate::error::LmError;
use crate::kernels::elementwise;
use crate::kernels::matrix::{Matrix, PANEL};
use crate::model::{Model, RowSummary, SummaryAndTop, chunk_ids, per_chunk};
use crate::prefill;
use crate::score::{check_row, check_tau, response_states};
use crate::tensor::Tensor;

/// A response both models score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairRow<'a> {
    /// What came before.
    pub prompt: &'a [u32],
    /// The tokens to score.
    pub response: &'a [u32],
}

/// Settings of a pair-scoring call.
#[derive(Debug, Clone, PartialEq)]
pub struct PairOptions {
    /// Logits of both models are divided by this.
    pub tau: f32,
    /// Number of tokens both tokenizers share; ids from here on are padding and cut from both before any softmax.
    /// Needed when the two models are padded to different sizes.
    pub real_vocab: Option<usize>,
    /// How many of the teacher's most likely tokens to report.
    pub teacher_top_k: usize,
    /// Memory for keys and values of either model; longer batches run in parts.
    pub kv_budget_bytes: usize,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self {
            tau: 1.0,
            real_vocab: None,
            teacher_top_k: 0,
            kv_budget_bytes: prefill::DEFAULT_KV_BUDGET,
        }
    }
}

/// What both models think of one response token. Top-1 ties go to the lowest id.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairPosition {
    /// KL(student || teacher) over the real tokens.
    pub kl: f32,
    /// The student's most likely token.
    pub student_top1: u32,
    /// The teacher's most likely token.
    pub teacher_top1: u32,
    /// log p_S of the student's choice.
    pub student_at_student_top1: f32,
    /// log p_S of the teacher's choice.
    pub student_at_teacher_top1: f32,
    /// log p_T of the teacher's choice.
    pub teacher_at_teacher_top1: f32,
    /// log p_T of the student's choice.
    pub teacher_at_student_top1: f32,
    /// log p_S of the realized token.
    pub student_logprob: f32,
    /// log p_T of the realized token.
    pub teacher_logprob: f32,
}

/// Scores every row with both models; one list of positions a row.
pub fn pair_score(
    student: &Model,
    teacher: &Model,
    rows: &[PairRow<'_>],
    options: &PairOptions,
) -> Result<Vec<Vec<PairPosition>>, LmError> {
    let mut prefixes = [(); 2].map(|()| PrefixCache::new(prefill::CALL_PREFIX_BYTES));
    let [for_student, for_teacher] = &mut prefixes;
    pair_score_with(student, teacher, rows, options, for_student, for_teacher)
}

/// [`pair_score`] with prefix caches that outlive the call.
pub fn pair_score_with(
    student: &Model,
    teacher: &Model,
    rows: &[PairRow<'_>],
    options: &PairOptions,
    student_prefix: &mut PrefixCache,
    teacher_prefix: &mut PrefixCache,
) -> Result<Vec<Vec<PairPosition>>, LmError> {
    let rows: Vec<CrossRow<'_>> = rows
        .iter()
        .map(|row| CrossRow {
            student_prompt: row.prompt,
            teacher_prompt: row.prompt,
            response: row.response,
        })
        .collect();
    let teacher_prefix = Some(teacher_prefix);
    let scored = cross_score(student, teacher, &rows, options, student_prefix, teacher_prefix)?;
    Ok(scored.into_iter().map(|row| row.positions).collect())
}

/// A response the two models see after prompts of their own; both may be the same model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossRow<'a> {
    /// What came before, for the student.
    pub student_prompt: &'a [u32],
    /// What came before, for the teacher.
    pub teacher_prompt: &'a [u32],
    /// The tokens to score.
    pub response: &'a [u32],
}

/// A response both models scored.
#[derive(Debug, Clone, PartialEq)]
pub struct CrossScored {
    /// One entry per response token.
    pub positions: Vec<PairPosition>,
    /// The student's last hidden states after the final norm, one row per response token.
    pub student_hidden: Tensor,
    /// The teacher's.
    pub teacher_hidden: Tensor,
    /// The teacher's most likely tokens and their log-probabilities at every position, best first.
    pub teacher_top: Vec<Vec<(u32, f32)>>,
}

/// [`pair_score_with`] after prompts that may differ, keeping the hidden states. Without a prefix cache for the teacher, both
/// use the student's: they are one model in two contexts.
pub fn cross_score(
    student: &Model,
    teacher: &Model,
    rows: &[CrossRow<'_>],
    options: &PairOptions,
    student_prefix: &mut PrefixCache,
    mut teacher_prefix: Option<&mut PrefixCache>,
) -> Result<Vec<CrossScored>, LmError> {
    let vocab = shared_vocab(student, teacher, options.real_vocab)?;
    check_tau(options.tau)?;
    for (index, row) in rows.iter().enumerate() {
        for (model, prompt) in [(student, row.student_prompt), (teacher, row.teacher_prompt)] {
            check_row(model, vocab, prompt, row.response)
                .map_err(|reason| LmError::Request { index, reason })?;
        }
    }
    let bytes_per_token = student.kv_bytes_per_token().max(teacher.kv_bytes_per_token());
    let longest_prompt =
        |row: &CrossRow<'_>| row.student_prompt.len().max(row.teacher_prompt.len());
    let lengths = rows.iter().map(|row| longest_prompt(row) + row.response.len());
    let student_texts: Vec<_> = rows.iter().map(|row| (row.student_prompt, row.response)).collect();
    let teacher_texts: Vec<_> = rows.iter().map(|row| (row.teacher_prompt, row.response)).collect();
    let mut scored = Vec::with_capacity(rows.len());
    let budget = match &teacher_prefix {
        Some(teacher) => student_prefix.budget_bytes().min(teacher.budget_bytes()),
        None => student_prefix.budget_bytes(),
    };
    let budget = options.kv_budget_bytes.min(budget);
    for batch in prefill::batches(lengths, bytes_per_token, budget) {
        let side = |model, prefix: &mut PrefixCache, texts: &[(&[u32], &[u32])], top_k| {
            let texts = &texts[batch.clone()];
            Side::new(model, prefix, texts, vocab, options.tau, top_k)
                .map_err(|state| not_finite(texts, batch.start, state))
        };
        let student = side(student, student_prefix, &student_texts, 0)?;
        let teacher_prefix = teacher_prefix.as_deref_mut().unwrap_or(student_prefix);
        let teacher = side(teacher, teacher_prefix, &teacher_texts, options.teacher_top_k)?;
        let divergences = divergences(&student, &teacher, vocab, options.tau);
        let mut first = 0;
        for row in &rows[batch.clone()] {
            let states = first..first + row.response.len();
            first = states.end;
            let positions = row.response.iter().zip(states.clone()).map(|(&token, state)| {
                position(&student, &teacher, state, token, divergences[state], options.tau)
            });
            scored.push(CrossScored {
                positions: positions.collect(),
                student_hidden: student.states(states.clone()),
                teacher_hidden: teacher.states(states.clone()),
                teacher_top: states.map(|state| teacher.top(state)).collect(),
            });
        }
    }
    Ok(scored)
}

/// One model's states and softmaxes of a batch.
struct Side<'a> {
    model: &'a Model,
    hidden: Matrix,
    summaries: Vec<SummaryAndTop>,
}

impl<'a> Side<'a> {
    /// Fails with the first state whose logits are not finite.
    fn new(
        model: &'a Model,
        prefix: &mut PrefixCache,
        rows: &[(&[u32], &[u32])],
        vocab: usize,
        tau: f32,
        top_k: usize,
    ) -> Result<Self, usize> {
        let states = response_states(model, prefix, rows, vocab);
        let summaries = states
            .summaries(model, vocab, tau, top_k)
            .into_iter()
            .enumerate()
            .map(|(state, summary)| summary.ok_or(state))
            .collect::<Result<_, _>>()?;
        Ok(Self { model, hidden: states.hidden, summaries })
    }

    fn summary(&self, state: usize) -> &RowSummary {
        &self.summaries[state].0
    }

    /// The most likely tokens that were asked for, best first.
    fn top(&self, state: usize) -> Vec<(u32, f32)> {
        let (summary, top) = &self.summaries[state];
        top.iter().map(|&(logit, id)| (id, summary.log_probability(logit))).collect()
    }

    fn states(&self, states: std::ops::Range<usize>) -> Tensor {
        let shape = vec![states.len(), self.model.config().hidden_size];
        let data = states.flat_map(|state| self.hidden.row(state).iter().copied()).collect();
        Tensor { shape, data }
    }

    fn logprob(&self, state: usize, id: u32, tau: f32) -> f32 {
        let logit = self.model.inner().logit(self.hidden.row(state), id);
        self.summary(state).log_probability(logit / tau)
    }

    fn top1_logprob(&self, state: usize) -> f32 {
        let summary = self.summary(state);
        summary.log_probability(summary.top_logit)
    }
}

fn not_finite(texts: &[(&[u32], &[u32])], first: usize, state: usize) -> LmError {
    let mut offset = state;
    for (index, (prompt, response)) in texts.iter().enumerate() {
        if offset < response.len() {
            return LmError::NotFinite { index: first + index, position: prompt.len() + offset };
        }
        offset -= response.len();
    }
    LmError::NotFinite { index: first, position: 0 }
}

fn position(
    student: &Side<'_>,
    teacher: &Side<'_>,
    state: usize,
    token: u32,
    kl: f32,
    tau: f32,
) -> PairPosition {
    let student_top1 = student.summary(state).top;
    let teacher_top1 = teacher.summary(state).top;
    PairPosition {
        kl,
        student_top1,
        teacher_top1,
        student_at_student_top1: student.top1_logprob(state),
        student_at_teacher_top1: student.logprob(state, teacher_top1, tau),
        teacher_at_teacher_top1: teacher.top1_logprob(state),
        teacher_at_student_top1: teacher.logprob(state, student_top1, tau),
        student_logprob: student.logprob(state, token, tau),
        teacher_logprob: teacher.logprob(state, token, tau),
    }
}

/// The second walk over the vocabulary, now that both normalizers are known.
fn divergences(student: &Side<'_>, teacher: &Side<'_>, vocab: usize, tau: f32) -> Vec<f32> {
    let isa = student.model.isa();
    let chunks =
        per_chunk(student.hidden.rows(), vocab, |chunk, rows, buffers: &mut [Vec<f32>; 2]| {
            let ids = chunk_ids(vocab, chunk);
            for (side, buffer) in [student, teacher].into_iter().zip(&mut *buffers) {
                side.model.inner().chunk_logits(
                    &side.hidden,
                    rows.clone(),
                    vocab,
                    chunk,
                    tau,
                    buffer,
                );
            }
            let stride = ids.len().next_multiple_of(PANEL);
            rows.clone()
                .map(|row| {
                    let at = (row - rows.start) * stride;
                    let [a, b] = [0, 1].map(|side: usize| &buffers[side][at..][..ids.len()]);
                    let log_sums = [student, teacher].map(|side| side.summary(row).log_sum as f32);
                    elementwise::kl_chunk(isa, a, b, log_sums[0], log_sums[1])
                })
                .collect()
        });
    (0..student.hidden.rows())
        .map(|row| {
            let sum: f64 = chunks.iter().map(|chunk| f64::from(chunk[row])).sum();
            sum.max(0.0) as f32
        })
        .collect()
}

/// The number of ids the softmaxes of both models run over.
fn shared_vocab(
    student: &Model,
    teacher: &Model,
    real_vocab: Option<usize>,
) -> Result<usize, LmError> {
    let sizes = [student, teacher].map(|model| model.config().vocab_size);
    match real_vocab {
        None if sizes[0] != sizes[1] => Err(LmError::Setting(format!(
            "the student has {} rows of embedding and the teacher {}; give the tokenizer's number of real tokens",
            sizes[0], sizes[1]
        ))),
        _ => {
            prefill::real_vocab(student, real_vocab)?;
            prefill::real_vocab(teacher, real_vocab)
        }
    }
}
