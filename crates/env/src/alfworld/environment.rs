//! The `Environment` of ALFWorld: one episode at a time, copied in well under a microsecond.

use std::sync::Arc;

use super::benchmark::Alfworld;
use super::episode::Episode;
use super::planner;
use crate::{Actions, EnvError, Environment, Snapshot, Status, Task, View};

/// One running episode of an ALFWorld game.
#[derive(Debug)]
pub struct AlfworldEnvironment {
    benchmark: Arc<Alfworld>,
    running: Option<Running>,
}

/// What a snapshot holds.
#[derive(Debug, Clone)]
struct Running {
    episode: Episode,
    turn: usize,
    status: Status,
}

impl AlfworldEnvironment {
    pub(crate) fn new(benchmark: Arc<Alfworld>) -> Self {
        Self { benchmark, running: None }
    }

    /// The shortest way from here to the goal, for an observer who sees everything; `None` where there is none.
    pub fn plan(&self) -> Result<Option<Vec<String>>, EnvError> {
        let episode = &self.running()?.episode;
        Ok(planner::shortest_plan(episode.game(), episode.state()))
    }

    /// The bytes this environment holds besides the game it shares with others.
    pub fn bytes(&self) -> usize {
        let episode = self.running.as_ref().map_or(0, |running| running.episode.bytes());
        size_of::<Self>() + episode
    }

    fn running(&self) -> Result<&Running, EnvError> {
        self.running.as_ref().ok_or(EnvError::NotReset)
    }
}

impl Running {
    fn new(episode: Episode, turn: usize, turn_limit: Option<usize>) -> Self {
        let status = if episode.won() {
            Status::Ended { success: true }
        } else if turn_limit.is_some_and(|limit| turn >= limit) {
            Status::Ended { success: false }
        } else {
            Status::Running
        };
        Self { episode, turn, status }
    }

    fn view(&self) -> View {
        View {
            task: self.episode.game().sentence().to_owned(),
            observation: self.episode.observation().to_owned(),
            actions: Actions::Commands(self.episode.commands()),
            turn: self.turn,
            score: f64::from(u8::from(self.status == Status::Ended { success: true })),
            status: self.status,
        }
    }
}

impl Environment for AlfworldEnvironment {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        let game = self.benchmark.game(&task.id)?;
        let running = Running::new(Episode::new(game), 0, self.benchmark.turn_limit());
        Ok(self.running.insert(running).view())
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        let turn_limit = self.benchmark.turn_limit();
        let mut running = self.running.take().ok_or(EnvError::NotReset)?;
        if running.status == Status::Running {
            running.episode.step(action);
            running = Running::new(running.episode, running.turn + 1, turn_limit);
        }
        Ok(self.running.insert(running).view())
    }

    fn view(&self) -> Result<View, EnvError> {
        Ok(self.running()?.view())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        Ok(Snapshot::new(self.running()?.clone()))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        let running: &Running = snapshot.get()?;
        Ok(self.running.insert(running.clone()).view())
    }
}
