//! What a stage of an iteration asks of the processor, to set its time against the processor's peak.
//!
//! Counted are the matrix products of the calls as they come, each sequence by itself: no beginnings that sequences share,
//! nothing that writing a response left behind for judging it. What an engine saves by that shows as speed.

use lens_config::Config;
use lens_engine::{Call, LearnRow};
use lens_lm::bench::{sequence_flops, training_flops};
use lens_lm::checkpoint::ModelFiles;
use lens_lm::config::ModelConfig;

use crate::assemble;
use crate::failure::Failure;

/// The shapes of both models.
#[derive(Debug, Clone)]
pub(super) struct Shapes {
    student: ModelConfig,
    teacher: ModelConfig,
}

impl Shapes {
    pub(super) fn read(config: &Config) -> Result<Self, Failure> {
        let config = assemble::with_models(config)?;
        let student = ModelFiles::read(&config.student.path)?.config;
        Ok(Self { student, teacher: ModelFiles::read(&config.teacher.path)?.config })
    }

    /// Floating-point operations of a call.
    pub(super) fn of_call(&self, call: &Call<'_>) -> f64 {
        match call {
            Call::Student(calls, answers) | Call::Teacher(calls, answers) => {
                let shape = match call {
                    Call::Student(..) => &self.student,
                    _ => &self.teacher,
                };
                let written = calls.iter().zip(*answers).filter_map(|(call, answer)| {
                    let tokens = answer.as_ref().ok()?.tokens.len();
                    Some(judged(shape, call.prompt.len(), tokens))
                });
                written.sum()
            }
            Call::Compare(calls, _) => calls
                .iter()
                .map(|call| {
                    let (prompt, response) = (call.prompt.len(), call.response.len());
                    let student =
                        if call.compare { judged(&self.student, prompt, response) } else { 0.0 };
                    judged(&self.teacher, prompt, response) + student
                })
                .sum(),
            Call::Internalize(calls, _) => calls
                .iter()
                .flat_map(|call| {
                    [&call.hinted_prompt, &call.plain_prompt]
                        .map(|prompt| judged(&self.student, prompt.len(), call.response.len()))
                })
                .sum(),
        }
    }

    /// Floating-point operations of an optimizer step.
    pub(super) fn of_step(&self, rows: &[LearnRow]) -> f64 {
        let each = rows.iter().map(|row| {
            let (prompt, response) = (row.prompt.len(), row.response.len());
            let tokens = (prompt + response).saturating_sub(1);
            training_flops(&self.student, self.teacher.hidden_size, tokens, response)
        });
        each.sum()
    }
}

/// Reading a prompt and writing or judging a response; its last token predicts nothing that is asked for.
fn judged(shape: &ModelConfig, prompt: usize, response: usize) -> f64 {
    sequence_flops(shape, (prompt + response).saturating_sub(1), response)
}

/// Billions of operations per second and their share of a peak, both for a table; empty where nothing was measured.
pub(super) fn speed(flops: f64, seconds: f64, peak: f64) -> String {
    if flops <= 0.0 || seconds <= 0.0 {
        return String::new();
    }
    let reached = flops / seconds / 1e9;
    format!("{reached:>8.0} {:>5.0} %", 100.0 * reached / peak)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_engine::ScoreCall;
    use lens_lm::train::bench::BenchShape;

    #[test]
    fn comparing_costs_both_models_and_asking_the_teacher_one() {
        let all = BenchShape::all();
        let shapes = Shapes { student: all[0].config.clone(), teacher: all[1].config.clone() };
        let call = |compare| ScoreCall {
            prompt: vec![1; 50],
            response: vec![2; 5],
            drawn: None,
            compare,
            trainable: false,
            temperature: 1.0,
        };
        let [both, teacher] =
            [true, false].map(|compare| shapes.of_call(&Call::Compare(&[call(compare)], &[])));
        let student = sequence_flops(&all[0].config, 54, 5);
        assert_eq!(teacher, sequence_flops(&all[1].config, 54, 5));
        assert_eq!(both, teacher + student);
    }

    #[test]
    fn a_speed_is_set_against_the_peak() {
        assert_eq!(speed(3e9, 2.0, 3.0), "       2    50 %");
        assert_eq!(speed(0.0, 2.0, 3.0), "");
    }
}
