//! An expert that shops from what an agent's prompt shows.
//!
//! It searches for the instruction's own words, opens the first result that is cheap enough and was not opened before,
//! chooses the options that the instruction names, and buys. A product that lacks an option it goes back from,
//! while enough turns are left. Every decision follows from the window by a rule that fits in a sentence, so that
//! a small model can learn it.

use super::environment::TURN_LIMIT;
use super::python;
use crate::environment::Actions;
use crate::expert::{Decision, Expert, Window};

/// What stands before the price in an instruction.
const PRICE_MARK: &str = ", and price lower than ";

/// The expert.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shopper;

impl Expert for Shopper {
    fn decide(&self, window: &Window) -> Option<Decision> {
        let Actions::Commands(commands) = &window.actions else { return None };
        let can = |action: &str| commands.iter().any(|command| command == action);
        let wanted = Wanted::read(&window.task);
        if can("search[<query>]") {
            return Some(Decision {
                thought: "I search for what the instruction asks for.".to_owned(),
                action: format!("search[{}]", query(&window.task)),
            });
        }
        if can("click[buy now]") {
            return Some(wanted.decide_on_item(window, commands));
        }
        if can("click[next >]") {
            return Some(wanted.decide_on_results(window, commands));
        }
        can("click[< prev]").then(|| Decision {
            thought: "This page does not help, so I go back.".to_owned(),
            action: "click[< prev]".to_owned(),
        })
    }
}

/// The search text for an instruction: the instruction without its opening and its price, and without brackets,
/// which would end the action.
pub(super) fn query(task: &str) -> String {
    let described = task.rfind(PRICE_MARK).map_or(task, |at| &task[..at]);
    let described = described.strip_prefix("Find me ").unwrap_or(described);
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

    fn decide_on_results(&self, window: &Window, commands: &[String]) -> Decision {
        let found = read_results(&window.observation);
        let fits = |found: &&Found<'_>| {
            !found.opened && found.price.is_none_or(|price| price <= self.limit)
        };
        if let Some(found) = found.iter().find(fits) {
            return Decision {
                thought: "I open the first product that is cheap enough and new.".to_owned(),
                action: format!("click[{}]", found.asin.to_lowercase()),
            };
        }
        // After a refused action the page is not shown, but its links still are.
        let unseen = commands.iter().rfind(|command| {
            found.is_empty()
                && !matches!(command.as_str(), "click[next >]" | "click[back to search]")
        });
        let action = unseen.map_or("click[next >]", String::as_str);
        Decision {
            thought: "Nothing here fits, so I look at more products.".to_owned(),
            action: action.to_owned(),
        }
    }

    fn decide_on_item(&self, window: &Window, commands: &[String]) -> Decision {
        let offered = read_offered(&window.observation);
        let just_clicked = |value: &str| {
            window.history.iter().any(|step| step.action == format!("click[{value}]"))
        };
        let turns_left = TURN_LIMIT.saturating_sub(window.steps_taken);
        let suits = self.options.iter().all(|(name, value)| {
            offered.iter().any(|option| option.name == *name && option.values.contains(value))
        }) && (!self.options.is_empty()
            || offered.is_empty()
            || !self.task.starts_with("Find me "));
        // Going back and opening another product takes two turns; options and buying take the rest.
        if !suits
            && turns_left >= self.options.len() + 3
            && commands.iter().any(|c| c == "click[< prev]")
        {
            return Decision {
                thought: "This product lacks an option I need, so I go back.".to_owned(),
                action: "click[< prev]".to_owned(),
            };
        }
        for option in &offered {
            let Some(value) = self.choice(option) else { continue };
            if option.chosen != Some(value) && !just_clicked(value) && turns_left > 1 {
                return Decision {
                    thought: format!("The instruction asks for {} {value}.", option.name),
                    action: format!("click[{value}]"),
                };
            }
        }
        Decision {
            thought: "Everything the instruction asks for is chosen, so I buy it.".to_owned(),
            action: "click[buy now]".to_owned(),
        }
    }

    /// The value of an option that the instruction names.
    fn choice<'b>(&self, option: &Offered<'b>) -> Option<&'b str> {
        let named = self.options.iter().find(|(name, _)| *name == option.name);
        let mut values = option.values.iter().copied();
        match named {
            Some((_, wanted)) => values.find(|value| value == wanted),
            None if self.options.is_empty() => {
                values.filter(|value| mentions(self.task, value)).max_by_key(|value| value.len())
            }
            None => None,
        }
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
    for start in starts {
        let Some((name, _)) = described[start..].split_once(": ") else { break };
        if name.contains(',') || name.split(' ').count() > 3 {
            continue;
        }
        return split_options(&described[start..]);
    }
    Vec::new()
}

/// Cuts "name: value, and name: value". A piece without a name belongs to the value before it.
fn split_options(text: &str) -> Vec<(&str, &str)> {
    let mut options: Vec<(&str, &str)> = Vec::new();
    let mut start = 0;
    let cuts = text.match_indices(", and ").map(|(at, mark)| (at, at + mark.len()));
    for (end, next) in cuts.chain([(text.len(), text.len())]) {
        let rest_has_name = end == text.len()
            || text[next..].split(", and ").next().is_some_and(|piece| piece.contains(": "));
        if rest_has_name {
            if let Some((name, value)) = text[start..end].split_once(": ") {
                options.push((name, value));
            }
            start = next;
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

fn read_offered(page: &str) -> Vec<Offered<'_>> {
    let mut offered: Vec<Offered<'_>> = Vec::new();
    let mut before = "";
    for line in page.lines() {
        match button(line) {
            Some((value, clicked)) if line.starts_with(' ') => {
                if button(before).is_none() {
                    offered.push(Offered { name: before, values: Vec::new(), chosen: None });
                }
                if let Some(option) = offered.last_mut() {
                    option.values.push(value);
                    if clicked {
                        option.chosen = Some(value);
                    }
                }
            }
            _ => {}
        }
        before = line;
    }
    offered
}

/// A button's text, and whether it is marked as clicked.
fn button(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start_matches(' ');
    let clicked = line
        .strip_prefix("[clicked button] ")
        .and_then(|rest| rest.strip_suffix(" [clicked button_]"));
    if let Some(text) = clicked {
        return Some((text, true));
    }
    let text = line.strip_prefix("[button] ")?.strip_suffix(" [button_]")?;
    Some((text, false))
}
