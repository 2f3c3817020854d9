//! Decoding a response while it grows.

use super::Tokenizer;
use crate::error::LmError;

/// What an incomplete (or wrong) UTF-8 sequence decodes to.
const REPLACEMENT: char = '\u{fffd}';

/// Turns tokens into text piece by piece. The pieces put together are exactly what decoding all tokens at once gives,
/// and no piece ends inside a character: bytes that may still become one are held back.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The tokens that still matter: some already emitted ones for context, then the pending ones.
    window: Vec<u32>,
    /// How many bytes of the window's text were emitted.
    emitted: usize,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, window: Vec::new(), emitted: 0 }
    }

    /// Takes one more token and gives the text that is certain now, which may be empty.
    pub fn push(&mut self, id: u32) -> Result<String, LmError> {
        self.window.push(id);
        if self.tokenizer.is_byte(id) {
            // A run of byte tokens is text or not as a whole; its end decides.
            return Ok(String::new());
        }
        let text = self.tokenizer.decode_text(&self.window)?;
        let certain = text.trim_end_matches(REPLACEMENT).len();
        let piece = text.get(self.emitted..certain).unwrap_or_default().to_owned();
        self.emitted += piece.len();
        if certain == text.len() {
            self.forget()?;
        }
        Ok(piece)
    }

    /// Ends the response: gives what was held back.
    pub fn finish(self) -> Result<String, LmError> {
        let text = self.tokenizer.decode_text(&self.window)?;
        Ok(text.get(self.emitted..).unwrap_or_default().to_owned())
    }

    /// Drops emitted tokens. The last ones that are whole text stay, because some decoders treat the very first token
    /// differently (a leading space vanishes).
    fn forget(&mut self) -> Result<(), LmError> {
        for keep in 1..self.window.len() {
            let tail = &self.window[self.window.len() - keep..];
            let text = self.tokenizer.decode_text(tail)?;
            if !text.is_empty() && !text.contains(REPLACEMENT) {
                self.emitted = text.len();
                self.window.drain(..self.window.len() - keep);
                break;
            }
        }
        Ok(())
    }
}
