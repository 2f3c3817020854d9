//! Choosing a method, and its knobs.

use serde::{Deserialize, Serialize};

use super::futurebridge::{FutureBridge, FutureBridgeParams};
use super::guided::{Guided, GuidedParams};
use super::lens::{Lens, LensParams};
use super::opd::{Opd, OpdParams};
use super::tcod_b2f::{TcodB2f, TcodB2fParams};
use super::tcod_f2b::{TcodF2b, TcodF2bParams};
use super::{Method, Setting, common};
use crate::error::OpdError;

/// The methods there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MethodKind {
    /// LENS-OPD.
    #[serde(rename = "lens")]
    Lens,
    /// Vanilla on-policy distillation.
    #[serde(rename = "opd")]
    Opd,
    /// TCOD, forward to backward.
    #[serde(rename = "tcod-f2b")]
    TcodF2b,
    /// TCOD, backward to forward.
    #[serde(rename = "tcod-b2f")]
    TcodB2f,
    /// Guided-OPD.
    #[serde(rename = "guided-opd")]
    Guided,
    /// FutureBridge-OPD.
    #[serde(rename = "futurebridge-opd")]
    FutureBridge,
}

impl MethodKind {
    /// Every method, in the order of the paper's table 1, ours first.
    pub const ALL: [Self; 6] =
        [Self::Lens, Self::Opd, Self::TcodF2b, Self::TcodB2f, Self::Guided, Self::FutureBridge];

    /// The name used in configurations and saved states.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lens => "lens",
            Self::Opd => "opd",
            Self::TcodF2b => "tcod-f2b",
            Self::TcodB2f => "tcod-b2f",
            Self::Guided => "guided-opd",
            Self::FutureBridge => "futurebridge-opd",
        }
    }
}

/// A method with its knobs. `Default` values are the papers'.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name")]
pub enum MethodParams {
    /// LENS-OPD.
    #[serde(rename = "lens")]
    Lens(LensParams),
    /// Vanilla on-policy distillation.
    #[serde(rename = "opd")]
    Opd(OpdParams),
    /// TCOD, forward to backward.
    #[serde(rename = "tcod-f2b")]
    TcodF2b(TcodF2bParams),
    /// TCOD, backward to forward.
    #[serde(rename = "tcod-b2f")]
    TcodB2f(TcodB2fParams),
    /// Guided-OPD.
    #[serde(rename = "guided-opd")]
    Guided(GuidedParams),
    /// FutureBridge-OPD.
    #[serde(rename = "futurebridge-opd")]
    FutureBridge(FutureBridgeParams),
}

impl Default for MethodParams {
    fn default() -> Self {
        Self::of(MethodKind::Lens)
    }
}

impl MethodParams {
    /// A method with its default knobs.
    pub fn of(kind: MethodKind) -> Self {
        match kind {
            MethodKind::Lens => Self::Lens(LensParams::default()),
            MethodKind::Opd => Self::Opd(OpdParams::default()),
            MethodKind::TcodF2b => Self::TcodF2b(TcodF2bParams::default()),
            MethodKind::TcodB2f => Self::TcodB2f(TcodB2fParams::default()),
            MethodKind::Guided => Self::Guided(GuidedParams::default()),
            MethodKind::FutureBridge => Self::FutureBridge(FutureBridgeParams::default()),
        }
    }

    /// Which method it is.
    pub fn kind(&self) -> MethodKind {
        match self {
            Self::Lens(_) => MethodKind::Lens,
            Self::Opd(_) => MethodKind::Opd,
            Self::TcodF2b(_) => MethodKind::TcodF2b,
            Self::TcodB2f(_) => MethodKind::TcodB2f,
            Self::Guided(_) => MethodKind::Guided,
            Self::FutureBridge(_) => MethodKind::FutureBridge,
        }
    }

    /// Makes the method, at its first batch.
    pub fn build(&self, setting: Setting) -> Result<Box<dyn Method>, OpdError> {
        common::at_least_one("max_turns", setting.max_turns)?;
        Ok(match self {
            Self::Lens(params) => Box::new(Lens::new(*params, setting)?),
            Self::Opd(params) => Box::new(Opd::new(*params, setting)),
            Self::TcodF2b(params) => Box::new(TcodF2b::new(*params, setting)?),
            Self::TcodB2f(params) => Box::new(TcodB2f::new(*params, setting)?),
            Self::Guided(params) => Box::new(Guided::new(*params, setting)?),
            Self::FutureBridge(params) => Box::new(FutureBridge::new(*params, setting)?),
        })
    }
}
