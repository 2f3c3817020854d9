//! How a thought is worded: what the task needs, what is held, where the agent stands, and why the next step.

use super::{Player, Step};
use crate::Decision;
use crate::alfworld::goal::TaskKind;

/// Other words for the phrases of a thought. Every phrase begins differently from its other wording, so that the choice
/// is made at one place.
pub(super) const REWORDINGS: &[(&str, &str)] = &[
    ("I need ", "Wanted is "),
    ("; ", ", and "),
    ("my hand is empty", "nothing is held"),
    ("I hold ", "carried is "),
    ("I am at ", "standing by "),
    ("I am nowhere", "no place is near"),
    (" is not here", " cannot be seen"),
    (" is not found", " stays unfound"),
    (" is here", " stands here"),
    (" is ready", " needs nothing more"),
    (" yet, ", " so far, "),
    ("so I ", "therefore I "),
    (" next", " now"),
    (" in ", " for "),
];

impl Player<'_> {
    /// The decision with its thought.
    pub(super) fn thinking(&self, step: Step) -> Decision {
        let held = self.scene.held.map_or_else(empty_hand, |held| format!("I hold {held}"));
        let place =
            self.scene.standing_at().map_or_else(nowhere, |place| format!("I am at {place}"));
        self.decision(&held, &place, step)
    }

    /// The decision of a player that believes these things.
    pub(super) fn decision(&self, held: &str, place: &str, step: Step) -> Decision {
        let thought = format!("I need {}; {held}; {place}; {}.", self.need(), step.reason);
        Decision { thought, action: step.action }
    }

    fn need(&self) -> String {
        let (thing, target) = (&self.goal.object, &self.goal.target);
        match self.goal.kind {
            TaskKind::Place => format!("a {thing} in {target}"),
            TaskKind::Light => format!("a {thing} under {target}"),
            TaskKind::Two => format!("two {thing} in {target}"),
            TaskKind::Clean => format!("a clean {thing} in {target}"),
            TaskKind::Heat => format!("a hot {thing} in {target}"),
            TaskKind::Cool => format!("a cool {thing} in {target}"),
        }
    }
}

pub(super) fn empty_hand() -> String {
    "my hand is empty".to_owned()
}

pub(super) fn nowhere() -> String {
    "I am nowhere".to_owned()
}
