//! How alike two short texts are, from 0 to 100: the token-set ratio over CPython's `difflib`, which is what the
//! original's matcher falls back to, with its quirks. Faster libraries measure edit distance, which is another number.

use std::ops::Range;

use crate::webshop::python::is_word_character;

/// Texts of this length and more lose their most frequent characters before matching.
const LONG: usize = 200;

/// A text cut into its distinct tokens, ready to be compared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens(Vec<String>);

impl Tokens {
    /// Drops the letters U+0080 to U+00FF, takes everything but letters, digits and underscores for blanks, and lowers.
    pub fn new(text: &str) -> Self {
        let cleaned: String = text
            .chars()
            .filter(|c| !('\u{80}'..='\u{ff}').contains(c))
            .map(|c| if is_word_character(c) { c } else { ' ' })
            .collect();
        let lowered = cleaned.to_lowercase();
        let mut tokens: Vec<String> = lowered.split_whitespace().map(str::to_owned).collect();
        tokens.sort_unstable();
        tokens.dedup();
        Self(tokens)
    }

    /// The ratio of the two texts. The order matters: the matcher is not symmetric.
    pub fn ratio(&self, other: &Self) -> u32 {
        if self.0.is_empty() || other.0.is_empty() {
            return 0;
        }
        let (mut common, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for token in &self.0 {
            let side = if other.0.binary_search(token).is_ok() { &mut common } else { &mut ours };
            side.push(token.as_str());
        }
        for token in &other.0 {
            if self.0.binary_search(token).is_err() {
                theirs.push(token.as_str());
            }
        }
        let shared = common.join(" ");
        let ours = joined(&shared, &ours.join(" "));
        let theirs = joined(&shared, &theirs.join(" "));
        let shared: Vec<char> = shared.chars().collect();
        ratio(&shared, &ours).max(ratio(&shared, &theirs)).max(ratio(&ours, &theirs))
    }
}

/// The token-set ratio of two texts.
pub fn token_set_ratio(a: &str, b: &str) -> u32 {
    Tokens::new(a).ratio(&Tokens::new(b))
}

fn joined(shared: &str, rest: &str) -> Vec<char> {
    let blank = if shared.is_empty() || rest.is_empty() { "" } else { " " };
    shared.chars().chain(blank.chars()).chain(rest.chars()).collect()
}

/// The share of matched characters in per cent, rounded half to even.
fn ratio(a: &[char], b: &[char]) -> u32 {
    if a == b {
        return 100;
    }
    if a.is_empty() || b.is_empty() {
        return 0;
    }
    let share = 2.0 * matched(a, b) as f64 / (a.len() + b.len()) as f64;
    (100.0 * share).round_ties_even() as u32
}

/// How many characters lie in matching blocks: the longest common block, then the same to its left and right.
fn matched(a: &[char], b: &[char]) -> usize {
    let mut matcher = Matcher::new(a, b);
    let mut total = 0;
    let mut open = vec![(0..a.len(), 0..b.len())];
    while let Some((in_a, in_b)) = open.pop() {
        let (i, j, size) = matcher.longest_block(in_a.clone(), in_b.clone());
        if size > 0 {
            total += size;
            open.push((in_a.start..i, in_b.start..j));
            open.push((i + size..in_a.end, j + size..in_b.end));
        }
    }
    total
}

struct Matcher<'a> {
    a: &'a [char],
    b: &'a [char],
    /// Each character of `b` with its place, sorted, without those that occur too often in a long text.
    places: Vec<(char, usize)>,
    /// At `j + 1`, the length of the block that ends with `b[j]` and the previous character of `a`.
    ending_before: Vec<usize>,
    /// The same for the present character of `a`. Both are all zero between calls.
    ending_here: Vec<usize>,
}

impl<'a> Matcher<'a> {
    fn new(a: &'a [char], b: &'a [char]) -> Self {
        let mut places: Vec<(char, usize)> = b.iter().copied().zip(0..).collect();
        places.sort_unstable();
        if b.len() >= LONG {
            let most = b.len() / 100 + 1;
            places = places
                .chunk_by(|x, y| x.0 == y.0)
                .filter(|same| same.len() <= most)
                .flatten()
                .copied()
                .collect();
        }
        let lengths = vec![0; b.len() + 1];
        Self { a, b, places, ending_before: lengths.clone(), ending_here: lengths }
    }

    /// The longest block common to both ranges: the earliest in `a`, and of those the earliest in `b`.
    fn longest_block(&mut self, in_a: Range<usize>, in_b: Range<usize>) -> (usize, usize, usize) {
        let (mut best_i, mut best_j, mut best) = (in_a.start, in_b.start, 0);
        let mut before = 0..0;
        for i in in_a.clone() {
            let c = self.a[i];
            let first = self.places.partition_point(|&place| place < (c, in_b.start));
            let last = self.places.partition_point(|&place| place < (c, in_b.end));
            for &(_, j) in &self.places[first..last] {
                let length = self.ending_before[j] + 1;
                self.ending_here[j + 1] = length;
                if length > best {
                    (best_i, best_j, best) = (i + 1 - length, j + 1 - length, length);
                }
            }
            self.forget(before);
            std::mem::swap(&mut self.ending_before, &mut self.ending_here);
            before = first..last;
        }
        self.forget(before);
        // Characters that were too frequent to be counted may still extend the block.
        let (a, b) = (self.a, self.b);
        while best_i > in_a.start && best_j > in_b.start && a[best_i - 1] == b[best_j - 1] {
            (best_i, best_j, best) = (best_i - 1, best_j - 1, best + 1);
        }
        while best_i + best < in_a.end
            && best_j + best < in_b.end
            && a[best_i + best] == b[best_j + best]
        {
            best += 1;
        }
        (best_i, best_j, best)
    }

    fn forget(&mut self, places: Range<usize>) {
        for &(_, j) in &self.places[places] {
            self.ending_before[j + 1] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_original_matcher() {
        for (a, b, expected) in [
            ("yoga pants", "dietary fiber", 17),
            ("accent chair", "storage case", 33),
            ("4g lte", "wood frame", 12),
            ("green stripe", "('color', 'green stripe')", 100),
            ("Stainless  STEEL!", "steel stainless", 100),
            ("", "x", 0),
            ("★", "★", 0),
            ("caf\u{e9}", "caf", 100),
            ("a_b", "a b", 67),
        ] {
            assert_eq!(token_set_ratio(a, b), expected, "{a} / {b}");
        }
    }

    #[test]
    fn the_matcher_is_not_symmetric() {
        assert_eq!(token_set_ratio("tide", "diet"), 25);
        assert_eq!(token_set_ratio("diet", "tide"), 50);
    }

    #[test]
    fn long_texts_lose_their_frequent_characters() {
        let long = "ab".repeat(120);
        let other = format!("{}c", "ba".repeat(120));
        assert_eq!(token_set_ratio(&other, &long), 0);
        assert_eq!(token_set_ratio(&long, &long), 100);
    }
}
