//! The table of a sweep: mean and deviation over seeds, and the gain against plain OPD.

use std::collections::BTreeMap;
use std::io::Write;

use lens_config::Config;
use lens_env::{Profile, ScoreScale, registry};
use lens_opd::methods::MethodName;
use lens_train::evaluate::{Evaluation, TaskResult, measures};
use serde_json::json;

use crate::commands::eval::mean_and_deviation;
use crate::failure::Failure;

/// How a table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Table,
    Markdown,
    Json,
}

/// The column of seen and unseen games together.
const POOLED: &str = "pooled";

/// The evaluations of each seed.
type BySeed = BTreeMap<u64, Vec<Evaluation>>;

/// Results by (student, method or before training), one list of evaluations a seed.
#[derive(Debug)]
pub(super) struct Table {
    profile: Option<&'static Profile>,
    turn_limit: usize,
    rows: Vec<(String, Option<MethodName>, BySeed)>,
}

/// What one cell says: the values of all seeds.
#[derive(Debug, Default)]
struct Cells {
    success: Vec<f64>,
    score: Vec<f64>,
    rounds: Vec<f64>,
}

impl Table {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            profile: registry::profile(&config.task.benchmark).ok(),
            turn_limit: config.task.turn_limit,
            rows: Vec::new(),
        }
    }

    pub(super) fn untrained(&mut self, student: &str, evaluations: &[Evaluation]) {
        for evaluation in evaluations {
            self.row(student, None).entry(evaluation.seed).or_default().push(evaluation.clone());
        }
    }

    pub(super) fn add(
        &mut self,
        student: &str,
        method: MethodName,
        seed: u64,
        evaluations: Vec<Evaluation>,
    ) {
        self.row(student, Some(method)).insert(seed, evaluations);
    }

    fn row(&mut self, student: &str, method: Option<MethodName>) -> &mut BySeed {
        let index =
            self.rows.iter().position(|row| row.0 == student && row.1 == method).unwrap_or_else(
                || {
                    self.rows.push((student.to_owned(), method, BTreeMap::new()));
                    self.rows.len() - 1
                },
            );
        &mut self.rows[index].2
    }

    fn splits(&self) -> Vec<String> {
        let first = self.rows.iter().flat_map(|row| row.2.values()).next();
        let mut splits: Vec<String> =
            first.into_iter().flatten().map(|one| one.split.clone()).collect();
        if self.pooled().all(|split| splits.iter().any(|one| one == split))
            && self.pooled().count() > 1
        {
            splits.push(POOLED.to_owned());
        }
        splits
    }

    /// The splits that the paper reports as one column.
    fn pooled(&self) -> impl Iterator<Item = &str> {
        self.profile.iter().flat_map(|profile| profile.pooled_splits.iter().map(|split| &**split))
    }

    /// Whether the benchmark has a score beside success.
    fn has_score(&self) -> bool {
        self.profile.is_some_and(|profile| profile.score != ScoreScale::None)
    }

    fn cells(&self, seeds: &BySeed, split: &str) -> Cells {
        let mut cells = Cells::default();
        for evaluations in seeds.values() {
            let tasks: Vec<&TaskResult> = evaluations
                .iter()
                .filter(|one| match split {
                    POOLED => self.pooled().any(|pooled| pooled == one.split),
                    split => one.split == split,
                })
                .flat_map(|one| &one.tasks)
                .collect();
            let scale = self.profile.map_or(ScoreScale::None, |profile| profile.score);
            let Ok(measures) = measures(scale, self.turn_limit, &tasks) else { continue };
            cells.success.push(measures.success_rate);
            cells.rounds.push(measures.rounds);
            cells.score.extend(measures.score);
        }
        cells
    }

    /// Methods in the order they were given, students in theirs.
    pub(super) fn print(mut self, format: Format, out: &mut dyn Write) -> Result<(), Failure> {
        let mut students: Vec<String> = Vec::new();
        for (student, ..) in &self.rows {
            if !students.contains(student) {
                students.push(student.clone());
            }
        }
        // As in the paper's tables: before training, the others, ours last.
        let order = |method: Option<MethodName>| match method {
            None => 0,
            Some(MethodName::Lens) => usize::MAX,
            Some(method) => {
                1 + MethodName::ALL.iter().position(|&one| one == method).unwrap_or_default()
            }
        };
        self.rows.sort_by_key(|row| {
            (students.iter().position(|student| *student == row.0), order(row.1))
        });
        match format {
            Format::Json => self.print_json(out),
            Format::Table | Format::Markdown => self.print_text(format == Format::Markdown, out),
        }
    }

    fn gain(&self, student: &str, split: &str, success: &[f64]) -> Option<f64> {
        let opd =
            self.rows.iter().find(|row| row.0 == student && row.1 == Some(MethodName::Opd))?;
        Some(mean(success)? - mean(&self.cells(&opd.2, split).success)?)
    }

    /// A table for each split, narrow enough for a terminal; in Markdown one table for all.
    fn print_text(&self, markdown: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let splits = self.splits();
        if markdown {
            return write_table(&self.lines(&splits), true, out);
        }
        for (number, split) in splits.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            writeln!(out, "{split}")?;
            let mut lines = self.lines(std::slice::from_ref(split));
            "success %".clone_into(&mut lines[0][3]);
            write_table(&lines, false, out)?;
        }
        Ok(())
    }

    /// The heading and the rows, each with the columns of these splits.
    fn lines(&self, splits: &[String]) -> Vec<Vec<String>> {
        let mut lines = vec![["student", "method", "seeds"].map(str::to_owned).to_vec()];
        for split in splits {
            lines[0].extend([format!("{split} success %"), "gain on OPD".to_owned()]);
            if self.has_score() {
                lines[0].push("score".to_owned());
            }
            lines[0].push("rounds".to_owned());
        }
        for (student, method, seeds) in &self.rows {
            let method_name =
                method.map_or_else(|| "before training".to_owned(), |method| method.to_string());
            let mut line = vec![student.clone(), method_name, seeds.len().to_string()];
            for split in splits {
                let cells = self.cells(seeds, split);
                line.push(mean_and_deviation(&cells.success));
                let gain = self.gain(student, split, &cells.success);
                line.push(match (method, gain) {
                    (Some(MethodName::Opd) | None, _) | (_, None) => "-".to_owned(),
                    (_, Some(gain)) => format!("{gain:+.1}"),
                });
                if self.has_score() {
                    line.push(mean_and_deviation(&cells.score));
                }
                line.push(mean_and_deviation(&cells.rounds));
            }
            lines.push(line);
        }
        lines
    }

    fn print_json(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let splits = self.splits();
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .flat_map(|row| splits.iter().map(move |split| (row, split)))
            .map(|((student, method, seeds), split)| {
                let cells = self.cells(seeds, split);
                json!({
                    "student": student,
                    "method": method,
                    "split": split,
                    "seeds": seeds.keys().collect::<Vec<_>>(),
                    "success_rate": cells.success,
                    "score": cells.score,
                    "rounds": cells.rounds,
                    "gain_on_opd": self.gain(student, split, &cells.success),
                })
            })
            .collect();
        Ok(writeln!(out, "{:#}", json!({ "rows": rows }))?)
    }
}

/// Writes rows with columns as wide as their widest cell; the first row is the heading.
fn write_table(lines: &[Vec<String>], markdown: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        if markdown {
            writeln!(out, "| {} |", cells.join(" | "))?;
            if number == 0 {
                writeln!(out, "|{}", " --- |".repeat(line.len()))?;
            }
        } else {
            writeln!(out, "{}", cells.join("  ").trim_end())?;
        }
    }
    Ok(())
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens_opd::episode::EpisodeEnd;

    fn evaluation(split: &str, seed: u64, solved: usize) -> Evaluation {
        let task = |number: usize| TaskResult {
            task: number.to_string(),
            kind: "kind".to_owned(),
            success: number < solved,
            score: 0.0,
            turns: 10,
            end: EpisodeEnd::Completed,
        };
        let tasks: Vec<TaskResult> = (0..4).map(task).collect();
        let all = lens_train::evaluate::Measures {
            tasks: 4,
            success_rate: 25.0 * solved as f64,
            score: None,
            rounds: 0.0,
        };
        Evaluation { split: split.to_owned(), seed, all, kinds: BTreeMap::new(), tasks }
    }

    #[test]
    fn the_gain_is_against_opd_of_the_same_student() {
        let mut table = Table::new(&Config::default());
        table.untrained(
            "small",
            &[evaluation("valid_seen", 1, 0), evaluation("valid_unseen", 1, 0)],
        );
        let pair = |seed, solved| {
            vec![evaluation("valid_seen", seed, solved), evaluation("valid_unseen", seed, solved)]
        };
        for seed in [1, 2] {
            table.add("small", MethodName::Lens, seed, pair(seed, 3));
            table.add("small", MethodName::Opd, seed, pair(seed, seed as usize));
        }
        let mut narrow = Vec::new();
        table.print_text(false, &mut narrow).expect("memory takes it");
        let narrow = String::from_utf8(narrow).expect("text");
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "it wraps:\n{narrow}");
        let mut text = Vec::new();
        table.print(Format::Markdown, &mut text).expect("memory takes it");
        let text = String::from_utf8(text).expect("text");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 5, "{text}");
        assert!(rows[2].contains("before training") && rows[3].contains("opd"), "{text}");
        let cells: Vec<&str> = rows[4].split('|').map(str::trim).collect();
        assert_eq!(&cells[1..4], ["small", "lens", "2"]);
        assert_eq!(&cells[4..7], ["75.0 ± 0.0", "+37.5", "15.0 ± 0.0"]);
        assert_eq!(cells[10], "75.0 ± 0.0", "the pooled column comes last: {text}");
    }
}
