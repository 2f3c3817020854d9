//! What actions do.

use std::sync::Arc;

use super::{Outcome, Page, Session, SubPage, Target, action};
use crate::webshop::shop::{SearchError, Shop};

const NOTHING: Outcome = Outcome { reward: 0.0, done: false, crash: None };

/// The kind of page, as the original tells it from the address: by the first of these words that it holds, and
/// the address holds the query too.
#[derive(Clone, Copy, PartialEq)]
enum AddressKind {
    Results,
    Item,
    Sub,
    Other,
}

impl Session {
    /// Carries an action out. Anything that is neither a search nor a click on something that is there changes nothing.
    pub fn step(&mut self, shop: &Shop, action: &str) -> Outcome {
        let (name, Some(argument)) = action::parse(action) else { return NOTHING };
        let argument = argument.to_lowercase();
        match name {
            "search" => self.search(shop, &argument, 1),
            "click" if argument != "search" => match self.all_clickables(shop).find(&argument) {
                Some(target) => self.click(shop, &argument, target),
                None => NOTHING,
            },
            _ => NOTHING,
        }
    }

    fn search(&mut self, shop: &Shop, keywords: &str, number: i64) -> Outcome {
        match shop.search(keywords, self.goal(), self.searches) {
            Ok(results) => {
                self.page = Page::Results;
                self.keywords = keywords.into();
                self.number = number;
                self.results = results;
                self.product = None;
                self.options.clear();
                self.searches += 1;
                NOTHING
            }
            Err(SearchError(crash)) => Outcome { crash: Some(crash), ..NOTHING },
        }
    }

    /// Searches again for the same words. Only random results can differ.
    fn turn_to(&mut self, shop: &Shop, number: i64) -> Outcome {
        let keywords = Arc::clone(&self.keywords);
        if Shop::is_random(&keywords) {
            return self.search(shop, &keywords, number);
        }
        self.page = Page::Results;
        self.number = number;
        self.product = None;
        self.options.clear();
        NOTHING
    }

    /// Clicks are told apart by their text first and by what was clicked only then, so an option called like a button
    /// acts like the button.
    fn click(&mut self, shop: &Shop, text: &str, target: Target<'_>) -> Outcome {
        match text {
            "buy now" => return self.buy(shop),
            "back to search" => {
                *self = Self {
                    page: Page::Start,
                    keywords: Arc::from(""),
                    number: 0,
                    results: Arc::from([]),
                    product: None,
                    visited: Vec::new(),
                    options: Vec::new(),
                    ..*self
                };
                return NOTHING;
            }
            "next >" if self.address_kind(shop) == AddressKind::Results => {
                return self.turn_to(shop, self.number.saturating_add(1));
            }
            "< prev" => match self.address_kind(shop) {
                AddressKind::Results => return self.turn_to(shop, self.number.saturating_sub(1)),
                AddressKind::Item => return self.turn_to(shop, self.number),
                AddressKind::Sub | AddressKind::Other => {}
            },
            _ => {
                if let Some(sub) = SubPage::ALL.into_iter().find(|sub| sub.clickable() == text) {
                    self.page = Page::Sub(sub);
                    return NOTHING;
                }
            }
        }
        self.open_item(shop, text, target)
    }

    fn open_item(&mut self, shop: &Shop, text: &str, target: Target<'_>) -> Outcome {
        match target {
            Target::Product => {
                let Some(at) = shop.catalog().find(&text.to_uppercase()) else {
                    return Outcome { crash: Some("KeyError"), ..NOTHING };
                };
                self.product = Some(at as u32);
                if !self.visited.contains(&(at as u32)) {
                    self.visited.push(at as u32);
                }
            }
            Target::Option { name, value } => {
                match self.options.iter_mut().find(|(known, _)| known == name) {
                    Some((_, chosen)) => *chosen = Arc::clone(value),
                    None => self.options.push((Arc::clone(name), Arc::clone(value))),
                }
            }
            Target::Button => {}
        }
        self.page = Page::Item;
        NOTHING
    }

    fn buy(&mut self, shop: &Shop) -> Outcome {
        let Some(product) = self.product() else {
            return Outcome { crash: Some("KeyError"), ..NOTHING };
        };
        let Some(reward) = shop.reward(self.goal(), product, &self.options) else {
            return Outcome { crash: Some("KeyError"), ..NOTHING };
        };
        self.bought = Some(reward);
        self.page = Page::Done;
        Outcome { reward: reward.total, done: true, crash: None }
    }

    fn address_kind(&self, shop: &Shop) -> AddressKind {
        let address = self.address(shop);
        [
            ("search_results", AddressKind::Results),
            ("item_page", AddressKind::Item),
            ("item_sub_page", AddressKind::Sub),
        ]
        .into_iter()
        .find(|(word, _)| address.contains(word))
        .map_or(AddressKind::Other, |(_, kind)| kind)
    }
}
