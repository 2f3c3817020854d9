//! Exercises in one skill: is the object of the task in the list of commands, and under which number?
//!
//! In whole games this question comes up once or twice, in two hundred tokens that can mostly be guessed from what came
//! before. A small model learns to guess and never to look. Asked on its own ([`exercises`]), and in turns of games with
//! another object in the task ([`counterfactual`]), it learns to look. A [`drill`](drills) adds the second question of a
//! search: which place comes next?

use lens_env::alfworld::{Goal, TaskKind};
use lens_env::{Actions, Expert, Window};
use lens_opd::random::{Purpose, Stream, StreamKey};

use crate::corpus::{Sample, SampleKind, act_answer};

/// An object that can be taken: `take {object} {number} from {place}`.
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

/// Returns exercises about the lists of commands in the samples' prompts, `rounds` per list, in half of which the object
/// is drawn from the list. Samples in which nothing can be taken give none.
pub fn exercises(samples: &[Sample], rounds: usize, seed: u64) -> Vec<Sample> {
    let lists: Vec<Vec<Take<'_>>> = samples
        .iter()
        .filter(|sample| matches!(sample.kind, SampleKind::Act | SampleKind::Counterfactual))
        .map(|sample| sample.message.split('\'').filter_map(Take::read).collect::<Vec<_>>())
        .filter(|list| !list.is_empty())
        .collect();
    let mut names: Vec<&str> = lists.iter().flatten().map(|take| take.object).collect();
    names.sort_unstable();
    names.dedup();
    let mut draws = StreamKey::new(seed, 0, 0, Purpose::Data, 3).open();
    let mut exercises: Vec<Sample> = (0..rounds)
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

/// What a prompt's list of commands stands between.
const LIST: (&str, &str) = ("Your admissible actions of the current situation are: [", "].");

/// Returns drills: the whole list of commands of a turn with an empty hand and a new task, without what was observed, and
/// the expert's answer. `rounds` per list; in half of those with something to take, the object is drawn from the list.
pub fn drills(expert: &dyn Expert, samples: &[Sample], rounds: usize, seed: u64) -> Vec<Sample> {
    let lists: Vec<Vec<&str>> = samples
        .iter()
        .filter(|sample| sample.kind == SampleKind::Act)
        .filter_map(|sample| sample.message.split_once(LIST.0)?.1.split_once(LIST.1))
        .map(|(list, _)| list.lines().map(|command| command.trim_matches('\'')).collect())
        .collect();
    let mut names: Vec<&str> = lists.iter().flat_map(|list| objects(list)).collect();
    names.sort_unstable();
    names.dedup();
    let mut draws = StreamKey::new(seed, 0, 0, Purpose::Data, 8).open();
    let mut drills: Vec<Sample> = (0..rounds)
        .flat_map(|_| &lists)
        .filter_map(|list| {
            let here = objects(list);
            let present = !here.is_empty() && draws.uniform() < 0.5;
            let object = one_of(if present { &here } else { &names }, &mut draws)?;
            drill(expert, list, object, &mut draws)
        })
        .collect();
    draws.shuffle(&mut drills);
    drills
}

/// The objects that can be taken.
fn objects<'a>(list: &[&'a str]) -> Vec<&'a str> {
    list.iter().filter_map(|command| Some(Take::read(command)?.object)).collect()
}

fn drill(expert: &dyn Expert, list: &[&str], object: &str, draws: &mut Stream) -> Option<Sample> {
    let places: Vec<&str> = list
        .iter()
        .filter_map(|command| Some(command.strip_prefix("go to ")?.rsplit_once(' ')?.0))
        .collect();
    let target = one_of(&places, draws)?.to_owned();
    let object = object.to_owned();
    let task = Goal { kind: TaskKind::Place, object, target }.sentence(0);
    let window = Window {
        task,
        history: Vec::new(),
        steps_taken: 1,
        observation: String::new(),
        actions: Actions::Commands(list.iter().map(|&command| command.to_owned()).collect()),
    };
    let decision =
        expert.decide(&window).filter(|decision| decision.thought.contains(EMPTY_HAND))?;
    let commands: Vec<String> = list.iter().map(|command| format!("'{command}'")).collect();
    Some(Sample {
        kind: SampleKind::Drill,
        message: format!(
            "Your task is to: {}\n{}{}{}",
            window.task,
            LIST.0,
            commands.join("\n"),
            LIST.1
        ),
        answer: act_answer(&decision),
    })
}

/// What the expert says of an empty hand: with a full one, a list without a history does not tell what to do.
const EMPTY_HAND: &str = "my hand is empty";

/// Returns the turn as if the task asked for another object that can be taken now, or `None` if there is none.
pub fn counterfactual(window: &Window, draws: &mut Stream) -> Option<Window> {
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
    // The first observation of a game states the task as well.
    let mut changed = window.clone();
    let texts = changed.history.iter_mut().map(|past| &mut past.observation);
    for text in texts.chain([&mut changed.task, &mut changed.observation]) {
        *text = text.replace(sentence, other);
    }
    Some(changed)
}

fn one_of<T: Copy>(list: &[T], draws: &mut Stream) -> Option<T> {
    let index = draws.below(list.len() as u64)?;
    list.get(index as usize).copied()
}

/// The shortest prompt that asks the question, with the answer in the words that the expert uses in a game.
fn exercise(list: &[Take<'_>], wanted: &str) -> Sample {
    let place = list[0].place;
    let commands: Vec<String> = list
        .iter()
        .map(|take| format!("'take {} {} from {}'", take.object, take.number, take.place))
        .collect();
    let answer = match list.iter().find(|take| take.object == wanted) {
        Some(Take { object, number, place }) => format!(
            "{object} {number} is here, so I take it. <action>take {object} {number} from {place}</action>"
        ),
        None => format!(
            "{wanted} is not here, so I look at {place} next. <action>go to {place}</action>"
        ),
    };
    Sample {
        kind: SampleKind::Exercise,
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

    const ROUNDS: usize = 2;

    fn shown(kind: SampleKind, commands: &str) -> Sample {
        Sample { kind, message: commands.to_owned(), answer: String::new() }
    }

    #[test]
    fn half_of_the_objects_are_there_and_the_answer_says_which() {
        let samples: Vec<Sample> = ["cup 2", "pen 1", "soap bar 3"]
            .iter()
            .map(|thing| {
                shown(
                    SampleKind::Act,
                    &format!("Do: ['go to desk 1'\n'take {thing} from desk 1']."),
                )
            })
            .cycle()
            .take(300)
            .collect();
        let made = exercises(&samples, ROUNDS, 1);
        assert_eq!(made.len(), ROUNDS * samples.len());
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
                assert!(exercise.answer.starts_with(&format!("{wanted} is not here")));
            }
        }
        // Half are asked for because they are there; of the others, a third are there by chance.
        let share = f64::from(here) / made.len() as f64;
        assert!((0.58..0.76).contains(&share), "{share}");
        assert_eq!(exercises(&samples, ROUNDS, 1), made);
        assert_ne!(exercises(&samples, ROUNDS, 2), made);
    }

    #[test]
    fn a_counterfactual_turn_asks_for_another_object_that_is_here() {
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
        let changed = counterfactual(&here, &mut draws).expect("a pen is here");
        assert_eq!(changed.task, "put a clean pen in shelf.");
        assert_eq!(changed.history[0].observation, "Your task is to: put a clean pen in shelf.");
        assert_eq!((&changed.observation, &changed.actions), (&here.observation, &here.actions));
        let alone = window(&["go to bed 1", "take cup 1 from desk 1"]);
        assert_eq!(counterfactual(&alone, &mut draws), None);
    }

    #[test]
    fn a_drill_shows_a_whole_list_and_the_experts_answer() {
        let games = lens_env::alfworld::Alfworld::built_in(&lens_env::alfworld::Options::default())
            .expect("they are built in");
        let expert = lens_env::Benchmark::expert(&games).expect("there is one");
        let list = "'examine desk 1'\n'go to bed 1'\n'go to desk 2'\n'take cup 1 from desk 1'";
        let shown =
            shown(SampleKind::Act, &format!("You see a cup. {}{list}{} Go.", LIST.0, LIST.1));
        let samples = vec![shown; 100];
        let made = drills(&*expert, &samples, 1, 1);
        assert_eq!(made.len(), 100);
        for drill in &made {
            assert!(drill.message.contains(list) && !drill.message.contains("You see"));
            assert!(drill.answer.contains("my hand is empty; I am at desk 1"), "{}", drill.answer);
            // The only object there is in the list.
            assert!(drill.answer.ends_with("<action>take cup 1 from desk 1</action>"));
        }
        let full =
            list.replace("'take cup 1 from desk 1'", "'examine cup 1'\n'move cup 1 to desk 1'");
        let full = Sample { message: format!("{}{full}{}", LIST.0, LIST.1), ..samples[0].clone() };
        let both = [samples[0].clone(), full];
        assert_eq!(drills(&*expert, &both, 1, 1).len(), 1, "a full hand gives no drill");
    }

    #[test]
    fn where_nothing_can_be_taken_there_is_nothing_to_ask() {
        let samples = [
            shown(SampleKind::Act, "['go to desk 1'\n'click[buy now]']"),
            shown(SampleKind::Critique, "['take cup 1 from desk 1']"),
        ];
        assert!(exercises(&samples, ROUNDS, 1).is_empty());
    }
}
