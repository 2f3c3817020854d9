//! An expert that shops from what an agent's prompt shows.
//!
//! It searches for the instruction's own words, opens the first result that is cheap enough and was not opened before,
//! chooses the options that the instruction names, and buys. From a product that lacks such an option it goes back,
//! while enough turns are left. Every decision follows from the window by a rule that fits in a sentence, so that
//! a small model can learn it.

use super::environment::PROFILE;
use super::python;
use crate::environment::Actions;
use crate::expert::{Decision, Expert};
use crate::window::Window;

/// What stands before the price in an instruction.
const PRICE_MARK: &str = ", and price lower than ";
/// What synthetic instructions start with.
const OPENING: &str = "Find me ";
/// The longest option name, in words; what is longer before a colon is not a name.
const LONGEST_NAME: usize = 3;
/// Longer values are not repeated in a thought, to keep it short.
const LONGEST_TOLD: usize = 8;

/// The expert.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shopper;

impl Expert for Shopper {
    fn decide(&self, window: &Window) -> Option<Decision> {
        let Actions::Commands(commands) = &window.actions else { return None };
        let can = |action: &str| commands.iter().any(|command| command == action);
        let wanted = Wanted::read(&window.task);
        if can("search[<query>]") {
            let action = format!("search[{}]", query(&window.task));
            return Some(decision("I search for what the instruction asks for.", action));
        }
        if can("click[buy now]") {
            return Some(wanted.decide_on_item(window));
        }
        if can("click[next >]") {
            return Some(wanted.decide_on_results(window, commands));
        }
        can("click[< prev]")
            .then(|| decision("This page does not help, so I go back.", "click[< prev]"))
    }
}

fn decision(thought: impl Into<String>, action: impl Into<String>) -> Decision {
    Decision { thought: thought.into(), action: action.into() }
}

/// The search text for an instruction: the instruction without its opening and its price, and without brackets,
/// which would end the action.
pub(super) fn query(task: &str) -> String {
    let described = task.rfind(PRICE_MARK).map_or(task, |at| &task[..at]);
    let described = described.strip_prefix(OPENING).unwrap_or(described);
    python::strip(&described.replace(['[', ']', '\n'], " ")).to_owned()
}

/// What an instruction asks for, as far as it can be told from its form.
struct Wanted<'a> {
    task: &'a str,
    limit: f64,
    /// Names and values of options, in the instruction's order.
    options: Vec<(&'a str, &'a str)>,
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

    /// The turns needed on a product's page: one an option, and one to buy.
    fn turns_on_item(&self) -> usize {
        self.options.len() + 1
    }

    fn decide_on_results(&self, window: &Window, commands: &[String]) -> Decision {
        let found = read_results(&window.observation);
        let open = |asin: &str| format!("click[{}]", asin.to_lowercase());
        let fits = |found: &&Found<'_>| {
            !found.opened && found.price.is_none_or(|price| price <= self.limit)
        };
        if let Some(found) = found.iter().find(fits) {
            let thought = "I open the first product that is cheap enough and new.";
            return decision(thought, open(found.asin));
        }
        if let (Some(first), true) = (found.first(), turns_left(window) <= self.turns_on_item() + 1)
        {
            return decision("There is no time to look further, so I take this.", open(first.asin));
        }
        // After a refused action the page is not shown, but its links still are.
        let is_link = |command: &&String| {
            !matches!(command.as_str(), "click[next >]" | "click[< prev]" | "click[back to search]")
        };
        match commands.iter().find(is_link) {
            Some(link) if found.is_empty() => {
                decision("I open the first product of the page.", link.as_str())
            }
            _ => decision("Nothing here fits, so I look at more products.", "click[next >]"),
        }
    }

    fn decide_on_item(&self, window: &Window) -> Decision {
        let offered = read_offered(&window.observation);
        // Going back and opening another product takes two turns.
        if !self.suits(&offered) && turns_left(window) >= self.turns_on_item() + 2 {
            let thought = "This product lacks an option I need, so I go back.";
            return decision(thought, "click[< prev]");
        }
        for option in &offered {
            let Some(value) = self.choice(option) else { continue };
            let action = format!("click[{value}]");
            // Some values never show as chosen, so the latest actions are looked at too.
            let chosen = option.chosen == Some(value)
                || window.history.iter().any(|step| step.action == action);
            if !chosen && turns_left(window) > 1 {
                let name = option.name;
                let thought = if value.split(' ').count() > LONGEST_TOLD {
                    format!("The instruction asks for this {name}.")
                } else {
                    format!("The instruction asks for {name} {value}.")
                };
                return decision(thought, action);
            }
        }
        decision("Everything the instruction asks for is chosen, so I buy it.", "click[buy now]")
    }

    /// Whether a product offers what is asked for. A synthetic instruction names an option for every option there is, so
    /// if it names none, neither should the product.
    fn suits(&self, offered: &[Offered<'_>]) -> bool {
        if self.options.is_empty() {
            return offered.is_empty() || !self.task.starts_with(OPENING);
        }
        self.options.iter().all(|(name, value)| {
            offered.iter().any(|option| option.name == *name && option.values.contains(value))
        })
    }

    /// The value of an option that the instruction names, or just mentions if it names none at all.
    fn choice<'b>(&self, option: &Offered<'b>) -> Option<&'b str> {
        let mut values = option.values.iter().copied();
        if self.options.is_empty() {
            return values.filter(|value| mentions(self.task, value)).max_by_key(|v| v.len());
        }
        let (_, wanted) = self.options.iter().find(|(name, _)| *name == option.name)?;
        values.find(|value| value == wanted)
    }
}

fn turns_left(window: &Window) -> usize {
    PROFILE.turn_limit.saturating_sub(window.steps_taken)
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
