//! The list of a run's episodes, with what can be filtered and sorted by.

use std::collections::BTreeMap;

use lens_records::episodes::EpisodeText;
use lens_records::metrics::ForkSummary;
use lens_records::{EpisodeLine, RunFolder};
use serde::Serialize;

use crate::run::Run;

/// One episode in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The explorer batch.
    pub batch: u64,
    /// The episode's key inside it.
    pub episode: u64,
    /// The task.
    pub task: String,
    /// The task's kind.
    pub kind: String,
    /// How it ended.
    pub end: String,
    /// Whether the task was solved.
    pub success: bool,
    /// Turns played.
    pub turns: u64,
    /// The largest divergence of a turn.
    pub divergence: Option<f64>,
    /// The fork turn, where there was a fork; of several the one with the largest gain.
    pub fork_turn: Option<u64>,
    /// Whether its gate opened.
    pub accepted: Option<bool>,
    /// Its gain.
    pub gain: Option<f64>,
    /// Why the gate stayed closed.
    pub reason: Option<String>,
}

/// All episodes of a run. Runs of format 1 have no list in their metrics; their episode files are read instead.
pub fn episodes(run: &Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in &run.batches {
        if batch.episodes.is_empty() {
            let Ok(lines) = run.folder.episodes(batch.batch) else { continue };
            rows.extend(lines.filter_map(Result::ok).map(|line| from_line(&line)));
            continue;
        }
        let mut forks: BTreeMap<u64, Vec<&ForkSummary>> = BTreeMap::new();
        for fork in &batch.forks {
            forks.entry(fork.request.episode).or_default().push(fork);
        }
        for episode in &batch.episodes {
            let row = Row {
                batch: batch.batch,
                episode: episode.episode,
                task: episode.task.clone(),
                kind: episode.task_kind.clone(),
                end: episode.end.clone(),
                success: episode.success,
                turns: episode.turns,
                divergence: episode.divergence,
                fork_turn: None,
                accepted: None,
                gain: None,
                reason: None,
            };
            rows.push(with_fork(row, forks.get(&episode.episode).into_iter().flatten().copied()));
        }
    }
    rows
}

fn from_line(line: &EpisodeLine) -> Row {
    let row = Row {
        batch: line.batch,
        episode: line.episode,
        task: line.task.clone(),
        kind: line.task_kind.clone(),
        end: line.end.clone(),
        success: line.success,
        turns: line.turns.len() as u64,
        divergence: line
            .turns
            .iter()
            .filter_map(lens_records::episodes::TurnLine::divergence)
            .reduce(f64::max),
        fork_turn: None,
        accepted: None,
        gain: None,
        reason: None,
    };
    with_fork(row, line.forks.iter().filter_map(|fork| fork.record.as_ref()))
}

fn with_fork<'a>(row: Row, forks: impl Iterator<Item = &'a ForkSummary>) -> Row {
    let gain = |fork: &ForkSummary| fork.verdict.gain.unwrap_or(f64::NEG_INFINITY);
    let best = forks.reduce(|best, next| if gain(next) > gain(best) { next } else { best });
    match best {
        None => row,
        Some(fork) => Row {
            fork_turn: Some(fork.request.turn),
            accepted: Some(fork.verdict.accepted),
            gain: fork.verdict.gain,
            reason: fork.reason.clone(),
            ..row
        },
    }
}

/// Episodes whose texts contain `needle`, case folded, newest batch first: at most `limit` of them.
pub fn search(folder: &RunFolder, needle: &str, limit: usize) -> Vec<(u64, u64)> {
    let needle = needle.to_lowercase();
    let mut found = Vec::new();
    for batch in folder.episode_batches().into_iter().rev() {
        let Ok(lines) = folder.texts(batch) else { continue };
        for line in lines.filter_map(Result::ok) {
            if contains(&line, &needle) {
                found.push((line.batch, line.episode));
                if found.len() == limit {
                    return found;
                }
            }
        }
    }
    found
}

fn contains(line: &EpisodeText, needle: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(needle);
    let turns = line.turns.iter().any(|turn| has(&turn.observation) || has(&turn.response));
    let forks = line.forks.iter().any(|fork| {
        fork.hint.as_deref().is_some_and(has)
            || fork.base.iter().chain(&fork.guided).any(|turn| has(&turn.response))
    });
    turns || forks || has(&line.task) || line.goal.as_deref().is_some_and(has)
}
