//! The nouns and names in a title.
//!
//! The original asks a statistical tagger, whose versions disagree with each other on two rewards in a hundred. Here the
//! answer comes from a table made with such a tagger, where there is one; for a title that the table lacks, from how
//! the table treats the title's words elsewhere; and for unknown words from a rule: nearly every word of a title is
//! a noun or a name except the small words of the language and numbers.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::webshop::catalog::raw::RawNouns;

/// Nouns by title.
#[derive(Debug, Default)]
pub struct Nouns {
    table: HashMap<Box<str>, Box<[Arc<str>]>>,
    /// For each word of the table's titles, whether it is a noun more often than not.
    lexicon: HashMap<Box<str>, bool>,
}

impl Nouns {
    /// Takes a table over, and learns from it how to treat words of other titles.
    pub fn from_table(rows: Vec<RawNouns>) -> Self {
        let mut balance: HashMap<String, i64> = HashMap::new();
        for row in &rows {
            for word in words(&row.name) {
                *balance.entry(word).or_default() -= 1;
            }
            for noun in &row.nouns {
                *balance.entry(noun.clone()).or_default() += 2;
            }
        }
        let lexicon =
            balance.into_iter().map(|(word, votes)| (word.into_boxed_str(), votes >= 0)).collect();
        // Titles share most of their nouns.
        let mut shared: HashSet<Arc<str>> = HashSet::new();
        let mut share = |noun: String| {
            let known = shared.get(noun.as_str()).cloned();
            known.unwrap_or_else(|| {
                let new: Arc<str> = noun.into();
                shared.insert(Arc::clone(&new));
                new
            })
        };
        let mut table = HashMap::with_capacity(rows.len());
        for row in rows {
            let nouns = row.nouns.into_iter().map(&mut share).collect();
            table.insert(row.name.into_boxed_str(), nouns);
        }
        Self { table, lexicon }
    }

    /// How many titles the table has.
    pub fn titles(&self) -> usize {
        self.table.len()
    }

    /// The nouns of a title, lower-cased, in order, repeats kept.
    pub fn of(&self, title: &str) -> Cow<'_, [Arc<str>]> {
        if let Some(known) = self.table.get(title) {
            return Cow::Borrowed(known);
        }
        Cow::Owned(
            words(title)
                .filter(|word| match self.lexicon.get(word.as_str()) {
                    Some(&is_noun) => is_noun,
                    None => looks_like_a_noun(word),
                })
                .map(Arc::from)
                .collect(),
        )
    }
}

/// The words of a title, lower-cased: cut at blanks, and at hyphens, slashes and commas between letters, without the
/// punctuation around them.
fn words(title: &str) -> impl Iterator<Item = String> {
    title.split_whitespace().flat_map(cut).filter_map(|piece| {
        let bare = piece.trim_matches(|c: char| !c.is_alphanumeric());
        let bare = bare.strip_suffix("'s").or_else(|| bare.strip_suffix("’s")).unwrap_or(bare);
        (!bare.is_empty()).then(|| bare.to_lowercase())
    })
}

fn cut(word: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for (at, mark) in word.match_indices(['-', '/', ',']) {
        let before = word[..at].chars().next_back().is_some_and(char::is_alphabetic);
        let after = word[at + mark.len()..].chars().next().is_some_and(char::is_alphabetic);
        if before && after {
            pieces.push(&word[start..at]);
            start = at + mark.len();
        }
    }
    pieces.push(&word[start..]);
    pieces
}

/// Words that are hardly ever nouns in a title. Sorted.
#[rustfmt::skip]
const NOT_NOUNS: [&str; 104] = [
    "a", "all", "an", "and", "any", "are", "as", "assembled", "at", "be", "both", "braided", "built",
    "by", "can", "certified", "compatible", "cooling", "damaged", "designed", "different", "down",
    "drying", "each", "easy", "effective", "etc", "every", "exfoliating", "floating", "folding",
    "for", "from", "full", "fully", "get", "go", "hanging", "has", "have", "highly", "hooded", "i",
    "imported", "in", "included", "includes", "into", "is", "it", "its", "lasting", "long", "made",
    "make", "many", "more", "most", "my", "not", "of", "on", "one", "only", "or", "other", "our",
    "out", "over", "own", "packaged", "padded", "per", "play", "pressed", "pure", "reduce",
    "running", "shaped", "some", "such", "suitable", "take", "tempered", "than", "that", "the",
    "their", "these", "they", "thin", "this", "through", "to", "two", "under", "up", "very", "via",
    "well", "with", "without", "you", "your",
];

fn looks_like_a_noun(word: &str) -> bool {
    word.chars().next().is_some_and(char::is_alphabetic)
        && word != "x"
        && NOT_NOUNS.binary_search(&word).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Nouns {
        Nouns::from_table(vec![RawNouns {
            name: "Velmora Folding Chair, Quick Chair".to_owned(),
            nouns: ["velmora", "folding", "chair", "chair"].map(str::to_owned).to_vec(),
        }])
    }

    #[test]
    fn a_title_of_the_table_is_answered_from_it() {
        let nouns = table();
        assert_eq!(nouns.of("Velmora Folding Chair, Quick Chair").len(), 4);
    }

    #[test]
    fn other_titles_follow_the_tables_words_and_then_the_rule() {
        let nouns = table();
        let found = nouns.of("A quick, folding Table-Chair with 24 legs' (2-pack) for you");
        assert_eq!(*found, ["folding", "table", "chair", "legs"].map(Arc::from));
        assert_eq!(*Nouns::default().of("Folding the TRAY’s lid"), ["tray", "lid"].map(Arc::from));
        assert!(nouns.of("").is_empty());
    }

    #[test]
    fn the_list_of_small_words_is_sorted() {
        assert!(NOT_NOUNS.is_sorted());
    }
}
