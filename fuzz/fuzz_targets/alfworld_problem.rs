//! Any text is an ALFWorld problem or an error; what is accepted reads back the same and can be played.
#![no_main]

use std::sync::Arc;

use lens_env::alfworld::{Episode, Game, Wording, parser, planner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(problem) = parser::parse(text) else { return };
    assert_eq!(parser::parse(&problem.text()).as_ref(), Ok(&problem));
    let game = Arc::new(Game::new(&problem, Wording::Second, String::new(), Vec::new()));
    let mut episode = Episode::new(game);
    for turn in 0..8 {
        let commands = episode.commands();
        episode.step(&commands[turn % commands.len()]);
        assert_ne!(episode.observation(), "Nothing happens.");
    }
    if let Some(plan) = planner::shortest_plan(episode.game(), episode.state()) {
        for command in &plan {
            episode.step(command);
        }
        assert!(episode.won());
    }
});
