//! An expert for the kinds of task that a small model can learn: it decides from the prompt alone.
//!
//! The simulator's solver looks behind what an agent sees, so this one knows what a child knows: how the rooms are
//! connected, which of the animals live long, and what is alive. It walks to the animals (or to the box), focuses, and
//! carries by teleporting, so that the two steps that a prompt shows tell what is in the hand. Of other tasks it knows
//! nothing.

use crate::expert::{Decision, Expert, Lapse, Situation};
use crate::{Actions, Window};

/// The rooms and their exits.
const ROOMS: [(&str, &[&str]); 10] = [
    ("hallway", &["greenhouse", "kitchen", "art studio", "bedroom", "living room", "workshop"]),
    ("kitchen", &["outside", "hallway", "bathroom"]),
    ("greenhouse", &["outside", "hallway"]),
    ("outside", &["kitchen", "greenhouse", "foundry"]),
    ("art studio", &["hallway"]),
    ("bedroom", &["hallway"]),
    ("living room", &["hallway"]),
    ("workshop", &["hallway"]),
    ("bathroom", &["kitchen"]),
    ("foundry", &["outside"]),
];
/// Where the animals are.
const OUTSIDE: &str = "outside";
/// Animals that live longest and shortest. A task about life spans has one of each, and one of neither.
const LONG: [&str; 5] = ["giant tortoise", "parrot", "elephant", "crocodile", "brown bear"];
const SHORT: [&str; 5] = ["ant", "dragonfly", "hedgehog", "mouse", "chameleon"];
/// The other animals.
const ANIMALS: [&str; 14] = [
    "beaver",
    "chipmunk",
    "rabbit",
    "wolf",
    "toad",
    "blue jay",
    "butterfly",
    "dove",
    "frog",
    "turtle",
    "moth",
    "bee",
    "hamster",
    "tortoise",
];
/// Things that are in every room with a box and not alive; the first that is listed is taken.
const LIFELESS: [&str; 4] = ["table", "bed", "chair", "sink"];
/// Actions that change nothing.
const IDLE: [&str; 4] = ["look", "inventory", "wait", "task"];

/// Other words for the phrases of a thought; each begins differently from its other wording.
const REWORDINGS: &[(&str, &str)] = &[
    ("I need ", "Wanted is "),
    ("; ", ", and "),
    ("my hand is empty", "nothing is held"),
    ("I hold ", "carried is "),
    ("I am in ", "standing in "),
    ("I am nowhere", "no room is known"),
    ("I see ", "there are "),
    (" is not here", " cannot be seen"),
    (" is here", " stands here"),
    (" comes before ", " leads on to "),
    ("so I ", "therefore I "),
    (" in ", " for "),
];

/// What a task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal<'a> {
    /// Focus on the animal with the longest or the shortest life.
    Life { longest: bool },
    /// Focus on an animal, or on a thing that is not alive, and put it into a box.
    Box { what: &'a str, alive: bool, color: &'a str, room: &'a str },
}

impl<'a> Goal<'a> {
    fn read(task: &'a str) -> Option<Self> {
        let rest = task.strip_prefix("Your task is to find ")?;
        if let Some(rest) = rest.strip_prefix("the animal with the ") {
            return match rest.split_once(' ')? {
                ("longest", rest) if !rest.contains("shortest") => {
                    Some(Self::Life { longest: true })
                }
                ("shortest", rest) if !rest.contains("longest") => {
                    Some(Self::Life { longest: false })
                }
                _ => None,
            };
        }
        let (what, rest) = rest.strip_prefix("a(n) ")?.split_once(". ")?;
        let alive = match what {
            "animal" | "living thing" => true,
            "non-living thing" => false,
            _ => return None,
        };
        let (color, room) = rest.split_once("move it to the ")?.1.split_once(" box in the ")?;
        Some(Self::Box { what, alive, color, room: room.trim_end().trim_end_matches('.') })
    }

    /// The room to walk to.
    fn room(self) -> &'a str {
        match self {
            Self::Box { alive: false, room, .. } => room,
            _ => OUTSIDE,
        }
    }

    fn need(self) -> String {
        match self {
            Self::Life { longest: true } => "the longest life".to_owned(),
            Self::Life { longest: false } => "the shortest life".to_owned(),
            Self::Box { what, color, room, .. } => format!("{what} in {color} box in {room}"),
        }
    }

    /// What is looked for where the agent walks to.
    fn thing(self) -> &'a str {
        match self {
            Self::Life { .. } => "animal",
            Self::Box { what, .. } => what,
        }
    }
}

/// The next step and why.
struct Step {
    reason: String,
    action: String,
}

/// What the prompt says.
struct Player<'a> {
    goal: Goal<'a>,
    objects: &'a [String],
    here: Option<&'static str>,
    /// The latest actions with what came of each, oldest first.
    events: Vec<(&'a str, &'a str)>,
    steps_taken: usize,
    held: Option<&'a str>,
}

impl<'a> Player<'a> {
    fn read(window: &'a Window) -> Option<Self> {
        let Actions::Templates { objects, .. } = &window.actions else { return None };
        let results = window.history.iter().skip(1).map(|step| step.observation.as_str());
        let results = results.chain([window.observation.as_str()]);
        let events: Vec<_> =
            window.history.iter().map(|step| step.action.as_str()).zip(results).collect();
        let mut player = Self {
            goal: Goal::read(&window.task)?,
            objects,
            here: here(objects),
            events,
            steps_taken: window.steps_taken,
            held: None,
        };
        player.held = player.in_hand();
        Some(player)
    }

    /// What the latest steps show to be in the hand.
    fn in_hand(&self) -> Option<&'a str> {
        let mut held = None;
        let mut focused = None;
        for &(action, result) in &self.events {
            if let Some(thing) = action.strip_prefix("focus on ").filter(|_| is_done(result)) {
                focused = Some(thing);
            } else if let Some(thing) = action.strip_prefix("pick up ").filter(|_| is_done(result))
            {
                held = Some(thing);
            } else if action == "inventory" {
                held = carried(result);
            } else if action.starts_with("teleport to ") && held.is_none() {
                // The player teleports only to carry something.
                held = focused;
            } else if action.starts_with("move ") && is_done(result) {
                held = None;
            }
        }
        held
    }

    /// The latest thing that was focused on, if the window shows it.
    fn focused(&self) -> Option<&'a str> {
        let thing = |&(action, result): &(&'a str, &'a str)| {
            action.strip_prefix("focus on ").filter(|_| is_done(result))
        };
        self.events.iter().rev().find_map(thing)
    }

    fn animals(&self) -> impl Iterator<Item = &'a str> {
        self.objects.iter().map(String::as_str).filter(|name| is_animal(name))
    }

    fn next_step(&self) -> Option<Step> {
        match self.goal {
            Goal::Life { longest } => {
                if self.here? != OUTSIDE {
                    return self.walk();
                }
                let wanted = if longest { &LONG } else { &SHORT };
                let animal = self.animals().find(|name| is_one_of(name, wanted))?;
                Some(self.choose(animal, longest))
            }
            Goal::Box { alive: false, color, room, .. } => {
                if self.here? != room {
                    return self.walk();
                }
                let thing = LIFELESS.iter().find(|thing| self.lists(thing))?;
                if self.focused() == Some(thing) {
                    return Some(Self::put(thing, color));
                }
                step(format!("{thing} is here, so I focus on it"), format!("focus on {thing}"))
            }
            Goal::Box { color, room, .. } => self.animal_step(color, room),
        }
    }

    fn animal_step(&self, color: &str, room: &str) -> Option<Step> {
        let last = self.events.last().copied();
        if let Some(thing) = self.held {
            let picked = last.is_some_and(|(action, _)| action.starts_with("pick up "));
            if picked && self.focused().is_none() {
                return step(
                    format!("{thing} is not seen yet, so I focus on it"),
                    format!("focus on {thing}"),
                );
            }
            if self.here? == room {
                return Some(Self::put(thing, color));
            }
            let reason = format!("{color} box is in {room}, so I teleport to it");
            return step(reason, format!("teleport to {room}"));
        }
        if let Some((action, result)) = last
            && let Some((thing, _)) =
                action.strip_prefix("move ").and_then(|rest| rest.split_once(" to "))
            && is_done(result)
        {
            return step(format!("{thing} is here, so I focus on it"), format!("focus on {thing}"));
        }
        let unclear = self.steps_taken > 2
            && self.events.iter().all(|(action, _)| is_idle(action) && *action != "inventory");
        if unclear {
            return step("my hand is not known, so I check it".to_owned(), "inventory".to_owned());
        }
        if self.here? != OUTSIDE {
            return self.walk();
        }
        if let Some(thing) = self.focused().filter(|thing| self.lists(thing)) {
            return step(format!("{thing} is here, so I pick it up"), format!("pick up {thing}"));
        }
        let thing = self.animals().next()?;
        step(format!("{thing} is here, so I focus on it"), format!("focus on {thing}"))
    }

    fn choose(&self, animal: &str, longest: bool) -> Step {
        let all = self.animals().collect::<Vec<_>>().join(", ");
        let most = if longest { "longest" } else { "shortest" };
        Step {
            reason: format!("I see {all}; {animal} lives {most}, so I focus on it"),
            action: format!("focus on {animal}"),
        }
    }

    fn put(thing: &str, color: &str) -> Step {
        Step {
            reason: format!("{color} box is here, so I move it"),
            action: format!("move {thing} to {color} box"),
        }
    }

    /// A step toward the goal's room.
    fn walk(&self) -> Option<Step> {
        let (here, target) = (self.here?, self.goal.room());
        self.go(next_room(here, target)?)
    }

    fn go(&self, room: &str) -> Option<Step> {
        let (thing, target) = (self.goal.thing(), self.goal.room());
        let way =
            if room == target { String::new() } else { format!("{room} comes before {target}, ") };
        step(format!("{thing} is not here; {way}so I go to {room}"), format!("go to {room}"))
    }

    fn lists(&self, name: &str) -> bool {
        self.objects.iter().any(|object| object == name)
    }

    fn thinking(&self, step: Step) -> Decision {
        let held = self
            .held
            .map_or_else(|| "my hand is empty".to_owned(), |held| format!("I hold {held}"));
        let place =
            self.here.map_or_else(|| "I am nowhere".to_owned(), |here| format!("I am in {here}"));
        self.decision(&held, &place, step)
    }

    fn decision(&self, held: &str, place: &str, step: Step) -> Decision {
        let thought = format!("I need {}; {held}; {place}; {}.", self.goal.need(), step.reason);
        Decision { thought, action: step.action }
    }

    fn situation(&self, right: &Step) -> Situation {
        let idle = self
            .events
            .iter()
            .rev()
            .take_while(|(action, result)| is_idle(action) || !is_done(result));
        match idle.count() {
            2.. => Situation::Stuck,
            1 => Situation::Lost,
            _ if self.is_astray(right) => Situation::Lost,
            _ if right.action.starts_with("go to ") => Situation::Search,
            _ if right.action.starts_with("teleport to ") => Situation::Carry,
            _ => Situation::Decisive,
        }
    }

    /// Whether the next step is back to where the agent came from.
    fn is_astray(&self, right: &Step) -> bool {
        let Some(back) = right.action.strip_prefix("go to ") else { return false };
        let [.., (_, before), (last, _)] = self.events.as_slice() else { return false };
        last.starts_with("go to ") && before.lines().next().is_some_and(|line| line.contains(back))
    }

    /// The wrong animal, a wrong room, or leaving what is here behind. A player that dithers goes on dithering.
    fn overlooking(&self, right: &Step) -> Option<Decision> {
        if self.events.last().is_some_and(|(action, _)| is_idle(action)) {
            return None;
        }
        let here = self.here?;
        let careless = if let (Goal::Life { longest }, OUTSIDE) = (self.goal, here) {
            let right = right.action.strip_prefix("focus on ")?;
            let opposite = if longest { &SHORT } else { &LONG };
            let other = |name: &&str| *name != right && !is_one_of(name, opposite);
            self.choose(self.animals().find(other)?, longest)
        } else {
            let right = right.action.strip_prefix("go to ");
            let (_, exits) = ROOMS.iter().find(|(room, _)| *room == here)?;
            self.go(exits.iter().rev().find(|room| Some(**room) != right)?)?
        };
        let place = format!("I am in {here}");
        Some(self.decision("my hand is empty", &place, careless))
    }

    fn dithering(&self) -> Option<Decision> {
        let last = self.events.last().map(|(action, _)| *action);
        let (purpose, action) = match last {
            Some("look around") => ("check my hand", "inventory"),
            _ => ("look around", "look around"),
        };
        let reason = format!("{} is not here, so I {purpose}", self.goal.thing());
        Some(self.decision("my hand is empty", "I am nowhere", step(reason, action.to_owned())?))
    }
}

/// Always a step; an `Option` because every caller answers with one.
#[expect(clippy::unnecessary_wraps)]
fn step(reason: String, action: String) -> Option<Step> {
    Some(Step { reason, action })
}

/// The room whose exits are the other rooms that are listed.
fn here(objects: &[String]) -> Option<&'static str> {
    let listed = |room: &str| objects.iter().any(|object| object == room);
    let is_here = |(room, exits): &&(&str, &[&str])| {
        listed(room)
            && ROOMS
                .iter()
                .all(|(other, _)| other == room || listed(other) == exits.contains(other))
    };
    ROOMS.iter().find(is_here).map(|(room, _)| *room)
}

/// The first room on the way.
fn next_room(here: &str, target: &str) -> Option<&'static str> {
    let exits =
        |here: &str| ROOMS.iter().find(|(room, _)| *room == here).map_or(&[][..], |room| room.1);
    let distance = |from: &'static str| {
        let mut reached = vec![from];
        let mut steps = 0;
        while !reached.contains(&target) && steps < ROOMS.len() {
            let next: Vec<_> = reached.iter().flat_map(|room| exits(room)).copied().collect();
            reached.extend(next);
            reached.sort_unstable();
            reached.dedup();
            steps += 1;
        }
        steps
    };
    exits(here).iter().copied().min_by_key(|room| distance(room))
}

/// Whether an observation says that the action did what it says.
fn is_done(result: &str) -> bool {
    result.starts_with("You ")
}

fn is_idle(action: &str) -> bool {
    IDLE.iter().any(|idle| action.starts_with(idle))
}

fn is_one_of(name: &str, animals: &[&str]) -> bool {
    animals.iter().any(|animal| {
        name.strip_suffix(animal).is_some_and(|before| before.is_empty() || before.ends_with(' '))
    })
}

fn is_animal(name: &str) -> bool {
    [&LONG[..], &SHORT[..], &ANIMALS[..]].iter().any(|animals| is_one_of(name, animals))
}

/// The animal in a list of what is carried.
fn carried(inventory: &str) -> Option<&str> {
    inventory.lines().find_map(|line| {
        let name = line.trim().trim_start_matches("an ").trim_start_matches("a ");
        let name = name.trim_end_matches('.');
        is_animal(name.trim_end_matches(" egg")).then_some(name)
    })
}

/// The expert.
#[derive(Debug)]
pub(super) struct Child;

impl Expert for Child {
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
            Lapse::Overlook => player.overlooking(&right),
            Lapse::Dither => player.dithering(),
        };
        wrong.filter(|wrong| wrong.action != right.action)
    }

    fn rewordings(&self) -> &'static [(&'static str, &'static str)] {
        REWORDINGS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PastStep;

    const OUTSIDE_LIST: &str = "agent, air, baby baby wolf, chameleon, crocodile, door to kitchen, foundry, greenhouse, \
                                kitchen, outside, wood";

    fn window(task: &str, past: &[(&str, &str)], observation: &str, objects: &str) -> Window {
        let step = |(step, &(observation, action)): (usize, &(&str, &str))| PastStep {
            step,
            observation: observation.to_owned(),
            action: action.to_owned(),
        };
        Window {
            task: task.to_owned(),
            history: past.iter().enumerate().map(step).collect(),
            steps_taken: past.len(),
            observation: observation.to_owned(),
            actions: Actions::Templates {
                templates: vec!["go OBJ".to_owned()],
                objects: objects.split(", ").map(str::to_owned).collect(),
            },
        }
    }

    fn life(most: &str) -> String {
        format!(
            "Your task is to find the animal with the {most} life span.  The animals are in the 'outside' location.  \
             Focus on the animal with the {most} life span."
        )
    }

    const FIND: &str = "Your task is to find a(n) animal. First, focus on the thing. Then, move it to the red box in \
                        the workshop.";

    fn action(window: &Window) -> String {
        Child.decide(window).expect("it knows what to do").action
    }

    #[test]
    fn the_room_is_the_one_whose_exits_are_listed() {
        let list = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(here(&list("agent, bathroom, door, kitchen, toilet")), Some("bathroom"));
        assert_eq!(here(&list("bathroom, hallway, kitchen, outside, oven")), Some("kitchen"));
        assert_eq!(here(&list("agent, air")), None);
    }

    #[test]
    fn it_walks_outside_and_focuses_on_the_animal_that_lives_longest_or_shortest() {
        let objects = "agent, hallway, door, workshop, table";
        assert_eq!(action(&window(&life("longest"), &[], "", objects)), "go to hallway");
        let at = |most| window(&life(most), &[], "You move to the outside.", OUTSIDE_LIST);
        assert_eq!(action(&at("longest")), "focus on crocodile");
        assert_eq!(action(&at("shortest")), "focus on chameleon");
        let both = "Your task is to find the animal with the longest life span, then the shortest life span.";
        assert_eq!(Child.decide(&window(both, &[], "", OUTSIDE_LIST)), None);
    }

    #[test]
    fn it_focuses_picks_up_carries_and_puts_into_the_box() {
        let seen = "You focus on the baby wolf.";
        let taken = "You move the wolf to the inventory.";
        let (focus, pick_up) = ("focus on baby baby wolf", "pick up baby baby wolf");
        assert_eq!(action(&window(FIND, &[], "", OUTSIDE_LIST)), focus);
        assert_eq!(action(&window(FIND, &[("", focus)], seen, OUTSIDE_LIST)), pick_up);
        let carrying = window(FIND, &[("", focus), (seen, pick_up)], taken, OUTSIDE_LIST);
        assert_eq!(action(&carrying), "teleport to workshop");
        assert_eq!(Child.situation(&carrying), Some(Situation::Carry));
        let there = window(
            FIND,
            &[(seen, pick_up), (taken, "teleport to workshop")],
            "You teleport to the workshop.",
            "agent, hallway, door, red box, workshop",
        );
        assert_eq!(action(&there), "move baby baby wolf to red box");
    }

    #[test]
    fn a_lapse_is_never_the_right_action() {
        let idle = [("", "look around"), ("", "inventory")];
        for past in [&idle[..], &idle[..1], &[]] {
            let window = window(FIND, past, "", OUTSIDE_LIST);
            let right = action(&window);
            for lapse in [Lapse::Overlook, Lapse::Dither] {
                let wrong = Child.lapse(&window, lapse);
                assert!(wrong.is_none_or(|wrong| wrong.action != right), "{lapse:?}");
            }
        }
        let stuck = window(FIND, &idle, "In your inventory, you see:\n\tan orange\n", OUTSIDE_LIST);
        assert_eq!(Child.situation(&stuck), Some(Situation::Stuck));
    }
}
