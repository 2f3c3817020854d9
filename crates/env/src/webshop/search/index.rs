//! An inverted index in memory, scored with BM25 in Lucene's `f32` arithmetic.
//!
//! The index is built once and never changes, so any number of sessions can search it at the same time.

use std::collections::HashMap;

use super::analyzer;

const K1: f32 = 0.9;
const B: f32 = 0.4;
/// Lucene refuses a query with more distinct terms.
const MOST_TERMS: usize = 1024;
/// Documents scored together: their running sums stay in the nearest cache.
const WINDOW: usize = 1 << 14;
/// Document lengths below this are stored exactly.
const EXACT_LENGTHS: u32 = 24;

/// A found document.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hit {
    /// The document's number, in the order the documents were added.
    pub document: u32,
    /// Its score.
    pub score: f32,
}

/// A query with more distinct terms than Lucene accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the query has more than {MOST_TERMS} distinct terms")]
pub struct QueryTooLong;

/// Collects documents into an index.
#[derive(Debug, Default)]
pub struct IndexBuilder {
    terms: HashMap<Box<str>, u32>,
    /// What each token met so far becomes: most are met again and again, and stemming is slow.
    tokens: HashMap<Box<str>, Option<u32>>,
    postings: Vec<Vec<(u32, u16)>>,
    lengths: Vec<u8>,
    total_terms: u64,
    filled: u32,
}

impl IndexBuilder {
    /// Adds the next document.
    pub fn add(&mut self, text: &str) {
        let document = self.lengths.len() as u32;
        let mut length = 0_u32;
        analyzer::for_each_token(text, |token| {
            let Some(term) = self.term_number(token) else { return };
            length = length.saturating_add(1);
            let postings = &mut self.postings[term as usize];
            match postings.last_mut() {
                Some((last, count)) if *last == document => *count = count.saturating_add(1),
                _ => postings.push((document, 1)),
            }
        });
        self.total_terms += u64::from(length);
        self.filled += u32::from(length > 0);
        self.lengths.push(encode_length(length));
    }

    fn term_number(&mut self, token: &str) -> Option<u32> {
        if let Some(&known) = self.tokens.get(token) {
            return known;
        }
        let number = analyzer::term_of(token).map(|term| {
            let next = self.postings.len() as u32;
            let number = *self.terms.entry(term.into_boxed_str()).or_insert(next);
            if number == next {
                self.postings.push(Vec::new());
            }
            number
        });
        self.tokens.insert(token.into(), number);
        number
    }

    /// The finished index. `tie_rank` gives each document's place among documents of equal score.
    pub fn finish(self, tie_rank: Vec<u32>) -> SearchIndex {
        let average = (self.total_terms as f64 / f64::from(self.filled.max(1))) as f32;
        let mut inverse_norms = [0.0; 256];
        for (byte, inverse) in inverse_norms.iter_mut().enumerate() {
            let length = decode_length(byte as u8) as f32;
            *inverse = 1.0 / (K1 * ((1.0 - B) + B * length / average));
        }
        let count = self.postings.iter().map(Vec::len).sum();
        let mut starts = Vec::with_capacity(self.postings.len() + 1);
        let mut documents = Vec::with_capacity(count);
        let mut counts = Vec::with_capacity(count);
        for postings in self.postings {
            starts.push(documents.len());
            documents.extend(postings.iter().map(|&(document, _)| document));
            counts.extend(postings.iter().map(|&(_, count)| count));
        }
        starts.push(documents.len());
        SearchIndex {
            terms: self.terms,
            starts,
            documents,
            counts,
            lengths: self.lengths,
            tie_rank,
            inverse_norms,
            filled: self.filled,
        }
    }
}

/// The finished index.
#[derive(Debug)]
pub struct SearchIndex {
    terms: HashMap<Box<str>, u32>,
    /// Where each term's postings start, and the end of the last.
    starts: Vec<usize>,
    documents: Vec<u32>,
    counts: Vec<u16>,
    lengths: Vec<u8>,
    tie_rank: Vec<u32>,
    inverse_norms: [f32; 256],
    filled: u32,
}

/// One query term's postings and weight.
struct Cursor {
    next: usize,
    end: usize,
    weight: f32,
}

impl SearchIndex {
    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// How many distinct terms there are.
    pub fn term_count(&self) -> usize {
        self.terms.len()
    }

    /// How many (term, document) pairs there are.
    pub fn posting_count(&self) -> usize {
        self.documents.len()
    }

    /// About how much memory the index takes.
    pub fn bytes(&self) -> usize {
        let terms: usize = self.terms.keys().map(|term| term.len() + 32).sum();
        terms
            + size_of_val(&*self.starts)
            + size_of_val(&*self.documents)
            + size_of_val(&*self.counts)
            + size_of_val(&*self.lengths)
            + size_of_val(&*self.tie_rank)
    }

    /// The best `wanted` documents, best first; equal scores in the order of their tie ranks.
    pub fn search(&self, query: &str, wanted: usize) -> Result<Vec<Hit>, QueryTooLong> {
        let mut cursors = self.cursors(query)?;
        let mut best = Best::new(wanted, &self.tie_rank);
        let mut sums = vec![0.0_f64; WINDOW.min(self.len())];
        for base in (0..self.len()).step_by(WINDOW) {
            let end = (base + WINDOW).min(self.len());
            let mut touched = false;
            for cursor in &mut cursors {
                touched |= self.add_scores(cursor, base, end, &mut sums);
            }
            if !touched {
                continue;
            }
            for (offset, sum) in sums[..end - base].iter_mut().enumerate() {
                if *sum > 0.0 {
                    let score = *sum as f32;
                    *sum = 0.0;
                    if score >= best.least {
                        best.offer(Hit { document: (base + offset) as u32, score });
                    }
                }
            }
        }
        Ok(best.finish())
    }

    /// The query's distinct terms that the index has, in order of first occurrence.
    fn cursors(&self, query: &str) -> Result<Vec<Cursor>, QueryTooLong> {
        let mut distinct: Vec<(String, u32)> = Vec::new();
        let mut place: HashMap<String, usize> = HashMap::new();
        for term in analyzer::terms(query) {
            if let Some(&at) = place.get(&term) {
                distinct[at].1 += 1;
            } else {
                place.insert(term.clone(), distinct.len());
                distinct.push((term, 1));
            }
        }
        if distinct.len() > MOST_TERMS {
            return Err(QueryTooLong);
        }
        let cursors = distinct.into_iter().filter_map(|(term, boost)| {
            let number = *self.terms.get(term.as_str())? as usize;
            let (next, end) = (self.starts[number], self.starts[number + 1]);
            let with_term = (end - next) as f64;
            let without = f64::from(self.filled) - with_term;
            let idf = (1.0 + (without + 0.5) / (with_term + 0.5)).ln() as f32;
            Some(Cursor { next, end, weight: boost as f32 * idf })
        });
        Ok(cursors.collect())
    }

    /// Adds one term's scores for the documents from `base` to `end`; false if it has none there.
    fn add_scores(&self, cursor: &mut Cursor, base: usize, end: usize, sums: &mut [f64]) -> bool {
        let documents = &self.documents[cursor.next..cursor.end];
        let inside = documents.partition_point(|&document| (document as usize) < end);
        let counts = &self.counts[cursor.next..cursor.next + inside];
        let lengths = &self.lengths[base..end];
        let weight = cursor.weight;
        for (&document, &count) in documents[..inside].iter().zip(counts) {
            let offset = document as usize - base;
            let inverse = self.inverse_norms[lengths[offset] as usize];
            sums[offset] += f64::from(weight - weight / (1.0 + f32::from(count) * inverse));
        }
        cursor.next += inside;
        inside > 0
    }
}

/// The best hits seen so far, as a heap with the worst of them on top.
struct Best<'a> {
    heap: std::collections::BinaryHeap<Ranked>,
    wanted: usize,
    /// A score below this is of no use.
    least: f32,
    tie_rank: &'a [u32],
}

/// Ordered so that the greatest is the worst hit.
struct Ranked {
    hit: Hit,
    rank: u32,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.hit.score.total_cmp(&self.hit.score).then(self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

impl<'a> Best<'a> {
    fn new(wanted: usize, tie_rank: &'a [u32]) -> Self {
        Self { heap: std::collections::BinaryHeap::new(), wanted, least: 0.0, tie_rank }
    }

    fn offer(&mut self, hit: Hit) {
        let rank = self.tie_rank.get(hit.document as usize).copied().unwrap_or(hit.document);
        self.heap.push(Ranked { hit, rank });
        if self.heap.len() > self.wanted {
            self.heap.pop();
            self.least = self.heap.peek().map_or(f32::INFINITY, |worst| worst.hit.score);
        }
    }

    fn finish(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.hit).collect()
    }
}

/// Lucene's one-byte document lengths: exact below 24, then the four highest bits.
fn encode_length(length: u32) -> u8 {
    let Some(above) = length.checked_sub(EXACT_LENGTHS) else {
        return length as u8;
    };
    let bits = u32::BITS - above.leading_zeros();
    if bits < 4 {
        return (EXACT_LENGTHS + above) as u8;
    }
    let shift = bits - 4;
    let mantissa = (above >> shift) & 7;
    (EXACT_LENGTHS + (mantissa | ((shift + 1) << 3))) as u8
}

fn decode_length(byte: u8) -> u32 {
    let Some(above) = u32::from(byte).checked_sub(EXACT_LENGTHS) else {
        return u32::from(byte);
    };
    let (mantissa, exponent) = (above & 7, above >> 3);
    match exponent.checked_sub(1) {
        None => EXACT_LENGTHS + mantissa,
        Some(shift) => EXACT_LENGTHS.saturating_add((mantissa | 8) << shift),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(documents: &[&str], tie_rank: Vec<u32>) -> SearchIndex {
        let mut builder = IndexBuilder::default();
        for document in documents {
            builder.add(document);
        }
        builder.finish(tie_rank)
    }

    #[test]
    fn lengths_keep_four_bits() {
        for (length, kept) in
            [(0, 0), (23, 23), (24, 24), (39, 39), (40, 40), (41, 40), (107, 104), (1919, 1816)]
        {
            assert_eq!(decode_length(encode_length(length)), kept, "{length}");
        }
        assert_eq!(encode_length(u32::MAX >> 1), 255);
    }

    #[test]
    fn equal_scores_follow_the_tie_ranks() {
        let index = index(&["red shoe", "blue shoe", "green shoe"], vec![2, 0, 1]);
        let found: Vec<u32> =
            index.search("shoes", 50).unwrap().iter().map(|hit| hit.document).collect();
        assert_eq!(found, [1, 2, 0]);
        assert_eq!(index.search("shoes", 2).unwrap().len(), 2);
        assert!(index.search("of the unknown", 50).unwrap().is_empty());
    }

    #[test]
    fn a_score_is_the_formula_by_hand() {
        let index = index(&["tea cup", "tea tea pot of clay", "chair"], vec![0, 1, 2]);
        let hits = index.search("tea tea", 50).unwrap();
        let idf = (1.0_f64 + 1.5 / 2.5).ln() as f32;
        let weight = 2.0 * idf;
        let average = (7.0_f64 / 3.0) as f32;
        let score = |count: f32, length: f32| {
            let inverse = 1.0 / (K1 * ((1.0 - B) + B * length / average));
            weight - weight / (1.0 + count * inverse)
        };
        assert_eq!(hits[0], Hit { document: 1, score: score(2.0, 4.0) });
        assert_eq!(hits[1], Hit { document: 0, score: score(1.0, 2.0) });
    }

    #[test]
    fn queries_of_too_many_terms_are_refused() {
        let index = index(&["tea"], vec![0]);
        let many: Vec<String> = (0..1025).map(|i| format!("word{i}")).collect();
        assert_eq!(index.search(&many.join(" "), 50), Err(QueryTooLong));
        assert!(index.search(&many[1..].join(" "), 50).unwrap().is_empty());
        assert!(index.search(&"tea ".repeat(5000), 50).unwrap().len() == 1);
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        assert!(index(&[], vec![]).search("tea", 50).unwrap().is_empty());
        assert!(index(&["", "the"], vec![0, 1]).search("the tea", 50).unwrap().is_empty());
    }

    #[test]
    fn windows_do_not_change_the_answer() {
        let mut documents = vec!["filler words only"; 3 * WINDOW + 5];
        for at in [0, WINDOW - 1, WINDOW, 2 * WINDOW + 7, 3 * WINDOW + 4] {
            documents[at] = "rare thing";
        }
        let ranks = (0..documents.len() as u32).rev().collect();
        let found = index(&documents, ranks).search("rare", 3).unwrap();
        let numbers: Vec<usize> = found.iter().map(|hit| hit.document as usize).collect();
        assert_eq!(numbers, [3 * WINDOW + 4, 2 * WINDOW + 7, WINDOW]);
    }
}
