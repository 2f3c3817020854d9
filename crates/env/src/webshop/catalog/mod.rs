//! The products of a shop: read from the upstream files, or made up by the generator.

mod files;
mod price;
pub mod raw;
mod stream;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use files::{CatalogFiles, load, load_nouns};
pub use price::Pricing;
use raw::{RawHumanInstruction, RawInstruction, RawProduct};

use super::python;
use crate::error::EnvError;

/// The longest product number that is kept.
const LONGEST_ASIN: usize = 10;

/// One product, with what its pages show.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// Its number.
    pub asin: Box<str>,
    /// The title.
    pub title: Box<str>,
    /// The long text.
    pub description: Box<str>,
    /// The bullet points.
    pub bullets: Box<[Box<str>]>,
    /// The department.
    pub category: Arc<str>,
    /// The search term it was found under, lower-cased.
    pub query: Arc<str>,
    /// The path of categories.
    pub product_category: Arc<str>,
    /// What it costs.
    pub pricing: Pricing,
    /// What can be chosen.
    pub options: Box<[ProductOption]>,
    /// Hidden properties that rewards look at.
    pub attributes: Box<[Arc<str>]>,
    /// The goals that ask for it.
    pub instructions: Instructions,
}

/// Something to choose: a color, a size.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductOption {
    /// Its name, lower-cased.
    pub name: Arc<str>,
    /// Its values, lower-cased.
    pub values: Box<[Arc<str>]>,
}

/// The instructions whose goal is a product.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Instructions {
    /// None.
    #[default]
    None,
    /// A synthetic one, for every combination of the product's options.
    Synthetic {
        /// The text without options and price.
        text: Box<str>,
        /// The attributes asked for.
        attributes: Box<[Arc<str>]>,
    },
    /// Those that people wrote.
    Human(Box<[HumanInstruction]>),
}

/// An instruction that a person wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct HumanInstruction {
    /// The text without the price.
    pub text: Box<str>,
    /// The attributes asked for.
    pub attributes: Box<[Arc<str>]>,
    /// The option values asked for.
    pub options: Box<[Box<str>]>,
}

impl Product {
    /// The text that is searched: title, description, first bullet and options, lower-cased.
    pub fn search_text(&self) -> String {
        let mut text = format!("{} {} ", self.title, self.description);
        text.push_str(self.bullets.first().map_or("", |bullet| bullet));
        text.push(' ');
        for (at, option) in self.options.iter().enumerate() {
            if at > 0 {
                text.push_str(", and ");
            }
            text.push_str(&option.name);
            text.push_str(": ");
            text.push_str(&option.values.join(", "));
        }
        text.to_lowercase()
    }
}

/// All products, in the order of the file.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The products.
    pub products: Vec<Product>,
    by_asin: HashMap<Box<str>, u32>,
}

impl Catalog {
    /// The place of the product with this number.
    pub fn find(&self, asin: &str) -> Option<usize> {
        self.by_asin.get(asin).map(|&at| at as usize)
    }
}

/// What to do with a product's instructions.
#[derive(Debug)]
pub enum InstructionSource<'a> {
    /// Synthetic goals from the attribute file.
    Synthetic,
    /// Goals from the file of human instructions.
    Human(&'a mut HashMap<String, Vec<RawHumanInstruction>>),
}

/// Builds a catalog product by product. Texts that many products share are kept once.
#[derive(Debug, Default)]
pub struct CatalogBuilder {
    catalog: Catalog,
    shared: HashSet<Arc<str>>,
}

impl CatalogBuilder {
    /// Adds a product unless it is one that the original skips: no number, an overlong one, or one seen before.
    /// The error says what is wrong with it.
    pub fn add(
        &mut self,
        raw: RawProduct,
        instruction: Option<RawInstruction>,
        source: &mut InstructionSource<'_>,
    ) -> Result<(), String> {
        if raw.asin == "nan"
            || raw.asin.chars().count() > LONGEST_ASIN
            || self.catalog.by_asin.contains_key(raw.asin.as_str())
        {
            return Ok(());
        }
        let place = u32::try_from(self.catalog.products.len())
            .map_err(|_| "there are more products than numbers for them".to_owned())?;
        let product = self.product(raw, instruction.unwrap_or_default(), source)?;
        self.catalog.by_asin.insert(product.asin.clone(), place);
        self.catalog.products.push(product);
        Ok(())
    }

    /// The catalog of everything added.
    pub fn finish(self) -> Catalog {
        self.catalog
    }

    fn product(
        &mut self,
        raw: RawProduct,
        instruction: RawInstruction,
        source: &mut InstructionSource<'_>,
    ) -> Result<Product, String> {
        let price_text = raw.pricing.as_deref().unwrap_or_default();
        let pricing = Pricing::parse(price_text)
            .map_err(|reason| format!("the price \"{price_text}\" {reason}"))?;
        let instructions = match source {
            InstructionSource::Synthetic => {
                self.synthetic(instruction.instruction, instruction.instruction_attributes)?
            }
            InstructionSource::Human(written) => match written.remove(&raw.asin) {
                Some(written) => self.human(written),
                None => Instructions::None,
            },
        };
        let attributes = instruction.attributes.unwrap_or_else(|| vec!["DUMMY_ATTR".to_owned()]);
        Ok(Product {
            category: self.share(&raw.category),
            query: self.share(python::strip(&raw.query.to_lowercase())),
            product_category: self.share(&raw.product_category),
            pricing,
            options: self.options(&raw.customization_options),
            attributes: self.share_all(&attributes),
            instructions,
            asin: raw.asin.into(),
            title: raw.name.into(),
            description: raw.full_description.into(),
            bullets: raw.small_description.into_iter().map(String::into_boxed_str).collect(),
        })
    }

    fn synthetic(
        &mut self,
        text: Option<String>,
        attributes: Option<Vec<String>>,
    ) -> Result<Instructions, String> {
        let Some(text) = text else { return Ok(Instructions::None) };
        let attributes = attributes.unwrap_or_default();
        if attributes.is_empty() {
            return Err("its instruction has no instruction_attributes".to_owned());
        }
        Ok(Instructions::Synthetic { text: text.into(), attributes: self.share_all(&attributes) })
    }

    /// Instructions without attributes are skipped, as the original does.
    fn human(&mut self, written: Vec<RawHumanInstruction>) -> Instructions {
        let kept = written.into_iter().filter(|raw| !raw.instruction_attributes.is_empty());
        let instructions = kept.map(|raw| HumanInstruction {
            text: raw.instruction.trim_matches('.').into(),
            attributes: self.share_all(&raw.instruction_attributes),
            options: raw.instruction_options.into_iter().map(String::into_boxed_str).collect(),
        });
        Instructions::Human(instructions.collect())
    }

    /// Two names that differ in case only are one option: the later values, in the earlier place.
    fn options(&mut self, raw: &[(String, Vec<String>)]) -> Box<[ProductOption]> {
        let mut options: Vec<ProductOption> = Vec::with_capacity(raw.len());
        for (name, values) in raw {
            let name = self.share(&name.to_lowercase());
            let values = values
                .iter()
                .map(|value| self.share(&python::strip(value).replace('/', " | ").to_lowercase()))
                .collect();
            match options.iter_mut().find(|option| option.name == name) {
                Some(option) => option.values = values,
                None => options.push(ProductOption { name, values }),
            }
        }
        options.into()
    }

    fn share_all(&mut self, texts: &[String]) -> Box<[Arc<str>]> {
        texts.iter().map(|text| self.share(text)).collect()
    }

    fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.shared.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.shared.insert(Arc::clone(&new));
        new
    }
}

/// Puts a product's number into a message about it.
fn malformed(path: &str, number: usize, asin: &str, message: &str) -> EnvError {
    EnvError::Malformed {
        path: path.to_owned(),
        line: None,
        message: format!("product {} ({asin}): {message}", number + 1),
    }
}
