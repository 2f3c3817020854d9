//! An honest player: it sees what an agent's prompt shows and remembers nothing else.
//!
//! Everything it needs is in the window. Places are searched in a fixed order, so the place it stands at
//! tells how far the search has come. Once a thing is in the hand, the way is straight (treat it, carry
//! it, open, put it down) and so short that the last three texts tell what has been done to it. For
//! two things of a type, the target is opened before the search begins: then taking, going and putting
//! down fit into the window, the text of the taking still tells where the first one was, and the
//! search goes on from there. What the window shows to have been left behind, the thing itself or a
//! place still closed, is gone back to.

mod lapse;
mod order;
mod scene;
mod thought;

use scene::{Scene, base};

use super::goal::{Goal, TaskKind};
use crate::{Decision, Expert, Lapse, Situation, Window};

/// The honest player.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlfworldExpert;

impl Expert for AlfworldExpert {
    fn decide(&self, window: &Window) -> Option<Decision> {
        let player = Player::read(window)?;
        Some(player.thinking(player.next_step()?))
    }

    fn situation(&self, window: &Window) -> Option<Situation> {
        let player = Player::read(window)?;
        Some(player.situation(&player.next_step()?))
    }

    fn lapse(&self, window: &Window, lapse: Lapse) -> Option<Decision> {
        let player = Player::read(window)?;
        let right = player.next_step()?;
        let wrong = match lapse {
            Lapse::Overlook => player.overlooking(window, &right),
            Lapse::Dither => player.dithering(),
        };
        wrong.filter(|wrong| wrong.action != right.action)
    }

    fn rewordings(&self) -> &'static [(&'static str, &'static str)] {
        thought::REWORDINGS
    }
}

struct Player<'a> {
    goal: Goal,
    scene: Scene<'a>,
    /// Whether it believes that what it holds needs no treatment any more.
    believes_ready: bool,
}

/// A step and the last clause of the thought before it.
struct Step {
    reason: String,
    action: String,
}

#[expect(clippy::unnecessary_wraps, reason = "every way through the player ends in it")]
fn step(reason: String, action: String) -> Option<Step> {
    Some(Step { reason, action })
}

impl<'a> Player<'a> {
    fn read(window: &'a Window) -> Option<Self> {
        let goal = Goal::from_sentence(&window.task)?;
        Some(Self { goal, scene: Scene::read(window)?, believes_ready: false })
    }

    fn next_step(&self) -> Option<Step> {
        match self.scene.held {
            Some(held) if base(held) != self.goal.object => self.put_aside(held),
            Some(held) => match self.treatment() {
                Some(treatment) if !self.is_treated(held, treatment) => self.treat(held, treatment),
                _ if self.goal.kind == TaskKind::Light => self.find_light(held),
                _ => self.deliver(held),
            },
            None => self.find_thing(),
        }
    }

    /// What the task asks to be done to the thing before it is put away.
    fn treatment(&self) -> Option<Treatment> {
        let (verb, condition, device) = match self.goal.kind {
            TaskKind::Clean => ("clean", "clean", "sinkbasin"),
            TaskKind::Heat => ("heat", "hot", "microwave"),
            TaskKind::Cool => ("cool", "cool", "fridge"),
            TaskKind::Light | TaskKind::Place | TaskKind::Two => return None,
        };
        Some(Treatment { verb, condition, device })
    }

    fn is_treated(&self, held: &str, treatment: Treatment) -> bool {
        let done = format!("You {} the {held} using the ", treatment.verb);
        self.believes_ready || self.scene.texts().any(|text| text.starts_with(&done))
    }

    /// With an empty hand: take the thing if it is here, else search on.
    fn find_thing(&self) -> Option<Step> {
        let thing = &self.goal.object;
        let gathering = self.gathering_place();
        if let Some(target) = gathering {
            if self.scene.steps_taken() == 0 && opens(base(target)) && !self.scene.is_here(target) {
                return step(
                    format!("{thing} goes to {target}, which may be closed, so I go there first"),
                    format!("go to {target}"),
                );
            }
            if self.scene.last_handled() == Some(target) && self.scene.is_closed(target) {
                return step(
                    format!("{thing} goes to {target}, which is closed, so I open it first"),
                    format!("open {target}"),
                );
            }
        }
        let right =
            |(object, place): &&(&str, &str)| base(object) == thing && Some(*place) != gathering;
        if let Some((object, place)) = self.scene.takes.iter().find(right) {
            return step(
                format!("{object} is here, so I take it"),
                format!("take {object} from {place}"),
            );
        }
        if let Some(back) = self.left_behind(gathering) {
            return Some(back);
        }
        if let Some(source) = gathering.and_then(|target| self.source_of_first(target)) {
            if !self.scene.is_here(source) {
                return step(
                    format!("{thing} was found at {source} before, so I go back to it"),
                    format!("go to {source}"),
                );
            }
            return self.search(Some(source), gathering);
        }
        // The visit to the target before the search is no part of the route.
        self.search(self.scene.standing_at().filter(|place| Some(*place) != gathering), gathering)
    }

    /// Back to the thing that was seen and not taken, or to the place that was left closed.
    fn left_behind(&self, gathering: Option<&str>) -> Option<Step> {
        let thing = &self.goal.object;
        if let Some(place) = self.scene.seen_elsewhere(thing, gathering) {
            return step(
                format!("{thing} was seen at {place}, so I go back to it"),
                format!("go to {place}"),
            );
        }
        // A closed place here comes first: two of them would be left for each other forever.
        if self.scene.here.iter().any(|place| self.scene.is_closed(place)) {
            return None;
        }
        let place = self.scene.left_closed().filter(|place| Some(*place) != gathering)?;
        step(
            format!("{thing} may be in {place}, which was left closed, so I go back to it"),
            format!("go to {place}"),
        )
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
    fn search(&self, from: Option<&str>, leave_out: Option<&str>) -> Option<Step> {
        let thing = &self.goal.object;
        let route = self.route(|place| order::rank(thing, place));
        let next = self.next_stop(&route, from, |place| Some(place) != leave_out)?;
        if self.scene.is_here(next) {
            return step(
                format!("{thing} may be in {next}, which is closed, so I open it"),
                format!("open {next}"),
            );
        }
        step(format!("{thing} is not here, so I look at {next} next"), format!("go to {next}"))
    }

    /// All receptacles, by rank, kind and number.
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

    /// Holding the thing: to the device, then treat it.
    fn treat(&self, held: &str, treatment: Treatment) -> Option<Step> {
        let Treatment { verb, condition, device } = treatment;
        let verb_and_space = format!("{verb} ");
        if let Some((command, _, place)) = self.scene.pairs(&verb_and_space, " with ").next() {
            return step(
                format!("{held} is not {condition} yet, {place} is here, so I {verb} it"),
                command.to_owned(),
            );
        }
        let place = self.first_elsewhere(device)?;
        step(format!("{held} is not {condition} yet, so I go to {place}"), format!("go to {place}"))
    }

    fn first_elsewhere(&self, kind: &str) -> Option<&'a str> {
        self.scene.elsewhere.iter().copied().find(|name| base(name) == kind)
    }

    /// Holding the thing, ready: to the target, open it, put the thing down.
    fn deliver(&self, held: &str) -> Option<Step> {
        let target = &self.goal.target;
        let gathering = self.gathering_place();
        let suits = |name: &str| gathering.map_or(base(name) == target, |place| place == name);
        if let Some((command, _, place)) = self.scene.moves().find(|(_, _, place)| suits(place)) {
            return step(
                format!("{held} is ready, {place} is here, so I put it there"),
                command.to_owned(),
            );
        }
        if let Some(closed) =
            self.scene.here.iter().find(|name| suits(name) && self.scene.is_closed(name))
        {
            return step(
                format!("{held} is ready, {closed} is closed, so I open it"),
                format!("open {closed}"),
            );
        }
        let place = self.scene.elsewhere.iter().find(|name| suits(name))?;
        step(format!("{held} is ready, so I carry it to {place}"), format!("go to {place}"))
    }

    /// Holding the thing: find the lamp and switch it on.
    fn find_light(&self, held: &str) -> Option<Step> {
        let lamp = &self.goal.target;
        let lamps = self.scene.pairs("use ", " ").find(|(_, kind, _)| kind == lamp);
        if let Some((command, _, _)) = lamps {
            return step(
                format!("{held} is ready, {lamp} is here, so I use it"),
                command.to_owned(),
            );
        }
        let route = self.route(|place| order::rank(lamp, place));
        let searching = self.scene.last_action().is_some_and(|action| action.starts_with("go to "));
        let from = if searching { self.scene.last_handled() } else { route.first().copied() };
        let elsewhere = |place: &str| !self.scene.is_here(place);
        let next = self.next_stop(&route, from, elsewhere)?;
        step(
            format!("{held} is ready, {lamp} is not here, so I look at {next} next"),
            format!("go to {next}"),
        )
    }

    /// Holding something else: put it down where that is possible.
    fn put_aside(&self, held: &str) -> Option<Step> {
        if let Some((command, _, _)) = self.scene.moves().next() {
            return step(
                format!("{held} is not what I need, so I put it down"),
                command.to_owned(),
            );
        }
        let route = self.route(|place| order::rank("", place));
        let next = self.next_stop(&route, self.scene.standing_at(), |_| true)?;
        if self.scene.is_here(next) {
            return step(
                format!("{held} is not what I need, so I open {next} to put it down"),
                format!("open {next}"),
            );
        }
        step(
            format!("{held} is not what I need, so I go to {next} to put it down"),
            format!("go to {next}"),
        )
    }
}

/// How a thing is treated: the verb, the condition it is in afterwards, and where.
#[derive(Clone, Copy)]
struct Treatment {
    verb: &'static str,
    condition: &'static str,
    device: &'static str,
}

/// Kinds of places that are closed at first.
fn opens(kind: &str) -> bool {
    matches!(kind, "cabinet" | "drawer" | "fridge" | "microwave" | "safe")
}
