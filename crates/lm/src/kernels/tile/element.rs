//! Numbers as they are stored, and how each instruction set widens them.

use bytemuck::Pod;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256, __m256i, __m512, _mm_loadl_epi64, _mm_loadu_si128, _mm256_and_si256,
    _mm256_castsi256_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_set1_epi32, _mm256_slli_epi32, _mm512_castsi256_si512,
    _mm512_castsi512_ps, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_loadu_ps,
    _mm512_maskz_permutexvar_epi16, _mm512_set_epi16,
};

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{
    float32x4_t, vandq_u32, vcvtq_f32_s32, vdupq_n_u32, vget_high_s8, vget_high_s16, vget_low_s8,
    vget_low_s16, vld1q_f32, vld1q_s8, vld1q_u16, vmovl_s8, vmovl_s16, vreinterpretq_f32_u32,
    vreinterpretq_u32_u16, vshlq_n_u32,
};

/// A stored number that widens to f32 exactly. Sixteen of them, stored together, make one step of a panel.
pub(crate) trait Element: Pod + Send + Sync {
    /// Where column `column` of a panel step is stored.
    fn slot(column: usize) -> usize {
        column
    }

    /// The value of one stored number.
    fn widen(self) -> f32;

    /// Loads sixteen stored numbers as columns 0..8 and 8..16.
    ///
    /// # Safety
    /// The processor has AVX2; `from` points at sixteen readable values.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load256(from: *const Self) -> [__m256; 2];

    /// Loads sixteen stored numbers in the order of their columns.
    ///
    /// # Safety
    /// The processor has the parts of AVX-512 that [`super::super::dispatch::Isa`] asks for; `from` points at sixteen
    /// readable values.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load512(from: *const Self) -> __m512;

    /// Loads sixteen stored numbers, four columns a register, in the order of their columns.
    ///
    /// # Safety
    /// `from` points at sixteen readable values.
    #[cfg(target_arch = "aarch64")]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4];
}

impl Element for f32 {
    fn widen(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load256(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load512(from: *const Self) -> __m512 {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { std::array::from_fn(|quarter| vld1q_f32(from.add(4 * quarter))) }
    }
}

/// bf16 bits. Columns 0..8 and 8..16 are interleaved, so that one load, one shift and one mask give both halves.
impl Element for u16 {
    fn slot(column: usize) -> usize {
        column % 8 * 2 + column / 8
    }

    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self) << 16)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load256(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values, 32 bytes.
        let both = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
        let high = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
        [
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(both)),
            _mm256_castsi256_ps(_mm256_and_si256(both, high)),
        ]
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load512(from: *const Self) -> __m512 {
        // SAFETY: the caller vouches for sixteen readable values, 32 bytes.
        let stored = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
        // Column c's bits go to the upper half of lane c; the lower halves stay zero.
        let places = _mm512_set_epi16(
            15, 0, 13, 0, 11, 0, 9, 0, 7, 0, 5, 0, 3, 0, 1, 0, 14, 0, 12, 0, 10, 0, 8, 0, 6, 0, 4,
            0, 2, 0, 0, 0,
        );
        let wide = _mm512_castsi256_si512(stored);
        _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaa_aaaa, places, wide))
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for sixteen readable values; each load takes eight of them, any alignment.
        unsafe {
            let pairs = [0, 8].map(|at| vreinterpretq_u32_u16(vld1q_u16(from.add(at))));
            let low = pairs.map(|pair| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pair)));
            let mask = vdupq_n_u32(0xffff_0000);
            let high = pairs.map(|pair| vreinterpretq_f32_u32(vandq_u32(pair, mask)));
            [low[0], low[1], high[0], high[1]]
        }
    }
}

/// Integers whose scale is applied to the finished sum.
impl Element for i8 {
    fn widen(self) -> f32 {
        f32::from(self)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load256(from: *const Self) -> [__m256; 2] {
        // SAFETY: the caller vouches for sixteen readable values; each load takes eight bytes.
        let (low, high) = unsafe {
            (
                _mm_loadl_epi64(from.cast::<__m128i>()),
                _mm_loadl_epi64(from.add(8).cast::<__m128i>()),
            )
        };
        [
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)),
        ]
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    #[expect(clippy::cast_ptr_alignment, reason = "the load takes any alignment")]
    unsafe fn load512(from: *const Self) -> __m512 {
        // SAFETY: the caller vouches for sixteen readable values, 16 bytes.
        let stored = unsafe { _mm_loadu_si128(from.cast::<__m128i>()) };
        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(stored))
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe {
            let stored = vld1q_s8(from);
            let halves = [vmovl_s8(vget_low_s8(stored)), vmovl_s8(vget_high_s8(stored))];
            let widen = |half| {
                [vmovl_s16(vget_low_s16(half)), vmovl_s16(vget_high_s16(half))]
                    .map(|quarter| vcvtq_f32_s32(quarter))
            };
            let [first, second] = halves.map(widen);
            [first[0], first[1], second[0], second[1]]
        }
    }
}
