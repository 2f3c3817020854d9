//! The machine's own limits, to set measured speeds against.

use super::dispatch::dispatched;

/// Independent chains: enough to fill two vector units of four cycles' latency.
const CHAINS: usize = 96;

dispatched! {
    /// Runs `rounds` of multiply-adds that never leave the registers and gives a value that depends on all of them.
    /// One round is [`FLOPS_PER_ROUND`] operations.
    pub fn multiply_add_rounds(rounds: usize, factor: f32) -> f32 {
        let mut sums = [1.0_f32; CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = sum.mul_add(factor, 1.0);
            }
        }
        sums.iter().sum()
    }
}

/// Floating-point operations of one round of [`multiply_add_rounds`].
pub const FLOPS_PER_ROUND: usize = 2 * CHAINS;
