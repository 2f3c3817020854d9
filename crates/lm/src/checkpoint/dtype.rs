//! The three number formats weights are stored in, and their conversion to and from f32.

use std::fmt;
use std::str::FromStr;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!("checkpoints are little-endian and are read without swapping bytes");

/// How a stored weight is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dtype {
    /// 32-bit IEEE.
    F32,
    /// 16-bit IEEE: finer than bf16, but overflows at 65,504.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl Dtype {
    /// Bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The name inside a safetensors header.
    pub fn safetensors_name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
        }
    }

    /// The type a safetensors header means, if it is one of ours.
    pub fn from_safetensors_name(name: &str) -> Option<Self> {
        [Self::F32, Self::F16, Self::Bf16].into_iter().find(|d| d.safetensors_name() == name)
    }

    /// The name in `config.json`.
    pub fn torch_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// Widens stored bytes. `bytes` holds exactly `out.len()` values.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        debug_assert_eq!(bytes.len(), out.len() * self.size());
        match self {
            Self::F32 => bytemuck::cast_slice_mut(out).copy_from_slice(bytes),
            Self::Bf16 => {
                for (value, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = bf16::from_le_bytes([pair[0], pair[1]]).to_f32();
                }
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; 512];
                for (values, part) in out.chunks_mut(512).zip(bytes.chunks(1024)) {
                    let halves = &mut halves[..values.len()];
                    bytemuck::cast_slice_mut(halves).copy_from_slice(part);
                    halves.convert_to_f32_slice(values);
                }
            }
        }
    }

    /// Rounds `values` to nearest even and appends their bytes.
    pub(crate) fn encode(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            Self::F32 => bytes.extend_from_slice(bytemuck::cast_slice(values)),
            Self::Bf16 => {
                bytes.extend(values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()));
            }
            Self::F16 => {
                let mut halves = [f16::ZERO; 512];
                for part in values.chunks(512) {
                    let halves = &mut halves[..part.len()];
                    halves.convert_from_f32_slice(part);
                    bytes.extend_from_slice(bytemuck::cast_slice(halves));
                }
            }
        }
    }

    /// The largest magnitude that rounds to a finite value of this type.
    pub(crate) fn largest(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            // Halfway to the next power of two rounds up (to even), so the bound itself overflows.
            Self::F16 => f32::from_bits(65_520.0_f32.to_bits() - 1),
            Self::Bf16 => f32::from_bits(0x7f7f_7fff),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" | "float32" => Ok(Self::F32),
            "f16" | "float16" => Ok(Self::F16),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            other => Err(format!("`{other}` is not a weight type; use f32, f16 or bf16")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sixteen_bit_value_survives_the_way_through_f32() {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let stored: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let mut wide = vec![0.0; 1 << 16];
            dtype.decode(&stored, &mut wide);
            let mut back = Vec::new();
            dtype.encode(&wide, &mut back);
            for (index, value) in wide.iter().enumerate() {
                let same = stored[2 * index..2 * index + 2] == back[2 * index..2 * index + 2];
                assert!(same || value.is_nan(), "{dtype} {index:#x}");
            }
        }
    }

    #[test]
    fn the_largest_value_is_the_last_that_stays_finite() {
        for dtype in [Dtype::F16, Dtype::Bf16] {
            let largest = dtype.largest();
            let next = f32::from_bits(largest.to_bits() + 1);
            let mut bytes = Vec::new();
            dtype.encode(&[largest, next], &mut bytes);
            let mut back = [0.0; 2];
            dtype.decode(&bytes, &mut back);
            assert!(back[0].is_finite() && back[1].is_infinite(), "{dtype}: {back:?}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            assert_eq!(Dtype::from_safetensors_name(dtype.safetensors_name()), Some(dtype));
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
            assert_eq!(dtype.torch_name().parse(), Ok(dtype));
        }
        assert!("int8".parse::<Dtype>().is_err_and(|message| message.contains("bf16")));
    }
}
