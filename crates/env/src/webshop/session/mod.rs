//! One visit to the shop: which page is open and what was chosen, and what each action makes of it.
//!
//! A session knows nothing of the catalog: every call gets the shop, so that a session is small, can be copied
//! in a microsecond, and a million of them share one catalog.

pub mod action;
mod dispatch;
pub mod page;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use page::{Node, ObservationMode};

use super::catalog::Product;
use super::python;
use super::reward::Reward;
use super::shop::Shop;

/// Products on one page of results.
pub const RESULTS_A_PAGE: usize = 10;
/// What the addresses of all pages start with.
const BASE: &str = "http://127.0.0.1:3000";

/// The fixed texts of the page after a purchase; most of its fields are never filled in.
const DONE_BEFORE_ASIN: [&str; 6] = [
    "Thank you for shopping with us!",
    "Your code: ",
    "None",
    " (Paste it in your MTurk interface.)",
    "Purchased",
    "asin",
];
#[rustfmt::skip]
const DONE_BEFORE_REWARD: [&str; 21] = [
    "attrs", "None", "category", "None", "query", "None", "product category", "None",
    "Target", "asin", "options", "attrs", "price upper", "instuction text", "category",
    "product category", "query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)",
];

/// A page about one side of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubPage {
    /// The long text.
    Description,
    /// The bullet points.
    Features,
    /// Always empty: no reviews are loaded.
    Reviews,
    /// The hidden attributes, in shops that show them.
    Attributes,
}

impl SubPage {
    const ALL: [Self; 4] = [Self::Description, Self::Features, Self::Reviews, Self::Attributes];

    fn title(self) -> &'static str {
        match self {
            Self::Description => "Description",
            Self::Features => "Features",
            Self::Reviews => "Reviews",
            Self::Attributes => "Attributes",
        }
    }

    fn clickable(self) -> &'static str {
        match self {
            Self::Description => "description",
            Self::Features => "features",
            Self::Reviews => "reviews",
            Self::Attributes => "attributes",
        }
    }
}

/// The page that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Page {
    /// The start page with the search bar.
    Start,
    /// Search results.
    Results,
    /// A product.
    Item,
    /// A side of a product.
    Sub(SubPage),
    /// After the purchase.
    Done,
}

/// What an action led to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The reward; 0 unless something was bought.
    pub reward: f64,
    /// Whether something was bought.
    pub done: bool,
    /// What the original would have crashed with; the session is as it was.
    pub crash: Option<&'static str>,
}

/// One visit. Two sessions that compare equal show the same page and answer every action alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    goal: u32,
    show_attributes: bool,
    page: Page,
    /// The search text.
    keywords: Arc<str>,
    /// The number of the results page.
    number: i64,
    results: Arc<[u32]>,
    product: Option<u32>,
    /// The products opened since the start page.
    visited: Vec<u32>,
    /// Chosen options in the order of their first choice.
    options: Vec<(Arc<str>, Arc<str>)>,
    /// Searches so far: random results are drawn anew by each.
    searches: u64,
    bought: Option<Reward>,
}

/// What a click on something leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target<'a> {
    Button,
    Product,
    Option { name: &'a Arc<str>, value: &'a Arc<str> },
}

/// Clickable texts in page order. A text that occurs twice keeps its first place and its last target.
struct Clickables<'a> {
    list: Vec<(Cow<'a, str>, Target<'a>)>,
}

impl<'a> Clickables<'a> {
    fn find(&self, text: &str) -> Option<Target<'a>> {
        self.list.iter().find(|(known, _)| known == text).map(|&(_, target)| target)
    }
}

impl Session {
    /// Starts on the goal with this number; `None` if the shop has no such goal.
    pub fn start(shop: &Shop, goal: usize) -> Option<Self> {
        shop.goals().product_of(goal)?;
        Some(Self {
            goal: goal as u32,
            show_attributes: false,
            page: Page::Start,
            keywords: Arc::from(""),
            number: 0,
            results: Arc::from([]),
            product: None,
            visited: Vec::new(),
            options: Vec::new(),
            searches: 0,
            bought: None,
        })
    }

    /// The same session in a shop that shows products' attributes.
    #[must_use]
    pub fn showing_attributes(self) -> Self {
        Self { show_attributes: true, ..self }
    }

    /// The number of the goal.
    pub fn goal(&self) -> usize {
        self.goal as usize
    }

    /// The page that is open.
    pub fn page(&self) -> Page {
        self.page
    }

    /// The product that is open, by its place in the catalog.
    pub fn product(&self) -> Option<usize> {
        self.product.map(|product| product as usize)
    }

    /// The options chosen so far.
    pub fn options(&self) -> &[(Arc<str>, Arc<str>)] {
        &self.options
    }

    /// The reward of the purchase, if there was one.
    pub fn bought(&self) -> Option<&Reward> {
        self.bought.as_ref()
    }

    /// Whether the page has a search bar.
    pub fn has_search_bar(&self) -> bool {
        self.page == Page::Start
    }

    /// What can be clicked, in page order.
    pub fn clickables(&self, shop: &Shop) -> Vec<String> {
        self.all_clickables(shop).list.into_iter().map(|(text, _)| text.into_owned()).collect()
    }

    /// What the agent sees.
    pub fn observation(&self, shop: &Shop, mode: ObservationMode) -> String {
        let goal = shop.goal_text(self.goal());
        let nodes = self.nodes(shop, &goal);
        match mode {
            ObservationMode::Text => page::text(&nodes),
            ObservationMode::TextRich => {
                let has_options = nodes.iter().any(|node| matches!(node, Node::Label(_)));
                let address = if has_options { self.address(shop) } else { String::new() };
                page::text_rich(&nodes, &address)
            }
        }
    }

    /// The address of the page, which the original keeps its state in and now and then looks into.
    pub fn address(&self, shop: &Shop) -> String {
        let id = self.goal;
        let asin = self.open_product(shop).map_or("", |product| &product.asin);
        let keywords = self.keywords.replace(' ', "+");
        let number = self.number;
        match self.page {
            Page::Start => format!("{BASE}/{id}"),
            Page::Results => format!("{BASE}/search_results/{id}/{keywords}/{number}"),
            Page::Item => {
                let options = self.options_as_json();
                format!("{BASE}/item_page/{id}/{asin}/{keywords}/{number}/{options}")
            }
            Page::Sub(sub) => {
                let (sub, options) = (sub.title(), self.options_as_dict());
                format!("{BASE}/item_sub_page/{id}/{asin}/{keywords}/{number}/{sub}/{options}")
            }
            Page::Done => format!("{BASE}/done/{id}/{asin}/{}", self.options_as_dict()),
        }
    }

    fn open_product<'a>(&self, shop: &'a Shop) -> Option<&'a Product> {
        self.product.and_then(|at| shop.catalog().products.get(at as usize))
    }

    /// The products on the open page of results. A page below the first is empty, as a slice in Python would be.
    fn shown_results(&self) -> &[u32] {
        let Ok(skipped) = usize::try_from(self.number - 1) else { return &[] };
        let first = skipped.saturating_mul(RESULTS_A_PAGE).min(self.results.len());
        let last = (first + RESULTS_A_PAGE).min(self.results.len());
        &self.results[first..last]
    }

    fn all_clickables<'a>(&self, shop: &'a Shop) -> Clickables<'a> {
        let mut list: Vec<(Cow<'a, str>, Target<'a>)> = Vec::new();
        let mut button = |text: &'static str| list.push((text.into(), Target::Button));
        match self.page {
            Page::Start => button("search"),
            Page::Done => {}
            Page::Results => {
                button("back to search");
                if self.number > 1 {
                    button("< prev");
                }
                button("next >");
                let products = &shop.catalog().products;
                for &at in self.shown_results() {
                    list.push((products[at as usize].asin.to_lowercase().into(), Target::Product));
                }
            }
            Page::Sub(_) => {
                button("back to search");
                button("< prev");
            }
            Page::Item => {
                button("back to search");
                button("< prev");
                self.sub_pages().for_each(|sub| button(sub.clickable()));
                button("buy now");
                for option in self.open_product(shop).map_or(&[][..], |product| &product.options) {
                    for value in &option.values {
                        let target = Target::Option { name: &option.name, value };
                        list.push(((&**value).into(), target));
                    }
                }
            }
        }
        keep_last_targets(&mut list);
        Clickables { list }
    }

    fn sub_pages(&self) -> impl Iterator<Item = SubPage> {
        let shown = if self.show_attributes { 4 } else { 3 };
        SubPage::ALL.into_iter().take(shown)
    }

    fn nodes<'a>(&self, shop: &'a Shop, goal: &'a str) -> Vec<Node<'a>> {
        let plain = |text: &'a str| Node::Plain(Cow::Borrowed(text));
        match self.page {
            Page::Start => {
                return vec![
                    plain("WebShop"),
                    plain("Instruction: "),
                    plain(goal),
                    Node::Button("Search"),
                ];
            }
            Page::Done => return self.done_nodes(shop),
            Page::Results | Page::Item | Page::Sub(_) => {}
        }
        let mut nodes = vec![plain("Instruction:"), plain(goal), Node::Button("Back to Search")];
        match (self.page, self.open_product(shop)) {
            (Page::Item, Some(product)) => {
                nodes.push(Node::Button("< Prev"));
                for option in &product.options {
                    nodes.push(plain(&option.name));
                    nodes.extend(option.values.iter().map(|value| Node::Label(value)));
                }
                nodes.push(plain(&product.title));
                nodes.push(Node::Plain(format!("Price: {}", product.pricing.tag()).into()));
                nodes.push(plain("Rating: N.A."));
                nodes.extend(self.sub_pages().map(|sub| Node::Button(sub.title())));
                nodes.push(Node::Button("Buy Now"));
            }
            (Page::Sub(sub), Some(product)) => {
                nodes.push(Node::Button("< Prev"));
                let point = |text: &str| Node::Plain(format!(" {text}").into());
                match sub {
                    SubPage::Description => nodes.push(plain(&product.description)),
                    SubPage::Features => {
                        nodes.extend(product.bullets.iter().map(|bullet| point(bullet)));
                    }
                    SubPage::Reviews => {}
                    SubPage::Attributes => {
                        nodes.extend(product.attributes.iter().map(|attribute| point(attribute)));
                        nodes.push(plain(&product.category));
                        nodes.push(plain(&product.query));
                        nodes.push(plain(&product.product_category));
                    }
                }
            }
            _ => self.push_results(shop, &mut nodes),
        }
        nodes
    }

    fn push_results<'a>(&self, shop: &'a Shop, nodes: &mut Vec<Node<'a>>) {
        let total = self.results.len();
        nodes.push(Node::Plain(format!("Page {} (Total results: {total})", self.number).into()));
        if self.number > 1 {
            nodes.push(Node::Button("< Prev"));
        }
        nodes.push(Node::Button("Next >"));
        for &at in self.shown_results() {
            let product = &shop.catalog().products[at as usize];
            nodes.push(Node::Link { asin: &product.asin, visited: self.visited.contains(&at) });
            nodes.push(Node::Plain(Cow::Borrowed(&product.title)));
            nodes.push(Node::Plain(product.pricing.tag().into()));
        }
    }

    fn done_nodes<'a>(&self, shop: &'a Shop) -> Vec<Node<'a>> {
        let fixed = |text: &&'static str| Node::Plain(Cow::Borrowed(*text));
        let total = self.bought.map_or(0.0, |reward| reward.total);
        let mut nodes: Vec<Node<'a>> = DONE_BEFORE_ASIN.iter().map(fixed).collect();
        let asin = self.open_product(shop).map_or("", |product| &product.asin);
        nodes.push(Node::Plain(Cow::Borrowed(asin)));
        nodes.push(fixed(&"options"));
        nodes.push(Node::Plain(self.options_for_a_page().into()));
        nodes.extend(DONE_BEFORE_REWARD.iter().map(fixed));
        nodes.push(Node::Plain(python::float_repr(total).into()));
        nodes.extend(["Reward Details ", "None"].iter().map(fixed));
        nodes
    }

    /// `json.dumps(options)`.
    fn options_as_json(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, value)) in self.options.iter().enumerate() {
            out.push_str(if at > 0 { ", " } else { "" });
            python::push_json(&mut out, name);
            out.push_str(": ");
            python::push_json(&mut out, value);
        }
        out.push('}');
        out
    }

    /// `repr(options)`.
    fn options_as_dict(&self) -> String {
        let mut out = String::from("{");
        for (at, (name, value)) in self.options.iter().enumerate() {
            out.push_str(if at > 0 { ", " } else { "" });
            python::push_repr(&mut out, name);
            out.push_str(": ");
            python::push_repr(&mut out, value);
        }
        out.push('}');
        out
    }

    /// JSON as the page templates write it: names sorted, and the letters that HTML knows escaped.
    fn options_for_a_page(&self) -> String {
        let mut sorted = self.clone();
        sorted.options.sort();
        sorted
            .options_as_json()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .replace('\'', "\\u0027")
    }
}

fn keep_last_targets<'a>(list: &mut Vec<(Cow<'a, str>, Target<'a>)>) {
    let mut first: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(list.len());
    let mut kept: Vec<(Cow<'a, str>, Target<'a>)> = Vec::with_capacity(list.len());
    for (text, target) in list.drain(..) {
        if let Some(&at) = first.get(&text) {
            kept[at].1 = target;
        } else {
            first.insert(text.clone(), kept.len());
            kept.push((text, target));
        }
    }
    *list = kept;
}
