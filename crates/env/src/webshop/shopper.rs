//! An expert that shops from what an agent's prompt shows.
//!
//! It searches for the instruction's own words, opens the first result that is cheap enough and was not opened before,
//! chooses the options that the instruction names, and buys. From a product that lacks such an option it goes back,
//! while enough turns are left. Every decision follows from the window by a rule that fits in a sentence, so that
//! a small model can learn it.
//!
//! A thought has four parts: what is needed, which page is seen, what is chosen, and what follows.

use super::environment::PROFILE;
use super::python;
use crate::environment::Actions;
use crate::expert::{Decision, Expert, Lapse, Situation};
use crate::window::Window;

/// What stands before the price in an instruction.
const PRICE_MARK: &str = ", and price lower than ";
/// What synthetic instructions start with.
const OPENING: &str = "Find me ";
/// The longest option name, in words; what is longer before a colon is not a name.
const LONGEST_NAME: usize = 3;
/// Actions that lead nowhere: they show what no decision needs, or lose the page.
const IDLE: [&str; 5] = [
    "click[reviews]",
    "click[description]",
    "click[features]",
    "click[back to search]",
    "click[search]",
];
/// What refusals of an action start with.
const REFUSALS: [&str; 3] = ["Invalid action", "Incorrect action", "Can not perform"];
const BACK: &str = "click[< prev]";
const BUY: &str = "click[buy now]";
const NEXT: &str = "click[next >]";
const SEARCH: &str = "search[<query>]";
const TO_SEARCH: &str = "click[back to search]";

/// Other words for the phrases of a thought. Every phrase begins differently from its other wording, so that the choice
/// is made at one place.
const REWORDINGS: &[(&str, &str)] = &[
    ("I need one", "Wanted is one"),
    ("; ", " - "),
    ("I see ", "shown is "),
    ("I chose ", "taken is "),
    ("nothing is chosen", "no choice was made"),
    ("the first new and cheap product is ", "a fresh and affordable one is "),
    ("next is ", "open remains "),
    ("nothing is missing", "everything was chosen"),
    (" is not offered", " cannot be had"),
    ("so I ", "therefore I "),
];

/// The expert.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shopper;

impl Expert for Shopper {
    fn decide(&self, window: &Window) -> Option<Decision> {
        let player = Player::read(window)?;
        Some(player.next_step().decision(&player))
    }

    fn situation(&self, window: &Window) -> Option<Situation> {
        let player = Player::read(window)?;
        Some(player.situation(&player.next_step()))
    }

    fn lapse(&self, window: &Window, lapse: Lapse) -> Option<Decision> {
        let player = Player::read(window)?;
        let right = player.next_step();
        let wrong = match lapse {
            Lapse::Overlook => player.overlooking(&right),
            Lapse::Dither => player.dithering(),
        };
        wrong.filter(|wrong| wrong.action != right.action).map(|wrong| wrong.decision(&player))
    }

    fn rewordings(&self) -> &'static [(&'static str, &'static str)] {
        REWORDINGS
    }
}

/// The search text for an instruction: the instruction without its opening and its price, and without brackets,
/// which would end the action.
pub(super) fn query(task: &str) -> String {
    let described = task.rfind(PRICE_MARK).map_or(task, |at| &task[..at]);
    let described = described.strip_prefix(OPENING).unwrap_or(described);
    python::strip(&described.replace(['[', ']', '\n'], " ")).to_owned()
}

/// A page of the shop, as far as its commands tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Page {
    Start,
    Results,
    Item,
    Other,
}

impl Page {
    fn told(self) -> &'static str {
        match self {
            Self::Start => "the search page",
            Self::Results => "results",
            Self::Item => "a product",
            Self::Other => "a page without a choice",
        }
    }
}

/// What an option must be for the instruction.
type Choice<'a> = (&'a str, &'a str);

/// A step, and what the player believes when it takes it.
struct Step<'a> {
    page: Page,
    chosen: Vec<Choice<'a>>,
    reason: String,
    action: String,
}

impl Step<'_> {
    fn decision(&self, player: &Player<'_>) -> Decision {
        let chosen = match self.chosen.as_slice() {
            [] => "nothing is chosen".to_owned(),
            choices => format!("I chose {}", told(choices)),
        };
        let (need, page) = (player.wanted.need(), self.page.told());
        Decision {
            thought: format!("I need one{need}; I see {page}; {chosen}; {}.", self.reason),
            action: self.action.clone(),
        }
    }
}

/// Choices as an instruction words them: "color: red, and size: 8".
fn told(choices: &[Choice<'_>]) -> String {
    let all: Vec<String> = choices.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    all.join(", and ")
}

/// What the window shows, and what is wanted.
struct Player<'a> {
    window: &'a Window,
    commands: &'a [String],
    wanted: Wanted<'a>,
    page: Page,
}

impl<'a> Player<'a> {
    fn read(window: &'a Window) -> Option<Self> {
        let Actions::Commands(commands) = &window.actions else { return None };
        let can = |action: &str| commands.iter().any(|command| command == action);
        let page = if can(SEARCH) {
            Page::Start
        } else if can(BUY) {
            Page::Item
        } else if can(NEXT) {
            Page::Results
        } else if can(BACK) {
            Page::Other
        } else {
            return None;
        };
        Some(Self { window, commands, wanted: Wanted::read(&window.task), page })
    }

    fn step(&self, reason: impl Into<String>, action: impl Into<String>) -> Step<'a> {
        Step { page: self.page, chosen: Vec::new(), reason: reason.into(), action: action.into() }
    }

    fn next_step(&self) -> Step<'a> {
        match self.page {
            Page::Start => {
                let action = format!("search[{}]", query(&self.window.task));
                self.step("so I search for it", action)
            }
            Page::Item => self.on_item(None),
            Page::Results => self.left_behind().unwrap_or_else(|| self.on_results()),
            Page::Other => self.step("so I go back", BACK),
        }
    }

    fn last_action(&self) -> Option<&'a str> {
        self.window.history.last().map(|step| step.action.as_str())
    }

    fn is_idle(&self) -> bool {
        let refused = |start: &&str| self.window.observation.starts_with(*start);
        self.last_action().is_some_and(is_idle) || REFUSALS.iter().any(refused)
    }

    fn situation(&self, right: &Step<'_>) -> Situation {
        let before = self.window.history.iter().rev().nth(1);
        if self.is_idle() && before.is_some_and(|step| is_idle(&step.action)) {
            Situation::Stuck
        } else if self.is_idle() || right.action == BACK || right.action == TO_SEARCH {
            Situation::Lost
        } else if self.page == Page::Item && right.action == BUY {
            Situation::Carry
        } else if self.page == Page::Item {
            Situation::Decisive
        } else {
            Situation::Search
        }
    }

    /// Back to the page of results from which the latest step turned although it had something to open.
    fn left_behind(&self) -> Option<Step<'a>> {
        let past = self.window.history.last().filter(|past| past.action == NEXT)?;
        let can_go_back = self.commands.iter().any(|command| command == BACK);
        let found = read_results(&past.observation);
        let fits = found.iter().any(|one| self.wanted.fits(one));
        (can_go_back && fits)
            .then(|| self.step("the page before has a product, so I go back", BACK))
    }

    fn on_results(&self) -> Step<'a> {
        let found = read_results(&self.window.observation);
        let open = |asin: &str| format!("click[{}]", asin.to_lowercase());
        if let Some(Found { asin, .. }) = found.iter().find(|one| self.wanted.fits(one)) {
            let reason = format!("the first new and cheap product is {asin}; so I open it");
            return self.step(reason, open(asin));
        }
        let late = self.turns_left() <= self.wanted.turns_on_item() + 1;
        if let (Some(Found { asin, .. }), true) = (found.first(), late) {
            return self.step(format!("no time is left, {asin} will do; so I open it"), open(asin));
        }
        // After a refused action the page is not shown, but its links still are.
        let link = self
            .commands
            .iter()
            .find(|command| !matches!(command.as_str(), NEXT | BACK | TO_SEARCH));
        match link {
            Some(link) if found.is_empty() => self.step("so I open the first product", link),
            None if self.commands.iter().any(|command| command == TO_SEARCH) => {
                self.step("no product is here, so I search again", TO_SEARCH)
            }
            _ => self.step("no product here is new and cheap, so I look further", NEXT),
        }
    }

    /// The step on a product's page, by a player that does not think of one of the options.
    fn on_item(&self, overlooked: Option<Choice<'a>>) -> Step<'a> {
        let offered = read_offered(&self.window.observation);
        let lacking = self.wanted.lacking(&offered);
        let lacking =
            lacking.filter(|lack| overlooked.is_none_or(|one| *lack != Lack::Choice(one)));
        // Going back and opening another product takes two turns.
        if let Some(lacking) = lacking
            && self.turns_left() >= self.wanted.turns_on_item() + 2
        {
            let reason = match lacking {
                Lack::Choice(choice) => format!("{} is not offered; so I go back", told(&[choice])),
                Lack::Plainness => "this one has options; so I go back".to_owned(),
            };
            return Step { chosen: self.chosen(&offered), ..self.step(reason, BACK) };
        }
        let mut chosen = self.chosen(&offered);
        for choice in self.wanted.choices(&offered) {
            if Some(choice) == overlooked && !chosen.contains(&choice) {
                chosen.push(choice);
            }
            if !chosen.contains(&choice) && self.turns_left() > 1 {
                let reason = format!("next is {}; so I choose it", told(&[choice]));
                return Step { chosen, ..self.step(reason, format!("click[{}]", choice.1)) };
            }
        }
        Step { chosen, ..self.step("nothing is missing, so I buy it", BUY) }
    }

    /// The wanted choices that are made.
    fn chosen(&self, offered: &[Offered<'a>]) -> Vec<Choice<'a>> {
        let mut choices = self.wanted.choices(offered);
        choices.retain(|(name, value)| {
            let action = format!("click[{value}]");
            // Some values never show as chosen, so the latest actions are looked at too.
            offered.iter().any(|option| option.name == *name && option.chosen == Some(value))
                || self.window.history.iter().any(|step| step.action == action)
        });
        choices
    }

    /// The step without a look at what is right: past the products of a page, past an option. A player that is not
    /// where it can decide anything overlooks nothing.
    fn overlooking(&self, right: &Step<'_>) -> Option<Step<'a>> {
        match self.page {
            Page::Results if right.action == BACK => Some(self.on_results()),
            Page::Results if right.action != NEXT && right.action != TO_SEARCH => {
                Some(self.step("no product here is new and cheap, so I look further", NEXT))
            }
            Page::Item => {
                let offered = read_offered(&self.window.observation);
                let overlooked = match self.wanted.lacking(&offered) {
                    Some(Lack::Choice(choice)) => choice,
                    Some(Lack::Plainness) => return None,
                    None => {
                        let chosen = self.chosen(&offered);
                        let mut choices = self.wanted.choices(&offered).into_iter();
                        choices.find(|choice| !chosen.contains(choice))?
                    }
                };
                Some(self.on_item(Some(overlooked)))
            }
            _ => None,
        }
    }

    /// The step of a player that has forgotten what it chose and what it sees.
    fn dithering(&self) -> Option<Step<'a>> {
        let (purpose, action) = match self.page {
            Page::Start => ("look at everything", "click[search]"),
            Page::Item => ("read the reviews", "click[reviews]"),
            Page::Results | Page::Other => ("start again", TO_SEARCH),
        };
        let can = self.commands.iter().any(|command| command == action);
        can.then(|| Step {
            page: Page::Other,
            ..self.step(format!("I am not sure, so I {purpose}"), action)
        })
    }

    fn turns_left(&self) -> usize {
        PROFILE.turn_limit.saturating_sub(self.window.steps_taken)
    }
}

fn is_idle(action: &str) -> bool {
    IDLE.contains(&action)
}

/// What an instruction asks for, as far as it can be told from its form.
struct Wanted<'a> {
    task: &'a str,
    limit: f64,
    /// Names and values of options, in the instruction's order.
    options: Vec<Choice<'a>>,
}

/// What a product lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack<'a> {
    /// The value of an option.
    Choice(Choice<'a>),
    /// To be without options.
    Plainness,
}

/// One result of a search.
struct Found<'a> {
    asin: &'a str,
    price: Option<f64>,
    opened: bool,
}

/// An option on a product's page.
struct Offered<'a> {
    name: &'a str,
    values: Vec<&'a str>,
    chosen: Option<&'a str>,
}

impl<'a> Wanted<'a> {
    fn read(task: &'a str) -> Self {
        let (described, limit) = match task.rfind(PRICE_MARK) {
            Some(at) => {
                let price = task[at + PRICE_MARK.len()..].split(' ').next().unwrap_or_default();
                (&task[..at], price.parse().unwrap_or(f64::INFINITY))
            }
            None => (task, f64::INFINITY),
        };
        Self { task, limit, options: read_options(described) }
    }

    /// The options and the price, in the instruction's words.
    fn need(&self) -> String {
        let options = match self.options.as_slice() {
            [] => String::new(),
            options => format!(" with {}", told(options)),
        };
        let price = self.task.rfind(PRICE_MARK).map_or("", |at| &self.task[at..]);
        format!("{options}{}", price.trim_end_matches('.'))
    }

    /// The turns needed on a product's page: one per option, and one to buy.
    fn turns_on_item(&self) -> usize {
        self.options.len() + 1
    }

    fn fits(&self, found: &Found<'_>) -> bool {
        !found.opened && found.price.is_none_or(|price| price <= self.limit)
    }

    /// What a product lacks. A synthetic instruction names an option for
    /// every option there is, so if it names none, neither should the product.
    fn lacking(&self, offered: &[Offered<'_>]) -> Option<Lack<'a>> {
        if self.options.is_empty() {
            let suits = offered.is_empty() || !self.task.starts_with(OPENING);
            return (!suits).then_some(Lack::Plainness);
        }
        let lacks = |(name, value): &&Choice<'a>| {
            !offered.iter().any(|option| option.name == *name && option.values.contains(value))
        };
        self.options.iter().find(lacks).map(|choice| Lack::Choice(*choice))
    }

    /// The choices that the instruction names and the product offers, in the instruction's order; if it names none at
    /// all, the values that it just mentions.
    fn choices(&self, offered: &[Offered<'a>]) -> Vec<Choice<'a>> {
        if self.options.is_empty() {
            return offered
                .iter()
                .filter_map(|option| {
                    let values = option.values.iter().filter(|value| mentions(self.task, value));
                    Some((option.name, *values.max_by_key(|value| value.len())?))
                })
                .collect();
        }
        let is_offered = |(name, value): &&Choice<'a>| {
            offered.iter().any(|option| option.name == *name && option.values.contains(value))
        };
        self.options.iter().filter(is_offered).copied().collect()
    }
}

/// Whether `value` stands in `task` as words of its own.
fn mentions(task: &str, value: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    !value.is_empty()
        && task.match_indices(value).any(|(at, _)| {
            edge(task[..at].chars().next_back()) && edge(task[at + value.len()..].chars().next())
        })
}

/// The options at the end of a synthetic instruction: "with color: red, and size: x-large".
fn read_options(described: &str) -> Vec<(&str, &str)> {
    let starts = described.match_indices(" with ").map(|(at, mark)| at + mark.len());
    starts
        .filter(|&start| {
            described[start..].split_once(": ").is_some_and(|(name, _)| {
                !name.contains(',') && name.split(' ').count() <= LONGEST_NAME
            })
        })
        .map(|start| split_options(&described[start..]))
        .next()
        .unwrap_or_default()
}

/// Cuts "name: value, and name: value". A piece without a name belongs to the value before it.
fn split_options(text: &str) -> Vec<(&str, &str)> {
    const AND: &str = ", and ";
    let mut options: Vec<(&str, &str)> = Vec::new();
    let mut start = 0;
    let ends = text.match_indices(AND).map(|(at, _)| at).chain([text.len()]);
    for end in ends {
        let next = text.get(end + AND.len()..).unwrap_or_default();
        let next_has_name = next.split(AND).next().is_some_and(|piece| piece.contains(": "));
        if next_has_name || end == text.len() {
            options.extend(text[start..end].split_once(": "));
            start = end + AND.len();
        }
    }
    options
}

fn read_results(page: &str) -> Vec<Found<'_>> {
    let mut found: Vec<Found<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((asin, opened)) = button(line) {
            if !matches!(asin, "Back to Search" | "< Prev" | "Next >") {
                found.push(Found { asin, price: None, opened });
            }
        } else if let (Some(price), Some(last)) = (line.strip_prefix('$'), found.last_mut()) {
            last.price = price.split(' ').next().and_then(|low| low.parse().ok());
        }
    }
    found
}

/// The options of a product's page: their values are indented, and the line before the first is the name.
fn read_offered(page: &str) -> Vec<Offered<'_>> {
    let mut offered: Vec<Offered<'_>> = Vec::new();
    let mut before = "";
    for line in page.lines() {
        if let Some((value, clicked)) = button(line).filter(|_| line.starts_with(' ')) {
            if button(before).is_none() {
                offered.push(Offered { name: before, values: Vec::new(), chosen: None });
            }
            if let Some(option) = offered.last_mut() {
                option.values.push(value);
                option.chosen = if clicked { Some(value) } else { option.chosen };
            }
        }
        before = line;
    }
    offered
}

/// A button's text, and whether it is marked as clicked.
fn button(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start_matches(' ');
    let inside = |mark: &str, end: &str| line.strip_prefix(mark)?.strip_suffix(end);
    let clicked = inside("[clicked button] ", " [clicked button_]").map(|text| (text, true));
    clicked.or_else(|| inside("[button] ", " [button_]").map(|text| (text, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_taken_apart() {
        let task = "Find me easy clean lamps with oak base with color: red, and ready, and size: 8 x 10, and price lower \
                    than 40.00 dollars";
        let wanted = Wanted::read(task);
        assert_eq!(wanted.limit, 40.0);
        assert_eq!(wanted.options, [("color", "red, and ready"), ("size", "8 x 10")]);
        assert_eq!(
            query(task),
            "easy clean lamps with oak base with color: red, and ready, and size: 8 x 10"
        );
        let plain = Wanted::read("Find me lamps with oak base");
        assert!(plain.options.is_empty() && plain.limit.is_infinite());
    }

    #[test]
    fn pages_are_read_as_they_are_shown() {
        let page = "[button] < Prev [button_]\ncolor\n  [button] red [button_]\n  [clicked button] blue [clicked button_]\n\
                    size\n  [button] 8 [button_]\nA Lamp\nPrice: $5.0\n[button] Buy Now [button_]";
        let offered = read_offered(page);
        assert_eq!(offered.len(), 2);
        assert_eq!((offered[0].name, offered[0].chosen), ("color", Some("blue")));
        assert_eq!(offered[1].values, ["8"]);
        let page = "[button] Next > [button_]\n\n[clicked button] LW1 [clicked button_]\nA Lamp\n$5.0 to $9.0\n\n\
                    [button] LW2 [button_]\n$7.0";
        let found = read_results(page);
        assert_eq!((found[0].asin, found[0].price, found[0].opened), ("LW1", Some(5.0), true));
        assert_eq!((found[1].asin, found[1].price, found[1].opened), ("LW2", Some(7.0), false));
    }

    #[test]
    fn a_value_is_mentioned_only_as_words_of_its_own() {
        assert!(mentions("i want the red one", "red"));
        assert!(!mentions("i want covered shoes", "red"));
        assert!(!mentions("anything", ""));
    }
}
