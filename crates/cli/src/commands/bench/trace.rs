//! What the models were asked in an iteration, written down so that a peer can do the same work.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_config::Config;
use lens_engine::{Call, CallFailure, Completion, GenerateCall, LearnRow};
use serde_json::{Value, json};

use crate::failure::Failure;

/// A file of JSON lines: the setup, then every batch, every call and every optimizer step in their order.
#[derive(Debug)]
pub(super) struct Trace {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: BufWriter<File>,
    /// Time spent on writing, which is no part of an iteration.
    spent: Duration,
    /// The first write that failed.
    failed: Option<std::io::Error>,
}

impl Trace {
    /// Starts a file with what a peer needs to load.
    pub(super) fn create(path: &Path, config: &Config) -> Result<Self, Failure> {
        let file = File::create(path)
            .map_err(|error| Failure::user(format!("cannot write {}: {error}", path.display())))?;
        let trace = Self {
            state: Mutex::new(State {
                file: BufWriter::new(file),
                spent: Duration::ZERO,
                failed: None,
            }),
        };
        trace.write(|| {
            json!({
                "kind": "setup",
                "student": config.student.path, "teacher": config.teacher.path,
                "lr": config.optimizer.lr,
                "threads": rayon::current_num_threads(),
            })
        });
        Ok(trace)
    }

    fn write(&self, line: impl FnOnce() -> Value) {
        let started = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_none() {
            state.failed = writeln!(state.file, "{}", line()).err();
        }
        state.spent += started.elapsed();
    }

    /// A batch begins.
    pub(super) fn batch(&self, method: &str, number: u64) {
        self.write(|| json!({"kind": "batch", "method": method, "number": number}));
    }

    /// The models were asked.
    pub(super) fn call(&self, call: &Call<'_>) {
        self.write(|| match call {
            Call::Student(calls, answers) => generated("student", calls, answers),
            Call::Teacher(calls, answers) => generated("teacher", calls, answers),
            Call::Compare(calls, answers) => {
                let kls = answers.iter().flatten().flat_map(|answer| &answer.positions);
                let kls: Vec<f64> = kls.filter_map(|at| at.kl).map(f64::from).collect();
                let rows = calls.iter().map(|call| {
                    json!({
                        "prompt": call.prompt, "response": call.response, "compare": call.compare,
                    })
                });
                json!({
                    "kind": "compare", "rows": rows.collect::<Vec<_>>(),
                    "mean_kl": kls.iter().sum::<f64>() / kls.len().max(1) as f64,
                })
            }
            Call::Internalize(calls, _) => {
                let rows = calls.iter().map(|call| {
                    json!({
                        "hinted": call.hinted_prompt, "prompt": call.plain_prompt,
                        "response": call.response,
                    })
                });
                json!({"kind": "internalize", "rows": rows.collect::<Vec<_>>()})
            }
        });
    }

    /// An optimizer step was done.
    pub(super) fn learned(&self, rows: &[LearnRow]) {
        self.write(|| {
            let rows = rows.iter().map(|row| {
                json!({
                    "prompt": row.prompt, "response": row.response,
                    "coefficients": row.coefficients,
                })
            });
            json!({"kind": "learn", "rows": rows.collect::<Vec<_>>()})
        });
    }

    /// Seconds spent on writing so far.
    pub(super) fn seconds(&self) -> f64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).spent.as_secs_f64()
    }

    /// Whether all was written.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.failed.take() {
            return Err(error.into());
        }
        Ok(state.file.flush()?)
    }
}

fn generated(
    kind: &str,
    calls: &[GenerateCall],
    answers: &[Result<Completion, CallFailure>],
) -> Value {
    let rows = calls.iter().zip(answers).filter_map(|(call, answer)| {
        let tokens = answer.as_ref().ok()?.tokens.len();
        Some(json!({
            "prompt": call.prompt, "tokens": tokens, "temperature": call.sampling.temperature,
        }))
    });
    json!({"kind": kind, "rows": rows.collect::<Vec<_>>()})
}
