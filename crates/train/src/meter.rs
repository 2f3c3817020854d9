//! Counting the tokens that an explorer batch costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lens_engine::{Call, CallFailure, Completion, GenerateCall, Observer};
use lens_records::metrics::SpentTokens;

/// Adds up what both models read and write. Prompts count in full, whatever an engine remembers of them, so that the
/// count does not depend on caches.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    student: AtomicU64,
    teacher: AtomicU64,
}

impl Meter {
    /// What was spent so far.
    pub(crate) fn spent(&self) -> SpentTokens {
        SpentTokens {
            student: self.student.load(Ordering::Relaxed),
            teacher: self.teacher.load(Ordering::Relaxed),
        }
    }
}

/// Tokens of prompts that were answered, and of the answers.
fn written(calls: &[GenerateCall], answers: &[Result<Completion, CallFailure>]) -> u64 {
    let answered = calls.iter().zip(answers).filter_map(|(call, answer)| {
        let answer = answer.as_ref().ok()?;
        Some((call.prompt.len() + answer.tokens.len()) as u64)
    });
    answered.sum()
}

impl Observer for Meter {
    fn answered(&self, call: &Call<'_>, _: Duration) {
        let (student, teacher) = match call {
            Call::Student(calls, answers) => (written(calls, answers), 0),
            Call::Teacher(calls, answers) => (0, written(calls, answers)),
            Call::Compare(calls, _) => {
                // The student reads along where favorites are compared.
                let (mut student, mut teacher) = (0, 0);
                for call in *calls {
                    let tokens = (call.prompt.len() + call.response.len()) as u64;
                    teacher += tokens;
                    student += if call.compare { tokens } else { 0 };
                }
                (student, teacher)
            }
            Call::Internalize(calls, _) => {
                let tokens = calls.iter().map(|call| {
                    call.hinted_prompt.len() + call.plain_prompt.len() + 2 * call.response.len()
                });
                (tokens.sum::<usize>() as u64, 0)
            }
        };
        self.student.fetch_add(student, Ordering::Relaxed);
        self.teacher.fetch_add(teacher, Ordering::Relaxed);
    }
}
