//! What actions do, what the player reads, and when a game is won.

use super::action::Action;
use super::bits::{both, contains, ones, shared};
use super::game::{Class, Game, Wording};
use super::goal::TaskKind;
use super::names::push_list;
use super::state::{Mark, State};

/// The answer to anything that is not admissible.
pub(crate) const NOTHING_HAPPENS: &str = "Nothing happens.";

const HELP: &str = "\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
";

impl Game {
    /// Carries out an admissible action.
    pub(crate) fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Look
            | Action::Inventory
            | Action::Help
            | Action::ExamineReceptacle(_)
            | Action::ExamineObject(_) => {}
            Action::Go(receptacle) => {
                state.place = Some(self.receptacles[receptacle as usize].place);
            }
            Action::Open(receptacle) => state.opened.set(0, receptacle as usize, true),
            Action::Close(receptacle) => state.opened.set(0, receptacle as usize, false),
            Action::Take(object, receptacle) => {
                state.held = Some(object);
                state.inside.set(receptacle as usize, object as usize, false);
                state.removed.set(receptacle as usize, object as usize, true);
                if let Some(place) = state.place {
                    state.around.set(place as usize, object as usize, false);
                }
            }
            Action::Move(object, receptacle) => {
                state.held = None;
                state.inside.set(receptacle as usize, object as usize, true);
                state.removed.set(receptacle as usize, object as usize, false);
                if let Some(place) = state.place {
                    state.around.set(place as usize, object as usize, true);
                }
            }
            Action::Clean(object, _) => state.mark(Mark::Clean, object, true),
            Action::Heat(object, _) => {
                state.mark(Mark::Hot, object, true);
                state.mark(Mark::Cool, object, false);
            }
            Action::Cool(object, _) => {
                state.mark(Mark::Cool, object, true);
                state.mark(Mark::Hot, object, false);
            }
            Action::Use(object) => state.mark(Mark::Toggled, object, true),
            Action::Slice(object, _) => state.mark(Mark::Sliced, object, true),
        }
    }

    /// Whether the goal holds.
    pub fn won(&self, state: &State) -> bool {
        let wanted = self.class(Class::Wanted);
        let targets =
            || self.targets.iter().map(|&receptacle| state.inside.row(receptacle as usize));
        let placed_with = |mark: Mark| {
            let marked = state.marks.row(mark as usize);
            targets().any(|inside| both(inside, wanted).any(|object| contains(marked, object)))
        };
        match self.goal.kind {
            TaskKind::Place => targets().any(|inside| shared(inside, wanted) > 0),
            TaskKind::Two => targets().any(|inside| shared(inside, wanted) > 1),
            TaskKind::Clean => placed_with(Mark::Clean),
            TaskKind::Heat => placed_with(Mark::Hot),
            TaskKind::Cool => placed_with(Mark::Cool),
            TaskKind::Light => {
                state.held.is_some_and(|held| contains(wanted, held as usize))
                    && self.here(state).iter().any(|&receptacle| {
                        both(state.inside.row(receptacle as usize), self.class(Class::Lamp))
                            .any(|lamp| state.is(Mark::Toggled, lamp as u16))
                    })
            }
        }
    }

    /// What the player reads first.
    pub(crate) fn intro(&self) -> String {
        let mut text = String::with_capacity(640);
        text.push_str("-= Welcome to TextWorld, ALFRED! =-\n\n");
        if self.initial.place.is_some() {
            self.push_surroundings(&mut text, &self.initial);
        } else {
            text.push_str("You are in the middle of a room. Looking quickly around you, you see ");
            let all =
                self.receptacles_by_id.iter().map(|&index| &*self.receptacles[index as usize].name);
            push_list(&mut text, "a ", all);
            text.push('.');
        }
        text.push_str("\n\nYour task is to: ");
        text.push_str(&self.sentence);
        text
    }

    /// What the player reads after an action, given the state it led to.
    pub(crate) fn describe(&self, state: &State, action: Action) -> String {
        let receptacle = |index: u16| &*self.receptacles[index as usize].name;
        let object = |index: u16| &*self.objects[index as usize].name;
        let mut text = String::with_capacity(128);
        let mut say = |parts: &[&str]| parts.iter().for_each(|part| text.push_str(part));
        match action {
            Action::Look => self.push_surroundings(&mut text, state),
            Action::Inventory => match state.held {
                Some(held) => say(&["You are carrying: a ", object(held), "."]),
                None => say(&["You are not carrying anything."]),
            },
            Action::Help => say(&[HELP]),
            Action::Go(r) => {
                match self.wording {
                    Wording::Second => say(&["You arrive at ", receptacle(r), ". "]),
                    Wording::First => {
                        let place = self.receptacles[r as usize].place;
                        let number = self.places[place as usize].number.to_string();
                        say(&["You arrive at loc ", &number, ". "]);
                    }
                }
                self.push_sight(&mut text, state, r);
            }
            Action::ExamineReceptacle(r) => self.push_sight(&mut text, state, r),
            Action::ExamineObject(o) => self.push_condition(&mut text, state, o),
            Action::Open(r) => {
                say(&["You open the ", receptacle(r), ". "]);
                self.push_sight(&mut text, state, r);
            }
            Action::Close(r) => say(&["You close the ", receptacle(r), "."]),
            Action::Take(o, r) => {
                say(&["You pick up the ", object(o), " from the ", receptacle(r), "."]);
            }
            Action::Move(o, r) => match self.wording {
                Wording::First => {
                    say(&["You put the ", object(o), " in/on the ", receptacle(r), "."]);
                }
                Wording::Second => {
                    say(&["You move the ", object(o), " to the ", receptacle(r), "."]);
                }
            },
            Action::Clean(o, r) => {
                say(&["You clean the ", object(o), " using the ", receptacle(r), "."]);
            }
            Action::Heat(o, r) => {
                say(&["You heat the ", object(o), " using the ", receptacle(r), "."]);
            }
            Action::Cool(o, r) => {
                say(&["You cool the ", object(o), " using the ", receptacle(r), "."]);
            }
            Action::Use(o) => say(&["You turn on the ", object(o), "."]),
            Action::Slice(o, k) => {
                say(&["You sliced the ", object(o), " with the ", object(k), "."]);
            }
        }
        text
    }

    /// What is seen of a receptacle.
    fn push_sight(&self, text: &mut String, state: &State, receptacle: u16) {
        let about = &self.receptacles[receptacle as usize];
        if !self.accessible(state, receptacle) {
            for part in ["The ", &about.name, " is closed."] {
                text.push_str(part);
            }
            return;
        }
        let (before, after) = if about.openable {
            ("The ", " is open. In it, you see ")
        } else {
            ("On the ", ", you see ")
        };
        for part in [before, &about.name, after] {
            text.push_str(part);
        }
        let mut things: Vec<usize> = ones(state.inside.row(receptacle as usize)).collect();
        things.sort_unstable_by_key(|&index| self.objects[index].id_rank);
        push_list(text, "a ", things.iter().map(|&index| &*self.objects[index].name));
        text.push('.');
    }

    /// What `look` shows.
    fn push_surroundings(&self, text: &mut String, state: &State) {
        let Some(place) = state.place else {
            text.push_str(
                "You are in the middle of a room. Looking quickly around you, you see nothing.",
            );
            return;
        };
        let here = &self.places[place as usize].by_id;
        text.push_str("You are facing the ");
        push_list(text, "", here.iter().map(|&index| &*self.receptacles[index as usize].name));
        text.push_str(". Next to it, you see ");
        // The real engine notices a thing beside a receptacle only when it was taken out of that receptacle,
        // and lists it once for each receptacle it was taken out of.
        let mut things: Vec<usize> = ones(state.around.row(place as usize)).collect();
        things.sort_unstable_by_key(|&index| self.objects[index].id_rank);
        let seen = things.iter().flat_map(|&object| {
            let times = here
                .iter()
                .filter(|&&receptacle| state.removed.has(receptacle as usize, object))
                .count();
            std::iter::repeat_n(&*self.objects[object].name, times)
        });
        push_list(text, "a ", seen);
        text.push('.');
    }

    /// What examining the held object shows.
    fn push_condition(&self, text: &mut String, state: &State, object: u16) {
        let about = &self.objects[object as usize];
        if let Some(contents) = &about.contents {
            for part in ["This is a normal ", &about.name, ". In it, you see "] {
                text.push_str(part);
            }
            push_list(
                text,
                "a ",
                contents.iter().map(|&index| &*self.objects[index as usize].name),
            );
            text.push('.');
            return;
        }
        let is = |mark| state.is(mark, object);
        let condition = match (is(Mark::Clean), is(Mark::Hot), is(Mark::Cool), is(Mark::Sliced)) {
            (true, true, _, true) => "hot and clean sliced",
            (true, false, true, true) => "cool and clean sliced",
            (true, false, false, true) => "clean sliced",
            (false, true, _, true) => "hot sliced",
            (false, false, true, true) => "cool sliced",
            (true, true, _, false) => "hot and clean",
            (true, false, true, false) => "cool and clean",
            (false, true, _, false) => "hot",
            (true, false, false, false) => "clean",
            (false, false, true, false) => "cold",
            (false, false, false, true)
                if contains(self.class(Class::Sliceable), object as usize) =>
            {
                "sliced"
            }
            (false, false, false, _) => "",
        };
        let parts: &[&str] = if condition.is_empty() {
            &["There's nothing special about ", &about.name, "."]
        } else {
            &["This is a ", condition, " ", &about.name, "."]
        };
        for part in parts {
            text.push_str(part);
        }
    }
}
