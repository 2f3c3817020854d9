//! From what a batch left behind to the lines of the log.

use std::collections::BTreeMap;

use lens_agent::parse::ParseFailure;
use lens_agent::{BranchLog, Episode, ForkRun, PairLog};
use lens_engine::Codec;
use lens_opd::diagnostics::support_by_depth;
use lens_opd::episode::{Actor, ScoredToken, ScoredTurn};
use lens_opd::methods::record::ForkRecord;
use lens_opd::methods::rows::RowKind;
use lens_opd::validate::fork::{Branch, BranchEnd, Coupling, ForkKind, ForkResult};
use lens_records::FORMAT;
use lens_records::episodes::{
    BranchTurn, EpisodeLine, Favorites, ForkLine, RepeatLine, Tokens, TurnLine,
};
use lens_records::metrics::{
    BatchLine, DepthSupport, EpisodeSummary, EvalLine, FocusMass, ForkRequest, ForkSummary,
    Measures, RolloutStats, TaskOutcome, TickLine, TokenCounts, Verdict,
};
use serde::Serialize;

use crate::evaluate::{self, Evaluation};
use crate::iteration::Explored;

/// The line of an explorer batch.
pub(super) fn batch_line(
    explored: &Explored,
    version: u64,
    waiting: usize,
    stale: u64,
) -> BatchLine {
    let record = &explored.record;
    // Methods that do not compare favorite tokens have no support to log.
    let support = support_by_depth(&explored.judged.batch.episodes, None).ok();
    let tokens = &record.tokens;
    BatchLine {
        waiting_rows: waiting as u64,
        stale_rows: stale,
        divergence: word(&record.divergence),
        horizon: record.horizon as u64,
        tick: record.tick.as_ref().map(|tick| TickLine {
            depth: tick.depth as u64,
            valid_episodes: tick.valid_episodes as u64,
            competence: tick.competence,
            pace: tick.pace,
            next_depth: tick.next_depth as u64,
        }),
        teacher_share: record.measures.get("teacher_share").copied(),
        mean_prefix: record.mean_prefix,
        terminations: counts(&record.terminations),
        successes: record.successes,
        dropped_turns: counts(&record.dropped_turns),
        unparsed_turns: unparsed_turns(explored),
        complete_pairs: record.complete_pairs() as u64,
        accepted: record.accepted() as u64,
        reasons: record.reasons().into_iter().map(|(key, n)| (key.to_owned(), n)).collect(),
        forks: record.forks.iter().map(fork_summary).collect(),
        tokens: token_counts(tokens),
        guided_share: tokens.guided_share(),
        support_by_depth: support.map(|depths| {
            let depths = depths.into_iter().map(|depth| DepthSupport {
                turn: depth.turn as u64,
                positions: depth.positions as u64,
                support: depth.support,
            });
            depths.collect()
        }),
        rollout: Some(rollout_stats(explored)),
        episodes: episode_summaries(explored),
        ..BatchLine::new(record.batch, version)
    }
}

/// Tokens by kind of row, as the log writes them.
pub(super) fn token_counts(tokens: &lens_opd::methods::record::TokenCounts) -> TokenCounts {
    TokenCounts {
        opd: tokens.opd,
        gi: tokens.internalize,
        teacher_nll: tokens.teacher_nll,
        bridge: tokens.bridge,
    }
}

/// The line of an evaluated split.
pub(super) fn eval_line(step: u64, batch: u64, evaluation: &Evaluation) -> EvalLine {
    let measures = |measures: &evaluate::Measures| Measures {
        tasks: measures.tasks as u64,
        success_rate: measures.success_rate,
        score: measures.score,
        rounds: measures.rounds,
    };
    let tasks = evaluation.tasks.iter().map(|task| TaskOutcome {
        task: task.task.clone(),
        kind: task.kind.clone(),
        success: task.success,
        score: task.score,
        turns: task.turns as u64,
        end: word(&task.end),
    });
    EvalLine {
        format: FORMAT,
        step,
        batch,
        split: evaluation.split.clone(),
        all: measures(&evaluation.all),
        kinds: evaluation.kinds.iter().map(|(kind, of)| (kind.clone(), measures(of))).collect(),
        tasks: tasks.collect(),
    }
}

/// The line of the episode at `index` of the batch.
pub(super) fn episode_line(explored: &Explored, index: usize, codec: &dyn Codec) -> EpisodeLine {
    let episode = &explored.episodes[index];
    let scored = &explored.judged.batch.episodes[index];
    let key = episode.plan.key;
    let turns = episode.turns.iter().zip(&scored.turns).map(|(turn, scored)| TurnLine {
        turn: turn.number as u64,
        actor: word(&turn.actor),
        observation: turn.view.observation.clone(),
        response: turn.text.clone(),
        action: turn.action.clone(),
        prompt: codec.text(&turn.prompt).ok(),
        tokens: Tokens {
            weights: weights(explored, key, turn.number, &[RowKind::Opd, RowKind::TeacherNll]),
            ..tokens(&scored.tokens)
        },
        dropped: turn.dropped.as_ref().map(word),
    });
    let forks = explored.forks.iter().filter(|fork| fork.finished.episode == key);
    let mut line = EpisodeLine {
        format: FORMAT,
        batch: explored.record.batch,
        episode: key,
        task: episode.plan.task.id.clone(),
        task_kind: episode.plan.task.kind.clone(),
        goal: episode.turns.first().map(|turn| turn.view.task.clone()),
        version: episode.version,
        horizon: episode.plan.exposure.horizon as u64,
        prefix: episode.prefix as u64,
        end: word(&episode.end),
        success: episode.success,
        score: Some(episode.score),
        failure: episode.failure.clone(),
        turns: turns.collect(),
        forks: forks.map(|fork| fork_line(explored, fork, codec)).collect(),
        token_text: BTreeMap::new(),
    };
    line.token_text = token_text(&line, codec);
    line
}

fn fork_line(explored: &Explored, fork: &ForkRun, codec: &dyn Codec) -> ForkLine {
    let (episode, turn) = (fork.finished.episode, fork.finished.turn);
    let record = explored
        .record
        .forks
        .iter()
        .find(|record| record.request.episode == episode && record.request.turn == turn);
    let pair = match &fork.finished.result {
        ForkResult::Pair(pair) => Some(pair),
        ForkResult::Dropped(_) => None,
    };
    let mut guided = branch_turns(&fork.guided, pair.map(|pair| &pair.guided));
    if let Some(first) = guided.first_mut() {
        first.tokens.weights =
            weights(explored, episode, turn, &[RowKind::Internalize, RowKind::Bridge]);
    }
    ForkLine {
        turn: turn as u64,
        hint: fork.hint.clone(),
        hint_prompt: codec.text(&fork.cue).ok().filter(|text| !text.is_empty()),
        hinted_prompt: codec.text(&fork.hinted_prompt).ok().filter(|text| !text.is_empty()),
        evaluator: record.map(|record| word(&record.verdict.evaluator).replace('-', "_")),
        base: branch_turns(&fork.base, pair.map(|pair| &pair.base)),
        guided,
        base_end: pair.map(|pair| branch_end(pair.base.end)),
        guided_end: pair.map(|pair| branch_end(pair.guided.end)),
        base_score: pair.and_then(|pair| pair.base.score),
        guided_score: pair.and_then(|pair| pair.guided.score),
        repeats: repeats(fork),
        record: record.map(fork_summary),
    }
}

/// The pairs after the first.
fn repeats(fork: &ForkRun) -> Vec<RepeatLine> {
    let mut judged = match &fork.finished.result {
        ForkResult::Pair(pair) => pair.repeats.iter(),
        ForkResult::Dropped(_) => [].iter(),
    };
    let line = |log: &PairLog| {
        let judged = judged.next();
        RepeatLine {
            base: branch_turns(&log.base, judged.map(|repeat| &repeat.base)),
            guided: branch_turns(&log.guided, judged.map(|repeat| &repeat.guided)),
            base_end: judged.map(|repeat| branch_end(repeat.base.end)),
            guided_end: judged.map(|repeat| branch_end(repeat.guided.end)),
            base_score: judged.and_then(|repeat| repeat.base.score),
            guided_score: judged.and_then(|repeat| repeat.guided.score),
        }
    };
    fork.repeats.iter().map(line).collect()
}

fn branch_turns(log: &BranchLog, branch: Option<&Branch>) -> Vec<BranchTurn> {
    let mut scored = branch
        .into_iter()
        .flat_map(|branch| std::iter::once(&branch.response).chain(&branch.continuation));
    let turns = log.turns.iter().map(|turn| {
        let mut line = BranchTurn {
            observation: turn.observation.clone(),
            response: turn.text.clone(),
            action: turn.action.clone(),
            ..BranchTurn::default()
        };
        if let Some(scored) = scored.next() {
            line.turn = Some(scored.turn as u64);
            line.tokens = tokens(&scored.tokens);
            line.likelihood = line.tokens.content_mean(&line.tokens.teacher_logprobs);
            line.preferred = preferred(scored);
            line.content_tokens = Some(scored.content().count() as u64);
            let action = scored.action.as_ref().filter(|action| !action.tokens.is_empty());
            line.action_tokens =
                action.map(|action| (action.tokens.start as u32, action.tokens.end as u32));
        }
        line
    });
    turns.collect()
}

/// Share of tokens the teacher finds likelier than the student does, where both said so.
fn preferred(turn: &ScoredTurn) -> Option<f64> {
    let both = turn.tokens.iter().filter_map(|token| {
        Some((f64::from(token.teacher_logprob?), f64::from(token.student_logprob?)))
    });
    let (count, better) = both.fold((0_u64, 0_u64), |(count, better), (teacher, student)| {
        (count + 1, better + u64::from(teacher > student))
    });
    (count > 0).then(|| better as f64 / count as f64)
}

fn fork_summary(record: &ForkRecord) -> ForkSummary {
    let (request, verdict) = (&record.request, &record.verdict);
    ForkSummary {
        request: ForkRequest {
            episode: request.episode,
            turn: request.turn as u64,
            kind: match &request.kind {
                ForkKind::Hint { prompt, .. } => {
                    lens_records::metrics::ForkKind::Hint { feedback: word(prompt) }
                }
                ForkKind::Bridge => lens_records::metrics::ForkKind::Bridge,
            },
            continuation_turns: request.continuation_turns as u64,
            score_temperature: request.temperature,
            divergence: request.divergence,
            pairs: (request.pairs > 1).then_some(request.pairs as u64),
            coupling: (request.coupling != Coupling::Independent).then(|| word(&request.coupling)),
            play_on: request.play_on,
        },
        verdict: Verdict {
            base_value: verdict.base_value,
            guided_value: verdict.guided_value,
            gain: verdict.gain,
            pairs: (request.pairs > 1).then_some(verdict.pairs as u64),
            standard_error: verdict.standard_error,
            accepted: verdict.accepted,
        },
        reason: record.reason.clone(),
        internalization_gap: record.internalization_gap,
        focus: record.focus.as_ref().map(|focus| FocusMass {
            content_tokens: focus.content_tokens as u64,
            target_tokens: focus.target_tokens as u64,
            content_mass: focus.content_mass,
            target_mass: focus.target_mass,
        }),
    }
}

/// What is known of each token, in columns; a column nothing is known in stays empty.
fn tokens(scored: &[ScoredToken]) -> Tokens {
    let column = |value: fn(&ScoredToken) -> Option<f32>| -> Vec<Option<f32>> {
        if scored.iter().any(|token| value(token).is_some()) {
            scored.iter().map(value).collect()
        } else {
            Vec::new()
        }
    };
    let masked = scored.iter().enumerate().filter(|(_, token)| !token.content);
    let compared = scored.iter().any(|token| token.top.is_some());
    let ids = |value: fn(&lens_opd::episode::TopPair) -> u32| {
        scored.iter().map(|token| token.top.as_ref().map(value)).collect()
    };
    Tokens {
        ids: scored.iter().map(|token| token.id).collect(),
        student_logprobs: column(|token| token.student_logprob),
        teacher_logprobs: column(|token| token.teacher_logprob),
        kl: column(|token| token.kl),
        weights: Vec::new(),
        masked: masked.map(|(index, _)| index as u32).collect(),
        favorites: compared.then(|| Favorites {
            student: ids(|top| top.student_top),
            teacher: ids(|top| top.teacher_top),
            student_at_student: column(|token| token.top?.student_at_student),
            student_at_teacher: column(|token| token.top?.student_at_teacher),
            teacher_at_teacher: column(|token| token.top?.teacher_at_teacher),
            teacher_at_student: column(|token| token.top?.teacher_at_student),
        }),
    }
}

/// The weights of the first row of one of `kinds` at that turn.
fn weights(explored: &Explored, episode: u64, turn: usize, kinds: &[RowKind]) -> Vec<f32> {
    let row = explored
        .plain_rows
        .iter()
        .find(|row| row.episode == episode && row.turn == turn && kinds.contains(&row.kind));
    row.map(|row| row.weights.clone()).unwrap_or_default()
}

/// The text of every token id in the line.
fn token_text(line: &EpisodeLine, codec: &dyn Codec) -> BTreeMap<u32, String> {
    let mut texts = BTreeMap::new();
    let repeats = |fork: &'_ ForkLine| {
        let turns = fork.repeats.iter().flat_map(|repeat| repeat.base.iter().chain(&repeat.guided));
        turns.cloned().collect::<Vec<_>>()
    };
    let repeated: Vec<BranchTurn> = line.forks.iter().flat_map(repeats).collect();
    let branches = line.forks.iter().flat_map(|fork| fork.base.iter().chain(&fork.guided));
    let branches = branches.chain(&repeated);
    let columns =
        line.turns.iter().map(|turn| &turn.tokens).chain(branches.map(|turn| &turn.tokens));
    for tokens in columns {
        let favorites = tokens.favorites.iter();
        let favorites =
            favorites.flat_map(|both| both.student.iter().chain(&both.teacher).flatten());
        for &id in tokens.ids.iter().chain(favorites) {
            texts.entry(id).or_insert_with(|| codec.piece(id));
        }
    }
    // The replacement character stands for a token that is only part of a character.
    texts.retain(|_, text| !text.is_empty() && !text.contains('\u{fffd}'));
    texts
}

/// Turns without an action by reason. Missing tags are left out: there `parsed_turns` says it all.
fn unparsed_turns(explored: &Explored) -> BTreeMap<String, u64> {
    let turns = explored.episodes.iter().flat_map(|episode| &episode.turns);
    let mut counts = BTreeMap::new();
    for failure in turns.filter_map(|turn| turn.unparsed) {
        if failure != ParseFailure::NoTags {
            *counts.entry(failure.word().to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Sums and means over the turns of a batch.
fn rollout_stats(explored: &Explored) -> RolloutStats {
    let mut stats = RolloutStats::default();
    for episode in &explored.episodes {
        let mut previous = None;
        for turn in &episode.turns {
            stats.turns += 1;
            stats.parsed_turns += u64::from(turn.action.is_some());
            stats.repeated_turns += u64::from(turn.action.is_some() && turn.action == previous);
            stats.prompt_tokens += turn.prompt.len() as u64;
            stats.response_tokens += turn.response.len() as u64;
            previous.clone_from(&turn.action);
        }
    }
    let turns = explored.judged.batch.episodes.iter().flat_map(|episode| &episode.turns);
    let turns = turns.filter(|turn| turn.actor == Actor::Student && turn.drop_reason().is_none());
    let tokens: Vec<&ScoredToken> =
        turns.flat_map(|turn| turn.content().map(|(_, token)| token)).collect();
    stats.scored_tokens = tokens.len() as u64;
    let mean = |value: fn(&ScoredToken) -> Option<f64>| {
        let values: Vec<f64> =
            tokens.iter().filter_map(|token| value(token)).filter(|x| x.is_finite()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    stats.kl = mean(|token| token.kl.map(f64::from));
    stats.student_nll = mean(|token| token.student_logprob.map(|value| -f64::from(value)));
    stats.teacher_nll = mean(|token| token.teacher_logprob.map(|value| -f64::from(value)));
    stats.teacher_confidence = mean(|token| Some(f64::from(token.top?.teacher_at_teacher?).exp()));
    stats.agreement = mean(|token| Some(f64::from(u8::from(token.top?.agree()))));
    stats
}

fn episode_summaries(explored: &Explored) -> Vec<EpisodeSummary> {
    let scored = &explored.judged.batch.episodes;
    let summary = |(episode, scored): (&Episode, &lens_opd::episode::ScoredEpisode)| {
        let divergences = scored.turns.iter().filter_map(|turn| {
            let columns = tokens(&turn.tokens);
            columns.content_mean(&columns.kl)
        });
        EpisodeSummary {
            episode: episode.plan.key,
            task: episode.plan.task.id.clone(),
            task_kind: episode.plan.task.kind.clone(),
            end: word(&episode.end),
            success: episode.success,
            score: episode.score,
            turns: episode.turns.len() as u64,
            divergence: divergences.reduce(f64::max),
        }
    };
    explored.episodes.iter().zip(scored).map(summary).collect()
}

/// How a branch ended, in one word.
fn branch_end(end: BranchEnd) -> String {
    match end {
        BranchEnd::Ended { success: true } => "solved".to_owned(),
        BranchEnd::Ended { success: false } => "ended".to_owned(),
        other => word(&other),
    }
}

fn counts(by: &BTreeMap<impl Serialize, u64>) -> BTreeMap<String, u64> {
    by.iter().map(|(key, count)| (word(key), *count)).collect()
}

/// A unit variant's name as it is written in files.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Object(map)) => map.keys().next().cloned().unwrap_or_default(),
        _ => String::new(),
    }
}
