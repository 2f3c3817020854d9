//! Examining a model: where it agrees with the expert, whether it follows the expert's critiques, and, with a teacher,
//! what that teacher's critiques of its wrong plans are worth.

use lens_engine::Policy;
use lens_env::registry;

use crate::build::open_set;
use crate::corpus::{Corpus, CorpusOptions};
use crate::critique::{CritiqueReport, FollowReport, followed_critiques, teacher_critiques};
use crate::dagger::{Rollouts, rollout_config, rollouts};
use crate::error::LabError;

/// The longest game, in turns.
const MAX_TURNS: usize = 30;

/// Which games a model is examined on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examination {
    /// The benchmark, which must have an expert.
    pub benchmark: String,
    /// The split; `None` means one without demonstrations.
    pub split: Option<String>,
    /// At most this many games.
    pub games: usize,
    /// The seed of the draws.
    pub seed: u64,
}

/// What an examination found.
#[derive(Debug, Clone)]
pub struct Examined {
    /// The split.
    pub split: String,
    /// The model's games with the expert's labels.
    pub rollouts: Rollouts,
    /// Whether the model follows the expert's critiques.
    pub instructions: FollowReport,
    /// The teacher's critiques; `None` without a teacher.
    pub critiques: Option<CritiqueReport>,
}

impl Examination {
    /// Refuses a benchmark without an expert. Costs nothing, so that it can be asked before models are loaded.
    pub fn check(&self) -> Result<(), LabError> {
        if registry::profile(&self.benchmark)?.laboratory.expert {
            return Ok(());
        }
        Err(LabError::NoExpert { benchmark: self.benchmark.clone() })
    }

    /// Lets `model` play and asks the expert, and the teacher if there is one, about its actions.
    pub fn run(
        &self,
        model: &dyn Policy,
        teacher: Option<&dyn Policy>,
    ) -> Result<Examined, LabError> {
        self.check()?;
        let benchmark = open_set(&self.benchmark, &[], self.seed, 0)?;
        let profile = benchmark.profile();
        let held_out = || profile.laboratory.held_out_split.to_string();
        let split = self.split.clone().unwrap_or_else(held_out);
        let mut tasks = benchmark.tasks(&split)?;
        tasks.truncate(self.games);
        let options = CorpusOptions {
            seed: self.seed,
            history: profile.history,
            corpus: Corpus::act_only(profile.turn_limit.min(MAX_TURNS)),
        };
        let config = rollout_config(&benchmark, &options);
        let rollouts = rollouts(&config, model, &tasks, 0, &options)?;
        let instructions = followed_critiques(model, &rollouts.critiques)?;
        let critiques = match teacher {
            Some(teacher) => Some(teacher_critiques(teacher, &rollouts.critiques)?),
            None => None,
        };
        Ok(Examined { split, rollouts, instructions, critiques })
    }
}
