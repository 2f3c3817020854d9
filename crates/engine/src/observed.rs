//! Models whose calls are watched: for timing, for recording, for tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lens_opd::episode::DivergenceSource;

use crate::codec::Codec;
use crate::deadline::Deadline;
use crate::engine::{Engine, LearnReport, LearnRow};
use crate::error::{CallFailure, EngineError};
use crate::models::{Compared, CrossContext, Internalized, Models, ScoreCall};
use crate::policy::{Completion, GenerateCall, Policy};
use crate::target::Target;

/// A call that was answered.
#[derive(Debug)]
pub enum Call<'a> {
    /// The student wrote.
    Student(&'a [GenerateCall], &'a [Result<Completion, CallFailure>]),
    /// The teacher wrote.
    Teacher(&'a [GenerateCall], &'a [Result<Completion, CallFailure>]),
    /// Both were compared.
    Compare(&'a [ScoreCall], &'a [Result<Compared, CallFailure>]),
    /// Hinted responses became targets.
    Internalize(&'a [CrossContext], &'a [Result<Internalized, CallFailure>]),
}

/// Is told of every call.
pub trait Observer: Send + Sync {
    /// A call was answered after `time`.
    fn answered(&self, call: &Call<'_>, time: Duration);
}

/// Models that tell an observer of every call.
pub struct Observed {
    inner: Arc<dyn Models>,
    observer: Arc<dyn Observer>,
    student: Watched,
    teacher: Watched,
}

impl Observed {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Models>, observer: Arc<dyn Observer>) -> Self {
        let watched =
            |teacher| Watched { inner: inner.clone(), observer: observer.clone(), teacher };
        Self { student: watched(false), teacher: watched(true), inner, observer }
    }
}

struct Watched {
    inner: Arc<dyn Models>,
    observer: Arc<dyn Observer>,
    teacher: bool,
}

impl Watched {
    fn policy(&self) -> &dyn Policy {
        if self.teacher { self.inner.teacher() } else { self.inner.student() }
    }
}

impl Policy for Watched {
    fn codec(&self) -> &dyn Codec {
        self.policy().codec()
    }

    fn version(&self) -> u64 {
        self.policy().version()
    }

    fn concurrency(&self) -> Option<usize> {
        self.policy().concurrency()
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let started = Instant::now();
        let answers = self.policy().generate(calls, deadline)?;
        let call = if self.teacher {
            Call::Teacher(calls, &answers)
        } else {
            Call::Student(calls, &answers)
        };
        self.observer.answered(&call, started.elapsed());
        Ok(answers)
    }
}

impl Models for Observed {
    fn student(&self) -> &dyn Policy {
        &self.student
    }

    fn teacher(&self) -> &dyn Policy {
        &self.teacher
    }

    fn divergence(&self) -> DivergenceSource {
        self.inner.divergence()
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        let started = Instant::now();
        let answers = self.inner.compare(calls, deadline)?;
        self.observer.answered(&Call::Compare(calls, &answers), started.elapsed());
        Ok(answers)
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        let started = Instant::now();
        let answers = self.inner.internalize(calls, deadline)?;
        self.observer.answered(&Call::Internalize(calls, &answers), started.elapsed());
        Ok(answers)
    }
}

/// An engine whose models tell an observer of every call.
pub struct ObservedEngine<E> {
    inner: E,
    observer: Arc<dyn Observer>,
}

impl<E: Engine> ObservedEngine<E> {
    /// Wraps `inner`.
    pub fn new(inner: E, observer: Arc<dyn Observer>) -> Self {
        Self { inner, observer }
    }
}

impl<E: Engine> Engine for ObservedEngine<E> {
    fn models(&self) -> Arc<dyn Models> {
        Arc::new(Observed::new(self.inner.models(), self.observer.clone()))
    }

    fn version(&self) -> u64 {
        self.inner.version()
    }

    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        self.inner.learn(rows)
    }

    fn check_overlap(&self) -> Result<(), EngineError> {
        self.inner.check_overlap()
    }

    fn publish(&mut self, kept: &[&Target]) -> Result<(), EngineError> {
        self.inner.publish(kept)
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.inner.checkpoint_bytes()
    }

    fn save(
        &self,
        folder: &Path,
        targets: &[&Target],
    ) -> Result<Vec<serde_json::Value>, EngineError> {
        self.inner.save(folder, targets)
    }

    fn load(
        &mut self,
        folder: &Path,
        targets: &[serde_json::Value],
    ) -> Result<Vec<Target>, EngineError> {
        self.inner.load(folder, targets)
    }
}
