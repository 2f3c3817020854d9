//! What a student learned: the same games before and after training, by kind of task, by what a turn called for, and two
//! of them side by side.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use lens_agent::Episode;
use lens_config::Config;
use lens_config::schema::WeightsName;
use lens_env::{Expert, Task, Window};
use lens_train::evaluate::Evaluator;
use lens_train::run::{evaluator, rollout_config};

use crate::assemble;
use crate::failure::Failure;
use crate::memory;
use crate::progress::PlayingBar;
use crate::wording::{change, counted};

/// Examples that are shown.
const EXAMPLES: usize = 2;
/// Actions of an example that are shown before the rest is only counted.
const ACTIONS: usize = 12;

/// A played game.
struct Game {
    kind: String,
    goal: String,
    success: bool,
    actions: Vec<String>,
}

/// The games of one student.
#[derive(Default)]
struct Played {
    games: Vec<Game>,
    /// By the verb of the expert's action: turns, and those at which the student took that action.
    steps: BTreeMap<String, (u64, u64)>,
}

impl Played {
    fn add(&mut self, episode: &Episode, history: usize, expert: Option<&dyn Expert>) {
        let goal = episode.turns.first().map(|turn| turn.view.task.clone());
        self.games.push(Game {
            kind: episode.plan.task.kind.clone(),
            goal: goal.unwrap_or_default(),
            success: episode.success,
            actions: episode
                .turns
                .iter()
                .map(|turn| turn.action.clone().unwrap_or_else(|| "(nothing readable)".to_owned()))
                .collect(),
        });
        let Some(expert) = expert else { return };
        for turn in &episode.turns {
            let past = &episode.past[..turn.number.min(episode.past.len())];
            let Some(right) = expert.decide(&Window::new(&turn.view, past, history)) else {
                continue;
            };
            let verb = right.action.split([' ', '[']).next().unwrap_or_default();
            let (turns, agreed) = self.steps.entry(verb.to_owned()).or_default();
            *turns += 1;
            *agreed += u64::from(turn.action.as_deref() == Some(&*right.action));
        }
    }

    fn solved(&self, kind: &str) -> (u64, u64) {
        let of_kind = self.games.iter().filter(|game| game.kind == kind);
        of_kind.fold((0, 0), |(solved, games), game| (solved + u64::from(game.success), games + 1))
    }
}

/// Plays the run's evaluation games of `split` with both students, by the draws of the run's own evaluations, and prints
/// what changed.
pub(super) fn print(
    config: &Config,
    seed: u64,
    split: &str,
    after: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let benchmark = assemble::benchmark(config)?;
    let evaluator = evaluator(config, &rollout_config(config, &benchmark)?);
    let mut tasks = benchmark.tasks(split)?;
    tasks.truncate(match config.eval.tasks_during_training {
        0 => usize::MAX,
        some => some,
    });
    let before = play(config, &evaluator, &config.student.path, split, &tasks, seed, 0)?;
    let after = play(config, &evaluator, after, split, &tasks, seed, config.train.steps)?;
    writeln!(out, "\n  what it learned, on {} of {split}", counted(tasks.len() as u64, "game"))?;
    print_kinds(&before, &after, out)?;
    print_steps(&before, &after, out)?;
    print_examples(&before, &after, out)
}

fn play(
    config: &Config,
    evaluator: &Evaluator,
    model: &Path,
    split: &str,
    tasks: &[Task],
    seed: u64,
    step: u64,
) -> Result<Played, Failure> {
    let policy = assemble::policy(model, "the student", WeightsName::F32)?;
    policy.limit_cache(memory::budget(config, policy.model().kv_bytes_per_token()));
    let expert = evaluator.config.benchmark.expert();
    let mut played = Played::default();
    let mut bar = PlayingBar::new(tasks.len(), split);
    let what = if step == 0 { "before" } else { "after" };
    evaluator.evaluate_keeping(
        &policy,
        split,
        tasks,
        seed,
        step,
        |done| bar.turn(what, done),
        |episode| played.add(episode, evaluator.config.history, expert.as_deref()),
    )?;
    bar.finish();
    Ok(played)
}

fn print_kinds(before: &Played, after: &Played, out: &mut dyn Write) -> Result<(), Failure> {
    let mut kinds: Vec<&str> = before.games.iter().map(|game| game.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    writeln!(
        out,
        "  {:<34} {:>7} {:>7} {:>6}  change",
        "kind of task", "before", "after", "games"
    )?;
    for kind in kinds {
        let (first, last) = (before.solved(kind), after.solved(kind));
        let (first, last) = ((percent(first), first.1), (percent(last), last.1));
        writeln!(
            out,
            "    {kind:<32} {:>5.1} % {:>5.1} % {:>6}  {}",
            first.0,
            last.0,
            last.1,
            change(first, last)
        )?;
    }
    Ok(())
}

fn percent((part, whole): (u64, u64)) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// How often the right step was taken where the expert would have opened, taken, put down and so on: what is left of the
/// student's mistakes.
fn print_steps(before: &Played, after: &Played, out: &mut dyn Write) -> Result<(), Failure> {
    if before.steps.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "  {:<34} {:>7} {:>7}",
        "mistakes where the right step is to", "before", "after"
    )?;
    let none = (0, 0);
    let mut lines: Vec<_> = before
        .steps
        .iter()
        .map(|(verb, &first)| (verb.as_str(), first, *after.steps.get(verb).unwrap_or(&none)))
        .filter(|(_, first, last)| first.0 > 0 && last.0 > 0)
        .collect();
    lines.sort_by_key(|(_, first, _)| std::cmp::Reverse(first.0));
    for (verb, first, last) in lines {
        let wrong = |(turns, agreed): (u64, u64)| percent((turns - agreed, turns));
        writeln!(
            out,
            "    {verb:<32} {:>5.1} % {:>5.1} %  ({} and {} turns)",
            wrong(first),
            wrong(last),
            first.0,
            last.0
        )?;
    }
    Ok(())
}

fn print_examples(before: &Played, after: &Played, out: &mut dyn Write) -> Result<(), Failure> {
    let pairs = before.games.iter().zip(&after.games);
    let mut learned: Vec<_> = pairs.filter(|(old, new)| !old.success && new.success).collect();
    // The shortest solutions are the easiest to read; one of each kind.
    learned.sort_by_key(|(_, new)| new.actions.len());
    let mut kinds: Vec<&str> = Vec::new();
    for (old, new) in learned {
        if kinds.len() == EXAMPLES {
            break;
        }
        if kinds.contains(&new.kind.as_str()) {
            continue;
        }
        kinds.push(&new.kind);
        writeln!(out, "  solved now: {}", new.goal)?;
        writeln!(out, "    before: {}", actions(old))?;
        writeln!(out, "    after:  {}", actions(new))?;
    }
    Ok(())
}

fn actions(game: &Game) -> String {
    let turns = counted(game.actions.len() as u64, "turn");
    let end = if game.success { "solved" } else { "not solved" };
    let mut shown = game.actions.iter().take(ACTIONS).cloned().collect::<Vec<_>>().join(", ");
    if game.actions.len() > ACTIONS {
        shown.push_str(", ...");
    }
    format!("{shown} ({end} in {turns})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn game(kind: &str, success: bool, actions: usize) -> Game {
        Game {
            kind: kind.to_owned(),
            goal: format!("put a {kind} away"),
            success,
            actions: (0..actions).map(|number| format!("go to shelf {number}")).collect(),
        }
    }

    fn text(print: impl Fn(&mut dyn Write) -> Result<(), Failure>) -> String {
        let mut bytes = Vec::new();
        print(&mut bytes).expect("printed");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn one_example_of_a_kind_and_the_shortest_first() {
        let before = Played {
            games: ["cup", "cup", "pen", "pan"].map(|kind| game(kind, kind == "pan", 30)).into(),
            ..Played::default()
        };
        let after = Played {
            games: vec![
                game("cup", true, 9),
                game("cup", true, 4),
                game("pen", true, 6),
                game("pan", true, 1),
            ],
            ..Played::default()
        };
        let text = text(|out| print_examples(&before, &after, out));
        let cup = text.find("put a cup away").expect("a cup");
        let pen = text.find("put a pen away").expect("a pen");
        assert!(cup < pen && !text.contains("pan away"), "{text}");
        assert!(text.contains("(solved in 4 turns)") && !text.contains("9 turns"), "{text}");
        assert!(text.contains("shelf 11, ... (not solved in 30 turns)"), "{text}");
    }

    #[test]
    fn kinds_and_mistakes_are_counted_on_both_sides() {
        let mut before = Played { games: vec![game("cup", false, 3)], ..Played::default() };
        let mut after = Played { games: vec![game("cup", true, 3)], ..Played::default() };
        before.steps.insert("take".to_owned(), (10, 4));
        after.steps.insert("take".to_owned(), (8, 6));
        before.steps.insert("heat".to_owned(), (1, 0));
        let steps = text(|out| print_steps(&before, &after, out));
        assert!(steps.contains(" 60.0 %  25.0 %  (10 and 8 turns)"), "{steps}");
        assert!(!steps.contains("heat"), "a step that never came up again tells nothing: {steps}");
        let kinds = text(|out| print_kinds(&before, &after, out));
        assert!(kinds.contains("0.0 % 100.0 %"), "{kinds}");
    }
}
