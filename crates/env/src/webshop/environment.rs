//! The benchmark as trainers see it: sessions are tasks, and every action is checked before it reaches the shop.

use std::sync::Arc;

use super::session::page::ObservationMode;
use super::session::{Page, Session};
use super::shop::Shop;
use super::{agent, python, reference, shopper};
use crate::benchmark::{Benchmark, SplitInfo, Task};
use crate::environment::{Actions, Environment, Snapshot, Status, View};
use crate::error::EnvError;
use crate::expert::Expert;

/// Sessions used for training: 0 to 4095.
const TRAINING_SESSIONS: usize = 4096;
/// Sessions held out: 4096 to 4195.
const TEST_SESSIONS: usize = 100;
/// The longest episode.
pub(super) const TURN_LIMIT: usize = 15;

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
                benchmark: "webshop".to_owned(),
                hint: "its splits are \"train\" and \"test\"".to_owned(),
            }),
        }
    }

    fn session_number(&self, task: &Task) -> Result<usize, EnvError> {
        let goals = self.shop.goals().len();
        task.id.parse().ok().filter(|&number| number < goals).ok_or_else(|| EnvError::Unknown {
            what: "task",
            name: task.id.clone(),
            benchmark: "webshop".to_owned(),
            hint: match goals.checked_sub(1) {
                Some(last) => format!("tasks are session numbers from 0 to {last}"),
                None => "the catalogue has no goals".to_owned(),
            },
        })
    }
}

impl Benchmark for WebShop {
    fn name(&self) -> &'static str {
        "webshop"
    }

    fn default_turn_limit(&self) -> usize {
        TURN_LIMIT
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
                what: format!("split \"{split}\" of this catalogue"),
                hint: format!(
                    "it has {} goals; held-out sessions start at {TRAINING_SESSIONS}, so take a larger \
                     catalogue or synthetic goals",
                    self.shop.goals().len()
                ),
            });
        }
        let products = &self.shop.catalogue().products;
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
