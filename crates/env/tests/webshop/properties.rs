//! What must hold whatever an agent does.

use std::collections::BTreeSet;
use std::sync::Arc;

use lens_env::webshop::{GoalOptions, ObservationMode, Session};
use lens_env::{Actions, Benchmark, EnvError, Environment, Status, Task, View};
use proptest::prelude::*;

use crate::{benchmark, shop};

fn task(session: usize) -> Task {
    Task { id: session.to_string(), kind: String::new() }
}

/// What a made-up agent does: mostly something that is offered, sometimes anything at all.
#[derive(Debug, Clone)]
enum Move {
    Offered(prop::sample::Index),
    Words(String),
    Anything(String),
}

fn moves(count: usize) -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => any::<prop::sample::Index>().prop_map(Move::Offered),
        2 => "[a-z <>]{1,20}".prop_map(Move::Words),
        1 => any::<String>().prop_map(Move::Anything),
    ];
    prop::collection::vec(one, 1..count)
}

impl Move {
    fn action(&self, view: &View) -> String {
        let Actions::Commands(commands) = &view.actions else { panic!("WebShop lists commands") };
        match self {
            Self::Offered(_) if commands.is_empty() => "click[anything]".to_owned(),
            Self::Offered(index) => {
                index.get(commands).replace("<query>", "outdoor table lamps for reading corner")
            }
            Self::Words(words) => format!("search[{words}]"),
            Self::Anything(text) => text.clone(),
        }
    }
}

fn environment() -> Box<dyn Environment> {
    benchmark().environment().expect("an environment")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_restored_session_goes_on_as_the_original_did(
        session in 0_usize..4196,
        before in moves(8),
        after in moves(8),
    ) {
        let mut original = environment();
        let mut view = original.reset(&task(session)).unwrap();
        for step in &before {
            view = original.step(&step.action(&view)).unwrap();
        }
        let snapshot = original.snapshot().unwrap();
        let mut restored = {
            let webshop = benchmark();
            webshop.environment().unwrap()
        };
        restored.reset(&task((session + 1) % 4196)).unwrap();
        prop_assert_eq!(&restored.restore(&snapshot).unwrap(), &view);
        for step in &after {
            let action = step.action(&view);
            view = original.step(&action).unwrap();
            prop_assert_eq!(&restored.step(&action).unwrap(), &view);
        }
        // Neither has touched the snapshot.
        let mut again = environment();
        let first = again.restore(&snapshot).unwrap();
        prop_assert_eq!(first.turn, before.len().min(first.turn));
    }

    #[test]
    fn an_action_that_is_not_offered_changes_nothing(
        session in 0_usize..4196,
        before in moves(8),
        bad in "(click\\[[0-9]{3}\\]|look|search|click|CLICK\\[x\\]|\\[\\]|.{0,12})",
    ) {
        let mut tried = environment();
        let mut untouched = environment();
        let mut view = tried.reset(&task(session)).unwrap();
        untouched.reset(&task(session)).unwrap();
        for step in &before {
            let action = step.action(&view);
            view = tried.step(&action).unwrap();
            untouched.step(&action).unwrap();
        }
        let Actions::Commands(commands) = &view.actions else { panic!("WebShop lists commands") };
        prop_assume!(!commands.contains(&bad));
        let after = tried.step(&bad).unwrap();
        prop_assert_eq!(&after.actions, &view.actions);
        prop_assert_eq!((after.score, after.status), (view.score, view.status));
        if view.status == Status::Running {
            prop_assert_eq!(after.turn, view.turn + 1);
            prop_assert_ne!(&after.observation, "");
            for action in commands {
                let snapshots = (tried.snapshot().unwrap(), untouched.snapshot().unwrap());
                let (ours, theirs) = (tried.step(action).unwrap(), untouched.step(action).unwrap());
                prop_assert_eq!(&ours.observation, &theirs.observation);
                prop_assert_eq!(&ours.actions, &theirs.actions);
                tried.restore(&snapshots.0).unwrap();
                untouched.restore(&snapshots.1).unwrap();
            }
        } else {
            prop_assert_eq!(&after, &view);
        }
    }

    #[test]
    fn the_shop_itself_ignores_what_it_does_not_know(text in any::<String>(), session in 0_usize..4196) {
        let mut visit = Session::start(shop(), session).unwrap();
        visit.step(shop(), "search[lamp]");
        let before = visit.clone();
        if !text.starts_with("search[") && !text.starts_with("click[") {
            let outcome = visit.step(shop(), &text);
            prop_assert_eq!((outcome.reward, outcome.done, outcome.crash), (0.0, false, None));
            prop_assert_eq!(&visit, &before);
        }
        let clicked = visit.step(shop(), &format!("click[{text}~]"));
        prop_assert!(!clicked.done);
        prop_assert_eq!(&visit, &before);
    }

    #[test]
    fn queries_of_any_kind_are_answered(text in any::<String>(), mode in any::<bool>()) {
        let mode = if mode { ObservationMode::Text } else { ObservationMode::TextRich };
        let mut visit = Session::start(shop(), 7).unwrap();
        for query in [text.clone(), format!("<r> {text}"), format!("<c> {text}"), format!("<q> {text}"), format!("<a> {text}")] {
            let before = visit.clone();
            let outcome = visit.step(shop(), &format!("search[{query}]"));
            if outcome.crash.is_some() {
                prop_assert_eq!(&visit, &before);
            }
            visit.step(shop(), "click[next >]");
            visit.observation(shop(), mode);
            visit.address(shop());
        }
    }

    #[test]
    fn rewards_lie_between_zero_and_one(
        goal in 0_usize..4196,
        product in 0_usize..1000,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let shop = shop();
        let options: Vec<_> = shop.catalog().products[product]
            .options
            .iter()
            .zip(&picks)
            .filter(|(option, _)| !option.values.is_empty())
            .map(|(option, pick)| (Arc::clone(&option.name), Arc::clone(pick.get(&option.values))))
            .collect();
        let reward = shop.reward(goal, product, &options).unwrap();
        prop_assert!((0.0..=1.0).contains(&reward.total), "{reward:?}");
        if reward.total == 1.0 {
            prop_assert!(reward.kind.factor == 1.0 && reward.price.0 && reward.attributes.0 == 1.0);
            prop_assert!(reward.options.is_none_or(|(share, _)| share == 1.0));
        }
    }
}

/// Option values that the original's matcher cannot recognize even when the very same value is chosen: a color word
/// inside another word hides it, and letters outside ASCII are dropped on one side and spelled out on the other.
const UNRECOGNIZABLE: [&str; 3] = ["shade black137", "soft\u{a0}blue", "washed black"];

#[test]
fn buying_what_is_asked_for_earns_everything() {
    let shop = shop();
    let mut lossy: BTreeSet<&str> = BTreeSet::new();
    for number in 0..shop.goals().len() {
        let goal = shop.goal(number).unwrap();
        let GoalOptions::Named(options) = &goal.options else { panic!("goals are synthetic") };
        let reward = shop.reward(number, goal.product, options).unwrap();
        let hidden = UNRECOGNIZABLE
            .into_iter()
            .filter(|value| options.iter().any(|(_, chosen)| &**chosen == *value));
        let hidden: Vec<&str> = hidden.collect();
        assert_eq!(reward.total == 1.0, hidden.is_empty(), "{}: {reward:?}", goal.text);
        lossy.extend(hidden);
        assert!(shop.prices()[goal.product] <= goal.price_upper);
    }
    assert_eq!(lossy.into_iter().collect::<Vec<_>>(), UNRECOGNIZABLE, "all of them are planted");
}

#[test]
fn leaving_anything_out_costs_something() {
    let shop = shop();
    let mut tried = 0;
    for number in (0..shop.goals().len()).step_by(17) {
        let goal = shop.goal(number).unwrap();
        let GoalOptions::Named(options) = &goal.options else { panic!("goals are synthetic") };
        if let [_, rest @ ..] = options.as_slice() {
            let reward = shop.reward(number, goal.product, rest).unwrap();
            // An option can be met by another's value only if they share their words.
            let words_shared = rest.iter().any(|(_, value)| options[0].1.contains(&**value));
            assert!(reward.total < 1.0 || words_shared, "{}", goal.text);
            tried += 1;
        }
    }
    assert!(tried > 200);
}

#[test]
fn splits_hold_the_sessions_of_the_paper() {
    let webshop = benchmark();
    let sizes: Vec<_> =
        webshop.splits().into_iter().map(|split| (split.name, split.tasks)).collect();
    assert_eq!(sizes, [("train".to_owned(), 4096), ("test".to_owned(), 100)]);
    let ids = |split: &str| -> Vec<String> {
        webshop.tasks(split).unwrap().into_iter().map(|task| task.id).collect()
    };
    assert_eq!(ids("train"), (0..4096).map(|id: u32| id.to_string()).collect::<Vec<_>>());
    assert_eq!(ids("test"), (4096..4196).map(|id: u32| id.to_string()).collect::<Vec<_>>());
    assert_eq!(webshop.profile().turn_limit, 15);
    let error = webshop.tasks("dev").unwrap_err().to_string();
    assert_eq!(error, "split \"dev\" is not in webshop; its splits are \"train\" and \"test\"");
}

#[test]
fn wrong_use_is_refused_in_words() {
    let mut environment = environment();
    assert!(matches!(environment.step("search[x]"), Err(EnvError::NotReset)));
    assert!(matches!(environment.snapshot(), Err(EnvError::NotReset)));
    for id in ["99999", "-1", "lamp", ""] {
        let error =
            environment.reset(&Task { id: id.to_owned(), kind: String::new() }).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("task \"{id}\" is not in webshop; tasks are session numbers from 0 to 5929")
        );
    }
    environment.reset(&task(3)).unwrap();
    let foreign = lens_env::Snapshot::new(5_u8);
    assert!(matches!(environment.restore(&foreign), Err(EnvError::Restore(_))));
    let other = crate::built_in(lens_env::webshop::GoalKind::Human);
    let other = Arc::new(lens_env::webshop::WebShop::new(Arc::new(other), ObservationMode::Text));
    let mut elsewhere = other.environment().unwrap();
    elsewhere.reset(&task(3)).unwrap();
    let snapshot = elsewhere.snapshot().unwrap();
    let error = environment.restore(&snapshot).unwrap_err().to_string();
    assert_eq!(error, "cannot restore: the snapshot was made in another shop");
}

#[test]
fn the_end_is_the_end() {
    let mut environment = environment();
    let actions =
        benchmark().reference_actions(&task(0)).unwrap().expect("session 0 can be solved");
    let mut view = environment.reset(&task(0)).unwrap();
    for action in &actions {
        assert_eq!(view.status, Status::Running);
        view = environment.step(action).unwrap();
    }
    assert_eq!((view.status, view.score), (Status::Ended { success: true }, 1.0));
    assert_eq!(view.actions, Actions::Commands(Vec::new()));
    assert_eq!(environment.step("search[more]").unwrap(), view);
}

#[test]
fn refused_actions_are_answered_with_the_original_wrappers_words() {
    let mut environment = environment();
    let start = environment.reset(&task(0)).unwrap();
    let mut told = |action: &str| environment.step(action).unwrap().observation;
    assert_eq!(
        told("search"),
        "Invalid action, please type in the query you want to search in the square brackets here."
    );
    assert_eq!(
        told("click[lamp]"),
        "Incorrect action format, make sure you have the correct button name that is within the current page. The \
         buttons you can click now are: ['search']"
    );
    assert_eq!(
        told("dance"),
        "Invalid action. You should wrap your action with the <action> </action> tag and follow the action format."
    );
    // This button is offered, and the shop ignores it.
    assert_eq!(told("click[search]"), start.observation);
    assert!(told("search[lamp]").contains("Page 1 (Total results: "));
    assert_eq!(
        told("search[lamp]"),
        "Can not perform search action without search bar. Please click the Back to Search button first."
    );
}

#[test]
fn random_results_are_drawn_anew_by_each_search_and_alike_in_each_run() {
    let results = |session: usize, actions: &[&str]| {
        let mut visit = Session::start(shop(), session).unwrap();
        for action in actions {
            visit.step(shop(), action);
        }
        visit.clickables(shop())
    };
    let first = results(5, &["search[<r>]"]);
    assert_eq!(first.len(), 12, "two buttons and ten products");
    assert_eq!(first, results(5, &["search[<r>]"]));
    assert_ne!(first, results(6, &["search[<r>]"]));
    assert_ne!(first, results(5, &["search[<r>]", "click[next >]", "click[< prev]"]));
}
