//! The stored forms of GGUF tensors. Quantized values come in blocks that share a scale; each function here undoes one
//! form, in the order of operations of the format's reference, so that the f32 results are bit for bit the same.

use std::fmt;

use half::{bf16, f16};

/// A stored form we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "these are the names people know the forms by")]
pub enum BlockType {
    /// Plain 32-bit.
    F32,
    /// Plain 16-bit IEEE.
    F16,
    /// Upper half of an f32.
    BF16,
    /// 4 bits and a scale for 32 values.
    Q4_0,
    /// 4 bits, a scale and an offset for 32 values.
    Q4_1,
    /// 5 bits and a scale for 32 values.
    Q5_0,
    /// 5 bits, a scale and an offset for 32 values.
    Q5_1,
    /// 8 bits and a scale for 32 values.
    Q8_0,
    /// 4 bits in blocks of 256 with eight scales and offsets.
    Q4_K,
    /// 5 bits in blocks of 256 with eight scales and offsets.
    Q5_K,
    /// 6 bits in blocks of 256 with sixteen scales.
    Q6_K,
}

impl BlockType {
    /// From the number in the file.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4_K,
            13 => Self::Q5_K,
            14 => Self::Q6_K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Values in one block.
    pub fn values(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Undoes whole blocks: `bytes` holds as many blocks as `out` has room for.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let decode_block = match self {
            Self::F32 => {
                |b: &[u8], v: &mut [f32]| v[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]])
            }
            Self::F16 => |b: &[u8], v: &mut [f32]| v[0] = half(b, 0),
            Self::BF16 => {
                |b: &[u8], v: &mut [f32]| v[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32()
            }
            Self::Q4_0 => q4_0,
            Self::Q4_1 => q4_1,
            Self::Q5_0 => q5_0,
            Self::Q5_1 => q5_1,
            Self::Q8_0 => q8_0,
            Self::Q4_K => q4_k,
            Self::Q5_K => q5_k,
            Self::Q6_K => q6_k,
        };
        for (block, values) in
            bytes.chunks_exact(self.bytes()).zip(out.chunks_exact_mut(self.values()))
        {
            decode_block(block, values);
        }
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The low nibbles are the first sixteen values, the high nibbles the other sixteen.
fn nibbles(packed: &[u8], mut put: impl FnMut(usize, u8)) {
    for (index, byte) in packed.iter().enumerate() {
        put(index, byte & 15);
        put(index + packed.len(), byte >> 4);
    }
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 0);
    nibbles(&block[2..], |at, q| out[at] = (f32::from(q) - 8.0) * scale);
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half(block, 0), half(block, 2));
    nibbles(&block[4..], |at, q| out[at] = f32::from(q) * scale + offset);
}

/// The fifth bits of 32 values, as the upper bit of a nibble.
fn fifth_bits(block: &[u8], at: usize) -> impl Fn(usize) -> u8 {
    let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    move |index| ((bits >> index) as u8 & 1) << 4
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let (scale, fifth) = (half(block, 0), fifth_bits(block, 2));
    nibbles(&block[6..], |at, q| out[at] = (f32::from(q | fifth(at)) - 16.0) * scale);
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (scale, offset, fifth) = (half(block, 0), half(block, 2), fifth_bits(block, 4));
    nibbles(&block[8..], |at, q| out[at] = f32::from(q | fifth(at)) * scale + offset);
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let scale = half(block, 0);
    for (value, &byte) in out.iter_mut().zip(&block[2..]) {
        *value = f32::from(byte.cast_signed()) * scale;
    }
}

/// Eight 6-bit scales and eight 6-bit offsets packed into twelve bytes.
fn scale_and_offset(packed: &[u8], index: usize) -> (f32, f32) {
    let (scale, offset) = if index < 4 {
        (packed[index] & 63, packed[index + 4] & 63)
    } else {
        (
            (packed[index + 4] & 15) | ((packed[index - 4] >> 6) << 4),
            (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4),
        )
    };
    (f32::from(scale), f32::from(offset))
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (scale, offset, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    for (pair, (values, quants)) in
        out.chunks_exact_mut(64).zip(block[16..].chunks_exact(32)).enumerate()
    {
        let (s0, o0) = scale_and_offset(packed, 2 * pair);
        let (s1, o1) = scale_and_offset(packed, 2 * pair + 1);
        let (s0, o0, s1, o1) = (scale * s0, offset * o0, scale * s1, offset * o1);
        for (index, &quant) in quants.iter().enumerate() {
            values[index] = s0 * f32::from(quant & 15) - o0;
            values[index + 32] = s1 * f32::from(quant >> 4) - o1;
        }
    }
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    let (scale, offset, packed, high) =
        (half(block, 0), half(block, 2), &block[4..16], &block[16..48]);
    for (pair, (values, quants)) in
        out.chunks_exact_mut(64).zip(block[48..].chunks_exact(32)).enumerate()
    {
        let (s0, o0) = scale_and_offset(packed, 2 * pair);
        let (s1, o1) = scale_and_offset(packed, 2 * pair + 1);
        let (s0, o0, s1, o1) = (scale * s0, offset * o0, scale * s1, offset * o1);
        for (index, &quant) in quants.iter().enumerate() {
            let bit = |shift: usize| ((high[index] >> shift) & 1) << 4;
            values[index] = s0 * f32::from((quant & 15) | bit(2 * pair)) - o0;
            values[index + 32] = s1 * f32::from((quant >> 4) | bit(2 * pair + 1)) - o1;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales, scale) =
        (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    for (part, values) in out.chunks_exact_mut(128).enumerate() {
        let (low, high, scales) = (&low[64 * part..], &high[32 * part..], &scales[8 * part..]);
        for index in 0..32 {
            // Four values share a byte of upper bits; each quarter of the part has its own pair of scales.
            for quarter in 0..4 {
                let nibble = low[index + 32 * (quarter % 2)] >> (4 * (quarter / 2)) & 15;
                let upper = (high[index] >> (2 * quarter) & 3) << 4;
                let own = f32::from(scales[2 * quarter + index / 16].cast_signed());
                values[index + 32 * quarter] = scale * own * (f32::from(nibble | upper) - 32.0);
            }
        }
    }
}
