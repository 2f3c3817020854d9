//! Keyed randomness: every draw comes from a stream named by what it is for, never by when it happened.
//!
//! A stream's name is (seed, step, episode, branch). The four words are the key of a `ChaCha8`
//! generator, so two streams with different names are independent, a stream can be opened again at
//! any time and gives the same draws, and neither the number of threads nor the order in which
//! episodes finish can change a result.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// The name of a stream of random draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StreamKey {
    /// The run's seed.
    pub seed: u64,
    /// The explorer batch (or optimizer step) the draw belongs to.
    pub step: u64,
    /// The episode inside that batch.
    pub episode: u64,
    /// What the draw is for, and at which turn: see [`StreamKey::branch`].
    pub branch: u64,
}

/// What a stream is used for. The numbers are part of the run's reproducibility: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum Purpose {
    /// A student's response in an ordinary episode.
    Rollout = 0,
    /// The base branch of a fork.
    ForkBase = 1,
    /// The hinted branch of a fork.
    ForkHinted = 2,
    /// A teacher's response (a guided turn, a bridge).
    Teacher = 3,
    /// Who acts at a turn (Guided-OPD).
    Control = 4,
    /// The random proposal of a turn.
    Proposal = 5,
    /// The order of rows inside an explorer batch.
    RowOrder = 6,
    /// The order of tasks.
    TaskOrder = 7,
    /// Responses during evaluation.
    Evaluation = 8,
    /// Initial weights of a fresh model.
    Weights = 9,
    /// Generated games, catalogs and other data.
    Data = 10,
    /// Resampling in statistics.
    Bootstrap = 11,
}

impl StreamKey {
    /// Names the stream for `purpose` at turn `turn` of an episode.
    pub fn new(seed: u64, step: u64, episode: u64, purpose: Purpose, turn: u32) -> Self {
        Self { seed, step, episode, branch: Self::branch(purpose, turn) }
    }

    /// The branch word: the purpose in the high half, the turn in the low half.
    pub fn branch(purpose: Purpose, turn: u32) -> u64 {
        (u64::from(purpose as u32) << 32) | u64::from(turn)
    }

    /// Opens the stream at its beginning.
    pub fn open(self) -> Stream {
        let mut key = [0_u8; 32];
        for (chunk, word) in
            key.chunks_exact_mut(8).zip([self.seed, self.step, self.episode, self.branch])
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Stream { inner: ChaCha8Rng::from_seed(key) }
    }
}

/// An open stream of random draws.
#[derive(Debug, Clone)]
pub struct Stream {
    inner: ChaCha8Rng,
}

impl Stream {
    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }

    /// A uniform draw from [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A uniform draw from `0..bound`, without bias. `None` when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> Option<u64> {
        if bound == 0 {
            return None;
        }
        // Lemire's multiply-and-reject: the low word tells whether the draw fell into the short first interval.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= threshold {
                return Some((wide >> 64) as u64);
            }
        }
    }

    /// A draw from the standard normal distribution (Box and Muller's transform, cosine branch).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Puts `items` into a uniformly random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1).unwrap_or(0) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_every_part_of_its_key() {
        let key = StreamKey::new(42, 3, 7, Purpose::Rollout, 2);
        let draws = |key: StreamKey| {
            let mut stream = key.open();
            [stream.next_u64(), stream.next_u64()]
        };
        assert_eq!(draws(key), draws(key), "reopening a stream gives the same draws");
        for other in [
            StreamKey { seed: 43, ..key },
            StreamKey { step: 4, ..key },
            StreamKey { episode: 8, ..key },
            StreamKey::new(42, 3, 7, Purpose::ForkBase, 2),
            StreamKey::new(42, 3, 7, Purpose::Rollout, 3),
        ] {
            assert_ne!(draws(key), draws(other), "{other:?}");
        }
    }

    #[test]
    fn draws_stay_in_range_and_cover_it() {
        let mut stream = StreamKey::new(1, 0, 0, Purpose::Data, 0).open();
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            let u = stream.uniform();
            assert!((0.0..1.0).contains(&u));
            seen[stream.below(7).expect("bound is positive") as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
        assert_eq!(stream.below(0), None);
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u32> = (0..100).collect();
        StreamKey::new(5, 0, 0, Purpose::RowOrder, 0).open().shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn normal_draws_have_mean_zero_and_variance_one() {
        let mut stream = StreamKey::new(9, 0, 0, Purpose::Weights, 0).open();
        let draws: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
