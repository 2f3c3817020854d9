//! What can be read off a prompt's window: where the agent is, what it holds, what it can reach.

use super::order::is_receptacle;
use crate::{Actions, Window};

/// A name without its number: "cabinet" for "cabinet 3".
pub(super) fn base(name: &str) -> &str {
    name.rsplit_once(' ').map_or(name, |(base, _)| base)
}

/// The number of a name: 3 for "cabinet 3".
fn number(name: &str) -> u32 {
    name.rsplit_once(' ').and_then(|(_, number)| number.parse().ok()).unwrap_or_default()
}

/// What a window shows.
pub(super) struct Scene<'a> {
    window: &'a Window,
    commands: &'a [String],
    /// Receptacles elsewhere, in the order of the command list.
    pub(super) elsewhere: Vec<&'a str>,
    /// Receptacles where the agent stands.
    pub(super) here: Vec<&'a str>,
    /// The object in the hand.
    pub(super) held: Option<&'a str>,
    /// What can be taken, and from where.
    pub(super) takes: Vec<(&'a str, &'a str)>,
}

impl<'a> Scene<'a> {
    pub(super) fn read(window: &'a Window) -> Option<Self> {
        let Actions::Commands(commands) = &window.actions else { return None };
        let after = |verb: &'static str| {
            commands.iter().filter_map(move |command| command.strip_prefix(verb))
        };
        let (here, objects): (Vec<_>, Vec<_>) =
            after("examine ").partition(|name| is_receptacle(base(name)));
        Some(Self {
            window,
            commands,
            elsewhere: after("go to ").collect(),
            here,
            held: objects.first().copied(),
            takes: after("take ").filter_map(|rest| rest.split_once(" from ")).collect(),
        })
    }

    /// All receptacles of the house, by kind and number.
    pub(super) fn receptacles(&self) -> Vec<&'a str> {
        let mut all: Vec<&str> = self.elsewhere.iter().chain(&self.here).copied().collect();
        all.sort_unstable_by_key(|name| (base(name), number(name)));
        all
    }

    pub(super) fn can(&self, command: &str) -> bool {
        self.commands.iter().any(|admissible| admissible == command)
    }

    pub(super) fn is_here(&self, receptacle: &str) -> bool {
        self.here.contains(&receptacle)
    }

    pub(super) fn is_closed(&self, receptacle: &str) -> bool {
        self.can(&format!("open {receptacle}"))
    }

    /// The commands that begin with `verb`, as (command, first thing, second thing).
    pub(super) fn pairs(
        &self,
        verb: &str,
        joint: &str,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        self.commands.iter().filter_map(move |command| {
            let (first, second) = command.strip_prefix(verb)?.split_once(joint)?;
            Some((command.as_str(), first, second))
        })
    }

    /// The ways to put down what is held, as (command, object, receptacle), in either wording.
    pub(super) fn moves(&self) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
        self.pairs("move ", " to ").chain(self.pairs("put ", " in/on "))
    }

    /// The latest actions, newest first.
    fn past_actions(&self) -> impl Iterator<Item = &'a str> {
        self.window.history.iter().rev().map(|step| step.action.trim())
    }

    /// The latest action.
    pub(super) fn last_action(&self) -> Option<&'a str> {
        self.past_actions().next()
    }

    /// The texts in the window, newest first.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> {
        let past = self.window.history.iter().rev().map(|step| step.observation.as_str());
        std::iter::once(self.window.observation.as_str()).chain(past)
    }

    /// The receptacle the agent went to or handled last, of those where it stands.
    pub(super) fn last_handled(&self) -> Option<&'a str> {
        self.past_actions().find_map(|action| {
            let named = ["go to ", "open ", "close ", "examine "]
                .iter()
                .find_map(|verb| action.strip_prefix(verb));
            let joined = || {
                [" from ", " to ", " in/on ", " with "]
                    .iter()
                    .find_map(|joint| Some(action.split_once(joint)?.1))
            };
            let name = named.or_else(joined)?;
            self.here.iter().copied().find(|here| *here == name)
        })
    }

    /// The receptacle the agent stands at: the one it handled last or, where the window does not tell, the first.
    pub(super) fn standing_at(&self) -> Option<&'a str> {
        self.last_handled().or_else(|| self.here.first().copied())
    }

    /// The action before the latest one.
    pub(super) fn action_before_last(&self) -> Option<&'a str> {
        self.past_actions().nth(1)
    }

    /// The place elsewhere at which the window shows a thing of this kind that was not moved since.
    pub(super) fn seen_elsewhere(&self, kind: &str, except: Option<&str>) -> Option<&'a str> {
        let moved = |object: &str| {
            self.past_actions()
                .any(|action| !action.starts_with("go to ") && mentions(action, object))
        };
        self.window.history.iter().rev().find_map(|past| {
            let (place, list) = sight(&past.observation)?;
            let place = self.elsewhere.iter().copied().find(|name| *name == place)?;
            let seen = list
                .split(", ")
                .map(|item| item.trim_start_matches("and ").trim_start_matches("a "))
                .any(|object| base(object) == kind && !moved(object));
            (seen && Some(place) != except).then_some(place)
        })
    }

    /// The place that was closed when the agent left it in the latest step.
    pub(super) fn left_closed(&self) -> Option<&'a str> {
        self.last_action().filter(|action| action.starts_with("go to "))?;
        let text = self.window.history.last()?.observation.strip_suffix(" is closed.")?;
        let (_, place) = text.rsplit_once("The ")?;
        self.elsewhere.iter().copied().find(|name| *name == place)
    }

    /// Whether the latest action did nothing.
    pub(super) fn nothing_happened(&self) -> bool {
        self.window.observation.starts_with("Nothing happens")
    }

    /// Steps taken so far.
    pub(super) fn steps_taken(&self) -> usize {
        self.window.steps_taken
    }
}

/// Whether an action names an object, number and all.
fn mentions(action: &str, object: &str) -> bool {
    action.match_indices(object).any(|(start, _)| {
        !action[start + object.len()..].starts_with(|next: char| next.is_ascii_digit())
    })
}

/// A place and the list of what is seen there.
fn sight(text: &str) -> Option<(&str, &str)> {
    let (before, list) = text.split_once(", you see ")?;
    let place = match before.strip_suffix(" is open. In it") {
        Some(open) => open.rsplit_once("The ")?.1,
        None => before.rsplit_once("On the ")?.1,
    };
    Some((place, list.trim_end().trim_end_matches('.')))
}
