//! The shortest plan from any state, for an observer who sees everything.
//!
//! No search is needed. One hand and no capacity limits leave one shape of plan per kind of task: perhaps
//! put down what is held, take the thing, perhaps treat it, put it where it belongs. A plan of that
//! shape costs one step per change of place, one per distinct closed receptacle it uses, and one per
//! deed, so trying every choice of thing, source, device, target and put-down place gives the
//! shortest. The quirks are covered: a thing that lies in two receptacles stays in the second when
//! taken from the first, so treating it may already reach the goal; and whatever is switched on
//! stays on.

use super::action::Action;
use super::bits::{both, contains, ones};
use super::game::{Class, Device, Game};
use super::goal::TaskKind;
use super::state::{Mark, State};

/// The shortest list of commands from `state` to the goal; empty where it holds already, `None` where no plan exists.
/// Lamps must not be pickupable, as they never are in ALFWorld.
pub fn shortest_plan(game: &Game, state: &State) -> Option<Vec<String>> {
    if game.won(state) {
        return Some(Vec::new());
    }
    let mut best = Best { game, state, deeds: Vec::new(), cost: usize::MAX };
    match game.goal.kind {
        TaskKind::Light => best.consider_lights(),
        TaskKind::Two => best.consider_pairs(),
        TaskKind::Place | TaskKind::Clean | TaskKind::Heat | TaskKind::Cool => {
            best.consider_single();
        }
    }
    (best.cost != usize::MAX).then(|| best.commands())
}

/// A deed at a place; going there and opening what must be open is understood.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// Take an object from, or move it to, a receptacle that must be open.
    Hand(Action, u16),
    /// Do something at a place.
    At(Action, u16),
    /// Be at a place.
    Be(u16),
}

impl Deed {
    fn place(self, game: &Game) -> u16 {
        match self {
            Self::Hand(_, receptacle) => game.receptacles[receptacle as usize].place,
            Self::At(_, place) | Self::Be(place) => place,
        }
    }
}

struct Best<'a> {
    game: &'a Game,
    state: &'a State,
    deeds: Vec<Deed>,
    cost: usize,
}

impl Best<'_> {
    /// Objects the goal asks for.
    fn wanted(&self) -> Vec<u16> {
        ones(self.game.class(Class::Wanted)).map(|object| object as u16).collect()
    }

    /// The receptacles an object lies in.
    fn sources(&self, object: u16) -> Vec<u16> {
        let all = 0..self.game.receptacles.len() as u16;
        let reachable = contains(self.game.class(Class::Pickupable), object as usize);
        all.filter(|&r| reachable && self.state.inside.has(r as usize, object as usize)).collect()
    }

    fn moving(object: u16, receptacle: u16) -> Deed {
        Deed::Hand(Action::Move(object, receptacle), receptacle)
    }

    /// Every way to get an object into the hand, as deeds, with the receptacle it was taken from.
    fn ways_to_hold(&self, object: u16) -> Vec<(Vec<Deed>, Option<u16>)> {
        if self.state.held == Some(object) {
            return vec![(Vec::new(), None)];
        }
        let mut ways = Vec::new();
        for source in self.sources(object) {
            let take = Deed::Hand(Action::Take(object, source), source);
            match self.state.held {
                None => ways.push((vec![take], Some(source))),
                Some(held) => {
                    let all = 0..self.game.receptacles.len() as u16;
                    let fitting = all.filter(|&r| self.game.accepts.has(r as usize, held as usize));
                    ways.extend(fitting.map(|r| (vec![Self::moving(held, r), take], Some(source))));
                }
            }
        }
        ways
    }

    fn consider_single(&mut self) {
        let (mark, device, treat): (Mark, Device, fn(u16, u16) -> Action) =
            match self.game.goal.kind {
                TaskKind::Heat => (Mark::Hot, Device::Heater, Action::Heat),
                TaskKind::Cool => (Mark::Cool, Device::Cooler, Action::Cool),
                _ => (Mark::Clean, Device::Cleaner, Action::Clean),
            };
        let untreated = self.game.goal.kind != TaskKind::Place;
        let devices: Vec<u16> = (0..self.game.receptacles.len() as u16)
            .filter(|&r| self.game.receptacles[r as usize].device == device)
            .collect();
        for object in self.wanted() {
            for (hold, source) in self.ways_to_hold(object) {
                if !untreated || self.state.is(mark, object) {
                    self.finish_at_targets(&hold, object);
                    continue;
                }
                let already_placed = self.game.targets.iter().any(|&r| {
                    Some(r) != source && self.state.inside.has(r as usize, object as usize)
                });
                for &with in &devices {
                    let mut deeds = hold.clone();
                    let place = self.game.receptacles[with as usize].place;
                    deeds.push(Deed::At(treat(object, with), place));
                    if already_placed {
                        self.consider(&deeds);
                    } else {
                        self.finish_at_targets(&deeds, object);
                    }
                }
            }
        }
    }

    fn finish_at_targets(&mut self, deeds: &[Deed], object: u16) {
        let game = self.game;
        for &target in
            game.targets.iter().filter(|&&r| game.accepts.has(r as usize, object as usize))
        {
            let mut deeds = deeds.to_vec();
            deeds.push(Self::moving(object, target));
            self.consider(&deeds);
        }
    }

    fn consider_pairs(&mut self) {
        let wanted = self.wanted();
        let game = self.game;
        for &target in &game.targets {
            let state = self.state;
            let placed = |object: u16| state.inside.has(target as usize, object as usize);
            let missing: Vec<u16> = wanted
                .iter()
                .copied()
                .filter(|&o| !placed(o) && self.game.accepts.has(target as usize, o as usize))
                .collect();
            let one_is_there = wanted.iter().any(|&object| placed(object));
            for &first in &missing {
                for (mut deeds, _) in self.ways_to_hold(first) {
                    deeds.push(Self::moving(first, target));
                    if one_is_there {
                        self.consider(&deeds);
                        continue;
                    }
                    for &second in missing.iter().filter(|&&second| second != first) {
                        // A thing in the hand is always the first: putting it down elsewhere only to fetch it again
                        // is never shorter.
                        if self.state.held == Some(second) {
                            continue;
                        }
                        for source in self.sources(second) {
                            let mut deeds = deeds.clone();
                            deeds.push(Deed::Hand(Action::Take(second, source), source));
                            deeds.push(Self::moving(second, target));
                            self.consider(&deeds);
                        }
                    }
                }
            }
        }
    }

    fn consider_lights(&mut self) {
        let mut lights = Vec::new();
        for receptacle in 0..self.game.receptacles.len() {
            let lamps = both(self.state.inside.row(receptacle), self.game.class(Class::Lamp));
            lights.extend(lamps.map(|lamp| (lamp as u16, self.game.receptacles[receptacle].place)));
        }
        for object in self.wanted() {
            for (hold, _) in self.ways_to_hold(object) {
                for &(lamp, place) in &lights {
                    let mut deeds = hold.clone();
                    deeds.push(if self.state.is(Mark::Toggled, lamp) {
                        Deed::Be(place)
                    } else {
                        Deed::At(Action::Use(lamp), place)
                    });
                    self.consider(&deeds);
                }
            }
        }
    }

    fn consider(&mut self, deeds: &[Deed]) {
        let mut cost = 0;
        let mut at = self.state.place;
        for (index, deed) in deeds.iter().enumerate() {
            let place = deed.place(self.game);
            cost += usize::from(at != Some(place));
            at = Some(place);
            cost += match *deed {
                Deed::Hand(_, receptacle) => {
                    let opened_before = || {
                        deeds[..index].iter().any(
                            |before| matches!(before, Deed::Hand(_, other) if *other == receptacle),
                        )
                    };
                    let closed = !self.game.accessible(self.state, receptacle);
                    1 + usize::from(closed && !opened_before())
                }
                Deed::At(..) => 1,
                Deed::Be(_) => 0,
            };
        }
        if cost < self.cost {
            self.cost = cost;
            self.deeds = deeds.to_vec();
        }
    }

    /// Writes the best deeds out as commands.
    fn commands(&self) -> Vec<String> {
        let mut state = self.state.clone();
        let mut commands = Vec::with_capacity(self.cost);
        let mut act = |action: Action, state: &mut State| {
            self.game.apply(state, action);
            commands.push(self.game.command(action));
        };
        for deed in &self.deeds {
            let place = deed.place(self.game);
            if state.place != Some(place) {
                let goal = match deed {
                    Deed::Hand(_, receptacle) => *receptacle,
                    Deed::At(
                        Action::Clean(_, with) | Action::Heat(_, with) | Action::Cool(_, with),
                        _,
                    ) => *with,
                    Deed::At(..) | Deed::Be(_) => self.game.places[place as usize].receptacles[0],
                };
                act(Action::Go(goal), &mut state);
            }
            match *deed {
                Deed::Hand(action, receptacle) => {
                    if !self.game.accessible(&state, receptacle) {
                        act(Action::Open(receptacle), &mut state);
                    }
                    act(action, &mut state);
                }
                Deed::At(action, _) => act(action, &mut state),
                Deed::Be(_) => {}
            }
        }
        commands
    }
}
