//! An honest player: it sees what an agent's prompt shows and remembers nothing else.
//!
//! Everything it needs is in the window. Places are searched in a fixed order, so the place it stands at
//! tells how far the search has come. Once a thing is in the hand, the way is straight (treat it, carry
//! it, open, put it down) and so short that the last three texts tell what has been done to it. For
//! two things of a type, the target is opened before the search begins: then taking, going and putting
//! down fit into the window, the text of the taking still tells where the first one was, and the
//! search goes on from there.

mod order;
mod scene;

use scene::{Scene, base};

use super::goal::{Goal, TaskKind};
use crate::{Decision, Expert, Window};

/// The honest player.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlfworldExpert;

impl Expert for AlfworldExpert {
    fn decide(&self, window: &Window) -> Option<Decision> {
        let goal = Goal::from_sentence(&window.task)?;
        let scene = Scene::read(window)?;
        Player { goal, scene }.decide()
    }
}

struct Player<'a> {
    goal: Goal,
    scene: Scene<'a>,
}

#[expect(clippy::unnecessary_wraps, reason = "every way through the player ends in it")]
fn decision(thought: String, action: String) -> Option<Decision> {
    Some(Decision { thought, action })
}

impl<'a> Player<'a> {
    fn decide(&self) -> Option<Decision> {
        match self.scene.held {
            Some(held) if base(held) != self.goal.object => self.put_aside(held),
            Some(held) => match self.goal.kind {
                TaskKind::Light => self.find_light(held),
                TaskKind::Clean => self.treat(held, "clean", "sinkbasin"),
                TaskKind::Heat => self.treat(held, "heat", "microwave"),
                TaskKind::Cool => self.treat(held, "cool", "fridge"),
                TaskKind::Place | TaskKind::Two => self.deliver(held),
            },
            None => self.find_thing(),
        }
    }

    /// With an empty hand: take the thing if it is here, else search on.
    fn find_thing(&self) -> Option<Decision> {
        let thing = &self.goal.object;
        let gathering = self.gathering_place();
        if let Some(target) = gathering {
            if self.scene.steps_taken() == 0 && opens(base(target)) && !self.scene.is_here(target) {
                return decision(
                    format!(
                        "I need two {thing} in {target}; it may be closed, so I open it first."
                    ),
                    format!("go to {target}"),
                );
            }
            if self.scene.last_handled() == Some(target) && self.scene.is_closed(target) {
                return decision(
                    format!("I need two {thing} in {target}; it is closed, so I open it first."),
                    format!("open {target}"),
                );
            }
        }
        let right =
            |(object, place): &&(&str, &str)| base(object) == thing && Some(*place) != gathering;
        if let Some((object, place)) = self.scene.takes.iter().find(right) {
            return decision(
                format!("I need {object}, which is here, so I take it."),
                format!("take {object} from {place}"),
            );
        }
        if let Some(source) = gathering.and_then(|target| self.source_of_first(target)) {
            if !self.scene.is_here(source) {
                return decision(
                    format!(
                        "I need another {thing}; I go back to {source}, where I found the first."
                    ),
                    format!("go to {source}"),
                );
            }
            return self.search(Some(source), gathering);
        }
        // The visit to the target before the search is no part of the route.
        self.search(self.scene.last_handled().filter(|place| Some(*place) != gathering), gathering)
    }

    /// For two things: the one receptacle both are brought to.
    fn gathering_place(&self) -> Option<&'a str> {
        let wanted = |name: &&str| base(name) == self.goal.target;
        (self.goal.kind == TaskKind::Two)
            .then(|| self.scene.receptacles().into_iter().find(wanted))?
    }

    /// Right after the first of two things was put down: where it had been taken.
    fn source_of_first(&self, target: &str) -> Option<&'a str> {
        let put = self.scene.last_action()?;
        if !put.ends_with(target) || !(put.starts_with("move ") || put.starts_with("put ")) {
            return None;
        }
        self.scene.texts().find_map(|text| {
            let (object, place) =
                text.strip_prefix("You pick up the ")?.split_once(" from the ")?;
            (base(object) == self.goal.object).then(|| place.trim_end_matches('.'))
        })
    }

    /// Opens or visits the next place of the route after `from`.
    fn search(&self, from: Option<&str>, leave_out: Option<&str>) -> Option<Decision> {
        let thing = &self.goal.object;
        let route = self.route(|place| order::rank(thing, place));
        let next = self.next_stop(&route, from, |place| Some(place) != leave_out)?;
        if self.scene.is_here(next) {
            return decision(
                format!("I need {thing}; it may be in {next}, which is closed, so I open it."),
                format!("open {next}"),
            );
        }
        decision(
            format!("I need {thing}, not seen here, so I look at {next} next."),
            format!("go to {next}"),
        )
    }

    /// All receptacles, by rank and then in the order of the command list.
    fn route(&self, rank: impl Fn(&str) -> usize) -> Vec<&'a str> {
        let mut route = self.scene.receptacles();
        route.sort_by_key(|name| rank(base(name)));
        route
    }

    /// The first place on the route from `from` on that is either closed and here, or elsewhere. The route is a ring.
    fn next_stop(
        &self,
        route: &[&'a str],
        from: Option<&str>,
        suits: impl Fn(&str) -> bool,
    ) -> Option<&'a str> {
        let start =
            from.and_then(|from| route.iter().position(|place| *place == from)).unwrap_or(0);
        let ring = route[start..].iter().chain(&route[..start]);
        ring.copied()
            .filter(|place| suits(place))
            .find(|place| !self.scene.is_here(place) || self.scene.is_closed(place))
    }

    /// Holding the thing: to the device, then treat it, then away with it.
    fn treat(&self, held: &str, verb: &str, device: &str) -> Option<Decision> {
        let done = format!("You {verb} the {held} using the ");
        if self.scene.texts().any(|text| text.starts_with(&done)) {
            return self.deliver(held);
        }
        let verb_and_space = format!("{verb} ");
        if let Some((command, _, place)) = self.scene.pairs(&verb_and_space, " with ").next() {
            return decision(
                format!("I am at {place}, so I {verb} the {held}."),
                command.to_owned(),
            );
        }
        let place = self.first_elsewhere(device)?;
        decision(
            format!("I hold {held} and must {verb} it first, so I go to {place}."),
            format!("go to {place}"),
        )
    }

    fn first_elsewhere(&self, kind: &str) -> Option<&'a str> {
        self.scene.elsewhere.iter().copied().find(|name| base(name) == kind)
    }

    /// Holding the thing, ready: to the target, open it, put the thing down.
    fn deliver(&self, held: &str) -> Option<Decision> {
        let target = &self.goal.target;
        let gathering = self.gathering_place();
        let suits = |name: &str| gathering.map_or(base(name) == target, |place| place == name);
        if let Some((command, _, place)) = self.scene.moves().find(|(_, _, place)| suits(place)) {
            return decision(
                format!("This is {place}, where {held} belongs, so I put it there."),
                command.to_owned(),
            );
        }
        if let Some(closed) =
            self.scene.here.iter().find(|name| suits(name) && self.scene.is_closed(name))
        {
            return decision(
                format!("The {closed} is closed, so I open it to put {held} in."),
                format!("open {closed}"),
            );
        }
        let place = self.scene.elsewhere.iter().find(|name| suits(name))?;
        decision(
            format!("I hold {held} and it is ready, so I carry it to {place}."),
            format!("go to {place}"),
        )
    }

    /// Holding the thing: find the lamp and switch it on.
    fn find_light(&self, held: &str) -> Option<Decision> {
        let lamp = &self.goal.target;
        let lamps = self.scene.pairs("use ", " ").find(|(_, kind, _)| kind == lamp);
        if let Some((command, _, _)) = lamps {
            return decision(
                format!("I hold {held} and the {lamp} is here, so I use it."),
                command.to_owned(),
            );
        }
        let route = self.route(|place| order::rank(lamp, place));
        let searching = self.scene.last_action().is_some_and(|action| action.starts_with("go to "));
        let from = if searching { self.scene.last_handled() } else { route.first().copied() };
        let elsewhere = |place: &str| !self.scene.is_here(place);
        let next = self.next_stop(&route, from, elsewhere)?;
        decision(
            format!("I hold {held} and need a {lamp}, so I look at {next}."),
            format!("go to {next}"),
        )
    }

    /// Holding something else: put it down where that is possible.
    fn put_aside(&self, held: &str) -> Option<Decision> {
        let reason = format!("I need a {}, not {held}", self.goal.object);
        if let Some((command, _, _)) = self.scene.moves().next() {
            return decision(format!("{reason}, so I put it down."), command.to_owned());
        }
        let route = self.route(|place| order::rank("", place));
        let next = self.next_stop(&route, self.scene.last_handled(), |_| true)?;
        if self.scene.is_here(next) {
            return decision(
                format!("{reason}; I open {next} to put it down."),
                format!("open {next}"),
            );
        }
        decision(format!("{reason}; I go to {next} to put it down."), format!("go to {next}"))
    }
}

/// Kinds of places that are closed at first.
fn opens(kind: &str) -> bool {
    matches!(kind, "cabinet" | "drawer" | "fridge" | "microwave" | "safe")
}
