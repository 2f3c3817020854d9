//! The expert and the reference solutions.

use std::sync::Arc;

use lens_env::webshop::{GoalKind, ObservationMode, WebShop};
use lens_env::{Actions, Benchmark, demonstrate};

use crate::{benchmark, built_in};

/// Earlier steps in the window.
const HISTORY: usize = 2;

#[test]
fn the_expert_earns_what_it_is_known_for_on_the_held_out_sessions() {
    let webshop = benchmark();
    let expert = webshop.expert().unwrap();
    let mut environment = Arc::clone(&webshop).environment().unwrap();
    let (mut score, mut successes) = (0.0, 0);
    for task in webshop.tasks("test").unwrap() {
        let played = demonstrate(&mut *environment, &*expert, &task, 15, HISTORY).unwrap();
        score += played.last.score;
        successes += u32::from(played.success());
        for step in &played.steps {
            let Actions::Commands(offered) = &step.window.actions else { panic!("no commands") };
            let action = &step.decision.action;
            let searches = action.starts_with("search[") && offered[0] == "search[<query>]";
            assert!(searches || offered.contains(action), "{action} is not offered");
            assert!(step.decision.thought.split(' ').count() < 60, "{}", step.decision.thought);
            assert_eq!(expert.decide(&step.window).as_ref(), Some(&step.decision));
        }
    }
    assert!(score >= 97.0, "{score}");
    assert!(successes >= 90, "{successes}");
}

#[test]
fn the_expert_finishes_sessions_with_human_goals() {
    let shop = Arc::new(built_in(GoalKind::Human));
    let webshop = Arc::new(WebShop::new(shop, ObservationMode::TextRich));
    let expert = webshop.expert().unwrap();
    let mut environment = Arc::clone(&webshop).environment().unwrap();
    let tasks = webshop.tasks("train").unwrap();
    let score: f64 = tasks
        .iter()
        .map(|task| demonstrate(&mut *environment, &*expert, task, 15, HISTORY).unwrap().last.score)
        .sum();
    assert!(score / tasks.len() as f64 > 0.6, "{score}");
    let error = webshop.tasks("test").unwrap_err().to_string();
    assert!(
        error.starts_with("split \"test\" of this catalog is missing: it has 100 goals"),
        "{error}"
    );
}

#[test]
fn reference_actions_solve_nearly_every_session_from_any_start() {
    let webshop = benchmark();
    let mut environment = Arc::clone(&webshop).environment().unwrap();
    let tasks = webshop.tasks("train").unwrap();
    let (mut known, mut tried) = (0, 0);
    for task in tasks.iter().step_by(16) {
        tried += 1;
        let Some(actions) = webshop.reference_actions(task).unwrap() else { continue };
        known += 1;
        assert!(actions.len() <= 15);
        let mut view = environment.reset(task).unwrap();
        for action in &actions {
            view = environment.step(action).unwrap();
        }
        assert_eq!(view.score, 1.0, "{}", view.task);
    }
    assert!(f64::from(known) > 0.93 * f64::from(tried), "{known} of {tried}");
}
