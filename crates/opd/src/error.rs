//! What can be wrong with what the crate is given.

/// A number or a shape that no formula can use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// NaN or an infinity.
    #[error("{what} at position {position} is {value}, not a finite number")]
    NotFinite {
        /// Which quantity.
        what: &'static str,
        /// Token or vocabulary position.
        position: usize,
        /// The value found.
        value: f64,
    },
    /// A log-probability of minus infinity.
    #[error(
        "{what} at position {position} is minus infinity: the token has probability zero there"
    )]
    ZeroProbability {
        /// Which quantity.
        what: &'static str,
        /// Token position.
        position: usize,
    },
    /// A finite number outside the range its meaning allows.
    #[error("{what} at position {position} is {value}, expected {expected}")]
    OutOfRange {
        /// Which quantity.
        what: &'static str,
        /// Token or vocabulary position.
        position: usize,
        /// The value found.
        value: f64,
        /// The allowed range in words.
        expected: &'static str,
    },
    /// A quantity the formula needs was not measured.
    #[error("{what} is missing at token {position}: the engine did not return it")]
    Missing {
        /// Which quantity.
        what: &'static str,
        /// Token position.
        position: usize,
    },
    /// A mean over no content tokens.
    #[error("{what} needs at least one content token")]
    NoContent {
        /// What was to be computed.
        what: &'static str,
    },
    /// Something that must not be empty is.
    #[error("{what} is empty")]
    Empty {
        /// What is empty.
        what: &'static str,
    },
    /// Two lists that must be equally long are not.
    #[error("{what}: expected {expected} entries, found {found}")]
    Length {
        /// Which list.
        what: &'static str,
        /// The length it should have.
        expected: usize,
        /// The length it has.
        found: usize,
    },
    /// Student and teacher distributions over different vocabularies.
    #[error(
        "the student has {student} logits and the teacher {teacher}: both must share one token map, \
         padding beyond the real tokens cut from both"
    )]
    Vocabulary {
        /// Number of student logits.
        student: usize,
        /// Number of teacher logits.
        teacher: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside a vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        token: u32,
        /// The vocabulary's size.
        vocabulary: usize,
    },
    /// A token id listed twice.
    #[error("token id {token} is listed twice in {what}")]
    RepeatedToken {
        /// The id.
        token: u32,
        /// Which list.
        what: &'static str,
    },
    /// A token that is flagged as content and as special.
    #[error(
        "token {position} is flagged both special and content: special tokens are never content"
    )]
    SpecialContent {
        /// Token position.
        position: usize,
    },
}

/// Why a method, a clock or a plan refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpdError {
    /// Bad numbers or shapes.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Bad numbers or shapes in one turn of one episode.
    #[error("episode {episode}, turn {turn}: {reason}")]
    Turn {
        /// The episode's key inside its explorer batch.
        episode: u64,
        /// The turn, counted from 0 at reset.
        turn: usize,
        /// What is wrong there.
        reason: InputError,
    },
    /// An explorer batch that does not follow the one before it.
    #[error("explorer batch {found} was handed in where batch {expected} is due")]
    OutOfOrder {
        /// The batch due.
        expected: u64,
        /// The batch found.
        found: u64,
    },
    /// An episode that contradicts itself or the batch.
    #[error("episode {episode}: {message}")]
    Episode {
        /// The episode's key inside its explorer batch.
        episode: u64,
        /// What is wrong.
        message: String,
    },
    /// A finished fork that was never asked for, or one that is missing.
    #[error("fork at episode {episode}, turn {turn}: {message}")]
    Fork {
        /// The episode's key inside its explorer batch.
        episode: u64,
        /// The fork turn.
        turn: usize,
        /// What is wrong.
        message: &'static str,
    },
    /// A parameter outside its range.
    #[error("`{key}` must be {expected}, not {value}")]
    Parameter {
        /// The parameter's key, as a configuration file spells it.
        key: &'static str,
        /// The value found.
        value: String,
        /// What it must be, to complete "must be".
        expected: String,
    },
    /// A saved state written by a newer release.
    #[error(
        "the saved {what} state has version {found}, this build reads up to {supported}: \
         resume with the release that wrote it or a newer one"
    )]
    NewerState {
        /// Whose state.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// A saved state of another method, or one that cannot be.
    #[error("cannot restore the saved state: {message}")]
    State {
        /// What is wrong.
        message: String,
    },
}

impl OpdError {
    /// Names the turn an input error was found in.
    pub fn at(episode: u64, turn: usize) -> impl FnOnce(InputError) -> Self {
        move |reason| Self::Turn { episode, turn, reason }
    }
}

/// The value, if it can be a log-probability: finite and not above zero (rounding aside).
pub(crate) fn log_probability(
    value: f32,
    what: &'static str,
    position: usize,
) -> Result<f64, InputError> {
    // Engines compute in bf16 or f32; a normalized distribution can round to slightly more than one.
    const ROUNDING: f32 = 1e-2;
    if value == f32::NEG_INFINITY {
        return Err(InputError::ZeroProbability { what, position });
    }
    if !value.is_finite() {
        return Err(InputError::NotFinite { what, position, value: f64::from(value) });
    }
    if value > ROUNDING {
        let value = f64::from(value);
        return Err(InputError::OutOfRange { what, position, value, expected: "at most 0" });
    }
    Ok(f64::from(value))
}

/// The log-probability, if it was measured and can be one.
pub(crate) fn measured(
    value: Option<f32>,
    what: &'static str,
    position: usize,
) -> Result<f64, InputError> {
    log_probability(value.ok_or(InputError::Missing { what, position })?, what, position)
}
