//! Every variant of every failure is produced by a scene: a new one does not compile until it stands here, and fails
//! until a scene provokes it.

use std::collections::BTreeSet;

use lens_engine::scripted::ScriptedPolicy;
use lens_engine::{CallFailure, Deadline, GenerateCall, Message, Policy, Sampling};
use lens_opd::episode::{EpisodeEnd, TurnDrop};
use lens_opd::random::{Purpose, StreamKey};
use lens_opd::validate::fork::{BranchEnd, ForkDrop, Side};
use lens_opd::validate::gate::{Cause, Reason};

use crate::support::{fail, past, walker};
use crate::{episodes, forks};

/// One list gives both the names of all variants and the name of a value; the match has no other arm.
macro_rules! variants {
    ($($type:ident: $all:ident, $name:ident { $($pattern:pat => $label:literal,)* })*) => {
        $(
            const $all: &[&str] = &[$($label),*];

            fn $name(value: $type) -> &'static str {
                match value {
                    $($pattern => $label,)*
                }
            }
        )*
    };
}

variants! {
    ForkDrop: FORK_DROPS, fork_drop {
        ForkDrop::RestoreMismatch => "RestoreMismatch",
        ForkDrop::RestoreFailed => "RestoreFailed",
        ForkDrop::NotRepeatable => "NotRepeatable",
        ForkDrop::HintEmpty => "HintEmpty",
        ForkDrop::HintFailed => "HintFailed",
        ForkDrop::InadmissibleAction => "InadmissibleAction",
        ForkDrop::UnparsedAction => "UnparsedAction",
        ForkDrop::PromptTooLong => "PromptTooLong",
        ForkDrop::Timeout => "Timeout",
        ForkDrop::EngineFailure => "EngineFailure",
        ForkDrop::TargetFailed => "TargetFailed",
    }
    BranchEnd: BRANCH_ENDS, branch_end {
        BranchEnd::Horizon => "Horizon",
        BranchEnd::Ended { success: true } => "Ended with success",
        BranchEnd::Ended { success: false } => "Ended without success",
        BranchEnd::TurnLimit => "TurnLimit",
        BranchEnd::Timeout => "Timeout",
        BranchEnd::EngineFailure => "EngineFailure",
        BranchEnd::PromptTooLong => "PromptTooLong",
    }
    Cause: CAUSES, cause {
        Cause::Timeout => "Timeout",
        Cause::EngineFailure => "EngineFailure",
        Cause::PromptTooLong => "PromptTooLong",
        Cause::UnparsedAction => "UnparsedAction",
        Cause::InadmissibleAction => "InadmissibleAction",
        Cause::NoResponse => "NoResponse",
        Cause::NoContinuation => "NoContinuation",
        Cause::EndedEarly => "EndedEarly",
        Cause::NoContent => "NoContent",
        Cause::Unscored => "Unscored",
    }
    Reason: REASONS, reason {
        Reason::Dropped(_) => "Dropped",
        Reason::Incomplete(Side::Base, _) => "Incomplete base",
        Reason::Incomplete(Side::Guided, _) => "Incomplete guided",
        Reason::NotBetter => "NotBetter",
    }
    TurnDrop: TURN_DROPS, turn_drop {
        TurnDrop::PromptTooLong => "PromptTooLong",
        TurnDrop::TeacherFailed => "TeacherFailed",
        TurnDrop::Timeout => "Timeout",
        TurnDrop::EngineFailed => "EngineFailed",
        TurnDrop::EmptyResponse => "EmptyResponse",
    }
    EpisodeEnd: EPISODE_ENDS, episode_end {
        EpisodeEnd::Completed => "Completed",
        EpisodeEnd::CurriculumCutoff => "CurriculumCutoff",
        EpisodeEnd::TurnLimit => "TurnLimit",
        EpisodeEnd::PromptTooLong => "PromptTooLong",
        EpisodeEnd::Failed => "Failed",
    }
    CallFailure: CALL_FAILURES, call_failure {
        CallFailure::PromptTooLong => "PromptTooLong",
        CallFailure::Timeout => "Timeout",
        CallFailure::Engine => "Engine",
    }
}

/// Fails, naming what is missing, unless every name was seen.
fn all_seen(what: &str, all: &[&'static str], seen: impl IntoIterator<Item = &'static str>) {
    let (all, seen): (BTreeSet<_>, BTreeSet<_>) =
        (all.iter().copied().collect(), seen.into_iter().collect());
    let missing: Vec<&str> = all.difference(&seen).copied().collect();
    assert!(missing.is_empty(), "no scene produces {what}: {missing:?}");
}

#[test]
fn every_way_to_lose_a_fork_or_a_pair_is_produced() {
    let outcomes = forks::outcomes();
    all_seen(
        "ForkDrop",
        FORK_DROPS,
        outcomes.iter().filter_map(forks::Outcome::dropped).map(fork_drop),
    );
    all_seen(
        "BranchEnd",
        BRANCH_ENDS,
        outcomes.iter().filter_map(forks::Outcome::ends).flatten().map(branch_end),
    );
    let reasons = || outcomes.iter().filter_map(|outcome| outcome.reason);
    all_seen("Reason", REASONS, reasons().map(reason));
    let causes = reasons().filter_map(|reason| match reason {
        Reason::Incomplete(_, cause) => Some(cause),
        Reason::Dropped(_) | Reason::NotBetter => None,
    });
    all_seen("Cause", CAUSES, causes.map(cause));
    assert!(outcomes.iter().any(|outcome| outcome.reason.is_none()), "the gate also opens");
}

#[test]
fn every_way_to_lose_a_turn_or_an_episode_is_produced() {
    let outcomes = episodes::outcomes();
    all_seen("EpisodeEnd", EPISODE_ENDS, outcomes.iter().map(|o| episode_end(o.end)));
    let drops = outcomes.iter().flat_map(|outcome| &outcome.drops).flatten();
    all_seen("TurnDrop", TURN_DROPS, drops.map(|&drop| turn_drop(drop)));
}

fn call(max_prompt_tokens: usize) -> GenerateCall {
    let prompt = ScriptedPolicy::saying("").codec().prompt(&[Message::user("Go.")]);
    GenerateCall {
        prompt: prompt.expect("characters"),
        max_prompt_tokens,
        max_new_tokens: 40,
        sampling: Sampling::GREEDY,
        stream: StreamKey::new(0, 0, 0, Purpose::Rollout, 0),
    }
}

#[test]
fn every_failure_of_a_call_is_produced_and_leaves_its_neighbors_alone() {
    let policy = walker([fail(CallFailure::Engine)]);
    let calls = [call(100), call(3), call(100)];
    let answers = policy.generate(&calls, Deadline::never()).expect("the engine works");
    let failures: Vec<Option<CallFailure>> = answers.into_iter().map(Result::err).collect();
    assert_eq!(failures, [Some(CallFailure::Engine), Some(CallFailure::PromptTooLong), None]);
    let late = policy.generate(&calls[..1], past()).expect("the engine works");
    let failures = failures.into_iter().flatten().chain(late.into_iter().filter_map(Result::err));
    all_seen("CallFailure", CALL_FAILURES, failures.map(call_failure));
}
