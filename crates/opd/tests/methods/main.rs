//! What each method asks of the loop and what it makes of the answers.

#[path = "../support/mod.rs"]
mod support;

mod aggregation;
mod curricula;
mod every_method;
mod futurebridge;
mod guided;
mod lens;
mod pairs;
mod section3;

use lens_opd::methods::{Driver, MethodName, MethodSections, RunFacts};

const FACTS: RunFacts = RunFacts { seed: 42, max_turns: 30, steps: 250 };

fn build(name: MethodName, change: impl FnOnce(&mut MethodSections)) -> Driver {
    let mut sections = MethodSections::default();
    change(&mut sections);
    Driver::new(name, &sections, FACTS).expect("sound parameters")
}

fn default(name: MethodName) -> Driver {
    build(name, |_| {})
}
