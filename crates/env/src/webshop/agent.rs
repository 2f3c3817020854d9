//! The agent's side of the shop: which actions it is offered, and what it is told when it tries another.

use super::python;
use super::session::{Session, action};
use super::shop::Shop;
use crate::environment::Actions;

/// How a search is listed: any words may stand in the brackets.
const SEARCH: &str = "search[<query>]";

/// The actions to choose from: a search where there is a search bar, then a click on everything clickable.
pub fn admissible(session: &Session, shop: &Shop) -> Vec<String> {
    let search = session.has_search_bar().then(|| SEARCH.to_owned());
    let clicks = session.clickables(shop).into_iter().map(|text| format!("click[{text}]"));
    search.into_iter().chain(clicks).collect()
}

/// Checks an action before it reaches the shop; the error is what the agent sees in place of the page.
///
/// The shop itself would take a search anywhere; an agent may search only where it sees a search bar.
pub fn check(action: &str, session: &Session, shop: &Shop) -> Result<(), String> {
    let (name, argument) = action::parse(action);
    let argument = argument.map(str::to_lowercase);
    match (name, argument) {
        ("search", None) => Err("Invalid action, please type in the query you want to search in \
                                 the square brackets here."
            .to_owned()),
        ("search", Some(_)) if !session.has_search_bar() => Err(
            "Can not perform search action without search bar. Please click the Back to Search \
                 button first."
                .to_owned(),
        ),
        ("search", Some(_)) => Ok(()),
        ("click", argument) => {
            let clickables = session.clickables(shop);
            if argument.is_some_and(|text| clickables.contains(&text)) {
                return Ok(());
            }
            let listed: Vec<String> = clickables.iter().map(|text| python::repr(text)).collect();
            Err(format!(
                "Incorrect action format, make sure you have the correct button name that is \
                 within the current page. The buttons you can click now are: [{}]",
                listed.join(", ")
            ))
        }
        _ => Err("Invalid action. You should wrap your action with the <action> </action> tag \
                  and follow the action format."
            .to_owned()),
    }
}

/// Whether an action that was offered as [`admissible`] lists them would reach the shop: the same rule as [`check`], read
/// off the list. Arguments are compared in lower case, as the shop compares them.
pub fn admits(offered: &Actions, action: &str) -> bool {
    let Actions::Commands(commands) = offered else { return false };
    match action::parse(action) {
        ("search", Some(_)) => commands.iter().any(|command| command == SEARCH),
        ("click", Some(text)) => {
            let click = format!("click[{}]", text.to_lowercase());
            commands.contains(&click)
        }
        _ => false,
    }
}

/// What the agent is asked for, read off the start page: the lines after "Instruction:" up to the first button.
pub fn task(observation: &str) -> String {
    let mut lines = python::split_lines(observation).map(python::strip);
    if !lines.any(|line| line == "Instruction:") {
        return one_line(observation);
    }
    let asked: Vec<&str> = lines
        .take_while(|line| !line.starts_with("[button]"))
        .filter(|line| !line.is_empty())
        .collect();
    if asked.is_empty() { one_line(observation) } else { asked.join(" ") }
}

/// A page in one line, as the history of a prompt shows it.
pub fn one_line(observation: &str) -> String {
    let lines: Vec<&str> = python::split_lines(observation)
        .map(python::strip)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_words_may_be_searched_and_clicks_are_folded() {
        let list = |commands: &[&str]| {
            Actions::Commands(commands.iter().map(|&command| command.to_owned()).collect())
        };
        let start = list(&["search[<query>]", "click[search]"]);
        for good in ["search[red shoes]", "search[<query>]", "search[a] b", "click[Search]"] {
            assert!(admits(&start, good), "{good}");
        }
        for bad in
            ["search[]", "search", "Search[red]", "click[buy now]", "click[]", "", " search[x]"]
        {
            assert!(!admits(&start, bad), "{bad}");
        }
        let item = list(&["click[back to search]", "click[< prev]", "click[buy now]"]);
        assert!(admits(&item, "click[Buy Now]") && !admits(&item, "search[red shoes]"));
    }

    #[test]
    fn the_task_is_what_stands_between_the_headline_and_the_first_button() {
        let page =
            "WebShop\nInstruction: \nFind me a lamp\nwith blue shade\n[button] Search [button_]\n";
        assert_eq!(task(page), "Find me a lamp with blue shade");
        assert_eq!(task("no headline\n here"), "no headline here");
    }
}
