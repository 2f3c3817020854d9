//! The forms that weights are kept in.

/// How the weights of a model are kept in memory. Sums are always f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightFormat {
    /// As trained.
    F32,
    /// Rounded to bfloat16.
    Bf16,
    /// Rounded to bfloat16, and so is what they are multiplied with: processors with an instruction for it need half the
    /// time. The bits are the same without it.
    #[serde(rename = "bf16-dot")]
    Bf16Dot,
    /// Rounded to 8-bit integers with one scale per output row.
    Int8,
}

impl WeightFormat {
    /// Bytes of one stored weight.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::Bf16Dot => 2,
            Self::Int8 => 1,
        }
    }
}

impl std::fmt::Display for WeightFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Bf16Dot => "bf16-dot",
            Self::Int8 => "int8",
        })
    }
}

impl std::str::FromStr for WeightFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "bf16" => Ok(Self::Bf16),
            "bf16-dot" => Ok(Self::Bf16Dot),
            "int8" => Ok(Self::Int8),
            other => {
                Err(format!("unknown weight format {other:?}: use f32, bf16, bf16-dot or int8"))
            }
        }
    }
}
