//! A student and a teacher on this machine, compared over the whole vocabulary.

use std::sync::Arc;

use lens_lm::pair::{CrossRow, PairOptions, PairPosition, cross_score};
use lens_lm::score::Scored;
use lens_opd::episode::{DivergenceSource, TopPair};
use lens_opd::objective::{Estimator, Loss};

use super::policy::NativePolicy;
use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::models::{Compared, CrossContext, Internalized, Models, Position, ScoreCall};
use crate::policy::Policy;
use crate::target::{Kind, Target, TopTokens};

/// A published student and its teacher, both on this machine.
#[derive(Debug, Clone)]
pub struct NativeModels {
    student: Arc<NativePolicy>,
    teacher: Arc<NativePolicy>,
    loss: Loss,
}

impl NativeModels {
    /// Puts the two together; `loss` says what targets rows need.
    pub fn new(
        student: Arc<NativePolicy>,
        teacher: Arc<NativePolicy>,
        loss: Loss,
    ) -> Result<Self, EngineError> {
        super::shared_tokens(student.native_codec(), teacher.native_codec())?;
        Ok(Self { student, teacher, loss })
    }

    pub(super) fn student_policy(&self) -> &NativePolicy {
        &self.student
    }

    /// The student, if nothing else refers to it.
    pub(super) fn own_student(&mut self) -> Option<&mut NativePolicy> {
        Arc::get_mut(&mut self.student)
    }

    fn options(&self) -> PairOptions {
        PairOptions { real_vocab: Some(self.teacher.real_vocab()), ..PairOptions::default() }
    }

    /// Both models at every position, for the calls that ask for it.
    fn both(
        &self,
        calls: &[ScoreCall],
        answers: &mut [Option<Compared>],
    ) -> Result<(), EngineError> {
        let asked: Vec<usize> = (0..calls.len()).filter(|&index| calls[index].compare).collect();
        let rows: Vec<CrossRow<'_>> = asked
            .iter()
            .map(|&index| CrossRow {
                student_prompt: &calls[index].prompt,
                teacher_prompt: &calls[index].prompt,
                response: &calls[index].response,
            })
            .collect();
        let (student, teacher) = (&self.student, &self.teacher);
        let mut options = self.options();
        if self.loss.estimator == Estimator::RklTopk {
            options.teacher_top_k = self.loss.top_k;
        }
        let scored = if Arc::ptr_eq(student, teacher) {
            // A model judging itself has one cache.
            let own = &mut student.prefix();
            cross_score(student.model(), teacher.model(), &rows, &options, own, None)?
        } else {
            cross_score(
                student.model(),
                teacher.model(),
                &rows,
                &options,
                &mut student.prefix(),
                Some(&mut teacher.prefix()),
            )?
        };
        for (index, row) in asked.into_iter().zip(scored) {
            let positions = row.positions.iter().map(compared).collect();
            let target = match self.loss.estimator {
                Estimator::RklTopk => Kind::TeacherTop(Some(Arc::new(listed(&row.teacher_top)))),
                Estimator::RklFull | Estimator::K1Pg => {
                    Kind::TeacherStates(Some(Arc::new(row.teacher_hidden.data)))
                }
            };
            answers[index] = Some(Compared { positions, target: Some(Target(target)) });
        }
        Ok(())
    }

    /// The teacher alone, for the calls that are still open, grouped by temperature.
    fn teacher_alone(
        &self,
        calls: &[ScoreCall],
        answers: &mut [Option<Compared>],
    ) -> Result<(), EngineError> {
        let mut temperatures: Vec<f32> = calls.iter().map(|call| call.temperature).collect();
        temperatures.sort_unstable_by(f32::total_cmp);
        temperatures.dedup();
        for temperature in temperatures {
            let open: Vec<usize> = (0..calls.len())
                .filter(|&index| {
                    answers[index].is_none() && calls[index].temperature == temperature
                })
                .collect();
            let rows: Vec<(&[u32], &[u32])> = open
                .iter()
                .map(|&index| (calls[index].prompt.as_slice(), calls[index].response.as_slice()))
                .collect();
            for (index, row) in open.into_iter().zip(self.teacher.states(&rows, temperature, 0)?) {
                let positions = row.positions.iter().map(|position| Position {
                    teacher_logprob: Some(position.logprob),
                    student_logprob: None,
                    top: None,
                    kl: None,
                });
                let hidden = row.hidden.map(|hidden| Arc::new(hidden.data));
                let target = Some(Target(Kind::TeacherStates(hidden)));
                answers[index] = Some(Compared { positions: positions.collect(), target });
            }
        }
        Ok(())
    }

    /// Puts the target the run's estimator needs in place of the hidden states that scoring left behind. Calls that compared
    /// both models have listed the teacher's tokens already.
    fn targets(
        &self,
        calls: &[ScoreCall],
        answers: &mut [Option<Compared>],
    ) -> Result<(), EngineError> {
        let mut listed = Vec::new();
        for (index, (call, answer)) in calls.iter().zip(answers.iter_mut()).enumerate() {
            let Some(answer) = answer else { continue };
            if !call.trainable {
                answer.target = None;
                continue;
            }
            match self.loss.estimator {
                Estimator::RklFull => {}
                Estimator::RklTopk if call.compare => {}
                Estimator::RklTopk => listed.push(index),
                Estimator::K1Pg => answer.target = Some(sampled(call, &answer.positions)?),
            }
        }
        let rows: Vec<(&[u32], &[u32])> = listed
            .iter()
            .map(|&index| (calls[index].prompt.as_slice(), calls[index].response.as_slice()))
            .collect();
        let scored = self.teacher.states(&rows, 1.0, self.loss.top_k)?;
        for (index, scored) in listed.into_iter().zip(scored) {
            if let Some(answer) = &mut answers[index] {
                answer.target = Some(Target(Kind::TeacherTop(Some(Arc::new(top_tokens(&scored))))));
            }
        }
        Ok(())
    }
}

/// The teacher's most likely tokens at every position.
pub(super) fn top_tokens(scored: &Scored) -> TopTokens {
    let tops: Vec<_> = scored.positions.iter().map(|position| position.top.as_slice()).collect();
    listed(&tops)
}

fn listed<T: AsRef<[(u32, f32)]>>(tops: &[T]) -> TopTokens {
    let (ids, logprobs) = tops.iter().flat_map(AsRef::as_ref).copied().unzip();
    TopTokens { k: tops.first().map_or(0, |top| top.as_ref().len()), ids, logprobs }
}

/// Both models' log-probabilities of the realized tokens; a token that was not measured is an error.
pub(crate) fn sampled(call: &ScoreCall, positions: &[Position]) -> Result<Target, EngineError> {
    let missing = |whose: &str| {
        EngineError::Request(format!(
            "k1_pg needs every token's log-probability under the {whose}, and it was not measured"
        ))
    };
    let teacher: Option<Vec<f32>> =
        positions.iter().map(|position| position.teacher_logprob).collect();
    let rollout: Option<Vec<f32>> = match &call.drawn {
        Some(drawn) => Some(drawn.clone()),
        None => positions.iter().map(|position| position.student_logprob).collect(),
    };
    Ok(Target(Kind::Sampled {
        teacher: teacher.ok_or_else(|| missing("teacher"))?,
        rollout: rollout.ok_or_else(|| missing("student"))?,
    }))
}

impl Models for NativeModels {
    fn student(&self) -> &dyn Policy {
        &*self.student
    }

    fn teacher(&self) -> &dyn Policy {
        &*self.teacher
    }

    fn divergence(&self) -> DivergenceSource {
        DivergenceSource::Full
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        if deadline.has_passed() {
            return Ok(calls.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        let mut answers: Vec<Option<Compared>> = calls.iter().map(|_| None).collect();
        self.both(calls, &mut answers)?;
        self.teacher_alone(calls, &mut answers)?;
        self.targets(calls, &mut answers)?;
        Ok(answers.into_iter().map(|answer| answer.ok_or(CallFailure::Engine)).collect())
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        internalize(&self.student, calls, deadline)
    }
}

fn compared(position: &PairPosition) -> Position {
    Position {
        teacher_logprob: Some(position.teacher_logprob),
        student_logprob: Some(position.student_logprob),
        top: Some(TopPair {
            student_top: position.student_top1,
            teacher_top: position.teacher_top1,
            student_at_student: Some(position.student_at_student_top1),
            student_at_teacher: Some(position.student_at_teacher_top1),
            teacher_at_teacher: Some(position.teacher_at_teacher_top1),
            teacher_at_student: Some(position.teacher_at_student_top1),
        }),
        kl: Some(position.kl),
    }
}

/// A student's own distributions under a hint, by its hidden states there.
pub(crate) fn internalize(
    student: &NativePolicy,
    calls: &[CrossContext],
    deadline: Deadline,
) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
    if deadline.has_passed() {
        return Ok(calls.iter().map(|_| Err(CallFailure::Timeout)).collect());
    }
    let rows: Vec<CrossRow<'_>> = calls
        .iter()
        .map(|call| CrossRow {
            student_prompt: &call.hinted_prompt,
            teacher_prompt: &call.plain_prompt,
            response: &call.response,
        })
        .collect();
    let options = PairOptions { real_vocab: Some(student.real_vocab()), ..PairOptions::default() };
    let model = student.model();
    let scored = cross_score(model, model, &rows, &options, &mut student.prefix(), None)?;
    let version = student.version();
    let targets = scored.into_iter().map(|row| {
        let sum: f64 = row.positions.iter().map(|position| f64::from(position.kl)).sum();
        Ok(Internalized {
            gap: Some(sum / row.positions.len().max(1) as f64),
            target: Target(Kind::Snapshot { hidden: Arc::new(row.student_hidden.data), version }),
        })
    });
    Ok(targets.collect())
}
