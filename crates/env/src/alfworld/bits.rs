//! Fixed-width rows of bits: the whole changing part of a game fits in a few of them.

/// Rows of equally many bits, in one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    words: Box<[u64]>,
    stride: usize,
}

impl Rows {
    /// `rows` rows of `width` bits, all zero.
    pub(crate) fn new(rows: usize, width: usize) -> Self {
        let stride = width.div_ceil(64);
        Self { words: vec![0; rows * stride].into_boxed_slice(), stride }
    }

    /// One row's words.
    pub(crate) fn row(&self, row: usize) -> &[u64] {
        &self.words[row * self.stride..(row + 1) * self.stride]
    }

    /// Whether a bit is set.
    pub(crate) fn has(&self, row: usize, bit: usize) -> bool {
        contains(self.row(row), bit)
    }

    /// Sets or clears a bit.
    pub(crate) fn set(&mut self, row: usize, bit: usize, value: bool) {
        let word = &mut self.words[row * self.stride + bit / 64];
        let mask = 1 << (bit % 64);
        if value {
            *word |= mask;
        } else {
            *word &= !mask;
        }
    }

    /// The heap bytes it holds.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// Whether `row` has `bit`.
pub(crate) fn contains(row: &[u64], bit: usize) -> bool {
    row[bit / 64] >> (bit % 64) & 1 == 1
}

/// The set bits of the intersection of two rows, ascending.
pub(crate) fn both<'a>(a: &'a [u64], b: &'a [u64]) -> impl Iterator<Item = usize> + 'a {
    a.iter().zip(b).enumerate().flat_map(|(index, (a, b))| {
        let mut word = a & b;
        std::iter::from_fn(move || {
            if word == 0 {
                return None;
            }
            let bit = word.trailing_zeros() as usize;
            word &= word - 1;
            Some(index * 64 + bit)
        })
    })
}

/// The set bits of a row, ascending.
pub(crate) fn ones(row: &[u64]) -> impl Iterator<Item = usize> + '_ {
    both(row, row)
}

/// How many bits two rows share.
pub(crate) fn shared(a: &[u64], b: &[u64]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a & b).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_bits_apart() {
        let mut rows = Rows::new(3, 70);
        for (row, bit) in [(0, 0), (0, 69), (1, 63), (1, 64), (2, 1)] {
            rows.set(row, bit, true);
        }
        assert_eq!(ones(rows.row(0)).collect::<Vec<_>>(), [0, 69]);
        assert_eq!(ones(rows.row(1)).collect::<Vec<_>>(), [63, 64]);
        rows.set(1, 63, false);
        assert!(!rows.has(1, 63) && rows.has(1, 64) && !rows.has(2, 64));
        assert_eq!(both(rows.row(0), rows.row(1)).count(), 0);
        assert_eq!(shared(rows.row(0), rows.row(0)), 2);
    }

    #[test]
    fn rows_without_bits_are_empty() {
        let rows = Rows::new(2, 0);
        assert_eq!(ones(rows.row(1)).count(), 0);
    }
}
