//! What a run left behind, read from its records: the same whether it ended just now or last week.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use lens_records::folder::collect;
use lens_records::metrics::{EvalLine, Record, SpentTokens};
use lens_records::{EpisodeLine, RunFolder};

use crate::failure::Failure;
use crate::wording::{change, counted, duration, group, rate};

/// The numbers of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) evaluations: Vec<EvalLine>,
    /// Horizon by explorer batch.
    pub(crate) horizons: Vec<u64>,
    /// Forks asked for, complete pairs, accepted ones.
    pub(crate) forks: (u64, u64, u64),
    /// Optimizer steps done.
    pub(crate) steps: u64,
    /// Tokens the student wrote in rollouts.
    generated_tokens: u64,
    /// Tokens trained on.
    trained_tokens: u64,
    /// Tokens both models read and wrote, evaluation left out.
    spent: SpentTokens,
    /// Seconds by stage.
    seconds: BTreeMap<String, f64>,
}

impl Results {
    /// Reads the records of a run; lines that cannot be read are left out.
    pub(crate) fn read(run: &RunFolder) -> Self {
        let mut results = Self::default();
        let records = run.metrics().map(|lines| collect(lines).0).unwrap_or_default();
        for record in records {
            match record {
                Record::Batch(batch) => {
                    results.horizons.push(batch.horizon);
                    results.forks.0 += batch.forks.len() as u64;
                    results.forks.1 += batch.complete_pairs;
                    results.forks.2 += batch.accepted;
                    results.spent += batch.spent.unwrap_or_default();
                    results.generated_tokens +=
                        batch.rollout.map_or(0, |rollout| rollout.response_tokens);
                }
                Record::Step(step) => {
                    if !step.skipped {
                        results.steps = results.steps.max(step.step);
                    }
                    results.trained_tokens += step.opd_tokens + step.gi_tokens;
                    results.spent.student += step.tokens.unwrap_or(0);
                }
                Record::Eval(evaluation) => results.evaluations.push(evaluation),
            }
        }
        let timings = run.timings().map(|lines| collect(lines).0).unwrap_or_default();
        for timing in timings {
            *results.seconds.entry(timing.stage).or_default() += timing.seconds;
        }
        results
    }

    /// Tokens both models read and wrote, evaluation left out.
    pub(crate) fn spent(&self) -> SpentTokens {
        self.spent
    }

    /// The splits, in the order they were evaluated.
    pub(crate) fn splits(&self) -> Vec<&str> {
        let mut splits: Vec<&str> = Vec::new();
        for evaluation in &self.evaluations {
            if !splits.contains(&evaluation.split.as_str()) {
                splits.push(&evaluation.split);
            }
        }
        splits
    }

    /// The evaluations of a split, by step.
    pub(crate) fn of_split<'r>(&'r self, split: &'r str) -> impl Iterator<Item = &'r EvalLine> {
        self.evaluations.iter().filter(move |evaluation| evaluation.split == split)
    }

    /// Success before and after training, split by split, with 95 % intervals and what the difference says.
    pub(crate) fn print_success(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let all = |evaluation: &EvalLine| (evaluation.all.success_rate, evaluation.all.tasks);
        writeln!(
            out,
            "  {:<14} {:<20} {:<20} {:>5}  change",
            "success", "before", "after", "tasks"
        )?;
        for split in self.splits() {
            let measured: Vec<(f64, u64)> = self.of_split(split).map(all).collect();
            if let ([first, ..], Some(last)) = (measured.as_slice(), measured.last()) {
                writeln!(
                    out,
                    "  {split:<14} {:<20} {:<20} {:>5}  {}",
                    rate(first.0, first.1),
                    rate(last.0, last.1),
                    last.1,
                    change(*first, *last)
                )?;
            }
        }
        Ok(())
    }

    /// Time by stage, tokens, memory.
    pub(crate) fn print_costs(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let stages = ["explore", "learn", "evaluate"];
        let of = |stage: &str| self.seconds.get(stage).copied().unwrap_or(0.0);
        let total: f64 = stages.iter().map(|stage| of(stage)).sum();
        let parts: Vec<String> =
            stages.iter().map(|stage| format!("{stage} {}", duration(of(stage)))).collect();
        writeln!(out, "  time: {} ({})", duration(total), parts.join(", "))?;
        writeln!(
            out,
            "  tokens: {} generated in rollouts, {} trained on",
            group(self.generated_tokens),
            group(self.trained_tokens)
        )?;
        if self.spent.total() > 0 {
            writeln!(
                out,
                "  spent: {} student tokens and {} teacher tokens, prompts included",
                group(self.spent.student),
                group(self.spent.teacher)
            )?;
        }
        let rate = |what: &str, tokens: u64, stage: &str| {
            let seconds = of(stage);
            (seconds > 0.0).then(|| format!("{} {what}", group((tokens as f64 / seconds) as u64)))
        };
        let rates: Vec<String> = [
            rate("written in play", self.generated_tokens, "play"),
            rate("scored", self.generated_tokens, "score"),
            rate("trained on", self.trained_tokens, "learn"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !rates.is_empty() {
            writeln!(out, "  tokens per second: {}", rates.join(", "))?;
        }
        if let Some(bytes) = lens_lm::train::bench::peak_rss_bytes() {
            let (number, unit) = match bytes {
                0..1_000_000_000 => (format!("{}", bytes / 1_000_000), "MB"),
                _ => (format!("{:.2}", bytes as f64 / 1e9), "GB"),
            };
            writeln!(out, "  peak memory: {number} {unit}")?;
        }
        Ok(())
    }

    /// What the forks came to, and what the horizon did.
    pub(crate) fn print_method(&self, out: &mut dyn Write) -> Result<(), Failure> {
        if let (Some(first), Some(last)) = (self.horizons.first(), self.horizons.last()) {
            writeln!(
                out,
                "  horizon: {} at the start, {} at the end, {}",
                counted(*first, "turn"),
                counted(*last, "turn"),
                batches(self.horizons.len())
            )?;
        }
        let (asked, complete, accepted) = self.forks;
        if asked > 0 {
            writeln!(
                out,
                "  hints: {} asked for, {} validated, {} kept",
                group(asked),
                group(complete),
                group(accepted)
            )?;
        }
        Ok(())
    }
}

fn batches(count: usize) -> String {
    if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") }
}

/// The model of a run's newest complete checkpoint.
pub(crate) fn newest_model(run: &RunFolder) -> Option<PathBuf> {
    let newest = run.checkpoints().into_iter().rfind(|checkpoint| checkpoint.complete)?;
    Some(newest.path.join("model"))
}

/// A hint that was validated, for showing people what the method does.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HintExample {
    task: String,
    planned: String,
    hint: String,
    guided: String,
    outcome: String,
}

impl HintExample {
    pub(crate) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "    task: {}", self.task)?;
        writeln!(out, "      the student planned:  {}", self.planned)?;
        writeln!(out, "      the teacher said:     {}", self.hint)?;
        writeln!(out, "      the student then did: {}", self.guided)?;
        writeln!(out, "      {}", self.outcome)?;
        Ok(())
    }
}

/// The ways a hint can end.
const OUTCOMES: usize = 3;

/// One hint of each outcome (kept, refused, not comparable), where the student planned something else than it did with
/// the hint in view.
pub(crate) fn hint_examples(run: &RunFolder) -> Vec<HintExample> {
    let mut found: [Option<HintExample>; OUTCOMES] = [const { None }; OUTCOMES];
    for batch in run.episode_batches() {
        let Ok(lines) = run.episodes(batch) else { continue };
        for episode in collect(lines).0 {
            for (outcome, example) in examples_of(&episode) {
                found[outcome].get_or_insert(example);
            }
        }
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    found.into_iter().flatten().collect()
}

fn examples_of(episode: &EpisodeLine) -> Vec<(usize, HintExample)> {
    let mut examples = Vec::new();
    for fork in &episode.forks {
        let (Some(hint), Some(record)) = (&fork.hint, &fork.record) else { continue };
        let planned = episode.turns.iter().find(|turn| turn.turn == fork.turn);
        let planned = planned.and_then(|turn| turn.action.clone());
        let guided = fork.guided.first().and_then(|turn| turn.action.clone());
        let (Some(planned), Some(guided)) = (planned, guided) else { continue };
        if planned == guided || hint.starts_with(&planned) {
            continue;
        }
        let (outcome, text) = match (record.verdict.accepted, record.verdict.gain) {
            (true, Some(gain)) => (0, format!("gain {gain:+.3}: kept")),
            (false, Some(gain)) => (1, format!("gain {gain:+.3}: refused")),
            _ => {
                let reason = record.reason.clone().unwrap_or_else(|| "unknown".to_owned());
                (2, format!("not comparable ({reason}): refused"))
            }
        };
        let task = episode.goal.clone().unwrap_or_else(|| episode.task.clone());
        let hint = hint.clone();
        examples.push((outcome, HintExample { task, planned, hint, guided, outcome: text }));
    }
    examples
}

/// The run in a folder, or a word on what a run's folder is.
pub(crate) fn open_run(path: &Path) -> Result<RunFolder, Failure> {
    RunFolder::open(path).ok_or_else(|| {
        Failure::user_with_hint(
            format!("{} is not a run: it has no config.toml", path.display()),
            "give a folder such as runs/NAME/seed-42",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn episode(
        planned: &str,
        guided: &str,
        hint: &str,
        verdict: &serde_json::Value,
    ) -> EpisodeLine {
        let request = json!({
            "episode": 0, "turn": 1, "kind": { "hint": { "feedback": "incorporate" } },
            "continuation_turns": 3, "score_temperature": 1.0, "divergence": 0.5,
        });
        serde_json::from_value(json!({
            "format": 2, "batch": 1, "episode": 0, "task": "t", "goal": "put a mug away",
            "turns": [{ "turn": 1, "action": planned }],
            "forks": [{
                "turn": 1, "hint": hint, "guided": [{ "action": guided }],
                "record": { "request": request, "verdict": verdict, "reason": "base.timeout" },
            }],
        }))
        .expect("it is an episode")
    }

    #[test]
    fn examples_show_a_changed_plan_of_each_outcome() {
        let kept = json!({ "gain": 0.2, "accepted": true });
        let shown =
            examples_of(&episode("go to shelf 1", "take mug 1", "take mug 1 is right", &kept));
        assert_eq!(shown.len(), 1);
        assert_eq!((shown[0].0, shown[0].1.outcome.as_str()), (0, "gain +0.200: kept"));
        let same = examples_of(&episode("take mug 1", "take mug 1", "take mug 1 is right", &kept));
        assert_eq!(same, [], "a hint that repeats the plan shows nothing");
        let refused = json!({ "gain": -0.1, "accepted": false });
        assert_eq!(examples_of(&episode("look", "take mug 1", "take it", &refused))[0].0, 1);
        let broken = json!({ "accepted": false });
        let shown = examples_of(&episode("look", "take mug 1", "take it", &broken));
        assert_eq!(shown[0].1.outcome, "not comparable (base.timeout): refused");
    }
}
