//! What hints are worth: does a teacher name the right step when it is asked about a student's wrong plan, and does the
//! student do what it is told?

use lens_agent::parse::action;
use lens_engine::{Deadline, GenerateCall, Message, Policy, Sampling};
use lens_opd::random::{Purpose, StreamKey};

use crate::corpus::{Lesson, Text, is_approval, named_action};
use crate::recipe::LabError;

/// The longest prompt and the longest answer, in tokens; hints are as long as the paper's.
const MAX_PROMPT: usize = 1536;
const MAX_ANSWER: usize = 80;

/// Calls answered side by side.
const SIDE_BY_SIDE: usize = 128;

/// Answers to questions about wrong plans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HintReport {
    /// Wrong plans the teacher was asked about.
    pub plans: usize,
    /// Comments that name the right step.
    pub named: usize,
    /// Comments that call the wrong plan right.
    pub approved: usize,
    /// Times the student, told what is right by the expert, did it.
    pub followed: usize,
}

/// Asks a teacher about the wrong plans among `texts`, and tells the student what would be right. All answers are greedy.
pub fn hints(
    teacher: &dyn Policy,
    student: &dyn Policy,
    texts: &[Text],
) -> Result<HintReport, LabError> {
    let pairs: Vec<(&Text, &Text)> = texts
        .iter()
        .zip(texts.iter().skip(1))
        .filter(|(comment, obeyed)| {
            (comment.lesson, obeyed.lesson) == (Lesson::Comment, Lesson::Obey)
        })
        .filter(|(comment, _)| !is_approval(&comment.answer))
        .collect();
    let mut report = HintReport { plans: pairs.len(), ..HintReport::default() };
    for group in pairs.chunks(SIDE_BY_SIDE) {
        let comments = answers(teacher, group.iter().map(|(comment, _)| *comment))?;
        let obeyed = answers(student, group.iter().map(|(_, obeyed)| *obeyed))?;
        for (((comment, act), said), done) in group.iter().zip(comments).zip(obeyed) {
            report.named += usize::from(named_action(&said) == named_action(&comment.answer));
            report.approved += usize::from(is_approval(&said));
            report.followed += usize::from(action(&done) == action(&act.answer));
        }
    }
    Ok(report)
}

/// What the model answers; nothing where it fails.
fn answers<'t>(
    policy: &dyn Policy,
    texts: impl Iterator<Item = &'t Text>,
) -> Result<Vec<String>, LabError> {
    let codec = policy.codec();
    let calls: Result<Vec<_>, LabError> = texts
        .map(|text| {
            Ok(GenerateCall {
                prompt: codec.prompt(&[Message::user(&text.message)])?,
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
