//! Choosing a method, and its knobs.

use serde::{Deserialize, Serialize};

use super::lens::{Lens, LensParams};
use super::opd::{Opd, OpdParams};
use super::{Method, Setting};
use crate::error::OpdError;

/// The methods there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodKind {
    /// LENS-OPD.
    Lens,
    /// Vanilla on-policy distillation.
    Opd,
}

impl MethodKind {
    /// Every method.
    pub const ALL: [Self; 2] = [Self::Lens, Self::Opd];

    /// The name used in configurations and saved states.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lens => "lens",
            Self::Opd => "opd",
        }
    }
}

/// A method with its knobs. `Default` values are the papers'.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum MethodParams {
    /// LENS-OPD.
    Lens(LensParams),
    /// Vanilla on-policy distillation.
    Opd(OpdParams),
}

impl Default for MethodParams {
    fn default() -> Self {
        Self::Lens(LensParams::default())
    }
}

impl MethodParams {
    /// A method with its default knobs.
    pub fn of(kind: MethodKind) -> Self {
        match kind {
            MethodKind::Lens => Self::Lens(LensParams::default()),
            MethodKind::Opd => Self::Opd(OpdParams::default()),
        }
    }

    /// Which method it is.
    pub fn kind(&self) -> MethodKind {
        match self {
            Self::Lens(_) => MethodKind::Lens,
            Self::Opd(_) => MethodKind::Opd,
        }
    }

    /// Makes the method, at its first batch.
    pub fn build(&self, setting: Setting) -> Result<Box<dyn Method>, OpdError> {
        if setting.max_turns == 0 {
            let (key, expected) = ("max_turns", "must be at least 1");
            return Err(OpdError::Parameter { key, value: "0".to_owned(), expected });
        }
        Ok(match self {
            Self::Lens(params) => Box::new(Lens::new(*params, setting)?),
            Self::Opd(params) => Box::new(Opd::new(*params, setting)),
        })
    }
}
