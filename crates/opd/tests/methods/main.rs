//! What each method asks of the loop and what it makes of the answers.

#[path = "../support/mod.rs"]
mod support;

mod curricula;
mod every_method;
mod futurebridge;
mod guided;
mod lens;
mod section3;

use lens_opd::methods::{Method, MethodKind, MethodParams, Setting};

const SETTING: Setting = Setting { seed: 42, max_turns: 30 };

fn build(params: &MethodParams) -> Box<dyn Method> {
    params.build(SETTING).expect("sound parameters")
}

fn default(kind: MethodKind) -> Box<dyn Method> {
    build(&MethodParams::of(kind))
}
