//! A student and a teacher of which at least one is elsewhere, compared as well as they can be.

use std::sync::Arc;

use lens_opd::episode::{DivergenceSource, TopPair};
use lens_opd::objective::buckets::TAIL_FLOOR;
use lens_opd::objective::{Estimator, Loss};

use super::scorer::{RowScores, ScoreRow, Scored, Scorer};
use super::wire::Body;
use super::worker::Worker;
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::models::{Compared, CrossContext, Internalized, Models, Position, ScoreCall};
use crate::native::{NativePolicy, internalize, sampled};
use crate::policy::Policy;
use crate::target::{Kind, Target, TopTokens};

/// Rows in one request to the worker.
const WORKER_ROWS: usize = 256;

/// Who compares the two.
pub(super) enum Judge {
    /// The worker, which holds both: exact.
    Worker {
        /// The worker.
        worker: Arc<Worker>,
        /// The version it must be at.
        version: u64,
    },
    /// Each of them by lists: the teacher's most likely tokens and one bucket for all others.
    Lists {
        /// Scores asked ids.
        student: Arc<dyn Scorer>,
        /// Lists its most likely tokens.
        teacher: Arc<dyn Scorer>,
    },
}

/// Who keeps the student's own distributions under a hint.
pub(super) enum Memory {
    /// This machine's student.
    Native(Arc<NativePolicy>),
    /// The worker, at this version.
    Worker(Arc<Worker>, u64),
}

/// A published student and its teacher, at least one of them elsewhere.
pub struct RemoteModels {
    pub(super) student: Arc<dyn Policy>,
    pub(super) teacher: Arc<dyn Policy>,
    pub(super) judge: Judge,
    pub(super) memory: Memory,
    pub(super) loss: Loss,
}

impl Models for RemoteModels {
    fn student(&self) -> &dyn Policy {
        &*self.student
    }

    fn teacher(&self) -> &dyn Policy {
        &*self.teacher
    }

    fn divergence(&self) -> DivergenceSource {
        match self.judge {
            Judge::Worker { .. } => DivergenceSource::Full,
            Judge::Lists { .. } => DivergenceSource::TopK,
        }
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        match &self.judge {
            Judge::Worker { worker, version } => {
                let mut answers = Vec::with_capacity(calls.len());
                for calls in calls.chunks(WORKER_ROWS) {
                    if deadline.has_passed() {
                        answers.extend(calls.iter().map(|_| Err(CallFailure::Timeout)));
                    } else {
                        answers.extend(self.by_worker(worker, *version, calls)?);
                    }
                }
                Ok(answers)
            }
            Judge::Lists { student, teacher } => {
                self.by_lists(&**student, &**teacher, calls, deadline)
            }
        }
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        if deadline.has_passed() {
            return Ok(calls.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        match &self.memory {
            Memory::Native(student) => internalize(student, calls, deadline),
            Memory::Worker(worker, version) => {
                let mut answers = Vec::with_capacity(calls.len());
                for calls in calls.chunks(WORKER_ROWS) {
                    answers.extend(kept(worker, *version, calls)?);
                }
                Ok(answers)
            }
        }
    }
}

impl RemoteModels {
    /// What a response is pulled toward; `None` where what the estimator needs was not measured.
    fn target(
        &self,
        call: &ScoreCall,
        positions: &[Position],
        lists: impl FnOnce() -> Option<TopTokens>,
    ) -> Result<Option<Target>, EngineError> {
        Ok(match self.loss.estimator {
            Estimator::RklFull => match self.judge {
                Judge::Worker { .. } => Some(Target(Kind::TeacherStates(None))),
                Judge::Lists { .. } => {
                    return Err(EngineError::Request(
                        "loss.estimator = \"rkl_full\" needs a teacher beside the learner; with a served teacher use \"rkl_topk\" or \"k1_pg\"".to_owned(),
                    ));
                }
            },
            Estimator::RklTopk => lists().map(|top| Target(Kind::TeacherTop(Some(Arc::new(top))))),
            Estimator::K1Pg => {
                let known = positions.iter().all(|position| {
                    let student = call.drawn.is_some() || position.student_logprob.is_some();
                    position.teacher_logprob.is_some() && student
                });
                if known { Some(sampled(call, positions)?) } else { None }
            }
        })
    }

    fn finished(
        &self,
        call: &ScoreCall,
        positions: Vec<Position>,
        lists: impl FnOnce() -> Option<TopTokens>,
    ) -> Result<Result<Compared, CallFailure>, EngineError> {
        if !call.trainable {
            return Ok(Ok(Compared { positions, target: None }));
        }
        let target = self.target(call, &positions, lists)?;
        Ok(match target {
            Some(target) => Ok(Compared { positions, target: Some(target) }),
            None => Err(CallFailure::Engine),
        })
    }

    fn by_worker(
        &self,
        worker: &Worker,
        version: u64,
        calls: &[ScoreCall],
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        const PATH: &str = "/v1/score";
        let tokens: usize = calls.iter().map(|call| call.response.len()).sum();
        let listed = self.loss.estimator == Estimator::RklTopk;
        let mut body = Body::default();
        body.rows(calls.iter().map(|call| (call.prompt.as_slice(), call.response.as_slice())));
        body.u8s("compare", &calls.iter().map(|call| u8::from(call.compare)).collect::<Vec<_>>());
        let temperatures: Vec<f32> = calls.iter().map(|call| call.temperature).collect();
        body.f32s("temperature", &temperatures);
        body.set("expected_version", version);
        if listed {
            body.set("top_k", self.loss.top_k);
        }
        let answer = worker.good(PATH, worker.tensors(PATH, body)?)?;
        let reply = worker.reply(PATH, &answer, version)?;
        let floats = |name: &str| reply.f32s(name, tokens).ok_or_else(|| worker.lacks(PATH, name));
        let ids = |name: &str| reply.ids(name, tokens).ok_or_else(|| worker.lacks(PATH, name));
        let (teacher, student, kl) =
            (floats("teacher_logprob")?, floats("student_logprob")?, floats("kl")?);
        let (student_top, teacher_top) = (ids("student_top")?, ids("teacher_top")?);
        let at = [
            floats("student_at_student")?,
            floats("student_at_teacher")?,
            floats("teacher_at_teacher")?,
            floats("teacher_at_student")?,
        ];
        let k = if listed { reply.width("teacher_top_ids").unwrap_or(0) } else { 0 };
        let top_ids = reply.ids("teacher_top_ids", tokens * k).unwrap_or_default();
        let top_logprobs = reply.f32s("teacher_top_logprobs", tokens * k).unwrap_or_default();
        let mut start = 0;
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let range = start..start + call.response.len();
            start = range.end;
            let positions = range.clone().map(|place| Position {
                teacher_logprob: teacher[place],
                student_logprob: student[place],
                top: student_top[place].zip(teacher_top[place]).map(
                    |(student_top, teacher_top)| TopPair {
                        student_top,
                        teacher_top,
                        student_at_student: at[0][place],
                        student_at_teacher: at[1][place],
                        teacher_at_teacher: at[2][place],
                        teacher_at_student: at[3][place],
                    },
                ),
                kl: kl[place],
            });
            let lists = || {
                let words = range.start * k..range.end * k;
                let ids: Option<Vec<u32>> = top_ids.get(words.clone())?.iter().copied().collect();
                let logprobs: Option<Vec<f32>> = top_logprobs.get(words)?.iter().copied().collect();
                (k > 0).then_some(TopTokens { k, ids: ids?, logprobs: logprobs? })
            };
            answers.push(self.finished(call, positions.collect(), lists)?);
        }
        Ok(answers)
    }

    fn by_lists(
        &self,
        student: &dyn Scorer,
        teacher: &dyn Scorer,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        if let Some(call) = calls.iter().find(|call| call.temperature != 1.0) {
            return Err(EngineError::Request(format!(
                "a served teacher scores at temperature 1, not at {}: set validate.temperature to 1, or let the training worker hold the teacher (learner.holds_teacher)",
                call.temperature
            )));
        }
        let listed = |call: &ScoreCall| {
            call.compare || (call.trainable && self.loss.estimator == Estimator::RklTopk)
        };
        let rows: Vec<ScoreRow<'_>> = calls
            .iter()
            .map(|call| row(call, if listed(call) { self.loss.top_k } else { 0 }, Vec::new()))
            .collect();
        let teacher_says = teacher.score(&rows, deadline)?;
        let student_says = by_student(student, calls, &teacher_says, deadline)?;
        let elsewhere = by_teacher(teacher, calls, &teacher_says, &student_says, deadline)?;
        let mut answers = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let theirs = match &teacher_says[index] {
                Ok(theirs) => theirs,
                Err(failure) => {
                    answers.push(Err(*failure));
                    continue;
                }
            };
            let ours = match &student_says[index] {
                Some(Err(failure)) => {
                    answers.push(Err(*failure));
                    continue;
                }
                Some(Ok(ours)) => Some(ours),
                None => None,
            };
            let positions = theirs.iter().enumerate().map(|(place, theirs)| {
                let asked = elsewhere[index].as_ref().and_then(|found| *found.get(place)?);
                match ours {
                    Some(ours) => compared(theirs, &ours[place], asked),
                    None => Position {
                        teacher_logprob: theirs.logprob,
                        student_logprob: None,
                        top: None,
                        kl: None,
                    },
                }
            });
            answers.push(self.finished(call, positions.collect(), || top_tokens(theirs))?);
        }
        Ok(answers)
    }
}

fn row(call: &ScoreCall, top_k: usize, asked: Vec<Vec<u32>>) -> ScoreRow<'_> {
    ScoreRow { prompt: &call.prompt, response: &call.response, top_k, asked }
}

/// The student's view of the calls that compare: its favorite, and the teacher's list.
fn by_student(
    student: &dyn Scorer,
    calls: &[ScoreCall],
    teacher_says: &[RowScores],
    deadline: Deadline,
) -> Result<Vec<Option<RowScores>>, EngineError> {
    let mut answers: Vec<Option<RowScores>> = calls.iter().map(|_| None).collect();
    let (mut open, mut rows) = (Vec::new(), Vec::new());
    for (index, call) in calls.iter().enumerate() {
        if let (true, Ok(theirs)) = (call.compare, &teacher_says[index]) {
            let ids = |scored: &Scored| scored.top.iter().map(|&(id, _)| id).collect();
            open.push(index);
            rows.push(row(call, 1, theirs.iter().map(ids).collect()));
        }
    }
    for (index, answer) in open.into_iter().zip(student.score(&rows, deadline)?) {
        answers[index] = Some(answer);
    }
    Ok(answers)
}

/// The teacher's view of the student's favorites that are not in its own list, where it answers that.
fn by_teacher(
    teacher: &dyn Scorer,
    calls: &[ScoreCall],
    teacher_says: &[RowScores],
    student_says: &[Option<RowScores>],
    deadline: Deadline,
) -> Result<Vec<Option<Vec<Option<f32>>>>, EngineError> {
    let mut answers: Vec<Option<Vec<Option<f32>>>> = calls.iter().map(|_| None).collect();
    let (mut open, mut rows) = (Vec::new(), Vec::new());
    for (index, call) in calls.iter().enumerate() {
        let (Ok(theirs), Some(Ok(ours))) = (&teacher_says[index], &student_says[index]) else {
            continue;
        };
        let favorites: Vec<Option<u32>> =
            ours.iter().map(|ours| Some(ours.top.first()?.0)).collect();
        let unknown = favorites.iter().zip(theirs).any(|(favorite, theirs)| {
            favorite.is_some_and(|id| theirs.top.iter().all(|&(listed, _)| listed != id))
        });
        if unknown && teacher.answers_asked() {
            open.push(index);
            let asked = favorites.into_iter().map(|id| id.into_iter().collect()).collect();
            rows.push(row(call, 0, asked));
        }
    }
    for (index, answer) in open.into_iter().zip(teacher.score(&rows, deadline)?) {
        // What a teacher does not answer here stays unmeasured; the rest of the row is good.
        let values = answer.ok().map(|scored| {
            scored.into_iter().map(|scored| scored.asked.first().copied().flatten()).collect()
        });
        answers[index] = values;
    }
    Ok(answers)
}

fn compared(theirs: &Scored, ours: &Scored, asked: Option<f32>) -> Position {
    let top = theirs.top.first().zip(ours.top.first()).map(
        |(&(teacher_top, theirs_best), &(student_top, ours_best))| {
            let listed = theirs.top.iter().find(|&&(id, _)| id == student_top);
            TopPair {
                student_top,
                teacher_top,
                student_at_student: Some(ours_best),
                student_at_teacher: ours.asked.first().copied().flatten(),
                teacher_at_teacher: Some(theirs_best),
                teacher_at_student: listed.map(|&(_, logprob)| logprob).or(asked),
            }
        },
    );
    Position {
        teacher_logprob: theirs.logprob,
        student_logprob: ours.logprob,
        top,
        kl: divergence(&theirs.top, &ours.asked),
    }
}

/// `KL(student || teacher)` over the tokens the teacher listed and one bucket for all others: never more than over the
/// whole vocabulary. `None` if the student's view of a listed token is missing.
fn divergence(listed: &[(u32, f32)], student: &[Option<f32>]) -> Option<f32> {
    if listed.is_empty() || student.len() != listed.len() {
        return None;
    }
    let (mut ours, mut theirs, mut sum) = (0.0, 0.0, 0.0);
    for (&(_, teacher), student) in listed.iter().zip(student) {
        let (teacher, student) = (f64::from(teacher), f64::from((*student)?));
        ours += student.exp();
        theirs += teacher.exp();
        sum += student.exp() * (student - teacher);
    }
    let (ours, theirs) = ((1.0 - ours).max(TAIL_FLOOR), (1.0 - theirs).max(TAIL_FLOOR));
    sum += ours * (ours.ln() - theirs.ln());
    // Rounding may leave a hair below nothing.
    Some(sum.max(0.0) as f32)
}

/// The teacher's lists, all as long as the shortest: what is left out belongs to the bucket of all others.
fn top_tokens(scored: &[Scored]) -> Option<TopTokens> {
    let k = scored.iter().map(|position| position.top.len()).min().filter(|&k| k > 0)?;
    let listed = scored.iter().flat_map(|position| position.top.iter().take(k));
    let (ids, logprobs) = listed.copied().unzip();
    Some(TopTokens { k, ids, logprobs })
}

/// The student's distributions under hints, kept by the worker.
fn kept(
    worker: &Worker,
    version: u64,
    calls: &[CrossContext],
) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
    const PATH: &str = "/v1/cross_context";
    let mut body = Body::default();
    body.ragged(
        "hinted_tokens",
        "hinted_offsets",
        calls.iter().map(|call| call.hinted_prompt.as_slice()),
    );
    body.ragged(
        "plain_tokens",
        "plain_offsets",
        calls.iter().map(|call| call.plain_prompt.as_slice()),
    );
    body.ragged(
        "response_tokens",
        "response_offsets",
        calls.iter().map(|call| call.response.as_slice()),
    );
    body.set("expected_version", version);
    let answer = worker.good(PATH, worker.tensors(PATH, body)?)?;
    let reply = worker.reply(PATH, &answer, version)?;
    let gaps = reply.f64s("gap", calls.len()).ok_or_else(|| worker.lacks(PATH, "gap"))?;
    let keys =
        reply.i64s("target_key", calls.len()).ok_or_else(|| worker.lacks(PATH, "target_key"))?;
    let answers = gaps.into_iter().zip(keys).map(|(gap, key)| {
        Ok(Internalized {
            target: Target(Kind::Kept { key, version }),
            gap: gap.is_finite().then_some(gap),
        })
    });
    Ok(answers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divergence_of_lists_is_a_lower_bound_and_misses_nothing_silently() {
        let teacher: [f64; 4] = [0.5, 0.3, 0.15, 0.05];
        let student: [f64; 4] = [0.2, 0.5, 0.1, 0.2];
        let exact: f64 = student.iter().zip(teacher).map(|(s, t)| s * (s / t).ln()).sum();
        let list = |k: usize| -> Vec<(u32, f32)> {
            (0..k).map(|id| (id as u32, teacher[id].ln() as f32)).collect()
        };
        let asked = |k: usize| -> Vec<Option<f32>> {
            (0..k).map(|id| Some(student[id].ln() as f32)).collect()
        };
        let mut last = 0.0;
        for k in 1..4 {
            let found = divergence(&list(k), &asked(k)).expect("measured");
            assert!(
                found >= last && f64::from(found) <= exact + 1e-6,
                "{k}: {found} {last} {exact}"
            );
            last = found;
        }
        assert!((f64::from(last) - exact).abs() < 1e-6, "three tokens and the rest are everything");
        assert_eq!(divergence(&list(2), &[Some(-1.0), None]), None);
        assert_eq!(divergence(&[], &[]), None);
    }
}
