//! Numbers as they are stored, and how each instruction set widens them.

use bytemuck::Pod;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, __m256, __m256i, __m512, __m512i, _mm_loadl_epi64, _mm_loadu_si128, _mm256_and_si256,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_slli_epi32,
    _mm512_and_si512, _mm512_castps_si512, _mm512_castsi256_si512, _mm512_castsi512_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
    _mm512_maskz_permutexvar_epi16, _mm512_set_epi16, _mm512_set1_epi32, _mm512_slli_epi32,
};

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::{
    float32x4_t, vandq_u32, vcvtq_f32_s32, vdupq_n_u32, vfmaq_f32, vget_high_s8, vget_high_s16,
    vget_low_s8, vget_low_s16, vld1q_f32, vld1q_s8, vld1q_u16, vld1q_u32, vmovl_s8, vmovl_s16,
    vreinterpretq_f32_u32, vreinterpretq_u32_f32, vreinterpretq_u32_u16, vshlq_n_u32,
};

/// A stored number, or a pair of them, that widens to f32 exactly. Sixteen of them, stored together, make one step of a
/// panel. How a value of a row meets them is theirs to say: `value` is a number, or the bits of a pair of numbers.
pub(crate) trait Element: Pod + Send + Sync {
    /// Whether it is a pair of bf16 numbers, for which some processors have an instruction.
    const IS_PAIR: bool = false;

    /// Where column `column` of a panel step is stored.
    fn slot(column: usize) -> usize {
        column
    }

    /// The value of one stored number, the first one of a pair.
    fn widen(self) -> f32;

    /// Adds the product with a row's value.
    fn multiply_add(self, value: f32, sum: f32) -> f32 {
        value.mul_add(self.widen(), sum)
    }

    /// Loads sixteen stored numbers as columns 0..8 and 8..16.
    ///
    /// # Safety
    /// The processor has AVX2; `from` points at sixteen readable values.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load256(from: *const Self) -> [__m256; 2];

    /// Adds products.
    ///
    /// # Safety
    /// The processor has AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn multiply_add256(value: __m256, stored: __m256, sum: __m256) -> __m256 {
        _mm256_fmadd_ps(value, stored, sum)
    }

    /// Loads sixteen stored numbers in the order of their columns.
    ///
    /// # Safety
    /// The processor has the parts of AVX-512 that [`super::super::dispatch::Isa`] asks for; `from` points at sixteen
    /// readable values.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load512(from: *const Self) -> __m512;

    /// Adds products.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn multiply_add512(value: __m512, stored: __m512, sum: __m512) -> __m512 {
        _mm512_fmadd_ps(value, stored, sum)
    }

    /// Loads sixteen stored numbers, four columns per register, in the order of their columns.
    ///
    /// # Safety
    /// `from` points at sixteen readable values.
    #[cfg(target_arch = "aarch64")]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4];

    /// Adds products.
    ///
    /// # Safety
    /// Every 64-bit ARM processor has what it takes.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn multiply_add128(
        value: float32x4_t,
        stored: float32x4_t,
        sum: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: plain arithmetic on registers.
        unsafe { vfmaq_f32(sum, stored, value) }
    }
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

/// Two bf16 numbers of neighboring inner indices, the first in the upper half: the order in which the processor's own
/// instruction adds the two products, so that they are one chain with all others.
impl Element for u32 {
    const IS_PAIR: bool = true;

    fn widen(self) -> f32 {
        f32::from_bits(self & 0xffff_0000)
    }

    fn multiply_add(self, value: f32, sum: f32) -> f32 {
        let second = |pair: Self| f32::from_bits(pair << 16);
        let value = value.to_bits();
        second(value).mul_add(second(self), value.widen().mul_add(self.widen(), sum))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load256(from: *const Self) -> [__m256; 2] {
        let from = from.cast::<f32>();
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn multiply_add256(value: __m256, stored: __m256, sum: __m256) -> __m256 {
        let [value, stored] = [_mm256_castps_si256(value), _mm256_castps_si256(stored)];
        let mask = _mm256_set1_epi32(0xffff_0000_u32.cast_signed());
        let first = |pair: __m256i| _mm256_castsi256_ps(_mm256_and_si256(pair, mask));
        let second = |pair: __m256i| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pair));
        let sum = _mm256_fmadd_ps(first(value), first(stored), sum);
        _mm256_fmadd_ps(second(value), second(stored), sum)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load512(from: *const Self) -> __m512 {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe { _mm512_loadu_ps(from.cast::<f32>()) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn multiply_add512(value: __m512, stored: __m512, sum: __m512) -> __m512 {
        let [value, stored] = [_mm512_castps_si512(value), _mm512_castps_si512(stored)];
        let mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
        let first = |pair: __m512i| _mm512_castsi512_ps(_mm512_and_si512(pair, mask));
        let second = |pair: __m512i| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pair));
        let sum = _mm512_fmadd_ps(first(value), first(stored), sum);
        _mm512_fmadd_ps(second(value), second(stored), sum)
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn load128(from: *const Self) -> [float32x4_t; 4] {
        // SAFETY: the caller vouches for sixteen readable values.
        unsafe {
            std::array::from_fn(|quarter| vreinterpretq_f32_u32(vld1q_u32(from.add(4 * quarter))))
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[inline]
    unsafe fn multiply_add128(
        value: float32x4_t,
        stored: float32x4_t,
        sum: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: plain arithmetic on registers.
        unsafe {
            let [value, stored] = [vreinterpretq_u32_f32(value), vreinterpretq_u32_f32(stored)];
            let mask = vdupq_n_u32(0xffff_0000);
            let first = |pair| vreinterpretq_f32_u32(vandq_u32(pair, mask));
            let second = |pair| vreinterpretq_f32_u32(vshlq_n_u32::<16>(pair));
            let sum = vfmaq_f32(sum, first(stored), first(value));
            vfmaq_f32(sum, second(stored), second(value))
        }
    }
}
