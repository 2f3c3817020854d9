//! ALFWorld's tasks and splits: the official games from files, or the built-in generated ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::archive::{self, RawGame};
use super::environment::AlfworldEnvironment;
use super::expert::AlfworldExpert;
use super::file;
use super::game::{Game, Wording};
use super::generator::{BUILT_IN_SEED, Recipe, Split};
use super::lists::Lists;
use super::planner;
use crate::profile::{CommandStyle, Laboratory, Profile, PromptStyle, ScoreScale};
use crate::{Benchmark, BenchmarkOptions, EnvError, Environment, Expert, SplitInfo, Task, names};

/// ALFWorld as the paper plays it.
pub const PROFILE: Profile = Profile {
    name: Cow::Borrowed("alfworld"),
    summary: Cow::Borrowed("Household tasks in text: fetch, clean, heat, cool, put away"),
    turn_limit: 30,
    train_split: Cow::Borrowed("train"),
    eval_splits: names!["valid_seen", "valid_unseen"],
    pooled_splits: names!["valid_seen", "valid_unseen"],
    history: 2,
    prompt: PromptStyle {
        template: Cow::Borrowed(include_str!("prompt.txt")),
        commands: CommandStyle::Quoted,
        hidden_commands: names!["help"],
        fold_history: false,
    },
    score: ScoreScale::None,
    laboratory: Laboratory {
        expert: true,
        train_split: Cow::Borrowed("train"),
        held_out_split: Cow::Borrowed("valid_unseen"),
        kinds: names![],
        numbered_names: true,
        marked_pages: false,
        generated: true,
    },
};
/// The official splits, in the order in which they are listed; others follow by name.
const SPLIT_ORDER: [&str; 5] = ["train", "valid_seen", "valid_unseen", "hard", "valid_train"];
/// Files are parsed in batches: enough to keep the threads busy, few enough to stay small.
const BATCH: usize = 128;

/// What to load, and how to play it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The splits to load; all of them when empty.
    pub splits: Vec<String>,
    /// The folder with TCOD's task lists. Without it a folder named `tcod` beside or inside the data is used if there is
    /// one.
    pub lists: Option<PathBuf>,
    /// End episodes after this many turns. `None` leaves the counting to the caller.
    pub turn_limit: Option<usize>,
}

/// Games that were found and left out, as ALFWorld itself leaves them out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Games about movable receptacles or sliced things.
    pub by_kind: usize,
    /// Games marked as unsolvable.
    pub unsolvable: usize,
}

#[derive(Debug)]
struct Entry {
    task: Task,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Ready(Arc<Game>),
    /// Made when it is first played.
    Generated(Recipe, OnceLock<Arc<Game>>),
}

impl Source {
    fn game(&self) -> Arc<Game> {
        match self {
            Self::Ready(game) => Arc::clone(game),
            Self::Generated(recipe, game) => {
                Arc::clone(game.get_or_init(|| Arc::new(recipe.game())))
            }
        }
    }
}

/// The ALFWorld benchmark.
#[derive(Debug)]
pub struct Alfworld {
    entries: Vec<Entry>,
    by_id: HashMap<String, usize>,
    splits: Vec<(String, Vec<usize>)>,
    /// `None` where no task lists were given.
    reference_actions: Option<HashMap<String, Vec<String>>>,
    left_out: LeftOut,
    turn_limit: Option<usize>,
}

impl Alfworld {
    /// Loads and checks the games at `path`: a folder, a `.zip`, a `.tar.zst` or a single game file. A file that
    /// is damaged or foreign is an error that names it.
    pub fn open(path: &Path, options: &Options) -> Result<Self, EnvError> {
        let lists = match options.lists.clone().or_else(|| lists_beside(path)) {
            Some(folder) => Some(Lists::read(&folder)?),
            None => None,
        };
        let listed_hard: std::collections::HashSet<&str> = lists
            .iter()
            .flat_map(|lists| &lists.splits)
            .filter(|(split, _)| split == "hard")
            .flat_map(|(_, ids)| ids.iter().map(String::as_str))
            .collect();
        let chosen = |split: &str| {
            options.splits.is_empty() || options.splits.iter().any(|name| name == split)
        };
        let wanted = |id: &str| {
            chosen(id.split('/').next().unwrap_or_default())
                || (chosen("hard") && listed_hard.contains(id))
        };
        let (entries, left_out) = load(path, &wanted)?;
        let mut alfworld = Self::from_entries(entries);
        alfworld.left_out = left_out;
        alfworld.turn_limit = options.turn_limit;
        if let Some(mut lists) = lists {
            lists.splits.retain(|(name, _)| chosen(name));
            alfworld.use_lists(lists, options.lists.is_some())?;
        }
        if !options.splits.is_empty() {
            alfworld.splits.retain(|(name, _)| chosen(name));
        }
        Ok(alfworld)
    }

    /// The built-in games, which need no file. [`Options::lists`] does not apply to them.
    pub fn built_in(options: &Options) -> Result<Self, EnvError> {
        Self::generated(BUILT_IN_SEED, options)
    }

    /// Generated games like the built-in ones, from another seed.
    pub fn generated(seed: u64, options: &Options) -> Result<Self, EnvError> {
        let chosen = |split: &&Split| {
            options.splits.is_empty() || options.splits.iter().any(|name| name == split.name())
        };
        let recipes = Split::ALL
            .iter()
            .filter(chosen)
            .flat_map(|&split| (0..split.size()).map(move |index| Recipe::new(seed, split, index)));
        let entries: Vec<Entry> = recipes
            .map(|recipe| Entry {
                task: Task { id: recipe.id(), kind: recipe.kind.name().to_owned() },
                source: Source::Generated(recipe, OnceLock::new()),
            })
            .collect();
        let known = |name: &&String| Split::ALL.iter().all(|split| split.name() != *name);
        if let Some(unknown) = options.splits.iter().find(known) {
            return Err(EnvError::Unknown {
                what: "split",
                name: unknown.clone(),
                benchmark: "the built-in alfworld games".to_owned(),
                hint: format!("there are {}", Split::ALL.map(Split::name).join(", ")),
            });
        }
        let mut alfworld = Self::from_entries(entries);
        alfworld.turn_limit = options.turn_limit;
        Ok(alfworld)
    }

    /// Opens the official games or makes the built-in ones, as the options say.
    pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
        options.without_goals(&PROFILE)?;
        let all = Options::default();
        Ok(Arc::new(match &options.data {
            Some(path) => {
                options.without_seed(&PROFILE)?;
                Self::open(path, &all)?
            }
            None => Self::generated(options.seed.unwrap_or(BUILT_IN_SEED), &all)?,
        }))
    }

    fn from_entries(entries: Vec<Entry>) -> Self {
        let by_id = entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (entry.task.id.clone(), index))
            .collect();
        let mut splits: Vec<(String, Vec<usize>)> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let split = entry.task.id.split('/').next().unwrap_or_default();
            match splits.iter_mut().find(|(name, _)| name == split) {
                Some((_, members)) => members.push(index),
                None => splits.push((split.to_owned(), vec![index])),
            }
        }
        let mut alfworld = Self {
            entries,
            by_id,
            splits,
            reference_actions: None,
            left_out: LeftOut::default(),
            turn_limit: None,
        };
        alfworld.sort_splits();
        alfworld
    }

    fn sort_splits(&mut self) {
        let rank = |name: &str| {
            SPLIT_ORDER.iter().position(|split| *split == name).unwrap_or(SPLIT_ORDER.len())
        };
        self.splits.sort_by(|(a, _), (b, _)| rank(a).cmp(&rank(b)).then_with(|| a.cmp(b)));
    }

    /// Takes order, the Hard split and reference actions from TCOD's lists. Lists that were asked for must fit the data;
    /// lists that merely lay beside it are used where they do.
    fn use_lists(&mut self, lists: Lists, asked_for: bool) -> Result<(), EnvError> {
        for (split, ids) in lists.splits {
            let members: Vec<usize> =
                ids.iter().filter_map(|id| self.by_id.get(id).copied()).collect();
            if members.is_empty() {
                continue;
            }
            if let Some(missing) = ids.iter().find(|id| !self.by_id.contains_key(*id)) {
                if !asked_for {
                    continue;
                }
                return Err(EnvError::Missing {
                    what: format!("game {missing}, which the task list of {split} names,"),
                    hint: format!(
                        "{} of its {} games are there; complete the data or take the list away",
                        members.len(),
                        ids.len()
                    ),
                });
            }
            match self.splits.iter_mut().find(|(name, _)| *name == split) {
                // A list that leaves out games gives the order of those it names; the others keep theirs.
                Some((_, existing)) => {
                    let listed: std::collections::HashSet<usize> =
                        members.iter().copied().collect();
                    let rest: Vec<usize> =
                        existing.iter().copied().filter(|index| !listed.contains(index)).collect();
                    *existing = members;
                    existing.extend(rest);
                }
                None => self.splits.push((split, members)),
            }
        }
        self.sort_splits();
        self.reference_actions = Some(lists.actions);
        Ok(())
    }

    /// A game by its task's name.
    pub fn game(&self, id: &str) -> Result<Arc<Game>, EnvError> {
        let index = self.by_id.get(id).ok_or_else(|| EnvError::Unknown {
            what: "task",
            name: id.to_owned(),
            benchmark: PROFILE.name.to_string(),
            hint: "a task is named <split>/<task>/<trial>".to_owned(),
        })?;
        Ok(self.entries[*index].source.game())
    }

    /// A fresh environment of the concrete type, for callers that want its plans or its size.
    pub fn play(self: &Arc<Self>) -> AlfworldEnvironment {
        AlfworldEnvironment::new(Arc::clone(self))
    }

    /// The number of turns after which episodes end by themselves, if any.
    pub fn turn_limit(&self) -> Option<usize> {
        self.turn_limit
    }

    /// What was found and left out.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Whether TCOD's action lists are there.
    pub fn has_lists(&self) -> bool {
        self.reference_actions.is_some()
    }
}

impl Benchmark for Alfworld {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn splits(&self) -> Vec<SplitInfo> {
        let info = |(name, members): &(String, Vec<usize>)| SplitInfo {
            name: name.clone(),
            tasks: members.len(),
        };
        self.splits.iter().map(info).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let (_, members) = self.splits.iter().find(|(name, _)| name == split).ok_or_else(|| {
            let names: Vec<&str> = self.splits.iter().map(|(name, _)| name.as_str()).collect();
            EnvError::Unknown {
                what: "split",
                name: split.to_owned(),
                benchmark: PROFILE.name.to_string(),
                hint: format!("there are {}", names.join(", ")),
            }
        })?;
        Ok(members.iter().map(|&index| self.entries[index].task.clone()).collect())
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.play()))
    }

    /// TCOD's actions where its lists have the game (none for the Hard games); otherwise the stored solution or, for
    /// games without one, the shortest plan.
    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        let game = self.game(&task.id)?;
        if let Some(actions) = self.reference_actions.as_ref().and_then(|lists| lists.get(&task.id))
        {
            let said = |action: &String| in_wording(action, game.wording());
            return Ok((!actions.is_empty()).then(|| actions.iter().map(said).collect()));
        }
        if game.walkthrough().is_empty() {
            return Ok(planner::shortest_plan(&game, game.initial()));
        }
        Ok(Some(game.walkthrough().to_vec()))
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        Some(Box::new(AlfworldExpert))
    }
}

/// Reads and checks the games at `path` whose ids are wanted, sorted by id.
fn load(path: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<(Vec<Entry>, LeftOut), EnvError> {
    let mut left_out = LeftOut::default();
    let mut loaded: Vec<(Task, Arc<Game>, String)> = Vec::new();
    let mut batch: Vec<RawGame> = Vec::with_capacity(BATCH);
    let mut parse = |batch: &mut Vec<RawGame>, left_out: &mut LeftOut| {
        let games: Vec<_> = batch.par_iter().map(|raw| file::load(&raw.path, &raw.bytes)).collect();
        for (raw, game) in batch.drain(..).zip(games) {
            match game? {
                Some(game) => {
                    let task = Task { id: raw.id, kind: game.goal().kind.name().to_owned() };
                    loaded.push((task, Arc::new(game), raw.path));
                }
                None => left_out.unsolvable += 1,
            }
        }
        Ok::<(), EnvError>(())
    };
    archive::for_each(path, wanted, &mut |raw| {
        if raw.id.contains("movable") || raw.id.contains("Sliced") {
            left_out.by_kind += 1;
        } else {
            batch.push(raw);
        }
        if batch.len() == BATCH {
            parse(&mut batch, &mut left_out)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    parse(&mut batch, &mut left_out)?;
    if loaded.is_empty() {
        return Err(EnvError::Missing {
            what: format!("a game.tw-pddl file in {}", path.display()),
            hint: "\"lens data alfworld\" says where to get the official data and what the folder should look like"
                .to_owned(),
        });
    }
    loaded.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    if let Some(pair) = loaded.windows(2).find(|pair| pair[0].0.id == pair[1].0.id) {
        return Err(EnvError::Malformed {
            path: pair[1].2.clone(),
            line: None,
            message: format!("the same game is also at {}; give one release only", pair[0].2),
        });
    }
    let entry = |(task, game, _)| Entry { task, source: Source::Ready(game) };
    Ok((loaded.into_iter().map(entry).collect(), left_out))
}

/// TCOD's lists use the newer wording.
fn in_wording(action: &str, wording: Wording) -> String {
    match action.strip_prefix("move ").and_then(|rest| rest.split_once(" to ")) {
        Some((object, place)) if wording == Wording::First => format!("put {object} in/on {place}"),
        _ => action.to_owned(),
    }
}

/// A folder named `tcod` inside the data folder or beside the archive.
fn lists_beside(path: &Path) -> Option<PathBuf> {
    let inside = path.join("tcod");
    let beside = path.parent().map(|parent| parent.join("tcod"));
    [Some(inside), beside].into_iter().flatten().find(|folder| folder.is_dir())
}
