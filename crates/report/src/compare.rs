//! Runs over each other: seeds as bands, paired differences, and what their configurations differ in.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use lens_opd::stats::bootstrap::{Interval, Resampling};
use lens_opd::stats::crossed::{Cell, crossed_difference};
use lens_records::metrics::EvalLine;
use serde::Serialize;

use crate::run::Run;
use crate::stats::{difference_of_shares, mean, wilson};
use crate::summary::percent;

/// Runs of one name and method: its seeds.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    /// The name, with the method where the name does not say it.
    pub label: String,
    /// Positions of its runs in the list that was given.
    pub runs: Vec<usize>,
}

/// The comparison of several runs.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The groups.
    pub groups: Vec<Group>,
    /// Per split, one curve per group.
    pub curves: Vec<SplitComparison>,
    /// Every group against the first, at the last evaluation of each run.
    pub differences: Vec<Difference>,
    /// Settings the runs differ in.
    pub settings: Vec<SettingDifference>,
}

/// One split of several groups.
#[derive(Debug, Clone, Serialize)]
pub struct SplitComparison {
    /// The split.
    pub split: String,
    /// One curve per group.
    pub groups: Vec<Vec<BandPoint>>,
}

/// A point of a group's curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandPoint {
    /// Optimizer steps.
    pub step: u64,
    /// Mean success over seeds in percent.
    pub mean: f64,
    /// Lower edge: of one seed Wilson's interval, of several the mean less one standard deviation.
    pub low: f64,
    /// Upper edge.
    pub high: f64,
    /// Seeds.
    pub seeds: usize,
    /// Tasks per seed.
    pub tasks: u64,
}

/// One group against another.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// The split.
    pub split: String,
    /// The group compared with.
    pub base: String,
    /// The group.
    pub group: String,
    /// Difference of success in points, with a 95 % interval.
    pub success: Interval,
    /// Tasks (times seeds) that both played.
    pub tasks: usize,
    /// Whether the same tasks were compared one by one.
    pub paired: bool,
    /// Whether the interval leaves out zero.
    pub clear: bool,
    /// Probability that the group is better; only of paired tasks.
    pub better: Option<f64>,
}

/// A setting and its value in each group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SettingDifference {
    /// The key, such as `refine.focus`.
    pub key: String,
    /// One value per group; empty where it is not set.
    pub values: Vec<String>,
}

/// Settings that tell runs apart but change nothing about them.
const INCIDENTAL: [&str; 4] = ["name", "output", "seeds", "threads"];

/// Sorts runs into groups of the same name and method, in the order they were given.
pub fn groups<R: Borrow<Run>>(runs: &[R]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, run) in runs.iter().map(Borrow::borrow).enumerate() {
        let (name, method) = (run.name(), run.word("method"));
        let label = if name.contains(method) { name } else { format!("{name} ({method})") };
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.runs.push(index),
            None => groups.push(Group { label, runs: vec![index] }),
        }
    }
    groups
}

/// Compares runs.
pub fn compare<R: Borrow<Run>>(runs: &[R]) -> Comparison {
    let groups = groups(runs);
    let mut splits: Vec<String> = Vec::new();
    for split in runs.iter().flat_map(|run| run.borrow().splits()) {
        if !splits.iter().any(|known| known == split) {
            splits.push(split.to_owned());
        }
    }
    let curves = splits.iter().map(|split| SplitComparison {
        split: split.clone(),
        groups: groups.iter().map(|group| band(runs, group, split)).collect(),
    });
    let mut differences = Vec::new();
    if let Some((base, others)) = groups.split_first() {
        for split in &splits {
            for group in others {
                differences.extend(difference(runs, base, group, split));
            }
        }
    }
    Comparison { curves: curves.collect(), differences, settings: settings(runs, &groups), groups }
}

/// A group's curve on a split. The n-th evaluations of its seeds make one point: seeds of one configuration evaluate
/// equally often, but not always after the same step.
pub fn band<R: Borrow<Run>>(runs: &[R], group: &Group, split: &str) -> Vec<BandPoint> {
    let of_seed = |&index: &usize| -> Vec<&EvalLine> {
        runs[index].borrow().evals.iter().filter(|eval| eval.split == split).collect()
    };
    let seeds: Vec<Vec<&EvalLine>> = group.runs.iter().map(of_seed).collect();
    let longest = seeds.iter().map(Vec::len).max().unwrap_or(0);
    let point = |place: usize| {
        let evals: Vec<&EvalLine> =
            seeds.iter().filter_map(|seed| seed.get(place).copied()).collect();
        let rates: Vec<f64> = evals.iter().map(|eval| eval.all.success_rate).collect();
        let step = evals.iter().map(|eval| eval.step).sum::<u64>() / evals.len().max(1) as u64;
        let tasks = evals.first().map_or(0, |eval| eval.all.tasks);
        let summary = lens_opd::stats::summary(&rates).ok()?;
        let (low, high) = if let Some(std) = summary.std {
            (summary.mean - std, summary.mean + std)
        } else {
            let interval = percent(wilson(summary.mean / 100.0, tasks)?);
            (interval.low, interval.high)
        };
        let (low, high) = (low.max(0.0), high.min(100.0));
        Some(BandPoint { step, mean: summary.mean, low, high, seeds: summary.count, tasks })
    };
    (0..longest).filter_map(point).collect()
}

/// The difference of two groups at the last evaluation of each run.
pub fn difference<R: Borrow<Run>>(
    runs: &[R],
    base: &Group,
    group: &Group,
    split: &str,
) -> Option<Difference> {
    let last = |group: &Group| -> Vec<(Option<u64>, &EvalLine)> {
        let evals = group.runs.iter().map(|&index| runs[index].borrow());
        evals.filter_map(|run| Some((run.seed(), run.last_eval(split)?))).collect()
    };
    let (first, second) = (last(base), last(group));
    let cells = task_cells(&first, &second);
    let resampling = Resampling { resamples: 4_000, ..Resampling::default() };
    let compared = crossed_difference(&cells, &resampling).ok();
    let (interval, tasks, is_paired) = if let Some(compared) = &compared {
        (compared.difference, cells.len(), true)
    } else {
        let share = |evals: &[(Option<u64>, &EvalLine)]| {
            let rate = mean(evals.iter().map(|(_, eval)| eval.all.success_rate / 100.0))?;
            Some((rate, evals.iter().map(|(_, eval)| eval.all.tasks).sum::<u64>()))
        };
        let (a, b) = (share(&first)?, share(&second)?);
        (difference_of_shares(a, b)?, a.1.min(b.1) as usize, false)
    };
    Some(Difference {
        split: split.to_owned(),
        base: base.label.clone(),
        group: group.label.clone(),
        success: percent(interval),
        tasks,
        paired: is_paired,
        clear: interval.low > 0.0 || interval.high < 0.0,
        better: compared.map(|compared| compared.better),
    })
}

/// Differences on the same task at the same seed. Runs without a common seed are paired in their order.
fn task_cells(
    first: &[(Option<u64>, &EvalLine)],
    second: &[(Option<u64>, &EvalLine)],
) -> Vec<Cell> {
    let with_seed =
        |seed: Option<u64>| second.iter().find(|(other, _)| seed.is_some() && *other == seed);
    let share_seeds = first.iter().any(|(seed, _)| with_seed(*seed).is_some());
    let mut cells = Vec::new();
    for (position, (seed, base)) in first.iter().enumerate() {
        let same = if share_seeds { with_seed(*seed) } else { second.get(position) };
        let Some((_, treated)) = same else { continue };
        let by_task: BTreeMap<&str, bool> =
            treated.tasks.iter().map(|task| (task.task.as_str(), task.success)).collect();
        for task in &base.tasks {
            if let Some(&success) = by_task.get(task.task.as_str()) {
                let value = |solved: bool| f64::from(u8::from(solved));
                cells.push(Cell {
                    seed: seed.unwrap_or(position as u64),
                    task: task.task.clone(),
                    difference: value(success) - value(task.success),
                });
            }
        }
    }
    cells
}

/// The settings in which the groups differ.
fn settings<R: Borrow<Run>>(runs: &[R], groups: &[Group]) -> Vec<SettingDifference> {
    let flat: Vec<BTreeMap<String, String>> = groups
        .iter()
        .map(|group| {
            let mut flat = BTreeMap::new();
            if let Some(&index) = group.runs.first() {
                flatten("", &runs[index].borrow().config, &mut flat);
            }
            flat
        })
        .collect();
    let keys: BTreeSet<&String> = flat.iter().flat_map(BTreeMap::keys).collect();
    let rows = keys.into_iter().filter(|key| !INCIDENTAL.contains(&key.as_str())).map(|key| {
        let value = |flat: &BTreeMap<String, String>| flat.get(key).cloned().unwrap_or_default();
        SettingDifference { key: key.clone(), values: flat.iter().map(value).collect() }
    });
    rows.filter(|row| row.values.windows(2).any(|pair| pair[0] != pair[1])).collect()
}

fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(table) => flatten(&key, table, into),
            other => {
                into.insert(key, other.to_string());
            }
        }
    }
}
