//! Builders that the integration tests share.
#![allow(dead_code, reason = "each test binary uses its own part")]

use lens_opd::episode::{
    Actor, DivergenceSource, EpisodeEnd, ScoredBatch, ScoredEpisode, ScoredToken, ScoredTurn,
    TopPair,
};
use lens_opd::random::{Purpose, Stream, StreamKey};
use lens_opd::validate::fork::{Branch, BranchEnd, FinishedFork, ForkResult, Pair};

/// A stream of draws for building inputs.
pub(crate) fn draws(seed: u64) -> Stream {
    StreamKey::new(seed, 0, 0, Purpose::Data, 0).open()
}

/// A fully scored token; `agree` says whether the models favor the same token.
pub(crate) fn token(stream: &mut Stream, special: bool, agree: bool) -> ScoredToken {
    let logprob = |stream: &mut Stream| Some(-(stream.uniform() as f32) * 4.0 - 0.01);
    let student_at_student = -(stream.uniform() as f32) * 0.5 - 0.01;
    let student_at_teacher =
        if agree { student_at_student } else { student_at_student - 3.0 * stream.uniform() as f32 };
    let teacher_at_teacher = -(stream.uniform() as f32) * 0.5 - 0.01;
    let teacher_at_student =
        if agree { teacher_at_teacher } else { teacher_at_teacher - 3.0 * stream.uniform() as f32 };
    ScoredToken {
        id: stream.below(100).unwrap_or(0) as u32,
        content: !special,
        special,
        student_logprob: logprob(stream),
        teacher_logprob: logprob(stream),
        top: Some(TopPair {
            student_top: 1,
            teacher_top: if agree { 1 } else { 2 },
            student_at_student: Some(student_at_student),
            student_at_teacher: Some(student_at_teacher),
            teacher_at_teacher: Some(teacher_at_teacher),
            teacher_at_student: Some(teacher_at_student),
        }),
        kl: Some(stream.uniform() as f32),
    }
}

/// A student turn of `length` tokens, the last one special.
pub(crate) fn turn(stream: &mut Stream, number: usize, length: usize) -> ScoredTurn {
    let tokens = (0..length)
        .map(|i| {
            let agree = stream.uniform() < 0.6;
            token(stream, i + 1 == length, agree)
        })
        .collect();
    of_tokens(number, tokens)
}

/// A student turn with those tokens.
pub(crate) fn of_tokens(number: usize, tokens: Vec<ScoredToken>) -> ScoredTurn {
    ScoredTurn {
        turn: number,
        actor: Actor::Student,
        parsed: true,
        admissible: true,
        tokens,
        action: None,
        dropped: None,
    }
}

/// An episode of `turns` turns from reset.
pub(crate) fn episode(stream: &mut Stream, key: u64, turns: usize) -> ScoredEpisode {
    let turns = (0..turns)
        .map(|number| {
            let length = 2 + stream.below(6).unwrap_or(0) as usize;
            turn(stream, number, length)
        })
        .collect();
    ScoredEpisode {
        episode: key,
        version: 0,
        prefix: 0,
        reference_actions: Some(8),
        end: EpisodeEnd::TurnLimit,
        success: false,
        turns,
    }
}

/// A batch of `episodes` episodes of `turns` turns.
pub(crate) fn batch(seed: u64, number: u64, episodes: u64, turns: usize) -> ScoredBatch {
    let mut stream = draws(seed);
    let episodes = (0..episodes).map(|key| episode(&mut stream, key, turns)).collect();
    ScoredBatch { number, divergence: DivergenceSource::Full, episodes }
}

/// A branch whose continuation the teacher gives `logprob` at every token.
pub(crate) fn branch(stream: &mut Stream, fork_turn: usize, turns: usize, logprob: f32) -> Branch {
    let response = turn(stream, fork_turn, 4);
    let continuation = (1..=turns)
        .map(|after| {
            let mut turn = turn(stream, fork_turn + after, 3);
            turn.tokens.iter_mut().for_each(|token| token.teacher_logprob = Some(logprob));
            turn
        })
        .collect();
    Branch { response, continuation, end: BranchEnd::Horizon, score: None }
}

/// A finished fork whose branches the teacher values at `base` and `guided`.
pub(crate) fn fork(seed: u64, episode: u64, turn: usize, base: f32, guided: f32) -> FinishedFork {
    let mut stream = draws(seed);
    let pair = Pair {
        base: branch(&mut stream, turn, 3, base),
        guided: branch(&mut stream, turn, 3, guided),
        internalization_gap: None,
        repeats: Vec::new(),
    };
    FinishedFork { episode, turn, result: ForkResult::Pair(Box::new(pair)) }
}
