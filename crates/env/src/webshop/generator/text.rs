//! Titles, descriptions and bullet points.

use super::Dice;
use super::product::{Attribute, Thing, capitalized};
use super::words::{COLORS, HEADLINES, PRAISE, SENTENCES, SHADES};

/// A title as words, each marked as a noun or not.
pub(super) struct Title {
    words: Vec<(String, bool)>,
}

impl Title {
    /// A title of about eighteen words: brand, some attributes, the thing, then whatever sells.
    pub(super) fn compose(thing: &Thing, dice: &mut Dice) -> Self {
        let mut title = Self { words: Vec::new() };
        let wanted = (18.0 + 7.0 * dice.0.normal()).clamp(4.0, 38.0) as usize;
        title.push(&thing.brand, true);
        let (before, after): (Vec<&Attribute>, Vec<&Attribute>) = thing
            .attributes
            .iter()
            .filter(|_| dice.per_mille(350))
            .partition(|attribute| matches!(attribute, Attribute::Quality(_)));
        for attribute in before {
            title.push(attribute.text(), false);
        }
        title.push(thing.variant, true);
        title.push(thing.kind, true);
        for attribute in after {
            title.push_attribute(attribute);
        }
        let mut pool: Vec<&Attribute> = thing.pool.iter().collect();
        dice.0.shuffle(&mut pool);
        let mut praise = PRAISE.to_vec();
        dice.0.shuffle(&mut praise);
        let (mut has_code, mut has_pack, mut has_color) = (false, false, false);
        while title.words.len() < wanted {
            match dice.below(6) {
                0 if !std::mem::replace(&mut has_code, true) => {
                    let code = 100 + dice.below(900);
                    let series = dice.pick(&["KX", "TR", "M", "ZL", "PQ"]);
                    title.push(&format!("{series}{code}"), true);
                }
                1 if !std::mem::replace(&mut has_pack, true) => {
                    title.push(&format!("({} pack)", 2 + dice.below(11)), false);
                }
                2 if !std::mem::replace(&mut has_color, true) => {
                    title.push(dice.pick(&SHADES), false);
                    title.push(dice.pick(&COLORS), true);
                }
                3 | 4 => {
                    if let Some(attribute) = pool.pop() {
                        title.push_attribute(attribute);
                    }
                }
                _ => {
                    let Some((how, what)) = praise.pop() else { break };
                    title.comma();
                    title.push(how, false);
                    title.push(what, true);
                }
            }
        }
        title
    }

    fn push_attribute(&mut self, attribute: &Attribute) {
        match attribute {
            Attribute::Quality(text) => self.push(text, false),
            Attribute::Part(text) => {
                self.push("with", false);
                self.push(text, true);
            }
            Attribute::Use(text) => {
                self.push("for", false);
                self.push(text, true);
            }
        }
    }

    /// Adds words, each starting with a capital letter unless it is a small one.
    pub(super) fn push(&mut self, text: &str, nouns: bool) {
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let shown =
                if matches!(word, "with" | "for") { word.to_owned() } else { capitalized(word) };
            self.words.push((shown, nouns));
        }
    }

    fn comma(&mut self) {
        if let Some((word, _)) = self.words.last_mut() {
            word.push(',');
        }
    }

    /// Makes the title empty.
    pub(super) fn clear(&mut self) {
        self.words.clear();
    }

    /// The title.
    pub(super) fn text(&self) -> String {
        let words: Vec<&str> = self.words.iter().map(|(word, _)| word.as_str()).collect();
        words.join(" ")
    }

    /// Its nouns, lower-cased, without the commas after them.
    pub(super) fn nouns(&self) -> Vec<String> {
        let nouns = self.words.iter().filter(|(_, is_noun)| *is_noun);
        nouns.map(|(word, _)| word.trim_end_matches(',').to_lowercase()).collect()
    }
}

/// A description; three in ten are empty, some are very long.
pub(super) fn description(thing: &Thing, dice: &mut Dice) -> String {
    if dice.per_mille(300) {
        return String::new();
    }
    let sentences = dice.log_normal(8.5, 2.2).clamp(1.0, 150.0) as usize;
    let mut text: Vec<String> = (0..sentences).map(|_| sentence(thing, dice)).collect();
    text.extend(thing.attributes.iter().filter(|_| dice.per_mille(250)).map(mention));
    text.join(" ")
}

/// One to eight bullet points, mostly five.
pub(super) fn bullets(thing: &Thing, dice: &mut Dice) -> Vec<String> {
    let count =
        [1, 2, 3, 4, 5, 6, 7, 8][dice.weighted([60, 50, 80, 150, 470, 100, 60, 30].into_iter())];
    let mut bullets: Vec<String> = (0..count)
        .map(|_| {
            let sentences = dice.log_normal(2.5, 1.9).clamp(0.0, 9.0) as usize;
            let mut text: Vec<String> = (0..sentences).map(|_| sentence(thing, dice)).collect();
            text.insert(0, format!("{} -", dice.pick(&HEADLINES)));
            text.join(" ")
        })
        .collect();
    for attribute in &thing.attributes {
        if dice.per_mille(200) {
            let index = dice.below(bullets.len());
            bullets[index].push(' ');
            bullets[index].push_str(&mention(attribute));
        }
    }
    bullets
}

fn mention(attribute: &Attribute) -> String {
    match attribute {
        Attribute::Quality(text) => format!("It is {text}."),
        Attribute::Part(text) => format!("It comes with {text}."),
        Attribute::Use(text) => format!("It is made for {text}."),
    }
}

/// A sentence about the thing. The words it is filled with come from the whole kind, not from this product alone.
pub(super) fn sentence(thing: &Thing, dice: &mut Dice) -> String {
    let mut draw = |wanted: fn(&Attribute) -> bool| {
        let fitting: Vec<&str> =
            thing.pool.iter().filter(|a| wanted(a)).map(Attribute::text).collect();
        dice.pick(&fitting).to_owned()
    };
    let quality = draw(|a| matches!(a, Attribute::Quality(_)));
    let part = draw(|a| matches!(a, Attribute::Part(_)));
    let usage = draw(|a| matches!(a, Attribute::Use(_)));
    let number = (2 + dice.below(60)).to_string();
    dice.pick(&SENTENCES)
        .replace("{kind}", thing.kind)
        .replace("{brand}", &thing.brand)
        .replace("{quality}", &quality)
        .replace("{part}", &part)
        .replace("{use}", &usage)
        .replace("{number}", &number)
}
