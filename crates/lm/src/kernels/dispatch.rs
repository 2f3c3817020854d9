//! Which instruction set the kernels use, decided at run time.

use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that names an instruction set to use instead of the best one.
pub const VARIABLE: &str = "LENS_KERNELS";

/// An instruction set this processor has. The value is the proof: [`Isa::available`] alone makes the
/// vector variants, and only after asking the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Plain Rust; `f32::mul_add` keeps the bits equal to the vector variants.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors in 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 128-bit vectors in 32 registers; every 64-bit ARM processor has them.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

/// The set of [`Isa::chosen`], one above its place in [`ALL`]; 0 before the first call.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Every set this program knows, the slowest first.
const ALL: &[Isa] = &[
    Isa(Kind::Portable),
    #[cfg(target_arch = "x86_64")]
    Isa(Kind::Avx2),
    #[cfg(target_arch = "x86_64")]
    Isa(Kind::Avx512),
    #[cfg(target_arch = "aarch64")]
    Isa(Kind::Neon),
];

impl Isa {
    /// The instruction sets of this processor, the slowest first.
    pub fn available() -> Vec<Self> {
        ALL.iter().copied().filter(|isa| isa.is_present()).collect()
    }

    fn is_present(self) -> bool {
        match self.0 {
            Kind::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => {
                Self(Kind::Avx2).is_present()
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512dq")
                    && std::arch::is_x86_feature_detected!("avx512vl")
            }
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => true,
        }
    }

    /// The best instruction set of this processor.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::portable())
    }

    /// Plain Rust, on any processor: the same bits, slowly (very slowly on an x86-64 processor
    /// without fused multiply-add, which has to emulate it).
    pub fn portable() -> Self {
        Self(Kind::Portable)
    }

    /// The instruction set with this name, if the processor has it.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let available = Self::available();
        available.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
            let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
            format!("no instruction set {name:?} here; this processor has {}", names.join(", "))
        })
    }

    /// The instruction set that the environment variable [`VARIABLE`] names, or the best one without it.
    pub fn requested() -> Result<Self, String> {
        match std::env::var(VARIABLE) {
            Ok(name) if !name.is_empty() => {
                Self::from_name(&name).map_err(|problem| format!("{VARIABLE}: {problem}"))
            }
            _ => Ok(Self::detect()),
        }
    }

    /// The instruction set that training uses and new models start with: what [`Self::activate`] set, or else the
    /// requested one.
    pub fn chosen() -> Result<Self, String> {
        let stored = usize::from(ACTIVE.load(Ordering::Relaxed));
        if let Some(&isa) = stored.checked_sub(1).and_then(|place| ALL.get(place)) {
            return Ok(isa);
        }
        let isa = Self::requested()?;
        isa.activate();
        Ok(isa)
    }

    /// [`Self::chosen`], or the best one where the request cannot be met: models and trainers refuse it when they are
    /// made.
    pub(crate) fn active() -> Self {
        Self::chosen().unwrap_or_else(|_| Self::detect())
    }

    /// Makes this the set of [`Self::chosen`], for the whole process. Results stay the same, bit for bit.
    pub fn activate(self) {
        let place = ALL.iter().position(|&isa| isa == self).unwrap_or(0);
        ACTIVE.store(place as u8 + 1, Ordering::Relaxed);
    }

    /// A short name for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "neon",
        }
    }

    /// Whether products of bf16 pairs are an instruction of this set on this processor. Elsewhere they are computed number by
    /// number, with the same bits.
    pub fn multiplies_pairs(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => std::arch::is_x86_feature_detected!("avx512bf16"),
            _ => false,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

impl std::fmt::Display for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Compiles one body for every instruction set: as it is, with AVX2 and FMA switched on, and with AVX-512. The
/// compiler never reorders floating-point arithmetic, so all give the same bits and only the speed differs.
macro_rules! dispatched {
    ($($(#[$attribute:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)+) => {$(
        $(#[$attribute])*
        $vis fn $name(isa: $crate::kernels::dispatch::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::inline_always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $ty),*) $(-> $ret)? {
                body($($arg),*)
            }

            match isa.kind() {
                $crate::kernels::dispatch::Kind::Portable => body($($arg),*),
                // SAFETY: the value exists only if the processor has AVX2 and FMA.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::dispatch::Kind::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: the value exists only if the processor has these parts of AVX-512.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::dispatch::Kind::Avx512 => unsafe { avx512($($arg),*) },
                // Vectors are part of what the body is compiled for.
                #[cfg(target_arch = "aarch64")]
                $crate::kernels::dispatch::Kind::Neon => body($($arg),*),
            }
        }
    )+};
}
pub(crate) use dispatched;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_set_is_the_last_of_those_available_and_names_lead_back_to_sets() {
        let available = Isa::available();
        assert_eq!(available.first(), Some(&Isa::portable()));
        assert_eq!(available.last(), Some(&Isa::detect()));
        for isa in available {
            assert_eq!(Isa::from_name(isa.name()), Ok(isa));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let problem = Isa::from_name("avx3").expect_err("no such set");
        assert!(problem.contains("avx3") && problem.contains("portable"), "{problem}");
    }
}
