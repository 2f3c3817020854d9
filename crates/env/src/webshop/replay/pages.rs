//! Recorded visits: pages, actions, prompts.

use serde_json::Value;

use super::{Checker, Replayer, index, texts};
use crate::webshop::session::page::ObservationMode;
use crate::webshop::session::{Session, action};
use crate::webshop::{agent, python};

pub(super) fn parsed_action(_: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let text = line["action"].as_str()?;
    let recorded = (line["name"].as_str()?, line["arg"].as_str());
    checker.equal(format_args!("action {text:?}"), &action::parse(text), &recorded);
    Some(())
}

/// A visit to the shop itself: each step's page, address, clickables, reward.
pub(super) fn transcript(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let shop = &replayer.synthetic;
    let mode = line["mode"].as_str()?;
    let number = index(&line["goal"])?;
    let mut session = Session::start(shop, number)?;
    if mode.ends_with("+attrs") {
        session = session.showing_attributes();
    }
    let mode = match mode.trim_end_matches("+attrs") {
        "text" => ObservationMode::Text,
        "text_rich" => ObservationMode::TextRich,
        _ => return None,
    };
    for (at, step) in line["steps"].as_array()?.iter().enumerate() {
        let label = |what: &str| format!("{what} at step {at} of session {number}");
        if let Some(action) = step.get("action") {
            let outcome = session.step(shop, action.as_str()?);
            if let Some(exception) = step.get("exception") {
                checker.equal(label("crash"), &outcome.crash, &exception.as_str());
                continue;
            }
            checker.equal(label("reward"), &outcome.reward, &step["reward"].as_f64()?);
            checker.equal(label("done"), &outcome.done, &step["done"].as_bool()?);
        }
        let page = session.observation(shop, mode);
        checker.equal(label("page"), &page.as_str(), &step["obs"].as_str()?);
        checker.equal(label("address"), &session.address(shop).as_str(), &step["url"].as_str()?);
        let recorded_bar = step["avail"]["has_search_bar"].as_bool()?;
        checker.equal(label("search bar"), &session.has_search_bar(), &recorded_bar);
        let clickables = session.clickables(shop);
        let clickables: Vec<&str> = clickables.iter().map(String::as_str).collect();
        checker.equal(label("clickables"), &clickables, &texts(&step["avail"]["clickables"])?);
        if let Some(instruction) = step.get("instruction") {
            let ours = format!("Instruction: {}", shop.goal(number)?.text);
            checker.equal(label("instruction"), &ours.as_str(), &instruction.as_str()?);
        }
    }
    Some(())
}

/// What a recorded agent was shown and how its actions were taken: the parts of its prompts that come from the shop.
pub(super) fn prompts(replayer: &Replayer, line: &Value, checker: &mut Checker) -> Option<()> {
    let shop = &replayer.synthetic;
    let number = index(&line["session"])?;
    let mut session = Session::start(shop, number)?;
    let mut page = session.observation(shop, ObservationMode::TextRich);
    let task = agent::task(&page);
    checker.equal(
        format_args!("task of session {number}"),
        &task.as_str(),
        &line["task"].as_str()?,
    );
    let mut history: Vec<String> = Vec::new();
    for (at, turn) in line["turns"].as_array()?.iter().enumerate() {
        let label = |what: &str| format!("{what} at turn {at} of session {number}");
        let prompt = turn["user"].as_str()?;
        let shown =
            between(prompt, "our current observation is: ", ".\nYour admissible actions of");
        checker.equal(label("page"), &Some(python::strip(&page)), &shown);
        let offered = agent::admissible(&session, shop).join("\n");
        let listed = between(prompt, "situation are:\n[\n", "\n].\n");
        checker.equal(label("admissible actions"), &Some(offered.as_str()), &listed);
        let asked = prompt.contains(&format!("Your task is to: {task}.\n"));
        checker.equal(label("task is asked"), &asked, &true);
        let past = between(prompt, "actions you took: ", "\nYou are now at step ");
        let ours = (history.len() >= 2).then(|| history[history.len() - 2..].join("\n"));
        checker.equal(label("history"), &ours.as_deref(), &past);
        let action = turn["action"].as_str()?;
        let (valid, error) = match agent::check(action, &session, shop) {
            Ok(()) => (true, String::new()),
            Err(error) => (false, error),
        };
        checker.equal(label("validity"), &valid, &turn["valid"].as_bool()?);
        checker.equal(label("error"), &error.as_str(), &turn["error"].as_str()?);
        let nth = at + 1;
        history.push(format!(
            "[Observation {nth}: '{}', Action {nth}: '{action}']",
            agent::one_line(&page)
        ));
        if valid {
            session.step(shop, action);
            page = session.observation(shop, ObservationMode::TextRich);
        } else {
            page = error;
        }
    }
    Some(())
}

/// The text between two marks: the first place of `start`, and the last of `end` after it.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let from = text.find(start)? + start.len();
    let to = text[from..].rfind(end)?;
    Some(&text[from..from + to])
}
