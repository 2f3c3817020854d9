//! CPython's random generator, draw for draw: the order of goals and the sampled prices come from it.

const WORDS: usize = 624;
const MIDDLE: usize = 397;

/// The Mersenne Twister with CPython's seeding and CPython's ways of turning words into numbers.
#[derive(Clone)]
pub struct PythonRandom {
    state: [u32; WORDS],
    next: usize,
}

impl PythonRandom {
    /// The generator after `random.seed(seed)`.
    pub fn seed(seed: u64) -> Self {
        let low = seed as u32;
        let high = (seed >> 32) as u32;
        let key = [low, high];
        Self::from_key(&key[..if high == 0 { 1 } else { 2 }])
    }

    /// The generator after `numpy.random.RandomState(seed)`, which seeds by one word only.
    pub fn numpy_seed(seed: u32) -> Self {
        let mut state = [0_u32; WORDS];
        state[0] = seed;
        for i in 1..WORDS {
            let before = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = before.wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, next: WORDS }
    }

    /// Seeding by an array of words, which CPython uses for integers of any size.
    fn from_key(key: &[u32]) -> Self {
        let mut twister = Self::numpy_seed(19_650_218);
        let state = &mut twister.state;
        let mut i = 1;
        let mut j = 0;
        for _ in 0..WORDS.max(key.len()) {
            let before = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = (state[i] ^ before.wrapping_mul(1_664_525))
                .wrapping_add(key[j])
                .wrapping_add(j as u32);
            i += 1;
            j = (j + 1) % key.len();
            if i == WORDS {
                state[0] = state[WORDS - 1];
                i = 1;
            }
        }
        for _ in 0..WORDS - 1 {
            let before = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = (state[i] ^ before.wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            i += 1;
            if i == WORDS {
                state[0] = state[WORDS - 1];
                i = 1;
            }
        }
        state[0] = 0x8000_0000;
        twister
    }

    fn twist(&mut self) {
        for i in 0..WORDS {
            let joined =
                (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + MIDDLE) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn next_word(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// `random.random()`.
    pub fn random(&mut self) -> f64 {
        let high = f64::from(self.next_word() >> 5);
        let low = f64::from(self.next_word() >> 6);
        (high * 67_108_864.0 + low) * (1.0 / 9_007_199_254_740_992.0)
    }

    /// `random.uniform(low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random()
    }

    /// A draw from `0..bound` by rejection of too large bit strings; 0 for an empty range.
    fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            return 0;
        }
        let bits = usize::BITS - bound.leading_zeros();
        loop {
            let draw = self.bits(bits);
            if draw < bound as u64 {
                return draw as usize;
            }
        }
    }

    /// `random.getrandbits(count)` for 1 to 64 bits.
    fn bits(&mut self, count: u32) -> u64 {
        if count <= 32 {
            return u64::from(self.next_word() >> (32 - count));
        }
        let low = u64::from(self.next_word());
        let high = u64::from(self.next_word() >> (64 - count));
        (high << 32) | low
    }

    /// `random.shuffle(items)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }

    /// `random.sample(items, 2)`; `None` with fewer than two items. CPython draws from a shrinking pool while the
    /// population is small (at most 21 items for a sample of two), which is all that is needed here.
    pub fn sample_two<T: Copy>(&mut self, items: &[T]) -> Option<(T, T)> {
        let last = *items.last()?;
        if items.len() < 2 || items.len() > 21 {
            return None;
        }
        let i = self.below(items.len());
        let j = self.below(items.len() - 1);
        Some((items[i], if j == i { last } else { items[j] }))
    }

    /// `random.choices(string.ascii_lowercase, k=count)` joined.
    pub fn lower_case_letters(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b'a' + (self.random() * 26.0) as u8)).collect()
    }

    /// `RandomState.choice(range(low, high), count, replace=False)`: how one family of trainers draws its session
    /// numbers. Numpy permutes the whole range, rejecting masked words.
    pub fn numpy_choice(&mut self, low: usize, high: usize, count: usize) -> Vec<usize> {
        let mut range: Vec<usize> = (low..high).collect();
        for last in (1..range.len()).rev() {
            let mask = u32::MAX >> (last as u32).leading_zeros();
            let other = loop {
                let draw = (self.next_word() & mask) as usize;
                if draw <= last {
                    break draw;
                }
            };
            range.swap(last, other);
        }
        range.truncate(count);
        range
    }
}

impl std::fmt::Debug for PythonRandom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PythonRandom").field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_draws_are_those_of_cpython() {
        let mut random = PythonRandom::seed(233);
        assert_eq!(random.random(), 0.682_476_913_947_352_8);
        assert_eq!(random.random(), 0.628_320_210_980_980_1);
        assert_eq!(PythonRandom::seed(1_099_511_627_783).random(), 0.613_703_777_993_651_1);
        assert_eq!(PythonRandom::seed(42).lower_case_letters(10), "qahftrxcka");
    }

    #[test]
    fn small_samples_come_from_a_shrinking_pool() {
        let mut random = PythonRandom::seed(0);
        let pairs: Vec<_> = (0..4).filter_map(|_| random.sample_two(&[10, 20, 30, 40])).collect();
        assert_eq!(pairs, [(40, 20), (10, 20), (40, 20), (30, 20)]);
        assert_eq!(random.sample_two(&[1]), None);
    }

    #[test]
    fn shuffling_nothing_is_harmless() {
        let mut random = PythonRandom::seed(1);
        random.shuffle::<u8>(&mut []);
        assert!(random.numpy_choice(3, 3, 5).is_empty());
    }
}
