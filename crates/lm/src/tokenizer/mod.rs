//! Text to tokens and back, with the model's own `tokenizer.json`.

mod limits;
mod stream;
mod train;
mod vocabulary;

use std::path::{Path, PathBuf};

pub use stream::StreamDecoder;
pub use train::{
    SpecialToken, Splitting, chatml_companions, chatml_tokens, train_bpe, train_bpe_with,
};
pub use vocabulary::VocabularyHash;

use crate::error::LmError;

/// The largest `tokenizer.json`; real ones have up to 40 MB.
const MAX_FILE: u64 = 512 << 20;

/// A loaded tokenizer.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    /// The token of each id; ids that stand for nothing are `None`.
    tokens: Vec<Option<String>>,
    /// Whether an id frames text instead of being text (`<|im_end|>`).
    special: Vec<bool>,
    /// Whether an id was added beside the trained vocabulary (`<think>`), special or not.
    added: Vec<bool>,
    hash: VocabularyHash,
}

impl Tokenizer {
    /// Loads the content of a `tokenizer.json`; `path` is only used in messages.
    pub fn from_json(path: &Path, json: &[u8]) -> Result<Self, LmError> {
        let wrong = |problem: String| LmError::Tokenizer { path: path.to_owned(), problem };
        limits::check(json).map_err(wrong)?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json)
            .map_err(|error| wrong(format!("not a tokenizer.json: {error}")))?;
        // A file may ask for cut or padded output, which is never what a prompt wants.
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|error| wrong(error.to_string()))?;

        let vocabulary = inner.get_vocab(true);
        let length = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        // Ids are dense up to a few holes; anything else is a damaged file that would cost memory.
        if length > 2 * vocabulary.len() + 1024 {
            return Err(wrong(format!(
                "its largest id is {}, but it has only {} tokens",
                length - 1,
                vocabulary.len()
            )));
        }
        let mut tokens: Vec<Option<String>> = vec![None; length];
        for (token, id) in vocabulary {
            let place = &mut tokens[id as usize];
            // An added token may repeat a trained one's id under another spelling; the added one is what is printed.
            if place.is_none() || inner.id_to_token(id).as_deref() == Some(token.as_str()) {
                *place = Some(token);
            }
        }
        let (mut special, mut added) = (vec![false; length], vec![false; length]);
        for (&id, token) in inner.get_added_vocabulary().get_added_tokens_decoder() {
            if let Some(flag) = special.get_mut(id as usize) {
                *flag = token.special;
                added[id as usize] = true;
            }
        }
        let hash = VocabularyHash::of(&tokens);
        Ok(Self { path: path.to_owned(), inner, tokens, special, added, hash })
    }

    /// Loads a `tokenizer.json`.
    pub fn from_file(path: &Path) -> Result<Self, LmError> {
        let json = crate::file::read_limited(path, MAX_FILE)?;
        Self::from_json(path, &json)
    }

    /// The file it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Splits text into tokens. Special tokens written out in the text become their ids; none are added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, LmError> {
        let encoding = self.inner.encode_fast(text, false).map_err(|error| LmError::Tokenizer {
            path: self.path.clone(),
            problem: format!("cannot encode a text of {} bytes: {error}", text.len()),
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens, special tokens included as they are written.
    pub fn decode(&self, ids: &[u32]) -> Result<String, LmError> {
        self.decode_with(ids, false)
    }

    /// The text of tokens without the special ones.
    pub fn decode_text(&self, ids: &[u32]) -> Result<String, LmError> {
        self.decode_with(ids, true)
    }

    fn decode_with(&self, ids: &[u32], skip_special: bool) -> Result<String, LmError> {
        self.inner.decode(ids, skip_special).map_err(|error| LmError::Tokenizer {
            path: self.path.clone(),
            problem: format!("cannot decode {} tokens: {error}", ids.len()),
        })
    }

    /// Decodes a growing response piece by piece; special tokens are left out of the text.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// One more than the largest id that stands for a token. A model's `vocab_size` may be larger (padding).
    pub fn real_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Whether an id frames text instead of being text. Ids beyond the tokenizer count as special.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(true)
    }

    /// Whether an id was added beside the trained vocabulary, special or not.
    pub fn is_added(&self, id: u32) -> bool {
        self.added.get(id as usize).copied().unwrap_or(false)
    }

    /// The flags of [`Tokenizer::is_special`] for all real ids.
    pub fn special_flags(&self) -> &[bool] {
        &self.special
    }

    /// A token as the tokenizer spells it (bytes may be written as other letters).
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize)?.as_deref()
    }

    /// The id of a token in the tokenizer's spelling.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Whether a token stands for one byte of a letter the vocabulary does not have, written `<0xE2>`.
    fn is_byte(&self, id: u32) -> bool {
        let digits = self.token(id).and_then(|t| t.strip_prefix("<0x")?.strip_suffix('>'));
        digits.is_some_and(|digits| digits.len() == 2 && u8::from_str_radix(digits, 16).is_ok())
    }

    /// A fingerprint of the token map.
    pub fn vocabulary_hash(&self) -> VocabularyHash {
        self.hash
    }

    /// Checks that two tokenizers have one token map, so that their models' distributions can be compared. The padding
    /// of either model does not matter. The error shows the first differing ids.
    pub fn check_same_vocabulary(&self, other: &Self) -> Result<(), LmError> {
        if self.hash == other.hash {
            return Ok(());
        }
        Err(LmError::Vocabulary {
            left: self.path.clone(),
            right: other.path.clone(),
            difference: vocabulary::difference(&self.tokens, &other.tokens),
        })
    }
}
