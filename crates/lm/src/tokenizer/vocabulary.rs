//! Comparing token maps.

use std::fmt;

/// How many differing ids a message shows.
const SHOWN: usize = 5;

/// A fingerprint of a token map: which id stands for which token. How text is split does not enter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VocabularyHash([u8; 32]);

impl VocabularyHash {
    /// Hashes the tokens in the order of their ids.
    pub(super) fn of(tokens: &[Option<String>]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for token in tokens {
            // The length in front keeps neighbors apart; a hole has a length no token has.
            let (length, bytes) = match token {
                Some(token) => (token.len() as u64, token.as_bytes()),
                None => (u64::MAX, [].as_slice()),
            };
            hasher.update(&length.to_le_bytes());
            hasher.update(bytes);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for VocabularyHash {
    /// Sixteen hexadecimal digits, enough to tell tokenizers apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Describes where two maps part: their sizes and the first differing ids.
pub(super) fn difference(left: &[Option<String>], right: &[Option<String>]) -> String {
    let name = |tokens: &[Option<String>], id: usize| match tokens.get(id) {
        Some(Some(token)) => format!("{token:?}"),
        _ => "nothing".to_owned(),
    };
    let longest = left.len().max(right.len());
    let differing: Vec<usize> = (0..longest)
        .filter(|&id| {
            left.get(id).and_then(Option::as_ref) != right.get(id).and_then(Option::as_ref)
        })
        .collect();
    let mut parts: Vec<String> = differing
        .iter()
        .take(SHOWN)
        .map(|&id| format!("id {id} is {} and {}", name(left, id), name(right, id)))
        .collect();
    if differing.len() > SHOWN {
        parts.push(format!("and {} more ids differ", differing.len() - SHOWN));
    }
    format!("{} and {} tokens; {}", left.len(), right.len(), parts.join("; "))
}
