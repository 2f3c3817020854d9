//! The bad habits of a student: in which situations it has a lapse, and how often it says things in its own words.
//!
//! A student is to be good while it is on the right track and bad while it is off it: then a mistake costs something,
//! because the turns after it are wrong as well. Its own words are what a teacher would not say, though they mean the
//! same.

use lens_env::{Decision, Expert, Lapse, Situation, Window};
use lens_opd::random::{Purpose, Stream, StreamKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::corpus::{Sample, SampleKind, act_answer};

/// A model's `[model.habits]`: what its samples of kind `habit` are like. Shares are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Habits {
    /// Share of lapses where something here is to be handled now.
    pub decisive: f64,
    /// Share of lapses where what was looked for is not here.
    pub search: f64,
    /// Share of lapses where what was looked for is at hand and on its way.
    pub carry: f64,
    /// Share of lapses where the latest step led away from the goal.
    pub lost: f64,
    /// Share of lapses where both of the latest steps changed nothing. If it is low, dithering lasts two turns, and a
    /// mistake costs turns and not the game.
    pub stuck: f64,
    /// Share of dithering among the lapses; the others overlook the right command.
    pub dither: f64,
    /// Share of phrases that are said in the student's own words.
    pub rewording: f64,
}

impl Habits {
    /// The share of lapses in a situation.
    pub fn share(&self, situation: Situation) -> f64 {
        match situation {
            Situation::Decisive => self.decisive,
            Situation::Search => self.search,
            Situation::Carry => self.carry,
            Situation::Lost => self.lost,
            Situation::Stuck => self.stuck,
        }
    }
}

/// A demonstrated turn with all that a student might do there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The prompt's message.
    pub message: String,
    /// How the episode stands.
    pub situation: Situation,
    /// The expert's decision.
    pub right: Decision,
    /// The decision in each lapse that is possible here.
    pub lapses: Lapses,
    /// Other words for phrases of the thoughts.
    pub rewordings: &'static [(&'static str, &'static str)],
}

/// The lapses that are possible at a turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lapses {
    overlook: Option<Decision>,
    dither: Option<Decision>,
}

impl Lapses {
    /// The lapses of an expert at a turn.
    pub fn at(expert: &dyn Expert, window: &Window) -> Self {
        Self {
            overlook: expert.lapse(window, Lapse::Overlook),
            dither: expert.lapse(window, Lapse::Dither),
        }
    }

    /// A lapse, dithering with the given share; where only one kind is possible, that one.
    pub fn draw(&self, dither: f64, draws: &mut Stream) -> Option<&Decision> {
        self.all().next()?;
        let (first, second) = if draws.uniform() < dither {
            (&self.dither, &self.overlook)
        } else {
            (&self.overlook, &self.dither)
        };
        first.as_ref().or(second.as_ref())
    }

    /// Every lapse that is possible.
    pub fn all(&self) -> impl Iterator<Item = &Decision> {
        self.overlook.iter().chain(&self.dither)
    }
}

/// One sample per turn, of a student with these habits.
pub fn habit_samples(turns: &[Turn], habits: &Habits, seed: u64) -> Vec<Sample> {
    let mut draws = StreamKey::new(seed, 0, 0, Purpose::Data, 5).open();
    turns
        .iter()
        .map(|turn| {
            let lapse = draws.uniform() < habits.share(turn.situation);
            let wrong = lapse.then(|| turn.lapses.draw(habits.dither, &mut draws)).flatten();
            let decision = wrong.unwrap_or(&turn.right);
            let thought =
                reworded(&decision.thought, turn.rewordings, habits.rewording, &mut draws);
            let decision = Decision { thought, action: decision.action.clone() };
            Sample {
                kind: SampleKind::Habit,
                message: turn.message.clone(),
                answer: act_answer(&decision),
            }
        })
        .collect()
}

/// A thought in which the given share of its phrases is said in other words.
pub fn reworded(
    thought: &str,
    rewordings: &[(&str, &str)],
    share: f64,
    draws: &mut Stream,
) -> String {
    let mut text = String::with_capacity(thought.len() + 16);
    let mut rest = thought;
    while let Some(first) = rest.chars().next() {
        let found = rewordings.iter().find(|(phrase, _)| rest.starts_with(phrase));
        if let Some((phrase, other)) = found {
            text.push_str(if draws.uniform() < share { other } else { phrase });
            rest = &rest[phrase.len()..];
        } else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &[(&str, &str)] =
        &[("I need ", "Wanted is "), ("; ", ", and "), (" in ", " for ")];

    fn turn(situation: Situation) -> Turn {
        let decision = |thought: &str, action: &str| Decision {
            thought: thought.to_owned(),
            action: action.to_owned(),
        };
        Turn {
            message: "What now?".to_owned(),
            situation,
            right: decision("I need a cup in bed 1; it is here.", "take cup 1"),
            lapses: Lapses {
                overlook: Some(decision("I need a cup in bed 1; it is not here.", "go to bed 1")),
                dither: None,
            },
            rewordings: WORDS,
        }
    }

    #[test]
    fn a_share_of_the_phrases_is_said_in_other_words() {
        let mut draws = StreamKey::new(1, 0, 0, Purpose::Data, 0).open();
        let thought = &turn(Situation::Lost).right.thought;
        assert_eq!(reworded(thought, WORDS, 0.0, &mut draws), *thought);
        let other = "Wanted is a cup for bed 1, and it is here.";
        assert_eq!(reworded(thought, WORDS, 1.0, &mut draws), other);
        let some: Vec<String> =
            (0..200).map(|_| reworded(thought, WORDS, 0.5, &mut draws)).collect();
        let for_bed = some.iter().filter(|text| text.contains(" for bed")).count();
        assert!((70..130).contains(&for_bed), "{for_bed}");
    }

    #[test]
    fn every_situation_has_its_own_share_of_lapses() {
        let habits = Habits {
            decisive: 0.5,
            search: 0.0,
            carry: 0.1,
            lost: 1.0,
            stuck: 0.2,
            dither: 0.7,
            rewording: 0.0,
        };
        for (situation, range) in [
            (Situation::Decisive, 400..600),
            (Situation::Search, 0..1),
            (Situation::Carry, 60..140),
            (Situation::Lost, 1000..1001),
            (Situation::Stuck, 140..260),
        ] {
            let turns = vec![turn(situation); 1000];
            let samples = habit_samples(&turns, &habits, 1);
            let wrong = samples.iter().filter(|one| one.answer.contains("not here")).count();
            assert!(range.contains(&wrong), "{situation:?}: {wrong}");
        }
    }
}
