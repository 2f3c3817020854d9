//! Which instruction set the kernels use, decided at run time.

/// An instruction set this processor has. The value is the proof: [`Isa::detect`] alone makes the
/// vector variant, and only after asking the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Plain Rust; `f32::mul_add` keeps the bits equal to the vector variant.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The best instruction set of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            return Self(Kind::Avx2);
        }
        Self::portable()
    }

    /// Plain Rust, on any processor: the same bits, slowly (very slowly on an x86-64 processor
    /// without fused multiply-add, which has to emulate it).
    pub fn portable() -> Self {
        Self(Kind::Portable)
    }

    /// A short name for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2+fma",
        }
    }

    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

/// Compiles one body twice: as it is, and with AVX2 and FMA switched on. The compiler never reorders
/// floating-point arithmetic, so both give the same bits and only the speed differs.
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

            match isa.kind() {
                $crate::kernels::dispatch::Kind::Portable => body($($arg),*),
                // SAFETY: the value exists only if the processor has AVX2 and FMA.
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::dispatch::Kind::Avx2 => unsafe { avx2($($arg),*) },
            }
        }
    )+};
}
pub(crate) use dispatched;
