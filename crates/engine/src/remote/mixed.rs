//! A student that learns on this machine from a teacher behind servers.

use std::path::Path;
use std::sync::Arc;

use super::models::{Judge, Memory, RemoteModels};
use super::served::{Served, ServedPolicy};
use super::targets;
use crate::engine::{Engine, LearnReport, LearnRow};
use crate::error::EngineError;
use crate::models::Models;
use crate::native::{NativeLearner, shared_tokens};
use crate::target::Target;

/// A student that learns on this machine from a teacher behind servers.
pub struct ServedTeacherEngine {
    learner: NativeLearner,
    teacher: Arc<ServedPolicy>,
    published: Arc<RemoteModels>,
}

impl ServedTeacherEngine {
    /// Puts the two together. They must share the token map.
    pub fn new(mut learner: NativeLearner, teacher: Arc<Served>) -> Result<Self, EngineError> {
        shared_tokens(learner.codec(), teacher.codec())?;
        let teacher = Arc::new(ServedPolicy::frozen(teacher));
        let published = models(&mut learner, &teacher)?;
        Ok(Self { learner, teacher, published })
    }

    /// The student as it was last published, beside its teacher.
    pub fn published(&self) -> &Arc<RemoteModels> {
        &self.published
    }
}

fn models(
    learner: &mut NativeLearner,
    teacher: &Arc<ServedPolicy>,
) -> Result<Arc<RemoteModels>, EngineError> {
    let student = Arc::new(learner.snapshot()?);
    Ok(Arc::new(RemoteModels {
        judge: Judge::Lists { student: student.clone(), teacher: teacher.clone() },
        memory: Memory::Native(student.clone()),
        student,
        teacher: teacher.clone(),
        loss: learner.options().loss,
    }))
}

impl Engine for ServedTeacherEngine {
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
        self.published = models(&mut self.learner, &self.teacher)?;
        let version = self.version();
        let oldest = targets::versions(kept).first().copied().unwrap_or(version);
        self.learner.forget_before(oldest.min(version));
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
        self.published = models(&mut self.learner, &self.teacher)?;
        Ok(targets)
    }
}
