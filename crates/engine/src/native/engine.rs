//! Student, teacher and learner on this machine.

use std::path::Path;
use std::sync::Arc;

use lens_lm::checkpoint::Checkpoint;
use lens_lm::model::WeightFormat;

use super::learner::{LearnerOptions, NativeLearner};
use super::models::NativeModels;
use super::policy::NativePolicy;
use super::targets;
use crate::engine::{Engine, LearnReport, LearnRow};
use crate::error::EngineError;
use crate::models::Models;
use crate::target::{Kind, Target};

/// Student, teacher and learner on this machine.
pub struct NativeEngine {
    learner: NativeLearner,
    teacher: Arc<NativePolicy>,
    published: Arc<NativeModels>,
    /// Bytes of the student's keys and values, where a budget was given.
    student_cache: Option<usize>,
}

impl NativeEngine {
    /// Loads a student that learns and the teacher it learns from. They must share the token map.
    pub fn load(
        student: &Path,
        teacher: &Path,
        teacher_format: WeightFormat,
        options: LearnerOptions,
    ) -> Result<Self, EngineError> {
        let policy = Arc::new(NativePolicy::load(teacher, teacher_format)?);
        let learner = NativeLearner::load(student, options)?;
        Self::new(learner, policy, &Checkpoint::open(teacher)?)
    }

    /// Puts a learner and a loaded teacher together; the teacher's output head is read from its checkpoint.
    pub fn new(
        mut learner: NativeLearner,
        teacher: Arc<NativePolicy>,
        teacher_files: &Checkpoint,
    ) -> Result<Self, EngineError> {
        learner.learn_from(teacher.clone(), teacher_files)?;
        let published = models(&mut learner, &teacher, None)?;
        Ok(Self { learner, teacher, published, student_cache: None })
    }

    /// Bytes that the keys and values of one token take in both models together.
    pub fn kv_bytes_per_token(&self) -> usize {
        let student = self.published.student_policy().model();
        student.kv_bytes_per_token() + self.teacher.model().kv_bytes_per_token()
    }

    /// Bounds the keys and values of both models together, kept and in flight.
    pub fn limit_caches(&mut self, bytes: usize) {
        let student = self.published.student_policy();
        let shares = lens_lm::cache::shares(bytes, &[student.model(), self.teacher.model()]);
        student.limit_cache(shares[0]);
        self.teacher.limit_cache(shares[1]);
        self.student_cache = Some(shares[0]);
    }

    /// Publishes the weights of this moment, in the memory of the student before unless something still refers to it.
    fn renew(&mut self) -> Result<(), EngineError> {
        if let Some(student) = Arc::get_mut(&mut self.published).and_then(NativeModels::own_student)
        {
            return self.learner.snapshot_into(student);
        }
        self.published = models(&mut self.learner, &self.teacher, self.student_cache)?;
        Ok(())
    }

    /// The learner itself.
    pub fn learner(&self) -> &NativeLearner {
        &self.learner
    }

    /// The frozen teacher.
    pub fn teacher(&self) -> &Arc<NativePolicy> {
        &self.teacher
    }
}

fn models(
    learner: &mut NativeLearner,
    teacher: &Arc<NativePolicy>,
    cache: Option<usize>,
) -> Result<Arc<NativeModels>, EngineError> {
    let student = Arc::new(learner.snapshot()?);
    if let Some(bytes) = cache {
        student.limit_cache(bytes);
    }
    Ok(Arc::new(NativeModels::new(student, teacher.clone(), learner.options().loss)?))
}

impl Engine for NativeEngine {
    fn models(&self) -> Arc<dyn Models> {
        self.published.clone()
    }

    fn version(&self) -> u64 {
        self.learner.version()
    }

    fn learn(&mut self, rows: &[LearnRow]) -> Result<LearnReport, EngineError> {
        self.learner.learn(rows)
    }

    fn check_overlap(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn publish(&mut self, kept: &[&Target]) -> Result<(), EngineError> {
        self.renew()?;
        let versions = kept.iter().filter_map(|target| match &target.0 {
            Kind::Snapshot { version, .. } => Some(*version),
            _ => None,
        });
        let version = self.version();
        self.learner.forget_before(versions.min().unwrap_or(version).min(version));
        Ok(())
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.learner.checkpoint_bytes()
    }

    fn save(
        &self,
        folder: &Path,
        targets: &[&Target],
    ) -> Result<Vec<serde_json::Value>, EngineError> {
        self.learner.save_model(&folder.join("model"))?;
        let state = folder.join("state");
        std::fs::create_dir_all(&state).map_err(EngineError::state(&state))?;
        let saved = targets::save(&state, targets)?;
        self.learner.save_state(&state, &targets::versions(targets))?;
        Ok(saved)
    }

    fn load(
        &mut self,
        folder: &Path,
        saved: &[serde_json::Value],
    ) -> Result<Vec<Target>, EngineError> {
        let state = folder.join("state");
        let targets = targets::load(&state, saved)?;
        let needed = targets::versions(&targets.iter().collect::<Vec<_>>());
        self.learner.load_state(&folder.join("model"), &state, &needed)?;
        self.renew()?;
        Ok(targets)
    }
}
