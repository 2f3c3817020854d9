//! Careless play: what the expert would have done had it overlooked the right command.
//!
//! A student that was only shown right play and stopped early is bad at what it has not learned to read, and a teacher
//! cannot tell it that in a few dozen updates. A student that was shown slips as well can read, and is careless: it
//! leaves things where they are, passes closed cupboards, forgets to wash. That a teacher can correct.

use lens_env::{Actions, Decision, Expert, Window};

use crate::exercises::Take;

/// What the expert does when it overlooks what it would do; `None` where it is at a loss then, or does the same.
pub fn slip(expert: &dyn Expert, window: &Window, right: &Decision) -> Option<Decision> {
    let Actions::Commands(commands) = &window.actions else { return None };
    let seen: Vec<String> =
        commands.iter().filter(|command| !is_like(command, &right.action)).cloned().collect();
    let overlooking = Window { actions: Actions::Commands(seen), ..window.clone() };
    expert.decide(&overlooking).filter(|slip| slip.action != right.action)
}

/// Whether a command does what `right` does: whoever overlooks a cup does not see the other cups there either.
fn is_like(command: &str, right: &str) -> bool {
    command == right
        || Take::read(right).is_some_and(|right| {
            Take::read(command).is_some_and(|other| other.object == right.object)
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lens_env::alfworld::{Alfworld, Options};
    use lens_env::{Benchmark, PastStep};

    use super::*;
    use crate::corpus::{CorpusOptions, Lesson, corpus};
    use crate::recipe::corpus_options;

    fn window(observation: &str, commands: &[&str]) -> Window {
        Window {
            task: "put a clean cup in shelf.".to_owned(),
            history: vec![PastStep {
                step: 0,
                observation: "You are in the middle of a room.".to_owned(),
                action: "go to drawer 1".to_owned(),
            }],
            steps_taken: 1,
            observation: observation.to_owned(),
            actions: Actions::Commands(commands.iter().map(|&text| text.to_owned()).collect()),
        }
    }

    /// What the expert does, and its slip.
    fn both(window: &Window) -> (Decision, Option<Decision>) {
        let games = Alfworld::built_in(&Options::default()).expect("they are built in");
        let expert = games.expert().expect("there is one");
        let right = expert.decide(window).expect("it knows what to do");
        let slip = slip(&*expert, window, &right);
        (right, slip)
    }

    #[test]
    fn a_thing_is_left_where_it_is_with_all_its_like() {
        let (right, slip) = both(&window(
            "The drawer 1 is open. In it, you see a cup 1, a cup 2, a pen 2.",
            &[
                "go to bed 1",
                "go to shelf 1",
                "take cup 1 from drawer 1",
                "take cup 2 from drawer 1",
                "take pen 2 from drawer 1",
            ],
        ));
        assert!(right.action.starts_with("take cup "), "{}", right.action);
        let slip = slip.expect("it goes on");
        assert!(slip.action.starts_with("go to "), "{}", slip.action);
        assert!(slip.thought.contains("not seen here"), "{}", slip.thought);
    }

    #[test]
    fn a_closed_place_is_passed() {
        let commands = ["examine drawer 1", "go to drawer 2", "go to shelf 1", "open drawer 1"];
        let (right, slip) =
            both(&window("You arrive at drawer 1. The drawer 1 is closed.", &commands));
        assert_eq!(right.action, "open drawer 1");
        assert!(slip.expect("it goes on").action.starts_with("go to "));
    }

    #[test]
    fn with_one_command_there_is_no_other_way() {
        let (right, slip) = both(&window("You arrive at drawer 1.", &["go to shelf 1"]));
        assert_eq!((right.action.as_str(), slip), ("go to shelf 1", None));
    }

    #[test]
    fn other_texts_do_not_depend_on_slips() {
        let games = Alfworld::built_in(&Options::default()).expect("they are built in");
        let games: Arc<dyn Benchmark> = Arc::new(games);
        let mut tasks = games.tasks("train").expect("a split");
        tasks.truncate(4);
        let with = corpus_options(1, &*games);
        let without = CorpusOptions { slips: 0.0, ..with };
        let texts = |options| corpus(&games, &tasks, options).expect("they are played");
        let (careless, others): (Vec<_>, Vec<_>) =
            texts(&with).into_iter().partition(|text| text.lesson == Lesson::Slip);
        assert_eq!(others, texts(&without));
        let acts: Vec<_> = others.iter().filter(|text| text.lesson == Lesson::Act).collect();
        assert!(2 * careless.len() > acts.len(), "{} of {}", careless.len(), acts.len());
        for slip in &careless {
            let act = acts.iter().find(|act| act.message == slip.message).expect("the same turn");
            assert_ne!(act.answer, slip.answer);
        }
    }
}
