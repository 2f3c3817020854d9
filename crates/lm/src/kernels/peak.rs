//! The machine's own limits, to set measured speeds against.

use super::dispatch::{Isa, Kind, dispatched};

/// Twelve vectors of independent chains: enough to fill two vector units of four cycles' latency, and fewer than the
/// registers.
const CHAINS: usize = 96;
/// The same for vectors of twice the width.
const WIDE_CHAINS: usize = 2 * CHAINS;

#[inline(always)]
#[expect(clippy::inline_always, reason = "the body takes the instruction set of its caller")]
fn rounds<const CHAINS: usize>(rounds: usize, factor: f32) -> f32 {
    let mut sums = [1.0_f32; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = sum.mul_add(factor, 1.0);
        }
    }
    sums.iter().sum()
}

dispatched! {
    fn narrow(count: usize, factor: f32) -> f32 {
        rounds::<CHAINS>(count, factor)
    }

    fn wide(count: usize, factor: f32) -> f32 {
        rounds::<WIDE_CHAINS>(count, factor)
    }
}

/// Runs `rounds` of multiply-adds that never leave the registers and gives a value that depends on all of them. One
/// round is [`flops_per_round`] operations.
pub fn multiply_add_rounds(isa: Isa, rounds: usize, factor: f32) -> f32 {
    if is_wide(isa) { wide(isa, rounds, factor) } else { narrow(isa, rounds, factor) }
}

/// Floating-point operations of one round of [`multiply_add_rounds`].
pub fn flops_per_round(isa: Isa) -> usize {
    2 * if is_wide(isa) { WIDE_CHAINS } else { CHAINS }
}

fn is_wide(isa: Isa) -> bool {
    match isa.kind() {
        Kind::Portable => false,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx2 => false,
        #[cfg(target_arch = "x86_64")]
        Kind::Avx512 => true,
        #[cfg(target_arch = "aarch64")]
        Kind::Neon => false,
    }
}
