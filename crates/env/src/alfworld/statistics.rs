//! What games are like on average, to hold generated ones against real ones.

use super::bits::shared;
use super::game::{Class, Game};
use super::planner;

/// The kinds of rooms, told apart by their furniture.
const ROOMS: [(&str, &str); 4] =
    [("kitchen", "microwave"), ("bathroom", "toilet"), ("bedroom", "bed"), ("living room", "")];

/// A running mean with its extremes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    count: usize,
    sum: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Summary {
    /// Counts a value in.
    pub fn add(&mut self, value: f64) {
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = if self.count == 0 { value } else { self.most.max(value) };
        self.count += 1;
        self.sum += value;
    }

    /// The mean; 0 of nothing.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

/// What a set of games is like.
#[derive(Debug, Clone, Default)]
pub struct Statistics {
    /// How many games were counted.
    pub games: usize,
    /// For each kind of room: its name, the number of games, receptacles and objects in each.
    pub rooms: Vec<(&'static str, usize, Summary, Summary)>,
    /// Receptacles in a game.
    pub receptacles: Summary,
    /// Objects in a game.
    pub objects: Summary,
    /// Of the receptacles, the percentage that start closed.
    pub closed: Summary,
    /// Of the places, the percentage with more than one receptacle.
    pub shared_places: Summary,
    /// Of the objects in receptacles, the percentage in more than one.
    pub doubly_placed: Summary,
    /// Of the objects, the percentage in no receptacle.
    pub unplaced: Summary,
    /// Objects of the type the goal asks for, in receptacles.
    pub wanted: Summary,
    /// Of those, the percentage in closed receptacles.
    pub wanted_closed: Summary,
    /// The length of the shortest plan.
    pub plan: Summary,
    /// How many games have a shortest plan of each length.
    pub plan_lengths: Vec<usize>,
    /// Admissible commands at the start.
    pub commands: Summary,
}

impl Statistics {
    /// Counts a game in.
    pub fn add(&mut self, game: &Game) {
        if self.rooms.is_empty() {
            self.rooms =
                ROOMS.map(|(room, _)| (room, 0, Summary::default(), Summary::default())).to_vec();
        }
        self.games += 1;
        let percent = |part: usize, whole: usize| {
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let (receptacles, objects) = (game.receptacles.len(), game.objects.len());
        let has = |kind: &str| {
            game.receptacles
                .iter()
                .any(|r| r.name.rsplit_once(' ').map(|(base, _)| base) == Some(kind))
        };
        if let Some(index) = ROOMS.iter().position(|(_, mark)| mark.is_empty() || has(mark)) {
            let (_, games, in_receptacles, in_objects) = &mut self.rooms[index];
            *games += 1;
            in_receptacles.add(receptacles as f64);
            in_objects.add(objects as f64);
        }
        self.receptacles.add(receptacles as f64);
        self.objects.add(objects as f64);
        self.closed
            .add(percent(game.receptacles.iter().filter(|r| r.openable).count(), receptacles));
        let crowded = game.places.iter().filter(|place| place.receptacles.len() > 1).count();
        self.shared_places.add(percent(crowded, game.places.len()));
        let lies_in = |object: usize| {
            (0..receptacles)
                .filter(move |&receptacle| game.initial().inside.has(receptacle, object))
        };
        let times: Vec<usize> = (0..objects).map(|object| lies_in(object).count()).collect();
        let placed = times.iter().filter(|&&times| times > 0).count();
        self.doubly_placed.add(percent(times.iter().filter(|&&times| times > 1).count(), placed));
        self.unplaced.add(percent(objects - placed, objects));
        let wanted = game.class(Class::Wanted);
        let rows = || {
            (0..receptacles)
                .map(|receptacle| shared(game.initial().inside.row(receptacle), wanted) as usize)
        };
        let found: usize = rows().sum();
        let hidden: usize =
            rows().zip(&game.receptacles).filter(|(_, r)| r.openable).map(|(count, _)| count).sum();
        self.wanted.add(found as f64);
        self.wanted_closed.add(percent(hidden, found));
        if let Some(plan) = planner::shortest_plan(game, game.initial()) {
            self.plan.add(plan.len() as f64);
            if self.plan_lengths.len() <= plan.len() {
                self.plan_lengths.resize(plan.len() + 1, 0);
            }
            self.plan_lengths[plan.len()] += 1;
        }
        let mut actions = Vec::new();
        game.admissible(game.initial(), &mut actions);
        self.commands.add(actions.len() as f64);
    }
}
