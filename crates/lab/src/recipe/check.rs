//! The bounds of a recipe. Each section checks itself and names the key; the caller says where the section is.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Exercises, Model, Optimizer, Recipe, Stage, Tasks, Tokenizer};
use crate::corpus::{Corpus, SampleKind};
use crate::error::LabError;
use crate::habits::Habits;

type Checked = Result<(), LabError>;

fn within<T: PartialOrd + Display + Copy>(
    key: impl Into<String>,
    value: T,
    bounds: RangeInclusive<T>,
) -> Checked {
    if bounds.contains(&value) {
        return Ok(());
    }
    let (start, end) = (bounds.start(), bounds.end());
    Err(LabError::bad(key, format!("must be between {start} and {end}, not {value}")))
}

impl Recipe {
    /// Refuses a recipe that cannot be followed.
    pub fn check(&self) -> Checked {
        if self.benchmark.is_empty() {
            return Err(LabError::bad("benchmark", "must name a benchmark"));
        }
        self.tasks.check()?;
        self.corpus.check()?;
        self.exercises.check()?;
        self.tokenizer.check()?;
        self.optimizer.check()?;
        if self.models.is_empty() {
            return Err(LabError::bad("model", "needs at least one `[[model]]`"));
        }
        for (index, model) in self.models.iter().enumerate() {
            let at = format!("model[{index}]");
            if self.models.iter().take(index).any(|other| other.name == model.name) {
                let message = format!("two models are named `{}`", model.name);
                return Err(LabError::bad(format!("{at}.name"), message));
            }
            model.check(&at)?;
            let before = &self.models[..index];
            if let Some(other) = &model.starts_from {
                let before = before.iter().find(|before| before.name == *other);
                let key = format!("{at}.starts_from");
                match before {
                    None => {
                        let message = format!("names `{other}`, which is no model before this one");
                        return Err(LabError::bad(key, message));
                    }
                    Some(before) if !model.has_shape_of(before) => {
                        let message = format!("names `{other}`, whose shape is another");
                        return Err(LabError::bad(key, message));
                    }
                    Some(_) => {}
                }
            }
            for (index, stage) in model.stages.iter().enumerate() {
                let at = format!("{at}.stage[{index}]");
                stage.check(&at)?;
                if stage.mixture.contains(&SampleKind::Habit) && model.habits.is_none() {
                    let message = "names \"habit\", but the model has no `[model.habits]`";
                    return Err(LabError::bad(format!("{at}.mixture"), message));
                }
                self.check_mixture(stage, &format!("{at}.mixture"))?;
                if let Some(player) = &stage.dagger_player
                    && !before.iter().any(|model| model.name == *player)
                {
                    let message = format!("names `{player}`, which is no model before this one");
                    return Err(LabError::bad(format!("{at}.dagger_player"), message));
                }
            }
        }
        Ok(())
    }

    /// A mixture can only name kinds that the corpus has.
    fn check_mixture(&self, stage: &Stage, key: &str) -> Checked {
        for &kind in &stage.mixture {
            let (share, source) = match kind {
                SampleKind::Exercise => (self.exercises.rounds as f64, "exercises.rounds".into()),
                SampleKind::Drill => (self.exercises.drills as f64, "exercises.drills".into()),
                kind => {
                    (self.corpus.share(kind), format!("corpus.{}", kind.name().replace('-', "_")))
                }
            };
            if share == 0.0 {
                let message = format!("names \"{}\", but `{source}` is 0", kind.name());
                return Err(LabError::bad(key, message));
            }
        }
        Ok(())
    }
}

impl Tasks {
    fn check(&self) -> Checked {
        within("tasks.extra_sets", self.extra_sets, 0..=999)?;
        within("tasks.max_per_kind", self.max_per_kind.unwrap_or(1), 1..=usize::MAX)
    }
}

impl Corpus {
    fn check(&self) -> Checked {
        for (key, share) in [
            ("corpus.random_actions", self.random_actions),
            ("corpus.stumbles", self.stumbles),
            ("corpus.wandering", self.wandering),
            ("corpus.lapses", self.lapses),
            ("corpus.rewording", self.rewording),
            ("corpus.counterfactual", self.counterfactual),
            ("corpus.corrupted", self.corrupted),
            ("corpus.critique", self.critique),
            ("corpus.instruction_following", self.instruction_following),
        ] {
            within(key, share, 0.0..=1.0)?;
        }
        within("corpus.turn_limit", self.turn_limit, 1..=1000)
    }
}

impl Exercises {
    fn check(self) -> Checked {
        within("exercises.rounds", self.rounds, 0..=100)?;
        within("exercises.drills", self.drills, 0..=100)
    }
}

impl Tokenizer {
    fn check(self) -> Checked {
        // Every byte is a token, and the chat template has special ones.
        within("tokenizer.vocab_size", self.vocab_size, 300..=1_000_000)?;
        within("tokenizer.samples", self.samples, 1..=10_000_000)
    }
}

impl Optimizer {
    fn check(&self) -> Checked {
        within("optimizer.betas[0]", self.betas.0, 0.0..=0.9999)?;
        within("optimizer.betas[1]", self.betas.1, 0.0..=0.9999)?;
        within("optimizer.weight_decay", self.weight_decay, 0.0..=10.0)?;
        within("optimizer.warmup", self.warmup, 0.0..=1.0)
    }
}

impl Model {
    fn check(&self, at: &str) -> Checked {
        let key = |name: &str| format!("{at}.{name}");
        if self.name.is_empty() || self.name.contains(['/', '\\']) || self.name.starts_with('.') {
            let message = "must be a plain folder name: not empty, no slashes, no leading dot";
            return Err(LabError::bad(key("name"), message));
        }
        within(key("hidden_size"), self.hidden_size, 1..=65_536)?;
        within(key("intermediate_size"), self.intermediate_size, 1..=262_144)?;
        within(key("layers"), self.layers, 1..=1000)?;
        within(key("heads"), self.heads, 1..=1024)?;
        within(key("kv_heads"), self.kv_heads, 1..=self.heads)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let message = format!("must divide `heads`, which is {}", self.heads);
            return Err(LabError::bad(key("kv_heads"), message));
        }
        within(key("head_dim"), self.head_dim, 2..=1024)?;
        if !self.head_dim.is_multiple_of(2) {
            let message = format!("must be even, not {}", self.head_dim);
            return Err(LabError::bad(key("head_dim"), message));
        }
        within(key("rope_theta"), self.rope_theta, 1.0..=1e12)?;
        within(key("max_position"), self.max_position, 1..=1_000_000)?;
        within(key("init_std"), self.init_std, 1e-6..=10.0)?;
        if let Some(habits) = &self.habits {
            habits.check(&key("habits"))?;
        }
        if self.stages.is_empty() {
            return Err(LabError::bad(key("stage"), "needs at least one `[[model.stage]]`"));
        }
        Ok(())
    }
}

impl Habits {
    fn check(&self, at: &str) -> Checked {
        for (key, share) in [
            ("decisive", self.decisive),
            ("search", self.search),
            ("carry", self.carry),
            ("lost", self.lost),
            ("stuck", self.stuck),
            ("dither", self.dither),
            ("rewording", self.rewording),
        ] {
            within(format!("{at}.{key}"), share, 0.0..=1.0)?;
        }
        Ok(())
    }
}

impl Stage {
    fn check(&self, at: &str) -> Checked {
        let key = |name: &str| format!("{at}.{name}");
        if self.mixture.is_empty() {
            return Err(LabError::bad(key("mixture"), "needs at least one kind of sample"));
        }
        for (index, kind) in self.mixture.iter().enumerate() {
            if self.mixture[..index].contains(kind) {
                let message = format!("names \"{}\" twice", kind.name());
                return Err(LabError::bad(key("mixture"), message));
            }
        }
        within(key("steps"), self.steps, 1..=10_000_000)?;
        within(key("batch_size"), self.batch_size, 1..=1_000_000)?;
        within(key("lr"), self.lr, 1e-9..=1.0)?;
        within(key("prompt_weight"), self.prompt_weight, 0.0..=1.0)?;
        within(key("dagger_games"), self.dagger_games, 0..=1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe::shipped("alfworld").expect("it is shipped")
    }

    #[test]
    fn a_value_out_of_bounds_is_refused_by_its_key() {
        type Change = (&'static str, fn(&mut Recipe));
        let changes: [Change; 12] = [
            ("`model[0].stage[1].dagger_player`", |recipe| {
                recipe.models[0].stages[1].dagger_player = Some("student-small".to_owned());
            }),
            ("`model[0].starts_from`", |recipe| {
                recipe.models[0].starts_from = Some("student-small".to_owned());
            }),
            ("`model[5].starts_from`", |recipe| {
                recipe.models[5].starts_from = Some("teacher".to_owned());
            }),
            ("`corpus.critique`", |recipe| recipe.corpus.critique = 1.5),
            ("`corpus.corrupted`", |recipe| recipe.corpus.corrupted = f64::NAN),
            ("`tokenizer.vocab_size`", |recipe| recipe.tokenizer.vocab_size = 10),
            ("`optimizer.warmup`", |recipe| recipe.optimizer.warmup = -0.1),
            ("`model[1].kv_heads`", |recipe| recipe.models[1].kv_heads = 4),
            ("`model[2].name`", |recipe| recipe.models[2].name = "../teacher".to_owned()),
            ("`model[4].name`", |recipe| recipe.models[4].name = "teacher".to_owned()),
            ("`model[0].stage[1].lr`", |recipe| recipe.models[0].stages[1].lr = 0.0),
            ("`model[0].stage[2].mixture`", |recipe| recipe.models[0].stages[2].mixture.clear()),
        ];
        for (key, change) in changes {
            let mut recipe = recipe();
            change(&mut recipe);
            let message = recipe.check().expect_err(key).to_string();
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn a_mixture_cannot_name_a_kind_that_the_corpus_leaves_out() {
        let mut without = recipe();
        without.corpus.instruction_following = 0.0;
        let message = without.check().expect_err("a stage follows instructions").to_string();
        assert!(message.contains("`corpus.instruction_following` is 0"), "{message}");
        let mut without = recipe();
        without.exercises.rounds = 0;
        let message = without.check().expect_err("a stage is exercises").to_string();
        assert!(message.contains("`exercises.rounds` is 0"), "{message}");
    }
}
