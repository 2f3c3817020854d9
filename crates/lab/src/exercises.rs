//! Exercises in one thing alone: is what the task asks for in the list of commands, and under which number?
//!
//! In whole games this question is asked once or twice, in two hundred tokens that can mostly be guessed from what came
//! before. A small model learns the guessing and never comes to look. Asked on its own ([`exercises`]), and in turns of
//! games that are told as if something else had been wanted ([`wanting_another`]), it learns to look.

use lens_env::alfworld::Goal;
use lens_env::{Actions, Window};
use lens_opd::random::{Purpose, Stream, StreamKey};

use crate::corpus::{Lesson, Text};

/// A thing that could be taken: `take {object} {number} from {place}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Take<'a> {
    pub(crate) object: &'a str,
    number: &'a str,
    place: &'a str,
}

impl<'a> Take<'a> {
    pub(crate) fn read(command: &'a str) -> Option<Self> {
        let (thing, place) = command.strip_prefix("take ")?.split_once(" from ")?;
        let (object, number) = thing.rsplit_once(' ')?;
        Some(Self { object, number, place })
    }
}

/// Rounds through the lists that the prompts show; each asks for other things.
const ROUNDS: usize = 2;

/// Exercises about the lists of commands that the texts' prompts show, half of them about a thing that is there. Texts
/// in which nothing can be taken give none.
pub fn exercises(texts: &[Text], seed: u64) -> Vec<Text> {
    let lists: Vec<Vec<Take<'_>>> = texts
        .iter()
        .filter(|text| matches!(text.lesson, Lesson::Act | Lesson::Retold))
        .map(|text| text.message.split('\'').filter_map(Take::read).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .collect();
    let mut names: Vec<&str> = lists.iter().flatten().map(|take| take.object).collect();
    names.sort_unstable();
    names.dedup();
    let mut draws = StreamKey::new(seed, 0, 0, Purpose::Data, 3).open();
    let mut exercises: Vec<Text> = (0..ROUNDS)
        .flat_map(|_| &lists)
        .filter_map(|list| {
            let present = draws.uniform() < 0.5;
            let wanted = if present {
                one_of(list, &mut draws)?.object
            } else {
                one_of(&names, &mut draws)?
            };
            Some(exercise(list, wanted))
        })
        .collect();
    draws.shuffle(&mut exercises);
    exercises
}

/// The same turn as if something else that can be taken now had been wanted; `None` where nothing else can be.
pub fn wanting_another(window: &Window, draws: &mut Stream) -> Option<Window> {
    let goal = Goal::from_sentence(&window.task)?;
    let sentence = window.task.trim_end_matches('.');
    let wording = (0..Goal::WORDINGS)
        .find(|wording| goal.sentence(*wording).trim_end_matches('.') == sentence)?;
    let Actions::Commands(commands) = &window.actions else { return None };
    let others: Vec<&str> = commands
        .iter()
        .filter_map(|command| Take::read(command))
        .map(|take| take.object)
        .filter(|object| *object != goal.object)
        .collect();
    let object = one_of(&others, draws)?.to_owned();
    let other = Goal { object, ..goal }.sentence(wording);
    let other = other.trim_end_matches('.');
    // The first observation of a game tells the task as well.
    let mut retold = window.clone();
    let texts = retold.history.iter_mut().map(|past| &mut past.observation);
    for text in texts.chain([&mut retold.task, &mut retold.observation]) {
        *text = text.replace(sentence, other);
    }
    Some(retold)
}

fn one_of<T: Copy>(list: &[T], draws: &mut Stream) -> Option<T> {
    let place = draws.below(list.len() as u64)?;
    list.get(place as usize).copied()
}

/// The expert's words for the same question in a game, and the shortest prompt that asks it.
fn exercise(list: &[Take<'_>], wanted: &str) -> Text {
    let place = list[0].place;
    let commands: Vec<String> = list
        .iter()
        .map(|take| format!("'take {} {} from {}'", take.object, take.number, take.place))
        .collect();
    let answer = match list.iter().find(|take| take.object == wanted) {
        Some(Take { object, number, place }) => format!(
            "I need {object} {number}, which is here, so I take it. <action>take {object} {number} from {place}</action>"
        ),
        None => format!(
            "I need {wanted}, not seen here, so I look at {place} next. <action>go to {place}</action>"
        ),
    };
    Text {
        lesson: Lesson::Find,
        message: format!(
            "Your task is to: put a {wanted} in {}.\nYour admissible actions of the current situation are: [{}].",
            place.rsplit_once(' ').map_or(place, |(kind, _)| kind),
            commands.join("\n")
        ),
        answer,
    }
}

#[cfg(test)]
mod tests {
    use lens_env::PastStep;

    use super::*;

    fn shown(lesson: Lesson, commands: &str) -> Text {
        Text { lesson, message: commands.to_owned(), answer: String::new() }
    }

    #[test]
    fn half_of_the_things_are_there_and_the_answer_says_which() {
        let texts: Vec<Text> = ["cup 2", "pen 1", "soap bar 3"]
            .iter()
            .map(|thing| {
                shown(Lesson::Act, &format!("Do: ['go to desk 1'\n'take {thing} from desk 1']."))
            })
            .cycle()
            .take(300)
            .collect();
        let made = exercises(&texts, 1);
        assert_eq!(made.len(), ROUNDS * texts.len());
        let mut here = 0;
        for exercise in &made {
            let (_, after) = exercise.message.split_once("put a ").expect("a task");
            let (wanted, list) = after.split_once(" in desk.").expect("a target");
            let thing = list.split('\'').find_map(Take::read).expect("a command");
            assert!(!list.contains("go to"), "{list}");
            if thing.object == wanted {
                here += 1;
                let action = format!("<action>take {wanted} {} from desk 1</action>", thing.number);
                assert!(exercise.answer.ends_with(&action), "{}", exercise.answer);
            } else {
                assert!(exercise.answer.starts_with(&format!("I need {wanted}, not seen here")));
            }
        }
        // Half are asked for because they are there; of the others, a third are there by chance.
        let share = f64::from(here) / made.len() as f64;
        assert!((0.58..0.76).contains(&share), "{share}");
        assert_eq!(exercises(&texts, 1), made);
        assert_ne!(exercises(&texts, 2), made);
    }

    #[test]
    fn a_turn_is_told_as_if_something_else_had_been_wanted() {
        let window = |commands: &[&str]| Window {
            task: "put a clean cup in shelf.".to_owned(),
            history: vec![PastStep {
                step: 0,
                observation: "Your task is to: put a clean cup in shelf.".to_owned(),
                action: "go to desk 1".to_owned(),
            }],
            steps_taken: 1,
            observation: "On the desk 1, you see a cup 1, a pen 2.".to_owned(),
            actions: Actions::Commands(commands.iter().map(|&text| text.to_owned()).collect()),
        };
        let mut draws = StreamKey::new(1, 0, 0, Purpose::Data, 0).open();
        let here = window(&["go to bed 1", "take cup 1 from desk 1", "take pen 2 from desk 1"]);
        let retold = wanting_another(&here, &mut draws).expect("a pen is here");
        assert_eq!(retold.task, "put a clean pen in shelf.");
        assert_eq!(retold.history[0].observation, "Your task is to: put a clean pen in shelf.");
        assert_eq!((&retold.observation, &retold.actions), (&here.observation, &here.actions));
        let alone = window(&["go to bed 1", "take cup 1 from desk 1"]);
        assert_eq!(wanting_another(&alone, &mut draws), None);
    }

    #[test]
    fn where_nothing_can_be_taken_there_is_nothing_to_ask() {
        let texts = [
            shown(Lesson::Act, "['go to desk 1'\n'click[buy now]']"),
            shown(Lesson::Comment, "['take cup 1 from desk 1']"),
        ];
        assert!(exercises(&texts, 1).is_empty());
    }
}
