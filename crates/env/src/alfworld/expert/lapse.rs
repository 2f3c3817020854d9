//! How a careless player decides, and when it is off the track.

use super::scene::base;
use super::thought::{empty_hand, nowhere};
use super::{Player, Step, step};
use crate::alfworld::goal::TaskKind;
use crate::{Actions, Decision, Situation, Window};

/// Commands that change nothing.
const IDLE: [&str; 5] = ["look", "inventory", "examine", "help", "close"];

impl Player<'_> {
    pub(super) fn situation(&self, right: &Step) -> Situation {
        if self.is_dithering() && self.scene.action_before_last().is_some_and(is_idle) {
            Situation::Stuck
        } else if self.is_lost(right) {
            Situation::Lost
        } else if !right.action.starts_with("go to ") {
            Situation::Decisive
        } else if self.scene.held.is_some() {
            Situation::Carry
        } else {
            Situation::Search
        }
    }

    fn is_lost(&self, right: &Step) -> bool {
        if self.is_dithering() {
            return true;
        }
        match self.scene.held {
            Some(held) => base(held) != self.goal.object || self.is_astray(held, right),
            None => self
                .left_behind(self.gathering_place())
                .is_some_and(|back| back.action == right.action),
        }
    }

    /// Whether the latest step changed nothing.
    fn is_dithering(&self) -> bool {
        self.scene.nothing_happened() || self.scene.last_action().is_some_and(is_idle)
    }

    /// Holding the thing and just gone to a place that is of no use for it.
    fn is_astray(&self, held: &str, right: &Step) -> bool {
        let went = self.scene.last_action().and_then(|action| action.strip_prefix("go to "));
        let Some(place) = went else { return false };
        let useful = match self.treatment() {
            Some(treatment) if !self.is_treated(held, treatment) => treatment.device,
            _ if self.goal.kind == TaskKind::Light => return false,
            _ => self.goal.target.as_str(),
        };
        right.action.starts_with("go to ") && base(place) != useful
    }

    /// The decision without a look at the right command, or without the thought that the thing needs treatment. A
    /// player that dithers goes on dithering, and a place more or less in a search is no lapse.
    pub(super) fn overlooking(&self, window: &Window, right: &Step) -> Option<Decision> {
        if self.is_dithering() || self.situation(right) == Situation::Search {
            return None;
        }
        let held = self.scene.held.filter(|held| base(held) == self.goal.object);
        let untreated = held.is_some_and(|held| {
            self.treatment().is_some_and(|treatment| !self.is_treated(held, treatment))
        });
        let Actions::Commands(commands) = &window.actions else { return None };
        let seen: Vec<String> =
            commands.iter().filter(|command| !is_like(command, &right.action)).cloned().collect();
        let careless = Window { actions: Actions::Commands(seen), ..window.clone() };
        let player = Player { believes_ready: untreated, ..Player::read(&careless)? };
        Some(player.thinking(player.next_step()?))
    }

    /// The decision of a player that forgot where it is and what it holds.
    pub(super) fn dithering(&self) -> Option<Decision> {
        let thing = &self.goal.object;
        let last = self.scene.last_action().unwrap_or_default();
        let (purpose, action) = if last == "look" {
            ("check my hand".to_owned(), "inventory".to_owned())
        } else if last == "inventory"
            && let Some(place) = self.scene.here.first()
        {
            (format!("examine {place}"), format!("examine {place}"))
        } else {
            ("look around".to_owned(), "look".to_owned())
        };
        if !self.scene.can(&action) {
            return None;
        }
        let step = step(format!("{thing} is not found yet, so I {purpose}"), action)?;
        Some(self.decision(&empty_hand(), &nowhere(), step))
    }
}

fn is_idle(action: &str) -> bool {
    IDLE.contains(&action.split(' ').next().unwrap_or_default())
}

/// Whether a command serves the same purpose as `right`: overlooking a cup means overlooking every cup in that place.
fn is_like(command: &str, right: &str) -> bool {
    let taken = |command: &str| {
        let (object, place) = command.strip_prefix("take ")?.split_once(" from ")?;
        Some((base(object).to_owned(), place.to_owned()))
    };
    command == right || (taken(right).is_some() && taken(command) == taken(right))
}
