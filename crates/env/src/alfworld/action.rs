//! Commands: which are admissible, in which order, and how they are written and read.

use super::bits::{both, contains};
use super::game::{Class, Device, Game, Wording};
use super::state::State;

/// A command. Numbers are indices into the game's receptacles and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Look,
    Inventory,
    Help,
    Go(u16),
    ExamineReceptacle(u16),
    ExamineObject(u16),
    Open(u16),
    Close(u16),
    /// An object, a receptacle.
    Take(u16, u16),
    Move(u16, u16),
    Clean(u16, u16),
    Heat(u16, u16),
    Cool(u16, u16),
    Use(u16),
    /// What is sliced, the knife.
    Slice(u16, u16),
}

impl Game {
    /// The admissible actions, in the code-point order of their commands. Verbs come in alphabetical order, and
    /// receptacles and objects are numbered in the order of their names, so nothing needs sorting.
    pub(crate) fn admissible(&self, state: &State, actions: &mut Vec<Action>) {
        actions.clear();
        let here = self.here(state);
        if let Some(held) = state.held {
            self.treat(here, held, Device::Cleaner, Class::Cleanable, Action::Clean, actions);
        }
        let openable = |&&receptacle: &&u16| self.receptacles[receptacle as usize].openable;
        let opened = |&&receptacle: &&u16| state.opened.has(0, receptacle as usize);
        actions.extend(here.iter().filter(openable).filter(opened).map(|&r| Action::Close(r)));
        if let Some(held) = state.held {
            self.treat(here, held, Device::Cooler, Class::Coolable, Action::Cool, actions);
        }
        self.examinations(state, here, actions);
        let elsewhere =
            |receptacle: &u16| Some(self.receptacles[*receptacle as usize].place) != state.place;
        actions.extend((0..self.receptacles.len() as u16).filter(elsewhere).map(Action::Go));
        if let Some(held) = state.held {
            self.treat(here, held, Device::Heater, Class::Heatable, Action::Heat, actions);
        }
        if self.wording == Wording::Second {
            actions.push(Action::Help);
        }
        actions.extend([Action::Inventory, Action::Look]);
        if self.wording == Wording::Second {
            self.moves(state, here, actions);
        }
        actions
            .extend(here.iter().filter(openable).filter(|r| !opened(r)).map(|&r| Action::Open(r)));
        if self.wording == Wording::First {
            self.moves(state, here, actions);
        }
        if let (Some(held), Some(place)) = (state.held, state.place)
            && contains(self.class(Class::Knife), held as usize)
        {
            let sliceable = both(state.around.row(place as usize), self.class(Class::Sliceable));
            actions.extend(sliceable.map(|object| Action::Slice(object as u16, held)));
        }
        self.takes(state, here, actions);
        self.uses(state, here, actions);
    }

    /// `clean`, `heat` or `cool` the held object with the devices that are here.
    fn treat(
        &self,
        here: &[u16],
        held: u16,
        device: Device,
        class: Class,
        action: impl Fn(u16, u16) -> Action,
        actions: &mut Vec<Action>,
    ) {
        if contains(self.class(class), held as usize) {
            let devices = here.iter().filter(|&&r| self.receptacles[r as usize].device == device);
            actions.extend(devices.map(|&r| action(held, r)));
        }
    }

    /// What is here and what is held, by name.
    fn examinations(&self, state: &State, here: &[u16], actions: &mut Vec<Action>) {
        let Some(held) = state.held else {
            actions.extend(here.iter().map(|&r| Action::ExamineReceptacle(r)));
            return;
        };
        let name = &self.objects[held as usize].name;
        let before = here.partition_point(|&r| self.receptacles[r as usize].name < *name);
        actions.extend(here[..before].iter().map(|&r| Action::ExamineReceptacle(r)));
        actions.push(Action::ExamineObject(held));
        actions.extend(here[before..].iter().map(|&r| Action::ExamineReceptacle(r)));
    }

    fn moves(&self, state: &State, here: &[u16], actions: &mut Vec<Action>) {
        if let Some(held) = state.held {
            let fitting = here.iter().filter(|&&r| {
                self.accessible(state, r) && self.accepts.has(r as usize, held as usize)
            });
            actions.extend(fitting.map(|&r| Action::Move(held, r)));
        }
    }

    fn takes(&self, state: &State, here: &[u16], actions: &mut Vec<Action>) {
        if state.held.is_some() {
            return;
        }
        let first = actions.len();
        for &receptacle in here.iter().filter(|&&r| self.accessible(state, r)) {
            let things = both(state.inside.row(receptacle as usize), self.class(Class::Pickupable));
            actions.extend(things.map(|object| Action::Take(object as u16, receptacle)));
        }
        if here.len() > 1 {
            actions[first..].sort_unstable_by_key(|action| match action {
                Action::Take(object, receptacle) => (*object, *receptacle),
                _ => (0, 0),
            });
        }
    }

    fn uses(&self, state: &State, here: &[u16], actions: &mut Vec<Action>) {
        let first = actions.len();
        for &receptacle in here {
            let lamps = both(state.inside.row(receptacle as usize), self.class(Class::Toggleable));
            for lamp in lamps {
                let action = Action::Use(lamp as u16);
                // A lamp that stands in two receptacles here is listed once.
                if !actions[first..].contains(&action) {
                    actions.push(action);
                }
            }
        }
        actions[first..].sort_unstable_by_key(|action| match action {
            Action::Use(object) => *object,
            _ => 0,
        });
    }

    /// The command for an action.
    pub(crate) fn command(&self, action: Action) -> String {
        let receptacle = |index: u16| &*self.receptacles[index as usize].name;
        let object = |index: u16| &*self.objects[index as usize].name;
        let (verb, first, joint, second) = match action {
            Action::Look => ("look", "", "", ""),
            Action::Inventory => ("inventory", "", "", ""),
            Action::Help => ("help", "", "", ""),
            Action::Go(r) => ("go to ", receptacle(r), "", ""),
            Action::ExamineReceptacle(r) => ("examine ", receptacle(r), "", ""),
            Action::ExamineObject(o) => ("examine ", object(o), "", ""),
            Action::Open(r) => ("open ", receptacle(r), "", ""),
            Action::Close(r) => ("close ", receptacle(r), "", ""),
            Action::Take(o, r) => ("take ", object(o), " from ", receptacle(r)),
            Action::Move(o, r) => match self.wording {
                Wording::First => ("put ", object(o), " in/on ", receptacle(r)),
                Wording::Second => ("move ", object(o), " to ", receptacle(r)),
            },
            Action::Clean(o, r) => ("clean ", object(o), " with ", receptacle(r)),
            Action::Heat(o, r) => ("heat ", object(o), " with ", receptacle(r)),
            Action::Cool(o, r) => ("cool ", object(o), " with ", receptacle(r)),
            Action::Use(o) => ("use ", object(o), "", ""),
            Action::Slice(o, k) => ("slice ", object(o), " with ", object(k)),
        };
        let mut command =
            String::with_capacity(verb.len() + first.len() + joint.len() + second.len());
        for part in [verb, first, joint, second] {
            command.push_str(part);
        }
        command
    }

    /// The action a command stands for in this game, admissible or not. Commands are matched exactly.
    pub(crate) fn read_command(&self, command: &str) -> Option<Action> {
        let receptacle = |name: &str| find(&self.receptacles, name, |receptacle| &receptacle.name);
        let object = |name: &str| find(&self.objects, name, |object| &object.name);
        let pair = |rest: &str, joint: &str| {
            let (first, second) = rest.split_once(joint)?;
            Some((object(first)?, receptacle(second)?))
        };
        match command {
            "look" => return Some(Action::Look),
            "inventory" => return Some(Action::Inventory),
            "help" if self.wording == Wording::Second => return Some(Action::Help),
            _ => {}
        }
        let (verb, rest) = command.split_once(' ')?;
        match (verb, self.wording) {
            ("go", _) => receptacle(rest.strip_prefix("to ")?).map(Action::Go),
            ("examine", _) => {
                let thing = receptacle(rest).map(Action::ExamineReceptacle);
                thing.or_else(|| object(rest).map(Action::ExamineObject))
            }
            ("open", _) => receptacle(rest).map(Action::Open),
            ("close", _) => receptacle(rest).map(Action::Close),
            ("take", _) => pair(rest, " from ").map(|(o, r)| Action::Take(o, r)),
            ("move", Wording::Second) => pair(rest, " to ").map(|(o, r)| Action::Move(o, r)),
            ("put", Wording::First) => pair(rest, " in/on ").map(|(o, r)| Action::Move(o, r)),
            ("clean", _) => pair(rest, " with ").map(|(o, r)| Action::Clean(o, r)),
            ("heat", _) => pair(rest, " with ").map(|(o, r)| Action::Heat(o, r)),
            ("cool", _) => pair(rest, " with ").map(|(o, r)| Action::Cool(o, r)),
            ("use", _) => object(rest).map(Action::Use),
            ("slice", _) => {
                let (first, second) = rest.split_once(" with ")?;
                Some(Action::Slice(object(first)?, object(second)?))
            }
            _ => None,
        }
    }
}

fn find<T>(things: &[T], name: &str, name_of: impl Fn(&T) -> &str) -> Option<u16> {
    things.binary_search_by(|thing| name_of(thing).cmp(name)).ok().map(|index| index as u16)
}
