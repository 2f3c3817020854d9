//! One branch of a fork on its way.

use lens_engine::{CallFailure, Message};
use lens_env::{Environment, PastStep, Status, View};
use lens_opd::episode::Actor;
use lens_opd::validate::fork::BranchEnd;

use super::{BranchLog, BranchTurn};
use crate::config::RolloutConfig;
use crate::player::Player;
use crate::reply::{Reply, branch_end};

/// One branch of a fork.
pub(super) struct BranchRun {
    pub(super) player: Player,
    pub(super) turns: Vec<PlayedTurn>,
    pub(super) end: Option<BranchEnd>,
}

/// A turn of a branch.
pub(super) struct PlayedTurn {
    pub(super) number: usize,
    /// The hint-free prompt, which the teacher judges in.
    pub(super) prompt: Vec<u32>,
    pub(super) reply: Reply,
    pub(super) actor: Actor,
    pub(super) admissible: bool,
    observation: String,
}

impl BranchRun {
    /// A branch at a restored state, with the past it had there.
    pub(super) fn new(
        environment: Box<dyn Environment>,
        view: View,
        past: Vec<PastStep>,
        conversation: Vec<Message>,
    ) -> Self {
        let player = Player::restored(environment, view, past, conversation);
        Self { player, turns: Vec::new(), end: None }
    }

    /// Whether another turn is due; if not, why the branch ends is noted. `turns` turns follow the fork turn; `None`: all
    /// there are.
    pub(super) fn goes_on(&mut self, config: &RolloutConfig, turns: Option<usize>) -> bool {
        if self.end.is_none() {
            self.end = if config.deadline.has_passed() {
                Some(BranchEnd::Timeout)
            } else if self.player.past().len() >= config.turn_limit {
                Some(BranchEnd::TurnLimit)
            } else if turns.is_some_and(|turns| self.turns.len() > turns) {
                Some(BranchEnd::Horizon)
            } else {
                None
            };
        }
        self.end.is_none()
    }

    /// Takes a continuation turn, or ends where the model failed.
    pub(super) fn continue_with(
        &mut self,
        config: &RolloutConfig,
        prompt: Vec<u32>,
        reply: Result<Reply, CallFailure>,
    ) {
        match reply {
            Ok(reply) => self.play_turn(config, prompt, reply, false),
            Err(failure) => self.end = Some(branch_end(failure)),
        }
    }

    /// Carries out a turn's action.
    pub(super) fn play_turn(
        &mut self,
        config: &RolloutConfig,
        prompt: Vec<u32>,
        reply: Reply,
        by_teacher: bool,
    ) {
        let number = self.player.past().len();
        let observation = self.player.view.observation.clone();
        let admissible = reply.is_admissible(config, &self.player.view);
        let action = reply.action.as_deref().unwrap_or_default();
        let acted = self.player.act(config, action, Some(&reply.text));
        let actor = if by_teacher { Actor::Teacher } else { Actor::Student };
        self.turns.push(PlayedTurn { number, prompt, reply, actor, admissible, observation });
        if acted.is_err() {
            self.end = Some(BranchEnd::EngineFailure);
        } else if let Status::Ended { success } = self.player.view.status {
            self.end = Some(BranchEnd::Ended { success });
        }
    }

    /// What the log keeps of it.
    pub(super) fn log(&self) -> BranchLog {
        let turns = self.turns.iter().map(|turn| BranchTurn {
            observation: turn.observation.clone(),
            text: turn.reply.text.clone(),
            action: turn.reply.action.clone(),
            prompt: turn.prompt.clone(),
        });
        BranchLog { turns: turns.collect() }
    }
}
