//! The built-in games: pinned, sound, solvable, never solved at the start, and like the real engine's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use lens_env::alfworld::generator::{BUILT_IN_SEED, Recipe, Room, Split};
use lens_env::alfworld::replay::{self, Tally};
use lens_env::alfworld::statistics::Statistics;
use lens_env::alfworld::{Alfworld, Episode, Options, TaskKind, parser, planner};
use md5::{Digest, Md5};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Changing the generator changes what a seed means: results with the built-in games can no longer be compared.
#[test]
fn the_built_in_games_are_pinned() {
    let mut hash = Md5::new();
    for split in Split::ALL {
        for index in 0..split.size() {
            let recipe = Recipe::new(BUILT_IN_SEED, split, index);
            let game = recipe.generate();
            for part in [recipe.id(), game.problem.text(), game.sentence] {
                hash.update(part.as_bytes());
            }
        }
    }
    assert_eq!(hex(&hash.finalize()), "364448ec1b81aa07a370b91c0b11aab4");
}

#[test]
fn another_seed_makes_other_games() {
    let text = |seed| Recipe::new(seed, Split::Train, 0).generate().problem.text();
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn what_is_written_reads_back_the_same() {
    for index in 0..60 {
        let problem = Recipe::new(3, Split::Train, index).generate().problem;
        let read = parser::parse(&problem.text()).expect("our own problems are sound");
        assert_eq!(read, problem.canonical());
    }
}

#[test]
fn every_game_is_solvable_and_none_is_solved_at_the_start() {
    for split in [Split::ValidSeen, Split::ValidUnseen] {
        for index in 0..split.size() {
            let recipe = Recipe::new(BUILT_IN_SEED, split, index);
            let game = std::sync::Arc::new(recipe.game());
            let mut episode = Episode::new(game);
            assert!(!episode.won(), "{} is solved at the start", recipe.id());
            let plan = planner::shortest_plan(episode.game(), episode.state());
            let plan = plan.unwrap_or_else(|| panic!("{} has no solution", recipe.id()));
            assert!(plan.len() >= 3, "{}: {plan:?}", recipe.id());
            for command in &plan {
                episode.step(command);
            }
            assert!(episode.won(), "{}: {plan:?}", recipe.id());
        }
    }
}

#[test]
fn unseen_houses_are_never_used_in_training() {
    let houses = |split: Split| -> BTreeSet<(Room, u32)> {
        let recipes = (0..split.size()).map(|index| Recipe::new(BUILT_IN_SEED, split, index));
        recipes.map(|recipe| (recipe.room, recipe.house)).collect()
    };
    let (train, seen, unseen) =
        (houses(Split::Train), houses(Split::ValidSeen), houses(Split::ValidUnseen));
    assert_eq!(train.len(), 108, "as many houses as ALFWorld trains in");
    assert!(seen.is_subset(&train));
    assert!(unseen.is_disjoint(&train));
    assert_eq!(unseen.len(), 12);
}

#[test]
fn generated_houses_are_like_real_ones() {
    let mut statistics = Statistics::default();
    let mut kinds = BTreeSet::new();
    for index in 0..1000 {
        let recipe = Recipe::new(BUILT_IN_SEED, Split::Train, index);
        kinds.insert(recipe.kind);
        statistics.add(&recipe.game());
    }
    assert_eq!(kinds.len(), TaskKind::ALL.len());
    // The real training games have these means.
    for (what, found, real, tolerance) in [
        ("receptacles", statistics.receptacles.mean(), 23.5, 1.5),
        ("objects", statistics.objects.mean(), 41.4, 1.5),
        ("closed receptacles", statistics.closed.mean(), 40.5, 3.0),
        ("shared places", statistics.shared_places.mean(), 9.0, 2.0),
        ("objects in two receptacles", statistics.doubly_placed.mean(), 1.4, 0.6),
        ("wanted objects behind doors", statistics.wanted_closed.mean(), 13.9, 4.0),
        ("shortest plan", statistics.plan.mean(), 6.0, 0.25),
    ] {
        assert!((found - real).abs() < tolerance, "{what}: {found:.2}, real {real}");
    }
}

#[test]
fn the_real_engine_answered_the_same_in_generated_games() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alfworld/generated.jsonl.zst");
    let alfworld =
        Alfworld::built_in(&Options::default()).expect("the built-in games need no file");
    let recordings = replay::read(&path).expect("the recording is committed");
    let mut tally = Tally::default();
    for recording in &recordings {
        let index: u32 = recording
            .game
            .rsplit_once("trial_G")
            .expect("a generated game")
            .1
            .parse()
            .expect("a number");
        let problem = Recipe::new(BUILT_IN_SEED, Split::ValidUnseen, index).generate().problem;
        let found = hex(&Md5::digest(problem.text().as_bytes()));
        assert_eq!(
            recording.problem_md5.as_deref(),
            Some(found.as_str()),
            "{} was another game",
            recording.game
        );
        replay::replay(
            alfworld.game(&recording.game).expect("the game exists"),
            recording,
            &mut tally,
        );
    }
    assert_eq!(tally.plays, 72);
    assert!(tally.steps > 1500, "{} steps", tally.steps);
    assert!(tally.mismatches.is_empty(), "{:#?}", tally.mismatches.first());
}
