//! One game being played, with the real engine's interface: text in, text out, no turn limit and no end.

use std::sync::Arc;

use super::action::Action;
use super::engine::NOTHING_HAPPENS;
use super::game::Game;
use super::state::State;

/// One game being played. The real engine can be stepped after the game is won, and so can this.
#[derive(Debug, Clone)]
pub struct Episode {
    game: Arc<Game>,
    state: State,
    observation: String,
}

impl Episode {
    /// A game at its beginning.
    pub fn new(game: Arc<Game>) -> Self {
        let state = game.initial().clone();
        let observation = game.intro();
        Self { game, state, observation }
    }

    /// The game being played.
    pub fn game(&self) -> &Arc<Game> {
        &self.game
    }

    /// Where everything is.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The latest text.
    pub fn observation(&self) -> &str {
        &self.observation
    }

    /// Carries out a command; one that is not admissible changes nothing but the text.
    pub fn step(&mut self, command: &str) {
        let action = self.game.read_command(strip(command));
        let mut admissible = Vec::with_capacity(128);
        self.game.admissible(&self.state, &mut admissible);
        self.observation = match action.filter(|action| admissible.contains(action)) {
            Some(action) => {
                self.game.apply(&mut self.state, action);
                self.game.describe(&self.state, action)
            }
            None => NOTHING_HAPPENS.to_owned(),
        };
    }

    /// The admissible commands, sorted.
    pub fn commands(&self) -> Vec<String> {
        let mut actions: Vec<Action> = Vec::with_capacity(128);
        self.game.admissible(&self.state, &mut actions);
        actions.iter().map(|&action| self.game.command(action)).collect()
    }

    /// Whether the goal holds now.
    pub fn won(&self) -> bool {
        self.game.won(&self.state)
    }

    /// The bytes this episode holds besides the game it shares.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.state.heap_bytes() + self.observation.capacity()
    }
}

/// Strips what Python's `str.strip` strips: Unicode white space and the four ASCII separators.
fn strip(command: &str) -> &str {
    command.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}
