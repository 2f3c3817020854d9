//! What happened so far in an episode: enough to show it, to play it again, and to check that it was the same.

use std::sync::Arc;

use super::catalog::TaskType;
use super::host::Shared;
use super::scoring;
use super::simulator::Standing;
use crate::environment::{Actions, View};

/// The action that begins every episode; it is not one of the agent's.
pub const FIRST_ACTION: &str = "look around";

/// One action and everything that was told after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What was done.
    pub action: String,
    /// What came of it.
    pub observation: String,
    /// Score, completion, time.
    pub standing: Standing,
    /// What can be seen.
    pub objects: Vec<String>,
    /// The hash of the list of valid actions: an agent's prompt does not show them, and they are many.
    pub valid: i32,
    /// The state in which the next action finds the generator and the counter.
    pub shared: Shared,
}

/// An episode. Cloning shares the records.
#[derive(Debug, Clone)]
pub struct Episode {
    /// The kind of task.
    pub kind: &'static TaskType,
    /// The variation.
    pub variation: i32,
    /// What the agent is asked to do.
    pub description: Arc<str>,
    /// Action templates; they do not change during an episode.
    pub templates: Arc<[String]>,
    /// What was done, the first look around included.
    pub records: Vec<Arc<Record>>,
}

impl Episode {
    /// What the agent sees.
    pub fn view(&self, move_limit: i32) -> Option<View> {
        let last = self.records.last()?;
        Some(View {
            task: self.description.to_string(),
            observation: last.observation.clone(),
            actions: Actions::Templates {
                templates: self.templates.to_vec(),
                objects: last.objects.clone(),
            },
            turn: self.records.len() - 1,
            score: scoring::score(last.standing),
            status: scoring::status(last.standing, move_limit),
        })
    }

    /// Whether this episode is the beginning of the other, or all of it.
    pub fn begins(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.variation == other.variation
            && self.records.len() <= other.records.len()
            && self
                .records
                .iter()
                .zip(&other.records)
                .all(|(mine, theirs)| Arc::ptr_eq(mine, theirs) || mine == theirs)
    }

    /// The task's name.
    pub fn name(&self) -> String {
        self.kind.task(self.variation).id
    }
}

/// What differs between what was recorded and what a replay shows, in words; `None` if nothing does.
pub(super) fn difference(
    recorded: &Record,
    observation: &str,
    standing: Standing,
) -> Option<String> {
    if recorded.observation != observation {
        return Some(format!(
            "the observation was {:?} and is {observation:?}",
            recorded.observation
        ));
    }
    if recorded.standing != standing {
        return Some(format!("the standing was {:?} and is {standing:?}", recorded.standing));
    }
    None
}

/// The same for everything that was told.
pub(super) fn full_difference(recorded: &Record, replayed: &Record) -> Option<String> {
    difference(recorded, &replayed.observation, replayed.standing).or_else(|| {
        if recorded.valid != replayed.valid {
            return Some("the valid actions are others".to_owned());
        }
        if recorded.objects != replayed.objects {
            return Some(format!(
                "the objects were {:?} and are {:?}",
                recorded.objects, replayed.objects
            ));
        }
        (recorded.shared != replayed.shared)
            .then(|| "the random generator is in another state".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Status;
    use crate::scienceworld::random::GeneratorState;

    fn record(action: &str, observation: &str) -> Record {
        Record {
            action: action.to_owned(),
            observation: observation.to_owned(),
            standing: Standing { score: 0.5, completed: false, moves: 1 },
            objects: vec!["agent".to_owned()],
            valid: 7,
            shared: Shared { generator: GeneratorState::before_long(0).unwrap(), identifiers: 3 },
        }
    }

    fn episode(records: &[Record]) -> Episode {
        Episode {
            kind: TaskType::find("boil").unwrap(),
            variation: 3,
            description: "Boil.".into(),
            templates: vec!["wait".to_owned()].into(),
            records: records.iter().cloned().map(Arc::new).collect(),
        }
    }

    #[test]
    fn the_view_is_of_the_last_record() {
        assert_eq!(episode(&[]).view(100), None);
        let view = episode(&[record("look around", "A."), record("wait", "B.")]).view(100).unwrap();
        assert_eq!((view.observation.as_str(), view.turn, view.score), ("B.", 1, 50.0));
        assert_eq!(view.status, Status::Running);
        let templates = vec!["wait".to_owned()];
        assert_eq!(
            view.actions,
            Actions::Templates { templates, objects: vec!["agent".to_owned()] }
        );
    }

    #[test]
    fn a_beginning_is_told_from_another_course() {
        let (a, b, c) = (record("a", "A."), record("b", "B."), record("b", "C."));
        let whole = episode(&[a.clone(), b.clone()]);
        assert!(episode(&[]).begins(&whole));
        assert!(episode(std::slice::from_ref(&a)).begins(&whole));
        assert!(whole.begins(&whole.clone()));
        assert!(!episode(&[a.clone(), c]).begins(&whole));
        assert!(!whole.begins(&episode(std::slice::from_ref(&a))));
        assert!(!Episode { variation: 4, ..episode(&[a]) }.begins(&whole));
    }

    #[test]
    fn every_field_is_compared() {
        type Change = fn(&mut Record);
        let recorded = record("a", "A.");
        assert_eq!(full_difference(&recorded, &recorded.clone()), None);
        let changes: [(&str, Change); 5] = [
            ("observation", |record| record.observation.push('!')),
            ("standing", |record| record.standing.score = 0.0),
            ("valid actions", |record| record.valid = 8),
            ("objects", |record| record.objects.clear()),
            ("generator", |record| record.shared.identifiers += 1),
        ];
        for (what, change) in changes {
            let mut other = recorded.clone();
            change(&mut other);
            let difference = full_difference(&recorded, &other).unwrap();
            assert!(difference.contains(what), "{difference}");
        }
    }
}
