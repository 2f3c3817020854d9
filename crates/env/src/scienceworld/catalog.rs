//! The thirty tasks, their variations, and the ways to divide them.

use std::ops::Range;

use crate::benchmark::{SplitInfo, Task};
use crate::error::EnvError;

/// One of the thirty kinds of task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskType {
    /// The number that the paper that introduced the benchmark gives it.
    pub id: &'static str,
    /// The name by which the simulator knows it.
    pub name: &'static str,
    /// How many variations it has.
    pub variations: i32,
    /// Whether it is one of the seventeen kinds that TCOD, and after it LENS-OPD, trains on.
    pub trained: bool,
}

const fn task_type(
    id: &'static str,
    name: &'static str,
    variations: i32,
    trained: bool,
) -> TaskType {
    TaskType { id, name, variations, trained }
}

/// All of them, by number.
pub const TASK_TYPES: [TaskType; 30] = [
    task_type("1-1", "boil", 30, true),
    task_type("1-2", "melt", 30, true),
    task_type("1-3", "freeze", 30, false),
    task_type("1-4", "change-the-state-of-matter-of", 30, true),
    task_type("2-1", "use-thermometer", 540, true),
    task_type("2-2", "measure-melting-point-known-substance", 436, true),
    task_type("2-3", "measure-melting-point-unknown-substance", 300, false),
    task_type("3-1", "power-component", 20, true),
    task_type("3-2", "power-component-renewable-vs-nonrenewable-energy", 20, false),
    task_type("3-3", "test-conductivity", 900, true),
    task_type("3-4", "test-conductivity-of-unknown-substances", 600, false),
    task_type("4-1", "find-living-thing", 300, true),
    task_type("4-2", "find-non-living-thing", 300, false),
    task_type("4-3", "find-plant", 300, true),
    task_type("4-4", "find-animal", 300, false),
    task_type("5-1", "grow-plant", 126, true),
    task_type("5-2", "grow-fruit", 126, false),
    task_type("6-1", "chemistry-mix", 32, true),
    task_type("6-2", "chemistry-mix-paint-secondary-color", 36, true),
    task_type("6-3", "chemistry-mix-paint-tertiary-color", 36, false),
    task_type("7-1", "lifespan-longest-lived", 125, false),
    task_type("7-2", "lifespan-shortest-lived", 125, true),
    task_type("7-3", "lifespan-longest-lived-then-shortest-lived", 125, false),
    task_type("8-1", "identify-life-stages-1", 14, false),
    task_type("8-2", "identify-life-stages-2", 10, true),
    task_type("9-1", "inclined-plane-determine-angle", 168, true),
    task_type("9-2", "inclined-plane-friction-named-surfaces", 1386, true),
    task_type("9-3", "inclined-plane-friction-unnamed-surfaces", 162, false),
    task_type("10-1", "mendelian-genetics-known-plant", 120, true),
    task_type("10-2", "mendelian-genetics-unknown-plant", 480, false),
];

/// A way to choose tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// TCOD's training tasks: seventeen kinds, the first half of the variations of each.
    Train,
    /// TCOD's test tasks: the other thirteen kinds, the first half of the variations of each.
    Test,
    /// The simulator's own training fold of every kind.
    OfficialTrain,
    /// The simulator's own development fold of every kind.
    OfficialDev,
    /// The simulator's own test fold of every kind.
    OfficialTest,
}

impl Split {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Train, Self::Test, Self::OfficialTrain, Self::OfficialDev, Self::OfficialTest];

    /// The name used on the command line and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
            Self::OfficialTrain => "official_train",
            Self::OfficialDev => "official_dev",
            Self::OfficialTest => "official_test",
        }
    }

    /// The split of that name.
    pub fn parse(name: &str) -> Result<Self, EnvError> {
        Self::ALL.into_iter().find(|split| split.name() == name).ok_or_else(|| EnvError::Unknown {
            what: "split",
            name: name.to_owned(),
            benchmark: "ScienceWorld".to_owned(),
            hint: format!("it has {}", Self::ALL.map(Self::name).join(", ")),
        })
    }

    /// The variations of a kind of task that belong to this split.
    pub fn variations(self, kind: &TaskType) -> Range<i32> {
        let [train, dev, test] = kind.folds();
        match self {
            Self::Train if kind.trained => 0..kind.variations / 2,
            Self::Test if !kind.trained => 0..kind.variations / 2,
            Self::Train | Self::Test => 0..0,
            Self::OfficialTrain => train,
            Self::OfficialDev => dev,
            Self::OfficialTest => test,
        }
    }

    /// The split's tasks, by number and variation.
    pub fn tasks(self) -> Vec<Task> {
        let of_kind = |kind: &'static TaskType| {
            self.variations(kind).map(move |variation| kind.task(variation))
        };
        TASK_TYPES.iter().flat_map(of_kind).collect()
    }

    /// The split's name and size.
    pub fn info(self) -> SplitInfo {
        let tasks = TASK_TYPES.iter().map(|kind| self.variations(kind).len()).sum();
        SplitInfo { name: self.name().to_owned(), tasks }
    }
}

impl TaskType {
    /// The kind of that name or number.
    pub fn find(name: &str) -> Option<&'static Self> {
        TASK_TYPES.iter().find(|kind| kind.name == name || kind.id == name)
    }

    /// The simulator's own folds: the first two quarters train, the third develops, the rest tests. A quarter is
    /// rounded down, so the test fold can be larger than the development fold.
    pub fn folds(&self) -> [Range<i32>; 3] {
        let quarter = self.variations / 4;
        [0..2 * quarter, 2 * quarter..3 * quarter, 3 * quarter..self.variations]
    }

    /// One variation as a task of the benchmark.
    pub fn task(&self, variation: i32) -> Task {
        Task { id: format!("{}/{variation}", self.name), kind: self.name.to_owned() }
    }

    /// The kind and variation that a task's name stands for: `boil/3`, or `1-1/3`.
    pub fn of_task(id: &str) -> Result<(&'static Self, i32), EnvError> {
        let unknown = |hint: String| EnvError::Unknown {
            what: "task",
            name: id.to_owned(),
            benchmark: "ScienceWorld".to_owned(),
            hint,
        };
        let (name, variation) = id.rsplit_once('/').ok_or_else(|| {
            unknown("a task is a name and a variation, such as boil/3".to_owned())
        })?;
        let kind = Self::find(name).ok_or_else(|| {
            unknown(format!("the names are {}", TASK_TYPES.map(|kind| kind.name).join(", ")))
        })?;
        match variation.parse() {
            Ok(variation) if (0..kind.variations).contains(&variation) => Ok((kind, variation)),
            _ => Err(unknown(format!(
                "the variations of {} are 0 to {}",
                kind.name,
                kind.variations - 1
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_that_are_known() {
        let sizes = Split::ALL.map(|split| split.info().tasks);
        assert_eq!(sizes, [2294, 1308, 3592, 1796, 1819]);
        for split in Split::ALL {
            assert_eq!(split.tasks().len(), split.info().tasks);
        }
        assert_eq!(TASK_TYPES.iter().filter(|kind| kind.trained).count(), 17);
        assert_eq!(TASK_TYPES.iter().map(|kind| kind.variations).sum::<i32>(), 7207);
    }

    #[test]
    fn the_official_folds_cover_every_variation_once() {
        for kind in &TASK_TYPES {
            let [train, dev, test] = kind.folds();
            let all: Vec<i32> = train.chain(dev).chain(test).collect();
            assert_eq!(all, (0..kind.variations).collect::<Vec<_>>(), "{}", kind.name);
        }
        let fold_of = |name: &str| TaskType::find(name).unwrap().folds().map(|fold| fold.len());
        assert_eq!(fold_of("identify-life-stages-1"), [6, 3, 5]);
        assert_eq!(fold_of("inclined-plane-friction-named-surfaces"), [692, 346, 348]);
    }

    #[test]
    fn training_and_test_share_no_kind() {
        let kinds = |split: Split| {
            let mut kinds: Vec<String> = split.tasks().into_iter().map(|task| task.kind).collect();
            kinds.dedup();
            kinds
        };
        let (train, test) = (kinds(Split::Train), kinds(Split::Test));
        assert_eq!((train.len(), test.len()), (17, 13));
        assert!(train.iter().all(|kind| !test.contains(kind)));
    }

    #[test]
    fn task_names_are_read_back() {
        for task in Split::OfficialTest.tasks() {
            let (kind, variation) = TaskType::of_task(&task.id).unwrap();
            assert_eq!(kind.task(variation), task);
        }
        assert_eq!(
            TaskType::of_task("10-2/479").unwrap().0.name,
            "mendelian-genetics-unknown-plant"
        );
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        for (id, hint) in [
            ("boil", "such as boil/3"),
            ("bake/3", "the names are boil, melt"),
            ("boil/30", "the variations of boil are 0 to 29"),
            ("boil/-1", "the variations of boil are 0 to 29"),
            ("boil/three", "the variations of boil are 0 to 29"),
        ] {
            let error = TaskType::of_task(id).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
        let error = Split::parse("valid").unwrap_err().to_string();
        assert!(error.contains("it has train, test, official_train"), "{error}");
    }
}
