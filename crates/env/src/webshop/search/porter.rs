//! Martin Porter's stemmer of 1980 as his own Java program has it (with the later rules for "bli" and "logi"),
//! which is the one Lucene runs. The crates on offer implement other variants.

/// Replaces `word` by its stem. Words of at most two characters stay as they are; only ASCII vowels are vowels.
pub(super) fn stem(word: &mut String) {
    if word.is_ascii() {
        if word.len() > 2 {
            let mut letters = std::mem::take(word).into_bytes();
            Stemmer { letters: &mut letters }.run();
            word.extend(letters.iter().map(|&letter| char::from(letter)));
        }
        return;
    }
    let mut letters: Vec<char> = word.chars().collect();
    if letters.iter().map(|c| c.len_utf16()).sum::<usize>() > 2 {
        Stemmer { letters: &mut letters }.run();
        word.clear();
        word.extend(letters);
    }
}

/// A letter of a word: a byte of an ASCII word, a character of any other.
trait Letter: Copy + PartialEq {
    fn from_ascii(letter: u8) -> Self;
}

impl Letter for u8 {
    fn from_ascii(letter: u8) -> Self {
        letter
    }
}

impl Letter for char {
    fn from_ascii(letter: u8) -> Self {
        Self::from(letter)
    }
}

struct Stemmer<'a, L> {
    letters: &'a mut Vec<L>,
}

impl<L: Letter> Stemmer<'_, L> {
    fn run(&mut self) {
        self.plurals_and_past();
        self.final_y();
        self.replace_first(&[
            ("ational", "ate"),
            ("tional", "tion"),
            ("enci", "ence"),
            ("anci", "ance"),
            ("izer", "ize"),
            ("bli", "ble"),
            ("alli", "al"),
            ("entli", "ent"),
            ("eli", "e"),
            ("ousli", "ous"),
            ("ization", "ize"),
            ("ation", "ate"),
            ("ator", "ate"),
            ("alism", "al"),
            ("iveness", "ive"),
            ("fulness", "ful"),
            ("ousness", "ous"),
            ("aliti", "al"),
            ("iviti", "ive"),
            ("biliti", "ble"),
            ("logi", "log"),
        ]);
        self.replace_first(&[
            ("icate", "ic"),
            ("ative", ""),
            ("alize", "al"),
            ("iciti", "ic"),
            ("ical", "ic"),
            ("ful", ""),
            ("ness", ""),
        ]);
        self.long_endings();
        self.final_e_and_ll();
    }

    fn is(&self, at: usize, letter: u8) -> bool {
        self.letters[at] == L::from_ascii(letter)
    }

    fn is_consonant(&self, at: usize) -> bool {
        if b"aeiou".iter().any(|&vowel| self.is(at, vowel)) {
            return false;
        }
        if !self.is(at, b'y') {
            return true;
        }
        // A run of y's alternates, starting as a consonant at the word's beginning or after a vowel.
        let mut first = at;
        while first > 0 && self.is(first - 1, b'y') {
            first -= 1;
        }
        let first_is_consonant = first == 0 || !self.is_consonant(first - 1);
        first_is_consonant == (at - first).is_multiple_of(2)
    }

    /// How many times a vowel is followed by a consonant in the first `length` letters.
    fn measure(&self, length: usize) -> usize {
        (1..length).filter(|&at| self.is_consonant(at) && !self.is_consonant(at - 1)).count()
    }

    fn has_vowel(&self, length: usize) -> bool {
        (0..length).any(|at| !self.is_consonant(at))
    }

    fn ends_in_double_consonant(&self, length: usize) -> bool {
        length >= 2
            && self.letters[length - 1] == self.letters[length - 2]
            && self.is_consonant(length - 1)
    }

    /// Whether the first `length` letters end in consonant, vowel, consonant, the last not w, x or y.
    fn ends_in_short_syllable(&self, length: usize) -> bool {
        length >= 3
            && self.is_consonant(length - 1)
            && !self.is_consonant(length - 2)
            && self.is_consonant(length - 3)
            && !b"wxy".iter().any(|&letter| self.is(length - 1, letter))
    }

    /// The length of what precedes `ending`, if the word ends so.
    fn before(&self, ending: &str) -> Option<usize> {
        let start = self.letters.len().checked_sub(ending.len())?;
        let same = ending.bytes().zip(&self.letters[start..]).all(|(a, &b)| L::from_ascii(a) == b);
        same.then_some(start)
    }

    fn set_ending(&mut self, start: usize, ending: &str) {
        self.letters.truncate(start);
        self.letters.extend(ending.bytes().map(L::from_ascii));
    }

    fn plurals_and_past(&mut self) {
        if self.letters.last() == Some(&L::from_ascii(b's')) {
            let start = self.before("sses").or_else(|| self.before("ies"));
            if let Some(start) = start {
                let kept = if self.before("sses").is_some() { "ss" } else { "i" };
                self.set_ending(start, kept);
            } else if self.before("ss").is_none() {
                self.letters.pop();
            }
        }
        if let Some(start) = self.before("eed") {
            if self.measure(start) > 0 {
                self.letters.pop();
            }
            return;
        }
        let Some(start) = self.before("ed").or_else(|| self.before("ing")) else { return };
        if !self.has_vowel(start) {
            return;
        }
        self.letters.truncate(start);
        if self.before("at").is_some() || self.before("bl").is_some() || self.before("iz").is_some()
        {
            self.letters.push(L::from_ascii(b'e'));
        } else if self.ends_in_double_consonant(start) {
            if !b"lsz".iter().any(|&letter| self.is(start - 1, letter)) {
                self.letters.pop();
            }
        } else if self.measure(start) == 1 && self.ends_in_short_syllable(start) {
            self.letters.push(L::from_ascii(b'e'));
        }
    }

    fn final_y(&mut self) {
        if let Some(start) = self.before("y")
            && self.has_vowel(start)
        {
            self.set_ending(start, "i");
        }
    }

    /// Replaces the first ending of the list that fits, if something measurable precedes it.
    fn replace_first(&mut self, endings: &[(&str, &str)]) {
        let fitting =
            endings.iter().find_map(|(old, new)| self.before(old).map(|start| (start, new)));
        if let Some((start, new)) = fitting
            && self.measure(start) > 0
        {
            self.set_ending(start, new);
        }
    }

    fn long_endings(&mut self) {
        const ENDINGS: [&str; 19] = [
            "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion",
            "ou", "ism", "ate", "iti", "ous", "ive", "ize",
        ];
        let fitting = ENDINGS.iter().find_map(|ending| {
            let start = self.before(ending)?;
            let allowed = *ending != "ion"
                || start > 0 && (self.is(start - 1, b's') || self.is(start - 1, b't'));
            allowed.then_some(start)
        });
        if let Some(start) = fitting
            && self.measure(start) > 1
        {
            self.letters.truncate(start);
        }
    }

    fn final_e_and_ll(&mut self) {
        if let Some(start) = self.before("e") {
            let measure = self.measure(start);
            if measure > 1 || measure == 1 && !self.ends_in_short_syllable(start) {
                self.letters.pop();
            }
        }
        let length = self.letters.len();
        if self.before("l").is_some()
            && self.ends_in_double_consonant(length)
            && self.measure(length - 1) > 1
        {
            self.letters.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_stemmed_as_the_original_program_does() {
        for (word, expected) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("cats", "cat"),
            ("agreed", "agre"),
            ("feed", "feed"),
            ("plastered", "plaster"),
            ("sing", "sing"),
            ("conflated", "conflat"),
            ("hopping", "hop"),
            ("falling", "fall"),
            ("filing", "file"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("relational", "relat"),
            ("possibly", "possibl"),
            ("technology", "technolog"),
            ("generalizations", "gener"),
            ("adoption", "adopt"),
            ("controlling", "control"),
            ("yyys", "yyi"),
            ("is", "is"),
            ("", ""),
            ("crèmes", "crème"),
            ("👕s", "👕"),
        ] {
            let mut stemmed = word.to_owned();
            stem(&mut stemmed);
            assert_eq!(stemmed, expected, "{word}");
        }
    }
}
