//! Games of our own: new houses, new arrangements, the six kinds of tasks, from a seed.
//!
//! A game is solvable by construction: every receptacle can be reached and opened, the wanted thing lies in
//! one and can be carried and treated, and a target takes it. It is never solved at the start.

mod house;
mod knowledge;
mod things;

pub use knowledge::Room;

use house::{House, chance, choose};
use lens_opd::random::{Purpose, Stream, StreamKey};

use super::game::{Game, Wording};
use super::goal::{Goal, TaskKind};
use super::problem::{ObjectFacts, Problem, type_word};

/// The seed of the built-in games.
pub const BUILT_IN_SEED: u64 = 0;
/// Houses of each kind of room that training and seen validation use, and that only unseen validation uses.
const SEEN_HOUSES: u32 = 27;
const UNSEEN_HOUSES: u32 = 3;

/// How often each kind of task occurs in each kind of room, as in ALFWorld's training games.
const MIX: [(TaskKind, Room, u64); 14] = [
    (TaskKind::Cool, Room::Kitchen, 533),
    (TaskKind::Clean, Room::Kitchen, 501),
    (TaskKind::Heat, Room::Kitchen, 459),
    (TaskKind::Place, Room::Bathroom, 264),
    (TaskKind::Light, Room::Bedroom, 257),
    (TaskKind::Two, Room::Bedroom, 240),
    (TaskKind::Place, Room::Bedroom, 237),
    (TaskKind::Two, Room::Bathroom, 233),
    (TaskKind::Two, Room::LivingRoom, 216),
    (TaskKind::Place, Room::LivingRoom, 210),
    (TaskKind::Clean, Room::Bathroom, 149),
    (TaskKind::Two, Room::Kitchen, 124),
    (TaskKind::Place, Room::Kitchen, 79),
    (TaskKind::Light, Room::LivingRoom, 51),
];

/// A split of the generated games.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Split {
    /// Training games.
    Train,
    /// Other games in the training houses.
    ValidSeen,
    /// Games in houses that training never uses.
    ValidUnseen,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 3] = [Self::Train, Self::ValidSeen, Self::ValidUnseen];

    /// ALFWorld's name of the split.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::ValidSeen => "valid_seen",
            Self::ValidUnseen => "valid_unseen",
        }
    }

    /// How many built-in games it has: as many to train on as ALFWorld's own, and enough to evaluate with to tell methods
    /// apart. The first 140 and 134 are a paper-sized evaluation.
    pub fn size(self) -> u32 {
        match self {
            Self::Train => 3553,
            Self::ValidSeen | Self::ValidUnseen => 500,
        }
    }

    fn houses(self) -> std::ops::Range<u32> {
        match self {
            Self::Train | Self::ValidSeen => 0..SEEN_HOUSES,
            Self::ValidUnseen => SEEN_HOUSES..SEEN_HOUSES + UNSEEN_HOUSES,
        }
    }
}

/// Names one game; everything about it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recipe {
    /// The seed of the set.
    pub seed: u64,
    /// The split.
    pub split: Split,
    /// The number inside the split.
    pub index: u32,
    /// The kind of task.
    pub kind: TaskKind,
    /// The kind of room.
    pub room: Room,
    /// The house.
    pub house: u32,
}

/// A generated game.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The house and the goal.
    pub problem: Problem,
    /// The goal as the player reads it.
    pub sentence: String,
}

impl Recipe {
    /// The recipe for game `index` of a split.
    pub fn new(seed: u64, split: Split, index: u32) -> Self {
        let mut stream = Self::stream(seed, split, index, 0);
        let total = MIX.iter().map(|(_, _, weight)| weight).sum();
        let mut left = stream.below(total).unwrap_or(0);
        let (mut kind, mut room) = (MIX[0].0, MIX[0].1);
        for (candidate, place, weight) in MIX {
            (kind, room) = (candidate, place);
            match left.checked_sub(weight) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        let houses: Vec<u32> = split.houses().collect();
        let mut house = choose(&mut stream, &houses).copied().unwrap_or(0);
        if kind == TaskKind::Light {
            let lit =
                |&number: &u32| things::has_room_for_a_lamp(&House::build(seed, room, number));
            let lit: Vec<u32> = houses.into_iter().filter(lit).collect();
            match choose(&mut stream, &lit) {
                Some(&number) => house = number,
                None => kind = TaskKind::Place,
            }
        }
        Self { seed, split, index, kind, room, house }
    }

    fn stream(seed: u64, split: Split, index: u32, attempt: u32) -> Stream {
        StreamKey::new(seed, 1 + split as u64, u64::from(index), Purpose::Data, attempt).open()
    }

    /// The task's name, in ALFWorld's manner: split, kind of task and house, number.
    pub fn id(&self) -> String {
        format!(
            "{}/{}-{}-{}/trial_G{:05}",
            self.split.name(),
            self.kind,
            self.room.word(),
            self.house,
            self.index
        )
    }

    /// Makes the game. Arrangements in which the kind of task is impossible are drawn again.
    pub fn generate(&self) -> Generated {
        let house = House::build(self.seed, self.room, self.house);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut stream = Self::stream(self.seed, self.split, self.index, attempt);
            let objects = things::arrange(&house, &mut stream);
            if let Some((object, target)) = choose_goal(self.kind, &house, &objects, &mut stream) {
                let wording = stream.below(Goal::WORDINGS as u64).unwrap_or(0) as usize;
                return self.finish(house, objects, &object, &target, wording, &mut stream);
            }
        }
    }

    /// Makes the game ready to play.
    pub fn game(&self) -> Game {
        let Generated { problem, sentence } = self.generate();
        Game::new(&problem.canonical(), Wording::Second, sentence, Vec::new())
    }

    fn finish(
        &self,
        house: House,
        objects: Vec<ObjectFacts>,
        object: &str,
        target: &str,
        wording: usize,
        stream: &mut Stream,
    ) -> Generated {
        let problem = Problem {
            name: format!("plan_{}", self.id().rsplit('/').next().unwrap_or_default()),
            start: choose(stream, &house.open_floor).cloned().unwrap_or_default(),
            can_contain: things::can_contain(&house, &objects),
            receptacles: house.receptacles,
            objects,
            kind: self.kind,
            goal_object: object.to_owned(),
            goal_target: target.to_owned(),
        };
        let sentence = problem.goal().sentence(wording);
        Generated { problem, sentence }
    }
}

/// Chooses what to do, among everything the house allows; `None` where it allows nothing of the kind.
fn choose_goal(
    kind: TaskKind,
    house: &House,
    objects: &[ObjectFacts],
    stream: &mut Stream,
) -> Option<(String, String)> {
    let mut types: Vec<&str> = objects
        .iter()
        .filter(|object| {
            object.affordances.pickupable && !object.inside.is_empty() && suits(kind, object)
        })
        .filter_map(|object| object.kind.as_deref())
        .collect();
    types.sort_unstable();
    types.dedup();
    stream.shuffle(&mut types);
    types.into_iter().find_map(|wanted| {
        let placed: Vec<&ObjectFacts> = objects
            .iter()
            .filter(|object| object.kind.as_deref() == Some(wanted) && !object.inside.is_empty())
            .collect();
        if !people_would_ask_for(house, &placed, stream) {
            return None;
        }
        if kind == TaskKind::Light {
            let lamp = |object: &ObjectFacts| {
                object.kind.as_deref() == Some("DeskLampType") && !object.inside.is_empty()
            };
            return objects
                .iter()
                .any(lamp)
                .then(|| (wanted.to_owned(), "DeskLampType".to_owned()));
        }
        if kind == TaskKind::Two && placed.len() < 2 {
            return None;
        }
        let targets = targets(kind, house, wanted, &placed);
        choose(stream, &targets).map(|target| (wanted.to_owned(), (*target).to_owned()))
    })
}

/// Whether to keep a choice: the tasks people gave in ALFWorld are mostly about things that there are several of and
/// that stand in the open.
fn people_would_ask_for(house: &House, placed: &[&ObjectFacts], stream: &mut Stream) -> bool {
    let hidden = |object: &&&ObjectFacts| {
        house
            .receptacles
            .iter()
            .any(|receptacle| receptacle.openable && object.inside.contains(&receptacle.id))
    };
    let hidden = placed.iter().filter(hidden).count();
    let passed_over = if hidden == placed.len() {
        70
    } else if hidden > 0 {
        30
    } else {
        0
    };
    let overlooked = chance(stream, passed_over) || (placed.len() == 1 && chance(stream, 50));
    !overlooked
}

fn suits(kind: TaskKind, object: &ObjectFacts) -> bool {
    match kind {
        TaskKind::Clean => object.affordances.cleanable,
        TaskKind::Heat => object.affordances.heatable,
        TaskKind::Cool => object.affordances.coolable,
        TaskKind::Place | TaskKind::Light | TaskKind::Two => true,
    }
}

/// The receptacle types that a thing can be brought to without having been there all along.
fn targets<'a>(
    kind: TaskKind,
    house: &'a House,
    wanted: &str,
    placed: &[&ObjectFacts],
) -> Vec<&'a str> {
    let device = match kind {
        TaskKind::Clean => "SinkBasinType",
        TaskKind::Heat => "MicrowaveType",
        TaskKind::Cool => "FridgeType",
        TaskKind::Place | TaskKind::Light | TaskKind::Two => "",
    };
    let occupied = |target: &str| {
        let inside = placed.iter().flat_map(|object| &object.inside);
        inside.clone().any(|id| house.receptacles.iter().any(|r| r.id == *id && r.kind == target))
    };
    let containers = knowledge::containers(house.room, type_word(wanted));
    let mut types: Vec<&str> = house
        .receptacles
        .iter()
        .map(|receptacle| receptacle.kind.as_str())
        .filter(|target| *target != device)
        .filter(|target| containers.contains(&type_word(target)))
        .filter(|target| !matches!(kind, TaskKind::Place | TaskKind::Two) || !occupied(target))
        .collect();
    types.sort_unstable();
    types.dedup();
    types
}
