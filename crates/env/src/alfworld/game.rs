//! A game ready to play: every name and every rule that never changes, indexed.
//!
//! Receptacles and objects are numbered in the code-point order of their printed names, because the
//! list of admissible commands is sorted by name and is made at every turn; listings in texts run in
//! the order of ids and sort the few things they list.

use std::collections::BTreeMap;

use super::bits::Rows;
use super::goal::{Goal, TaskKind};
use super::names;
use super::problem::{ObjectFacts, Problem};
use super::state::{Mark, State};

/// Which release's texts a game speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wording {
    /// 2.1.1: `put X in/on Y`, no `help`, `go to` names the location.
    First,
    /// 2.1.2 and 2.1.3: `move X to Y`, `help`.
    Second,
}

/// A receptacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receptacle {
    pub(crate) name: Box<str>,
    /// The place from which it is reached.
    pub(crate) place: u16,
    pub(crate) openable: bool,
    pub(crate) device: Device,
    /// Its rank among all receptacles in the order of ids.
    pub(crate) id_rank: u16,
}

/// What a receptacle does to the object held in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    Cleaner,
    Heater,
    Cooler,
    None,
}

/// An object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) name: Box<str>,
    /// Its rank among all objects in the order of ids.
    pub(crate) id_rank: u16,
    /// Whether things can lie in it, and then which do, in the order of ids. The contents never change.
    pub(crate) contents: Option<Box<[u16]>>,
}

/// A location with at least one receptacle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number in "loc 12".
    pub(crate) number: u32,
    /// Its receptacles, ascending (by name).
    pub(crate) receptacles: Box<[u16]>,
    /// Its receptacles in the order of ids.
    pub(crate) by_id: Box<[u16]>,
}

/// Rows of [`Game::classes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Class {
    Pickupable,
    Cleanable,
    Heatable,
    Coolable,
    Toggleable,
    Sliceable,
    Knife,
    /// Objects of the type the goal asks for, with the affordance it asks for.
    Wanted,
    /// Lamps of the type the goal asks for.
    Lamp,
}

impl Class {
    const COUNT: usize = 9;
}

/// A game ready to play. Shared by all episodes that play it.
#[derive(Debug, PartialEq, Eq)]
pub struct Game {
    pub(crate) wording: Wording,
    pub(crate) goal: Goal,
    /// The goal as the player reads it.
    pub(crate) sentence: String,
    pub(crate) receptacles: Box<[Receptacle]>,
    pub(crate) receptacles_by_id: Box<[u16]>,
    pub(crate) objects: Box<[Object]>,
    pub(crate) places: Box<[Place]>,
    /// Sets of objects, one row per [`Class`].
    pub(crate) classes: Rows,
    /// For each receptacle, the objects whose type its type can contain.
    pub(crate) accepts: Rows,
    /// Receptacles of the type the goal asks for, ascending.
    pub(crate) targets: Box<[u16]>,
    pub(crate) initial: State,
    /// The solution stored with the game; empty where none is.
    pub(crate) walkthrough: Vec<String>,
}

impl Game {
    /// Indexes a problem. `problem` must be canonical, as the parser and [`Problem::canonical`] return it.
    pub fn new(
        problem: &Problem,
        wording: Wording,
        sentence: String,
        walkthrough: Vec<String>,
    ) -> Self {
        let ids = problem
            .receptacles
            .iter()
            .flat_map(|receptacle| [receptacle.id.as_str(), receptacle.location.as_str()])
            .chain(problem.objects.iter().map(|object| object.id.as_str()))
            .chain(problem.objects.iter().filter_map(|object| object.location.as_deref()))
            .chain([problem.start.as_str()]);
        let numbered = names::number(ids);
        let receptacle_order = Order::new(
            &numbered,
            problem.receptacles.iter().map(|receptacle| receptacle.id.as_str()),
        );
        let object_order =
            Order::new(&numbered, problem.objects.iter().map(|object| object.id.as_str()));
        let (places, place_of) = index_places(problem, &numbered, &receptacle_order);

        let receptacles: Box<[Receptacle]> = receptacle_order
            .by_name
            .iter()
            .map(|(name, fact)| {
                let facts = &problem.receptacles[*fact as usize];
                Receptacle {
                    name: name.as_str().into(),
                    place: place_of[facts.location.as_str()],
                    openable: facts.openable,
                    device: match facts.kind.as_str() {
                        "sinkbasintype" => Device::Cleaner,
                        "microwavetype" => Device::Heater,
                        "fridgetype" => Device::Cooler,
                        _ => Device::None,
                    },
                    id_rank: *fact,
                }
            })
            .collect();
        let objects: Box<[Object]> = object_order
            .by_name
            .iter()
            .map(|(name, fact)| {
                let facts = &problem.objects[*fact as usize];
                Object {
                    name: name.as_str().into(),
                    id_rank: *fact,
                    contents: facts.affordances.vessel.then(|| {
                        let inner = facts.holds.iter().filter(|inner| **inner != facts.id);
                        inner
                            .filter_map(|id| object_order.of_id.get(id.as_str()).copied())
                            .collect()
                    }),
                }
            })
            .collect();

        let goal = problem.goal();
        let mut classes = Rows::new(Class::COUNT, objects.len());
        let mut accepts = Rows::new(receptacles.len(), objects.len());
        let mut initial = State::new(receptacles.len(), objects.len(), places.len());
        initial.place = place_of.get(problem.start.as_str()).copied();
        for (index, (_, fact)) in object_order.by_name.iter().enumerate() {
            let facts = &problem.objects[*fact as usize];
            for class in classes_of(facts, problem) {
                classes.set(class as usize, index, true);
            }
            initial.marks.set(Mark::Cool as usize, index, facts.affordances.cool);
            for id in &facts.inside {
                initial.inside.set(receptacle_order.of_id[id.as_str()] as usize, index, true);
            }
            // Only places with receptacles can ever be reached, so only there it matters what lies about.
            if let Some(place) = facts.location.as_deref().and_then(|id| place_of.get(id)) {
                initial.around.set(*place as usize, index, true);
            }
        }
        let can_contain: std::collections::BTreeSet<(&str, &str)> =
            problem.can_contain.iter().map(|(r, o)| (r.as_str(), o.as_str())).collect();
        for (row, (_, receptacle)) in receptacle_order.by_name.iter().enumerate() {
            let receptacle_kind = problem.receptacles[*receptacle as usize].kind.as_str();
            for (index, (_, object)) in object_order.by_name.iter().enumerate() {
                let object_kind = problem.objects[*object as usize].kind.as_deref();
                let fits =
                    object_kind.is_some_and(|kind| can_contain.contains(&(receptacle_kind, kind)));
                accepts.set(row, index, fits);
            }
        }
        let mut receptacles_by_id: Vec<u16> = (0..receptacles.len() as u16).collect();
        receptacles_by_id.sort_unstable_by_key(|&index| receptacles[index as usize].id_rank);
        let targets = receptacle_order
            .by_name
            .iter()
            .enumerate()
            .filter(|(_, (_, fact))| {
                goal.kind != TaskKind::Light
                    && problem.receptacles[*fact as usize].kind == problem.goal_target
            })
            .map(|(index, _)| index as u16)
            .collect();
        Self {
            wording,
            goal,
            sentence,
            receptacles,
            receptacles_by_id: receptacles_by_id.into_boxed_slice(),
            objects,
            places,
            classes,
            accepts,
            targets,
            initial,
            walkthrough,
        }
    }

    /// What has to be achieved.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// The goal as the player reads it: "put a clean mug in coffeemachine."
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Which release's texts the game speaks.
    pub fn wording(&self) -> Wording {
        self.wording
    }

    /// The solution stored with the game; empty where none is.
    pub fn walkthrough(&self) -> &[String] {
        &self.walkthrough
    }

    /// The state at the beginning.
    pub fn initial(&self) -> &State {
        &self.initial
    }

    /// A set of objects.
    pub(crate) fn class(&self, class: Class) -> &[u64] {
        self.classes.row(class as usize)
    }

    /// The receptacles the agent stands at, by name.
    pub(crate) fn here(&self, state: &State) -> &[u16] {
        state.place.map_or(&[], |place| &self.places[place as usize].receptacles)
    }

    /// Whether what lies in a receptacle can be reached.
    pub(crate) fn accessible(&self, state: &State, receptacle: u16) -> bool {
        !self.receptacles[receptacle as usize].openable || state.opened.has(0, receptacle as usize)
    }

    /// The heap bytes the game holds, for the books.
    pub fn heap_bytes(&self) -> usize {
        let names: usize = self
            .receptacles
            .iter()
            .map(|receptacle| receptacle.name.len())
            .sum::<usize>()
            + self
                .objects
                .iter()
                .map(|object| {
                    object.name.len()
                        + object.contents.as_ref().map_or(0, |contents| size_of_val(&**contents))
                })
                .sum::<usize>();
        let places: usize = self
            .places
            .iter()
            .map(|place| size_of_val(&*place.receptacles) + size_of_val(&*place.by_id))
            .sum();
        let walkthrough: usize =
            self.walkthrough.iter().map(|command| size_of::<String>() + command.capacity()).sum();
        size_of::<Self>()
            + names
            + places
            + walkthrough
            + size_of_val(&*self.receptacles)
            + size_of_val(&*self.receptacles_by_id)
            + size_of_val(&*self.objects)
            + size_of_val(&*self.places)
            + self.classes.heap_bytes()
            + self.accepts.heap_bytes()
            + size_of_val(&*self.targets)
            + self.initial.heap_bytes()
            + self.sentence.capacity()
            + self.goal.object.capacity()
            + self.goal.target.capacity()
    }
}

/// Printed names in code-point order, and where each id stands in it. The facts are sorted by id.
struct Order<'a> {
    by_name: Vec<(String, u16)>,
    of_id: BTreeMap<&'a str, u16>,
}

impl<'a> Order<'a> {
    fn new(
        numbered: &BTreeMap<&str, (String, u32)>,
        ids: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let printed = |id: &str| {
            numbered.get(id).map_or_else(String::new, |(base, number)| format!("{base} {number}"))
        };
        let mut by_name: Vec<(String, u16)> =
            ids.clone().enumerate().map(|(fact, id)| (printed(id), fact as u16)).collect();
        by_name.sort_unstable();
        let mut index_of = vec![0; by_name.len()];
        for (index, (_, fact)) in by_name.iter().enumerate() {
            index_of[*fact as usize] = index as u16;
        }
        let of_id = ids.enumerate().map(|(fact, id)| (id, index_of[fact])).collect();
        Self { by_name, of_id }
    }
}

fn index_places<'a>(
    problem: &'a Problem,
    numbered: &BTreeMap<&str, (String, u32)>,
    receptacles: &Order<'_>,
) -> (Box<[Place]>, BTreeMap<&'a str, u16>) {
    let mut at: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    for facts in &problem.receptacles {
        at.entry(&facts.location).or_default().push(receptacles.of_id[facts.id.as_str()]);
    }
    let place_of = at.keys().enumerate().map(|(index, id)| (*id, index as u16)).collect();
    let places = at
        .into_iter()
        .map(|(id, by_id)| {
            let mut by_name = by_id.clone();
            by_name.sort_unstable();
            Place {
                number: numbered.get(id).map_or(0, |(_, number)| *number),
                receptacles: by_name.into_boxed_slice(),
                by_id: by_id.into_boxed_slice(),
            }
        })
        .collect();
    (places, place_of)
}

fn classes_of(facts: &ObjectFacts, problem: &Problem) -> impl Iterator<Item = Class> {
    let can = facts.affordances;
    let suits_goal = match problem.kind {
        TaskKind::Clean => can.cleanable,
        TaskKind::Heat => can.heatable,
        TaskKind::Cool => can.coolable,
        TaskKind::Place | TaskKind::Light | TaskKind::Two => true,
    };
    let kind = facts.kind.as_deref().unwrap_or_default();
    let is_lamp = problem.kind == TaskKind::Light && can.toggleable && kind == problem.goal_target;
    [
        (Class::Pickupable, can.pickupable),
        (Class::Cleanable, can.cleanable),
        (Class::Heatable, can.heatable),
        (Class::Coolable, can.coolable),
        (Class::Toggleable, can.toggleable),
        (Class::Sliceable, can.sliceable),
        (Class::Knife, matches!(kind, "knifetype" | "butterknifetype")),
        (Class::Wanted, suits_goal && kind == problem.goal_object),
        (Class::Lamp, is_lamp),
    ]
    .into_iter()
    .filter_map(|(class, member)| member.then_some(class))
}
