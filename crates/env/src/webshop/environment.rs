//! The benchmark as trainers see it: sessions are tasks, and every action is checked before it reaches the shop.

use std::borrow::Cow;
use std::sync::Arc;

use super::session::page::ObservationMode;
use super::session::{Page, Session};
use super::shop::{Shop, ShopSettings};
use super::{agent, generator, python, reference, shopper};
use crate::benchmark::{Benchmark, SplitInfo, Task};
use crate::environment::{Actions, Environment, Snapshot, Status, View};
use crate::error::EnvError;
use crate::expert::Expert;
use crate::names;
use crate::profile::{CommandStyle, Laboratory, Profile, PromptStyle, ScoreScale};
use crate::registry::BenchmarkOptions;

/// Sessions used for training: 0 to 4095.
const TRAINING_SESSIONS: usize = 4096;
/// Sessions held out: 4096 to 4195.
const TEST_SESSIONS: usize = 100;

/// WebShop as the paper plays it.
pub const PROFILE: Profile = Profile {
    name: Cow::Borrowed("webshop"),
    summary: Cow::Borrowed("Shopping: find, configure and buy what an instruction asks for"),
    turn_limit: 15,
    train_split: Cow::Borrowed("train"),
    eval_splits: names!["test"],
    pooled_splits: names![],
    history: 2,
    prompt: PromptStyle {
        template: Cow::Borrowed(include_str!("prompt.txt")),
        commands: CommandStyle::Bare,
        hidden_commands: names![],
        // A page spans many lines.
        fold_history: true,
    },
    score: ScoreScale::ZeroToOne,
    laboratory: Laboratory {
        expert: true,
        train_split: Cow::Borrowed("train"),
        held_out_split: Cow::Borrowed("test"),
        kinds: names![],
        numbered_names: false,
        marked_pages: true,
        generated: true,
    },
};

/// A shop with its sessions as tasks.
#[derive(Debug)]
pub struct WebShop {
    shop: Arc<Shop>,
    mode: ObservationMode,
}

impl WebShop {
    /// The benchmark over a shop.
    pub fn new(shop: Arc<Shop>, mode: ObservationMode) -> Self {
        Self { shop, mode }
    }

    /// Opens the official catalog or makes the built-in one, as the options say.
    pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
        let goals = options.goals.unwrap_or_default();
        let settings = ShopSettings { goals, ..ShopSettings::default() };
        let shop = match &options.data {
            Some(folder) => {
                options.without_seed(&PROFILE)?;
                Shop::open(folder, None, settings)?
            }
            None => generator::shop(options.seed.unwrap_or(generator::BUILT_IN_SEED), settings)?,
        };
        Ok(Arc::new(Self::new(Arc::new(shop), ObservationMode::TextRich)))
    }

    /// The shop.
    pub fn shop(&self) -> &Shop {
        &self.shop
    }

    fn sessions(&self, split: &str) -> Result<std::ops::Range<usize>, EnvError> {
        let goals = self.shop.goals().len();
        match split {
            "train" => Ok(0..TRAINING_SESSIONS.min(goals)),
            "test" => {
                let end = (TRAINING_SESSIONS + TEST_SESSIONS).min(goals);
                Ok(TRAINING_SESSIONS.min(end)..end)
            }
            _ => Err(EnvError::Unknown {
                what: "split",
                name: split.to_owned(),
                benchmark: PROFILE.name.to_string(),
                hint: "its splits are \"train\" and \"test\"".to_owned(),
            }),
        }
    }

    fn session_number(&self, task: &Task) -> Result<usize, EnvError> {
        let goals = self.shop.goals().len();
        task.id.parse().ok().filter(|&number| number < goals).ok_or_else(|| EnvError::Unknown {
            what: "task",
            name: task.id.clone(),
            benchmark: PROFILE.name.to_string(),
            hint: match goals.checked_sub(1) {
                Some(last) => format!("tasks are session numbers from 0 to {last}"),
                None => "the catalog has no goals".to_owned(),
            },
        })
    }
}

impl Benchmark for WebShop {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn splits(&self) -> Vec<SplitInfo> {
        ["train", "test"]
            .into_iter()
            .map(|name| SplitInfo {
                name: name.to_owned(),
                tasks: self.sessions(name).map_or(0, |sessions| sessions.len()),
            })
            .collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let sessions = self.sessions(split)?;
        if sessions.is_empty() {
            return Err(EnvError::Missing {
                what: format!("split \"{split}\" of this catalog"),
                hint: format!(
                    "it has {} goals; held-out sessions start at {TRAINING_SESSIONS}, so take a larger \
                     catalog or synthetic goals",
                    self.shop.goals().len()
                ),
            });
        }
        let products = &self.shop.catalog().products;
        let kind = |session| {
            let product = self.shop.goals().product_of(session);
            product.map_or_else(String::new, |at| products[at].category.as_ref().to_owned())
        };
        Ok(sessions.map(|session| Task { id: session.to_string(), kind: kind(session) }).collect())
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(WebShopEnvironment { benchmark: self, episode: None }))
    }

    fn reference_actions(&self, task: &Task) -> Result<Option<Vec<String>>, EnvError> {
        Ok(reference::actions(&self.shop, self.session_number(task)?))
    }

    fn admits(&self, view: &View, action: &str) -> bool {
        agent::admits(&view.actions, action)
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        Some(Box::new(shopper::Shopper))
    }
}

/// One episode in a [`WebShop`].
#[derive(Debug)]
pub struct WebShopEnvironment {
    benchmark: Arc<WebShop>,
    episode: Option<Episode>,
}

/// The state of an episode.
#[derive(Debug, Clone)]
struct Episode {
    session: Session,
    task: Arc<str>,
    turn: usize,
    /// What the agent was told about its last action, if the shop never saw it.
    refusal: Option<Arc<str>>,
}

/// What a snapshot holds. The shop tells whether the numbers in the episode mean the same where it is restored.
struct Saved {
    shop: Arc<Shop>,
    episode: Episode,
}

impl WebShopEnvironment {
    fn show(&self, episode: &Episode) -> View {
        let shop = &self.benchmark.shop;
        let session = &episode.session;
        let observation = match &episode.refusal {
            Some(refusal) => String::from(&**refusal),
            None => python::strip(&session.observation(shop, self.benchmark.mode)).to_owned(),
        };
        let score = session.bought().map_or(0.0, |reward| reward.total);
        let status = match session.page() {
            Page::Done => Status::Ended { success: score == 1.0 },
            _ => Status::Running,
        };
        View {
            task: String::from(&*episode.task),
            observation,
            actions: Actions::Commands(agent::admissible(session, shop)),
            turn: episode.turn,
            score,
            status,
        }
    }
}

impl Environment for WebShopEnvironment {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        let number = self.benchmark.session_number(task)?;
        let shop = &self.benchmark.shop;
        let session = Session::start(shop, number).ok_or(EnvError::NotReset)?;
        let task = agent::task(&session.observation(shop, ObservationMode::TextRich)).into();
        let episode = Episode { session, task, turn: 0, refusal: None };
        let view = self.show(&episode);
        self.episode = Some(episode);
        Ok(view)
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        let shop = &self.benchmark.shop;
        let episode = self.episode.as_mut().ok_or(EnvError::NotReset)?;
        if episode.session.page() != Page::Done {
            episode.turn += 1;
            match agent::check(action, &episode.session, shop) {
                Ok(()) => {
                    episode.refusal = None;
                    episode.session.step(shop, action);
                }
                Err(refusal) => episode.refusal = Some(refusal.into()),
            }
        }
        self.view()
    }

    fn view(&self) -> Result<View, EnvError> {
        Ok(self.show(self.episode.as_ref().ok_or(EnvError::NotReset)?))
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        let episode = self.episode.clone().ok_or(EnvError::NotReset)?;
        Ok(Snapshot::new(Saved { shop: Arc::clone(&self.benchmark.shop), episode }))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        let saved = snapshot.get::<Saved>()?;
        if !Arc::ptr_eq(&saved.shop, &self.benchmark.shop) {
            return Err(EnvError::Restore("the snapshot was made in another shop".to_owned()));
        }
        self.episode = Some(saved.episode.clone());
        self.view()
    }
}
