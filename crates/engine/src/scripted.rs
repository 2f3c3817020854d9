//! An engine without a model: answers from a script and fails where told to. For tests of everything above the engine.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lens_opd::episode::{DivergenceSource, TopPair};

use crate::codec::{Codec, Message};
use crate::deadline::Deadline;
use crate::engine::{Engine, LearnReport, LearnRow};
use crate::error::{CallFailure, EngineError};
use crate::models::{Compared, CrossContext, Internalized, Models, Position, ScoreCall};
use crate::policy::{Completion, FinishReason, GenerateCall, Policy};
use crate::target::Target;

/// The token that ends a turn; every other token is a character.
const END: u32 = char::MAX as u32 + 1;

/// A tokenizer whose tokens are characters.
#[derive(Debug, Clone, Copy, Default)]
pub struct CharCodec;

impl Codec for CharCodec {
    fn prompt(&self, messages: &[Message]) -> Result<Vec<u32>, EngineError> {
        let lines = messages.iter().map(|message| {
            let (role, text) = (message.role.word(), &message.text);
            format!("{role}: {text}\n")
        });
        Ok(lines.collect::<String>().chars().map(u32::from).collect())
    }

    fn response(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        Ok(text.chars().map(u32::from).chain([END]).collect())
    }

    fn text(&self, tokens: &[u32]) -> Result<String, EngineError> {
        Ok(tokens.iter().filter_map(|&token| char::from_u32(token)).collect())
    }

    fn is_special(&self, token: u32) -> bool {
        token == END
    }

    fn stop_tokens(&self) -> &[u32] {
        &[END]
    }
}

/// One answer of a script.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// This text.
    Text(String),
    /// No answer to this one call.
    Fail(CallFailure),
    /// A failure of the whole engine.
    Break,
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What a script says when its replies have run out.
type Otherwise = Box<dyn Fn(&str) -> Reply + Send + Sync>;

/// A policy that answers from a script, in the order it is asked.
pub struct ScriptedPolicy {
    replies: Mutex<VecDeque<Reply>>,
    otherwise: Otherwise,
    prompts: Mutex<Vec<String>>,
    version: u64,
}

impl ScriptedPolicy {
    /// Answers with `replies` first; then `otherwise` makes an answer of the prompt's text.
    pub fn new(
        replies: impl IntoIterator<Item = Reply>,
        otherwise: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self {
            replies: Mutex::new(replies.into_iter().collect()),
            otherwise: Box::new(otherwise),
            prompts: Mutex::new(Vec::new()),
            version: 0,
        }
    }

    /// Always the same text.
    pub fn saying(text: &str) -> Self {
        let text = text.to_owned();
        Self::new([], move |_| Reply::Text(text.clone()))
    }

    /// The prompts asked so far, as text.
    pub fn prompts(&self) -> Vec<String> {
        held(&self.prompts).clone()
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Policy for ScriptedPolicy {
    fn codec(&self) -> &dyn Codec {
        &CharCodec
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            let prompt = CharCodec.text(&call.prompt)?;
            if deadline.has_passed() {
                answers.push(Err(CallFailure::Timeout));
                continue;
            }
            if call.prompt.len() > call.max_prompt_tokens {
                answers.push(Err(CallFailure::PromptTooLong));
                continue;
            }
            let reply = held(&self.replies).pop_front();
            let reply = reply.unwrap_or_else(|| (self.otherwise)(&prompt));
            held(&self.prompts).push(prompt);
            answers.push(match reply {
                Reply::Break => {
                    return Err(EngineError::Request("the script breaks here".to_owned()));
                }
                Reply::Fail(failure) => Err(failure),
                Reply::Text(text) => {
                    let mut tokens = CharCodec.response(&text)?;
                    let cut = tokens.len() > call.max_new_tokens;
                    tokens.truncate(call.max_new_tokens);
                    let finish = if cut { FinishReason::Length } else { FinishReason::Stop };
                    Ok(Completion { logprobs: vec![-0.5; tokens.len()], tokens, finish })
                }
            });
        }
        Ok(answers)
    }
}

/// What the script says of one response it is asked to judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Score {
    /// The teacher gives every token this log-probability.
    LogProb(f32),
    /// No answer to this one call.
    Fail(CallFailure),
}

/// A student and a teacher that answer from scripts.
pub struct Scripted {
    /// The student.
    pub student: ScriptedPolicy,
    /// The teacher.
    pub teacher: ScriptedPolicy,
    scores: Mutex<VecDeque<Score>>,
    judged: Mutex<Vec<ScoreCall>>,
    targets: Mutex<VecDeque<CallFailure>>,
}

impl Scripted {
    /// Puts the two together. Until a script says otherwise, the teacher likes every token alike.
    pub fn new(student: ScriptedPolicy, teacher: ScriptedPolicy) -> Self {
        Self {
            student,
            teacher,
            scores: Mutex::new(VecDeque::new()),
            judged: Mutex::new(Vec::new()),
            targets: Mutex::new(VecDeque::new()),
        }
    }

    /// What the next responses are said to be worth, in the order they are asked about.
    #[must_use]
    pub fn scoring(self, scores: impl IntoIterator<Item = Score>) -> Self {
        held(&self.scores).extend(scores);
        self
    }

    /// Failures of the next calls for internalization targets.
    #[must_use]
    pub fn failing_targets(self, failures: impl IntoIterator<Item = CallFailure>) -> Self {
        held(&self.targets).extend(failures);
        self
    }

    /// The responses judged so far.
    pub fn judged(&self) -> Vec<ScoreCall> {
        held(&self.judged).clone()
    }
}

impl Models for Scripted {
    fn student(&self) -> &dyn Policy {
        &self.student
    }

    fn teacher(&self) -> &dyn Policy {
        &self.teacher
    }

    fn divergence(&self) -> DivergenceSource {
        DivergenceSource::Full
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        let answers = calls.iter().map(|call| {
            if deadline.has_passed() {
                return Err(CallFailure::Timeout);
            }
            held(&self.judged).push(call.clone());
            let score = held(&self.scores).pop_front().unwrap_or(Score::LogProb(-0.5));
            let teacher = match score {
                Score::Fail(failure) => return Err(failure),
                Score::LogProb(value) => value,
            };
            let position = |&token: &u32| Position {
                teacher_logprob: Some(teacher),
                student_logprob: call.compare.then_some(-0.5),
                top: call.compare.then_some(TopPair {
                    student_top: token,
                    teacher_top: token,
                    student_at_student: Some(-0.5),
                    student_at_teacher: Some(-0.5),
                    teacher_at_teacher: Some(teacher),
                    teacher_at_student: Some(teacher),
                }),
                kl: call.compare.then_some((-0.5 - teacher).abs()),
            };
            Ok(Compared {
                positions: call.response.iter().map(position).collect(),
                target: call.trainable.then(Target::tokens),
            })
        });
        Ok(answers.collect())
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        let answers = calls.iter().map(|_| {
            if deadline.has_passed() {
                return Err(CallFailure::Timeout);
            }
            match held(&self.targets).pop_front() {
                Some(failure) => Err(failure),
                None => Ok(Internalized { target: Target::tokens(), gap: Some(0.25) }),
            }
        });
        Ok(answers.collect())
    }
}

/// An engine over scripted models: learning counts steps and changes nothing.
pub struct ScriptedEngine {
    models: Arc<Scripted>,
    version: u64,
    /// Rows of every train batch, in order.
    pub batches: Vec<Vec<LearnRow>>,
}

impl ScriptedEngine {
    /// Wraps scripted models.
    pub fn new(models: Scripted) -> Self {
        Self { models: Arc::new(models), version: 0, batches: Vec::new() }
    }
}

impl Engine for ScriptedEngine {
    fn models(&self) -> Arc<dyn Models> {
        self.models.clone()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        self.version += 1;
        self.batches.push(rows.to_vec());
        let tokens = rows.iter().map(|row| row.prompt.len() + row.response.len()).sum();
        Ok(LearnReport {
            loss: 0.0,
            focus_loss: 0.0,
            internalization_loss: 0.0,
            grad_norm: 0.0,
            skipped: false,
            tokens,
        })
    }

    fn check_overlap(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn publish(&mut self, _kept: &[&Target]) -> Result<(), EngineError> {
        Ok(())
    }

    fn checkpoint_bytes(&self) -> u64 {
        0
    }

    fn save(
        &self,
        folder: &Path,
        targets: &[&Target],
    ) -> Result<Vec<serde_json::Value>, EngineError> {
        let state = folder.join("state");
        std::fs::create_dir_all(&state).map_err(EngineError::state(&state))?;
        let path = state.join("version");
        std::fs::write(&path, self.version.to_string()).map_err(EngineError::state(&path))?;
        Ok(targets.iter().map(|_| serde_json::Value::Null).collect())
    }

    fn load(
        &mut self,
        folder: &Path,
        targets: &[serde_json::Value],
    ) -> Result<Vec<Target>, EngineError> {
        let path = folder.join("state/version");
        let text = std::fs::read_to_string(&path).map_err(EngineError::state(&path))?;
        self.version = text
            .trim()
            .parse()
            .map_err(|_| EngineError::unusable(&path, "it holds no number".to_owned()))?;
        Ok(targets.iter().map(|_| Target::tokens()).collect())
    }
}
