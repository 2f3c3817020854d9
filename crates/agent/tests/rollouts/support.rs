//! What episodes and forks share: limits, plans, replies.

use std::sync::Arc;
use std::time::Duration;

use lens_agent::{Context, Episode, Plan, Prompting, RolloutConfig, play};
use lens_engine::scripted::{Reply, ScriptedPolicy};
use lens_engine::{CallFailure, Deadline, Policy, Sampling};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;

use crate::corridor::{Corridor, Fault, task};

/// The corridor's limits, without a deadline.
pub(crate) fn config(fault: Fault) -> RolloutConfig {
    RolloutConfig {
        benchmark: Arc::new(Corridor(fault)),
        prompting: Prompting::default(),
        context: Context::Window,
        history: 2,
        turn_limit: 12,
        max_prompt_tokens: 10_000,
        max_response_tokens: 200,
        timeout: None,
        deadline: Deadline::never(),
    }
}

/// A deadline that has passed.
pub(crate) fn past() -> Deadline {
    Deadline::after(Duration::ZERO)
}

/// The student walks a corridor of that length.
pub(crate) fn plan(key: u64, length: usize) -> Plan {
    Plan {
        key,
        task: task(length),
        exposure: Exposure::student(12),
        reference: None,
        seed: 7,
        batch: 1,
        purpose: Purpose::Rollout,
        sampling: Sampling::at(1.0),
    }
}

/// A response that does `action`.
pub(crate) fn act(action: &str) -> Reply {
    Reply::Text(format!("<action>{action}</action>"))
}

/// No response to this call.
pub(crate) fn fail(failure: CallFailure) -> Reply {
    Reply::Fail(failure)
}

/// Gives `replies`, then walks on.
pub(crate) fn walker(replies: impl IntoIterator<Item = Reply>) -> ScriptedPolicy {
    ScriptedPolicy::new(replies, |_| act("right"))
}

/// Plays all plans, states kept.
pub(crate) fn played(
    config: &RolloutConfig,
    student: &dyn Policy,
    plans: Vec<Plan>,
) -> Vec<Episode> {
    play(config, student, None, plans, true, &mut |_, _| {}).expect("the engine works")
}

/// Makes a test of every scene, named by the sentence it proves, and a function `outcomes` that runs them all.
macro_rules! scenes {
    ($($(#[$doc:meta])* $name:ident: $scene:expr => $expected:expr;)*) => {
        $(
            $(#[$doc])*
            #[test]
            fn $name() {
                assert_eq!(($scene).run().shown(), $expected);
            }
        )*

        /// What every scene of this file comes to.
        pub(crate) fn outcomes() -> Vec<Outcome> {
            vec![$(($scene).run()),*]
        }
    };
}
pub(crate) use scenes;
