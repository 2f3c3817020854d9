//! Corrupted demonstrations: what the expert would do if it overlooked the right command.
//!
//! A student trained on right actions alone and stopped early cannot read the prompt well, and a teacher cannot teach it
//! to read in a few dozen updates. A student that also saw corrupted demonstrations can read, and has bad habits: it
//! leaves objects where they are, walks past closed cupboards, forgets to wash. A teacher can correct habits.

use lens_env::{Actions, Decision, Expert, Window};

use crate::exercises::Take;

/// Returns what the expert decides without seeing the right command, or `None` if it then decides nothing or the same.
pub fn corrupted(expert: &dyn Expert, window: &Window, right: &Decision) -> Option<Decision> {
    let Actions::Commands(commands) = &window.actions else { return None };
    let seen: Vec<String> =
        commands.iter().filter(|command| !is_like(command, &right.action)).cloned().collect();
    let overlooking = Window { actions: Actions::Commands(seen), ..window.clone() };
    expert.decide(&overlooking).filter(|wrong| wrong.action != right.action)
}

/// Whether a command serves the same purpose as `right`: overlooking a cup means overlooking every cup in that place.
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
    use crate::corpus::{Corpus, CorpusOptions, SampleKind, corpus};
    use crate::recipe::Recipe;

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

    /// What the expert decides, and its corrupted decision.
    fn both(window: &Window) -> (Decision, Option<Decision>) {
        let games = Alfworld::built_in(&Options::default()).expect("they are built in");
        let expert = games.expert().expect("there is one");
        let right = expert.decide(window).expect("it knows what to do");
        let wrong = corrupted(&*expert, window, &right);
        (right, wrong)
    }

    #[test]
    fn an_object_is_left_where_it_is_with_all_of_its_kind() {
        let (right, wrong) = both(&window(
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
        let wrong = wrong.expect("it goes on");
        assert!(wrong.action.starts_with("go to "), "{}", wrong.action);
        assert!(wrong.thought.contains("is not here"), "{}", wrong.thought);
    }

    #[test]
    fn a_closed_place_is_passed() {
        let commands = ["examine drawer 1", "go to drawer 2", "go to shelf 1", "open drawer 1"];
        let (right, wrong) =
            both(&window("You arrive at drawer 1. The drawer 1 is closed.", &commands));
        assert_eq!(right.action, "open drawer 1");
        assert!(wrong.expect("it goes on").action.starts_with("go to "));
    }

    #[test]
    fn with_one_command_there_is_no_other_way() {
        let (right, wrong) = both(&window("You arrive at drawer 1.", &["go to shelf 1"]));
        assert_eq!((right.action.as_str(), wrong), ("go to shelf 1", None));
    }

    #[test]
    fn other_samples_do_not_depend_on_corrupted_ones() {
        let games = Alfworld::built_in(&Options::default()).expect("they are built in");
        let games: Arc<dyn Benchmark> = Arc::new(games);
        let mut tasks = games.tasks("train").expect("a split");
        tasks.truncate(4);
        let mut with =
            Recipe::shipped("alfworld").expect("it is shipped").corpus_options(1, &*games);
        with.corpus.corrupted = 0.65;
        with.corpus.rewording = 0.0;
        let without = CorpusOptions { corpus: Corpus { corrupted: 0.0, ..with.corpus }, ..with };
        let samples = |options| corpus(&games, &tasks, options).expect("they are played");
        let (wrong, others): (Vec<_>, Vec<_>) =
            samples(&with).into_iter().partition(|one| one.kind == SampleKind::Corrupted);
        assert_eq!(others, samples(&without));
        let acts: Vec<_> = others.iter().filter(|one| one.kind == SampleKind::Act).collect();
        assert!(3 * wrong.len() > acts.len(), "{} of {}", wrong.len(), acts.len());
        for wrong in &wrong {
            let act = acts.iter().find(|act| act.message == wrong.message).expect("the same turn");
            assert_ne!(act.answer, wrong.answer);
        }
    }
}
