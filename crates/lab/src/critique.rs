//! What critiques are worth: does a teacher name the right action when it is asked about a student's wrong plan, and does
//! the student follow a right critique?

use lens_agent::parse::action;
use lens_engine::{Deadline, GenerateCall, Message, Policy, Sampling};
use lens_opd::random::{Purpose, StreamKey};

use crate::corpus::{Critique, Sample, is_approval, named_action};
use crate::error::LabError;

/// The longest prompt and the longest answer, in tokens; critiques are as long as the paper's hints.
const MAX_PROMPT: usize = 1536;
const MAX_ANSWER: usize = 80;

/// Calls answered concurrently.
const CONCURRENT: usize = 128;

/// A teacher's critiques of wrong plans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CritiqueReport {
    /// Wrong plans the teacher was asked about.
    pub plans: usize,
    /// Critiques that name the right action.
    pub named: usize,
    /// Critiques that approve of the wrong plan.
    pub approved: usize,
}

/// A student's answers to the expert's critiques of wrong plans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FollowReport {
    /// Wrong plans the expert criticized.
    pub plans: usize,
    /// Answers with the action that the critique calls right.
    pub followed: usize,
}

fn of_wrong_plans(critiques: &[Critique]) -> Vec<&Critique> {
    critiques.iter().filter(|critique| !critique.approves()).collect()
}

/// Asks the teacher about the wrong plans among `critiques`. Answers are greedy.
pub fn teacher_critiques(
    teacher: &dyn Policy,
    critiques: &[Critique],
) -> Result<CritiqueReport, LabError> {
    let critiques = of_wrong_plans(critiques);
    let mut report = CritiqueReport { plans: critiques.len(), ..CritiqueReport::default() };
    for group in critiques.chunks(CONCURRENT) {
        let answers = answers(teacher, group.iter().map(|critique| &critique.question))?;
        for (critique, said) in group.iter().zip(answers) {
            let right = named_action(&critique.question.answer);
            report.named += usize::from(named_action(&said) == right);
            report.approved += usize::from(is_approval(&said));
        }
    }
    Ok(report)
}

/// Gives the student the expert's critiques of the wrong plans among `critiques`. Answers are greedy.
pub fn followed_critiques(
    student: &dyn Policy,
    critiques: &[Critique],
) -> Result<FollowReport, LabError> {
    let critiques = of_wrong_plans(critiques);
    let mut report = FollowReport { plans: critiques.len(), followed: 0 };
    for group in critiques.chunks(CONCURRENT) {
        let answers = answers(student, group.iter().map(|critique| &critique.followed))?;
        for (critique, done) in group.iter().zip(answers) {
            report.followed += usize::from(action(&done) == action(&critique.followed.answer));
        }
    }
    Ok(report)
}

/// The model's answers; empty where a call fails.
fn answers<'t>(
    policy: &dyn Policy,
    samples: impl Iterator<Item = &'t Sample>,
) -> Result<Vec<String>, LabError> {
    let codec = policy.codec();
    let calls: Result<Vec<_>, LabError> = samples
        .map(|sample| {
            Ok(GenerateCall {
                prompt: codec.prompt(&[Message::user(&sample.message)])?,
                max_prompt_tokens: MAX_PROMPT,
                max_new_tokens: MAX_ANSWER,
                sampling: Sampling::GREEDY,
                stream: StreamKey::new(0, 0, 0, Purpose::Teacher, 0),
            })
        })
        .collect();
    let mut answers = Vec::new();
    for answer in policy.generate(&calls?, Deadline::never())? {
        answers.push(match answer {
            Ok(completion) => codec.text(&completion.tokens)?,
            Err(_) => String::new(),
        });
    }
    Ok(answers)
}
