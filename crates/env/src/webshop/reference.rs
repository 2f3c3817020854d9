//! Actions that are known to earn the full reward, found by someone who knows the goal's product.

use super::environment::PROFILE;
use super::session::{RESULTS_A_PAGE, Session};
use super::shop::Shop;
use super::shopper;
use super::{GoalOptions, agent};

/// The actions: search, turn pages, open the product, choose its options, buy. `None` where the product cannot be found
/// in time, or where even buying it as asked does not earn everything.
pub(super) fn actions(shop: &Shop, goal: usize) -> Option<Vec<String>> {
    let asked = shop.goal(goal)?;
    let product = &shop.catalog().products[asked.product];
    let title = product.title.replace(['[', ']', '\n'], " ");
    [shopper::query(&asked.text), title].into_iter().find_map(|query| {
        let found = shop.search(&query.to_lowercase(), goal, 0).ok()?;
        let index = found.iter().position(|&at| at as usize == asked.product)?;
        let mut actions = vec![format!("search[{query}]")];
        actions.extend(std::iter::repeat_n("click[next >]".to_owned(), index / RESULTS_A_PAGE));
        actions.push(format!("click[{}]", product.asin.to_lowercase()));
        match &asked.options {
            GoalOptions::Named(options) => {
                actions.extend(options.iter().map(|(_, value)| format!("click[{value}]")));
            }
            GoalOptions::Values(values) => {
                actions.extend(values.iter().map(|value| format!("click[{value}]")));
            }
        }
        actions.push("click[buy now]".to_owned());
        earns_everything(shop, goal, &actions).then_some(actions)
    })
}

fn earns_everything(shop: &Shop, goal: usize, actions: &[String]) -> bool {
    let Some(mut session) = Session::start(shop, goal) else { return false };
    actions.len() <= PROFILE.turn_limit
        && actions.iter().all(|action| {
            agent::check(action, &session, shop).is_ok()
                && session.step(shop, action).crash.is_none()
        })
        && session.bought().is_some_and(|reward| reward.total == 1.0)
}
