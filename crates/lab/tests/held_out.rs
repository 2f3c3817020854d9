//! What evaluation plays is not what models were trained on.

use std::collections::HashSet;

use lens_env::alfworld::generator::{BUILT_IN_SEED, Generated, Recipe, Split};
use lens_lab::build::set_seed;

/// The seed of `lens lab build`.
const BUILD_SEED: u64 = 1;

fn games(seed: u64, split: Split) -> impl Iterator<Item = Generated> {
    (0..split.size()).map(move |index| Recipe::new(seed, split, index).generate())
}

/// A house by its furniture: ids hold positions, so no two houses share them all.
fn house(game: &Generated) -> Vec<String> {
    game.problem.receptacles.iter().map(|receptacle| receptacle.id.clone()).collect()
}

/// A game by where everything is and what is asked.
fn arrangement(game: &Generated) -> (Vec<String>, Vec<String>, String) {
    let objects = game.problem.objects.iter().map(|object| format!("{object:?}")).collect();
    (house(game), objects, game.sentence.clone())
}

#[test]
fn every_evaluation_split_has_five_hundred_games() {
    for split in [Split::ValidSeen, Split::ValidUnseen] {
        assert!(split.size() >= 500, "{}", split.name());
    }
}

#[test]
fn no_training_or_demonstration_house_is_among_the_unseen_ones() {
    let recipe = lens_lab::recipe::Recipe::shipped("alfworld").expect("it is shipped");
    let seeds: Vec<u64> = std::iter::once(BUILT_IN_SEED)
        .chain((1..=recipe.tasks.extra_sets).map(|set| set_seed(BUILD_SEED, set)))
        .collect();
    let mut known_houses = HashSet::new();
    let mut known_games = HashSet::new();
    for seed in seeds {
        for game in games(seed, Split::Train) {
            known_houses.insert(house(&game));
            known_games.insert(arrangement(&game));
        }
    }
    assert!(known_houses.len() > 200, "{}", known_houses.len());
    for game in games(BUILT_IN_SEED, Split::ValidUnseen) {
        assert!(!known_houses.contains(&house(&game)), "{}", game.problem.name);
    }
    // Seen validation is in the houses of training, with other games.
    let mut seen_houses = 0;
    for game in games(BUILT_IN_SEED, Split::ValidSeen) {
        seen_houses += usize::from(known_houses.contains(&house(&game)));
        assert!(!known_games.contains(&arrangement(&game)), "{}", game.problem.name);
    }
    assert!(seen_houses > 450, "{seen_houses}");
}
