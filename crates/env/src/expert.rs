//! Experts that write demonstrations: they see what an agent's prompt shows and nothing else.

use crate::window::Window;

/// What an expert would do and why, in one short sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The reason, in words an agent could have written.
    pub thought: String,
    /// The action.
    pub action: String,
}

/// A player whose next action is a function of the window alone, so that a model can learn to imitate it.
pub trait Expert: Send {
    /// Returns the next action, or `None` where the expert does not know one.
    fn decide(&self, window: &Window) -> Option<Decision>;
}
