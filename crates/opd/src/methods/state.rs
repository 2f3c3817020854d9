//! What a method remembers between explorer batches.

use serde::{Deserialize, Serialize};

use super::MethodKind;
use crate::episode::ScoredBatch;
use crate::error::OpdError;
use crate::locate::horizon::HorizonState;

/// The newest layout of [`MethodState`] this build writes and reads.
pub const METHOD_STATE_VERSION: u32 = 1;

/// A method's memory. Every field but the version has a default and unknown ones are passed over, so
/// that a state of a newer release can still be read far enough to be refused by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodState {
    /// Layout of this state.
    pub version: u32,
    /// The method's name.
    #[serde(default)]
    pub method: String,
    /// Explorer batches taken in.
    #[serde(default)]
    pub batches: u64,
    /// The gap-adaptive clock, where the method has one.
    #[serde(default)]
    pub horizon: Option<HorizonState>,
}

/// Counts explorer batches and refuses gaps and repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BatchCounter {
    batches: u64,
}

impl BatchCounter {
    /// Refuses `batch` unless it is the next one and makes sense in itself.
    pub(super) fn expect(self, batch: &ScoredBatch) -> Result<(), OpdError> {
        let expected = self.batches + 1;
        if batch.number != expected {
            return Err(OpdError::OutOfOrder { expected, found: batch.number });
        }
        batch.check()
    }

    /// Counts the batch that was expected.
    pub(super) fn advance(&mut self) {
        self.batches += 1;
    }

    pub(super) fn state(self, kind: MethodKind, horizon: Option<HorizonState>) -> MethodState {
        MethodState {
            version: METHOD_STATE_VERSION,
            method: kind.name().to_owned(),
            batches: self.batches,
            horizon,
        }
    }

    /// Reads a saved state back; the caller restores its clock.
    pub(super) fn restore(
        &mut self,
        kind: MethodKind,
        state: &MethodState,
    ) -> Result<(), OpdError> {
        if state.version > METHOD_STATE_VERSION {
            return Err(OpdError::NewerState {
                what: "method",
                found: state.version,
                supported: METHOD_STATE_VERSION,
            });
        }
        if state.method != kind.name() {
            let message = format!(
                "it belongs to method \"{}\", this run's is \"{}\"",
                state.method,
                kind.name()
            );
            return Err(OpdError::State { message });
        }
        self.batches = state.batches;
        Ok(())
    }
}
