//! One product: what it is, what it is called, what it costs, and who might want it.

use super::text::{Title, bullets, description};
use super::words::{DEPARTMENTS, Department, QUALITIES, SYLLABLES};
use super::{Dice, Generated, awkward, options};
use crate::webshop::catalog::raw::{RawHumanInstruction, RawInstruction, RawNouns, RawProduct};

/// The letters and digits of product numbers.
const ASIN_LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKLMNPQRSTVWXY";

/// A property of a product, and how an instruction words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attribute {
    /// Stands before the thing: "stain resistant lamps".
    Quality(String),
    /// Stands after "with": "lamps with oak base".
    Part(String),
    /// Stands after "for": "lamps for guest room".
    Use(String),
}

impl Attribute {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Quality(text) | Self::Part(text) | Self::Use(text) => text,
        }
    }
}

/// What a product is.
pub(super) struct Thing {
    pub department: &'static Department,
    pub group: &'static str,
    /// Its singular name, such as "table lamp".
    pub kind: &'static str,
    pub variant: &'static str,
    pub brand: String,
    /// Everything that is true of some products of this kind.
    pub pool: Vec<Attribute>,
    /// What is true of this one.
    pub attributes: Vec<Attribute>,
}

impl Thing {
    /// The search term: "outdoor table lamps".
    pub(super) fn query(&self) -> String {
        let kinds = plural(self.kind);
        if self.variant.is_empty() { kinds } else { format!("{} {kinds}", self.variant) }
    }

    /// The path of categories; most have four pieces.
    fn category_path(&self, dice: &mut Dice) -> String {
        let mut pieces = vec![self.department.path.to_owned(), self.group.to_owned()];
        if !self.variant.is_empty() {
            pieces.push(format!("{} {}", capitalized(self.variant), self.group));
        } else if dice.per_mille(800) {
            pieces.push(format!("Everyday {}", self.group));
        }
        pieces.push(capitalized(&plural(self.kind)));
        if dice.per_mille(330) {
            pieces.push(format!("{} Series", self.brand));
            if dice.per_mille(250) {
                pieces.push("Limited Editions".to_owned());
            }
        }
        pieces.join(" › ")
    }
}

pub(super) fn generate(number: u64, dice: &mut Dice) -> Generated {
    let thing = draw_thing(dice);
    let mut title = Title::compose(&thing, dice);
    let mut product = RawProduct {
        asin: asin(number, dice),
        name: String::new(),
        category: thing.department.category.to_owned(),
        query: thing.query(),
        product_category: thing.category_path(dice),
        full_description: description(&thing, dice),
        small_description: bullets(&thing, dice),
        pricing: Some(price(dice)),
        customization_options: options::draw(&thing, dice),
        images: vec![format!("images/{number}.png")],
    };
    let may_be_a_goal = awkward::plant(number, &thing, &mut product, &mut title, dice);
    product.name = title.text();
    let instruction = instruction(&thing, may_be_a_goal, dice);
    let human = written(&thing, &product, dice);
    let nouns = RawNouns { name: product.name.clone(), nouns: title.nouns() };
    Generated { product, instruction, human, nouns }
}

fn draw_thing(dice: &mut Dice) -> Thing {
    let at = dice.weighted(DEPARTMENTS.iter().map(|department| department.weight));
    let department = &DEPARTMENTS[at];
    let kinds: Vec<(&str, &str)> = department
        .groups
        .iter()
        .flat_map(|(group, kinds)| kinds.iter().map(move |kind| (*group, *kind)))
        .collect();
    // Some kinds are sold much more than others.
    let index = dice.below(kinds.len()).min(dice.below(kinds.len()));
    let (group, kind) = kinds[index];
    let pool = pool(department, at, index);
    let attributes = draw_attributes(&pool, dice);
    Thing {
        department,
        group,
        kind,
        variant: dice.pick(department.variants),
        brand: SYLLABLES.iter().map(|syllables| dice.pick(syllables)).collect(),
        pool,
        attributes,
    }
}

/// What products of a kind may have: a slice of the department's words that starts elsewhere for each kind.
fn pool(department: &Department, department_place: usize, kind_place: usize) -> Vec<Attribute> {
    let qualities: Vec<String> = QUALITIES
        .iter()
        .flat_map(|(firsts, seconds)| {
            firsts
                .iter()
                .flat_map(|first| seconds.iter().map(move |second| format!("{first} {second}")))
        })
        .collect();
    let parts: Vec<String> = department
        .materials
        .iter()
        .flat_map(|material| department.parts.iter().map(move |part| format!("{material} {part}")))
        .collect();
    let cycle = |texts: &[String], step: usize, count: usize| -> Vec<String> {
        let start = (kind_place + 5 * department_place) * step;
        (0..count).map(|i| texts[(start + i * 7) % texts.len()].clone()).collect()
    };
    let uses: Vec<String> = department.uses.iter().map(|&text| text.to_owned()).collect();
    let mut pool: Vec<Attribute> = Vec::new();
    pool.extend(cycle(&qualities, 3, 8).into_iter().map(Attribute::Quality));
    pool.extend(cycle(&parts, 11, 10).into_iter().map(Attribute::Part));
    pool.extend(cycle(&uses, 1, 5).into_iter().map(Attribute::Use));
    pool
}

/// Nearly a fifth of all products have none; the others mostly one to four.
fn draw_attributes(pool: &[Attribute], dice: &mut Dice) -> Vec<Attribute> {
    if dice.per_mille(185) {
        return Vec::new();
    }
    let mut count = 1;
    while count < 12 && dice.per_mille(700) {
        count += 1;
    }
    let indices: Vec<usize> = (0..pool.len()).collect();
    let mut chosen = dice.some(&indices, count);
    chosen.sort_unstable();
    chosen.into_iter().map(|index| pool[index].clone()).collect()
}

/// Two fifths of all products are goals; their instructions name two to four of their attributes.
fn instruction(thing: &Thing, may_be_a_goal: bool, dice: &mut Dice) -> RawInstruction {
    let texts = |attributes: &[&Attribute]| {
        attributes.iter().map(|attribute| attribute.text().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<&Attribute> = thing.attributes.iter().collect();
    let attributes = Some(texts(&all));
    if !may_be_a_goal || all.len() < 2 || !dice.per_mille(thing.department.goals) {
        return RawInstruction { attributes, ..RawInstruction::default() };
    }
    let count = 2 + dice.below(3);
    let indices: Vec<usize> = (0..all.len()).collect();
    let mut named = dice.some(&indices, count);
    named.sort_unstable();
    let named: Vec<&Attribute> = named.into_iter().map(|index| all[index]).collect();
    let of = |wanted: fn(&Attribute) -> bool| {
        named.iter().filter(|a| wanted(a)).map(|a| a.text()).collect::<Vec<_>>().join(", ")
    };
    let qualities = of(|a| matches!(a, Attribute::Quality(_)));
    let parts = of(|a| matches!(a, Attribute::Part(_)));
    let uses = of(|a| matches!(a, Attribute::Use(_)));
    let mut text = String::from("Find me ");
    for (mark, words) in
        [("", &qualities), ("", &thing.query()), ("with ", &parts), ("for ", &uses)]
    {
        if !words.is_empty() {
            text.push_str(mark);
            text.push_str(words);
            text.push(' ');
        }
    }
    RawInstruction {
        attributes,
        instruction: Some(text.trim_end().to_owned()),
        instruction_attributes: Some(texts(&named)),
    }
}

/// Now and then an instruction in the manner of people.
fn written(thing: &Thing, product: &RawProduct, dice: &mut Dice) -> Vec<RawHumanInstruction> {
    let Some(attribute) = thing.attributes.first().filter(|_| dice.per_mille(120)) else {
        return Vec::new();
    };
    let query = thing.query();
    let mut instruction = match attribute {
        Attribute::Quality(text) => format!("i am looking for {text} {query}"),
        Attribute::Part(text) => format!("i need {query} with {text}"),
        Attribute::Use(text) => format!("please find {query} that are good for {text}"),
    };
    let mut instruction_options = Vec::new();
    if let Some((_, values)) = product.customization_options.first() {
        let value = values[dice.below(values.len())].to_lowercase();
        instruction.push_str(", and i want the ");
        instruction.push_str(&value);
        instruction.push_str(" one");
        instruction_options.push(value);
    }
    instruction.push('.');
    vec![RawHumanInstruction {
        instruction,
        instruction_attributes: vec![attribute.text().to_owned()],
        instruction_options,
    }]
}

/// Ten letters and digits, of which the last five count the products.
fn asin(number: u64, dice: &mut Dice) -> String {
    let mut letters = String::from("LW");
    for index in 0..8_u32 {
        let letter = match 7 - index {
            digit @ 0..=4 => (number >> (5 * digit)) as usize % 32,
            _ => dice.below(32),
        };
        letters.push(char::from(ASIN_LETTERS[letter]));
    }
    letters
}

/// About thirty dollars, with a long tail; now and then a range, now and then nothing.
fn price(dice: &mut Dice) -> String {
    if dice.per_mille(89) {
        return String::new();
    }
    let mut price = dice.log_normal(27.0, 2.6);
    if dice.per_mille(100) {
        price *= 7.0;
    }
    let price = price.clamp(0.5, 4300.0);
    if dice.per_mille(93) {
        return format!("${:.2} - ${:.2}", price * 0.8, price * 1.3);
    }
    format!("${:.2}", price.floor() + dice.pick(&[0.99, 0.95, 0.5, 0.0, 0.89]))
}

/// The plural of an English noun phrase.
fn plural(kind: &str) -> String {
    if ["s", "sh", "ch", "x", "z"].iter().any(|end| kind.ends_with(end)) {
        return format!("{kind}es");
    }
    match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{kind}s"),
    }
}

/// Every word with a capital letter.
pub(super) fn capitalized(text: &str) -> String {
    let words: Vec<String> = text
        .split(' ')
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_read_naturally() {
        for (one, many) in [
            ("table lamp", "table lamps"),
            ("body wash", "body washes"),
            ("trail mix", "trail mixes"),
            ("gummy candy", "gummy candies"),
            ("tray", "trays"),
        ] {
            assert_eq!(plural(one), many);
        }
        assert_eq!(capitalized("men's rain jackets"), "Men's Rain Jackets");
    }
}
