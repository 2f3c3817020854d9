//! One environment with the history its prompts are made of.

use lens_engine::{Codec, EngineError, Message};
use lens_env::{EnvError, Environment, PastStep, Status, View, Window};

use crate::config::{Context, RolloutConfig};

/// A running episode or branch.
pub(crate) struct Player {
    pub(crate) environment: Box<dyn Environment>,
    pub(crate) view: View,
    past: Vec<PastStep>,
    conversation: Vec<Message>,
}

impl Player {
    pub(crate) fn new(environment: Box<dyn Environment>, view: View) -> Self {
        Self { environment, view, past: Vec::new(), conversation: Vec::new() }
    }

    /// A player at a restored state, with the past it had there.
    pub(crate) fn restored(
        environment: Box<dyn Environment>,
        view: View,
        past: Vec<PastStep>,
        conversation: Vec<Message>,
    ) -> Self {
        Self { environment, view, past, conversation }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.view.status == Status::Running
    }

    /// What the prompt shows: the task, the latest steps, the present.
    pub(crate) fn window(&self, config: &RolloutConfig) -> Window {
        Window::new(&self.view, &self.past, config.history)
    }

    pub(crate) fn message(&self, config: &RolloutConfig) -> Result<String, EnvError> {
        config.turn_message(&self.window(config))
    }

    /// The prompt's tokens with `message` as the latest word of the environment's side.
    pub(crate) fn prompt(
        &self,
        config: &RolloutConfig,
        codec: &dyn Codec,
        message: &str,
    ) -> Result<Vec<u32>, EngineError> {
        let earlier: &[Message] = match config.context {
            Context::Window => &[],
            Context::Chat => &self.conversation,
        };
        codec.prompt(&config.prompting.messages(earlier, message))
    }

    /// Carries out an action. `response` is what the model wrote, if a model wrote it; the conversation remembers the
    /// hint-free message either way.
    pub(crate) fn act(
        &mut self,
        config: &RolloutConfig,
        action: &str,
        response: Option<&str>,
    ) -> Result<(), EnvError> {
        if let (Context::Chat, Some(response)) = (config.context, response) {
            self.conversation.push(Message::user(self.message(config)?));
            self.conversation.push(Message::assistant(response));
        }
        let next = self.environment.step(action)?;
        let before = std::mem::replace(&mut self.view, next);
        let step = self.past.len();
        self.past.push(PastStep {
            step,
            observation: before.observation,
            action: action.to_owned(),
        });
        Ok(())
    }

    pub(crate) fn past(&self) -> &[PastStep] {
        &self.past
    }

    pub(crate) fn conversation(&self) -> &[Message] {
        &self.conversation
    }
}
