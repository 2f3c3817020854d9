//! The state of a `java.util.Random`, read from outside.
//!
//! Asking the simulator what can be done draws from the same generator that bees and genes draw from, so a replay that
//! does not ask the same questions takes another course. With the generator's state noted before each action, a replay
//! can leave the questions out and put the state in instead.

/// The 48 bits of a linear congruential generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GeneratorState(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;

impl GeneratorState {
    /// The state that `nextLong` was called in, from the number it gave. `None` if no state gives that number.
    ///
    /// `nextLong` adds two draws of 32 bits, the high bits of two successive states, so that 16 bits of the first state
    /// are unknown: few enough to try them all.
    pub fn before_long(drawn: i64) -> Option<Self> {
        let second = drawn as i32;
        let first = (drawn.wrapping_sub(i64::from(second)) >> 32) as i32;
        let high = u64::from(first as u32) << 16;
        let after_first = (0..1 << 16).map(|low| high | low).find(|state| {
            let next = advance(*state);
            (next >> 16) as u32 as i32 == second
        })?;
        Some(Self(retreat(after_first)))
    }

    /// What to give to `setSeed` to put this state back; Java scrambles a seed by an exclusive or.
    pub fn seed(self) -> i64 {
        (self.0 ^ MULTIPLIER) as i64
    }
}

fn advance(state: u64) -> u64 {
    state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK
}

fn retreat(state: u64) -> u64 {
    /// The multiplier's inverse modulo 2^48.
    const INVERSE: u64 = inverse(MULTIPLIER);
    state.wrapping_sub(INCREMENT).wrapping_mul(INVERSE) & MASK
}

/// Newton's iteration doubles the number of right bits each time.
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut round = 0;
    while round < 5 {
        guess = guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess)));
        round += 1;
    }
    guess & MASK
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As `java.util.Random` is specified.
    fn next_long(state: &mut u64) -> i64 {
        let mut bits = || {
            *state = advance(*state);
            (*state >> 16) as u32 as i32
        };
        let high = i64::from(bits()) << 32;
        high.wrapping_add(i64::from(bits()))
    }

    #[test]
    fn the_documented_generator() {
        // new Random(42).nextLong()
        let mut state = (0x2a ^ MULTIPLIER) & MASK;
        assert_eq!(next_long(&mut state), -5_025_562_857_975_149_833);
    }

    proptest! {
        #[test]
        fn a_state_is_recovered_from_one_draw(state in 0..=MASK) {
            let mut running = state;
            let drawn = next_long(&mut running);
            let recovered = GeneratorState::before_long(drawn).expect("a real draw");
            // Two states may give the same draw; both continue from here alike or the draw would not be enough.
            let mut again = recovered.0;
            prop_assert_eq!(next_long(&mut again), drawn);
            prop_assert_eq!(recovered.0, state);
            prop_assert_eq!((recovered.seed() as u64 ^ MULTIPLIER) & MASK, state);
        }
    }
}
