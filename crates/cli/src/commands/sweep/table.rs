//! The table of a sweep: mean and deviation over seeds, and the paired difference against a baseline.

use std::collections::BTreeMap;
use std::io::Write;

use lens_config::Config;
use lens_env::{Profile, ScoreScale, registry};
use lens_opd::methods::MethodName;
use lens_opd::stats::crossed::Comparison;
use lens_records::metrics::SpentTokens;
use lens_train::evaluate::{Evaluation, TaskResult, measures};
use serde_json::json;

use super::compare::{cells_of, compared, difference_text, probability_text};
use super::contender::Contender;
use super::{Final, OFFICIAL};
use crate::commands::eval::mean_and_deviation;
use crate::failure::Failure;
use crate::wording::group;

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
pub(super) type BySeed = BTreeMap<u64, Vec<Evaluation>>;

/// Results by student and row (before training: `None`), one list of evaluations for each seed.
#[derive(Debug)]
pub(super) struct Table {
    profile: Option<&'static Profile>,
    turn_limit: usize,
    /// The method that the others are compared with.
    against: MethodName,
    rows: Vec<(String, Option<Contender>, BySeed)>,
    /// Tokens of every run, by student and row.
    spent: Vec<(String, Contender, SpentTokens)>,
}

/// What one cell says: the values of all seeds.
#[derive(Debug, Default)]
struct Cells {
    success: Vec<f64>,
    score: Vec<f64>,
    rounds: Vec<f64>,
}

impl Table {
    pub(super) fn new(config: &Config, against: MethodName) -> Self {
        Self {
            profile: registry::profile(&config.task.benchmark).ok(),
            turn_limit: config.task.turn_limit,
            against,
            rows: Vec::new(),
            spent: Vec::new(),
        }
    }

    /// Adds the result of a run, or of the student before training.
    pub(super) fn add(
        &mut self,
        student: &str,
        contender: Option<Contender>,
        seed: u64,
        result: Final,
    ) {
        if let (Some(contender), Some(spent)) = (&contender, result.spent) {
            self.spent.push((student.to_owned(), contender.clone(), spent));
        }
        self.row(student, contender).insert(seed, result.evaluations);
    }

    fn row(&mut self, student: &str, contender: Option<Contender>) -> &mut BySeed {
        let found = self.rows.iter().position(|row| row.0 == student && row.1 == contender);
        let index = found.unwrap_or_else(|| {
            self.rows.push((student.to_owned(), contender, BTreeMap::new()));
            self.rows.len() - 1
        });
        &mut self.rows[index].2
    }

    fn splits(&self) -> Vec<String> {
        let first = self.rows.iter().flat_map(|row| row.2.values()).next();
        let mut splits: Vec<String> =
            first.into_iter().flatten().map(|one| one.split.clone()).collect();
        for prefix in ["", OFFICIAL] {
            let is_there = |split| splits.iter().any(|one| *one == format!("{prefix}{split}"));
            if self.pooled().count() > 1 && self.pooled().all(is_there) {
                splits.push(format!("{prefix}{POOLED}"));
            }
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

    /// Whether an evaluation counts in a column.
    fn belongs(&self, evaluation: &Evaluation, split: &str) -> bool {
        let Some(prefix) = split.strip_suffix(POOLED) else { return evaluation.split == split };
        evaluation
            .split
            .strip_prefix(prefix)
            .is_some_and(|one| self.pooled().any(|split| split == one))
    }

    fn cells(&self, seeds: &BySeed, split: &str) -> Cells {
        let mut cells = Cells::default();
        for evaluations in seeds.values() {
            let tasks: Vec<&TaskResult> = evaluations
                .iter()
                .filter(|one| self.belongs(one, split))
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
        // As in the paper's tables: before training, the others, ours last, then variants.
        let order = |contender: &Option<Contender>| match contender {
            None => 0,
            Some(contender) if contender.is_variant() => usize::MAX,
            Some(contender) => match contender.method {
                MethodName::Lens => usize::MAX - 2,
                MethodName::LensPlus => usize::MAX - 1,
                method => {
                    1 + MethodName::ALL.iter().position(|&one| one == method).unwrap_or_default()
                }
            },
        };
        self.rows.sort_by_key(|row| {
            (students.iter().position(|student| *student == row.0), order(&row.1))
        });
        match format {
            Format::Json => self.print_json(out),
            Format::Table | Format::Markdown => self.print_text(format == Format::Markdown, out),
        }
    }

    /// The paired difference against the baseline of the same student; `None` for the baseline itself.
    fn difference(
        &self,
        student: &str,
        contender: Option<&Contender>,
        seeds: &BySeed,
        split: &str,
    ) -> Option<Comparison> {
        let is_baseline =
            |contender: Option<&Contender>| contender.is_some_and(|one| one.is(self.against));
        let baseline =
            self.rows.iter().find(|row| row.0 == student && is_baseline(row.1.as_ref()))?;
        if contender.is_none() || is_baseline(contender) {
            return None;
        }
        compared(&cells_of(&baseline.2, seeds, |evaluation| self.belongs(evaluation, split)))
    }

    fn students(&self) -> Vec<&str> {
        let mut students: Vec<&str> = Vec::new();
        for (student, ..) in &self.rows {
            if !students.contains(&student.as_str()) {
                students.push(student);
            }
        }
        students
    }

    /// A table for each split and student, narrow enough for a terminal; in Markdown one table for all.
    fn print_text(&self, markdown: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let splits = self.splits();
        if markdown {
            write_table(&self.lines(&splits, None), true, out)?;
            return self.print_spent(true, out);
        }
        for split in &splits {
            for student in self.students() {
                writeln!(out, "{split}, {student}")?;
                let mut lines = self.lines(std::slice::from_ref(split), Some(student));
                "success %".clone_into(&mut lines[0][2]);
                write_table(&lines, false, out)?;
                writeln!(out)?;
            }
        }
        writeln!(
            out,
            "difference to {}: same seeds and tasks, 95 % interval by resampling both",
            self.against
        )?;
        self.print_spent(false, out)
    }

    /// The heading and the rows, each with the columns of these splits; of one student its name is left out.
    fn lines(&self, splits: &[String], student: Option<&str>) -> Vec<Vec<String>> {
        let mut lines = vec![["method", "seeds"].map(str::to_owned).to_vec()];
        for split in splits {
            let against = format!("to {} [95 %]", self.against);
            lines[0].extend([format!("{split} success %"), against, "better".to_owned()]);
            if self.has_score() {
                lines[0].push("score".to_owned());
            }
            lines[0].push("rounds".to_owned());
        }
        if student.is_none() {
            lines[0].insert(0, "student".to_owned());
        }
        for (of, contender, seeds) in &self.rows {
            if student.is_some_and(|student| student != of) {
                continue;
            }
            let name = contender.as_ref().map_or("before training".to_owned(), ToString::to_string);
            let mut line = vec![name, seeds.len().to_string()];
            if student.is_none() {
                line.insert(0, of.clone());
            }
            for split in splits {
                let cells = self.cells(seeds, split);
                line.push(mean_and_deviation(&cells.success));
                let difference = self.difference(of, contender.as_ref(), seeds, split);
                line.push(difference.as_ref().map_or("-".to_owned(), difference_text));
                line.push(difference.as_ref().map_or("-".to_owned(), probability_text));
                if self.has_score() {
                    line.push(mean_and_deviation(&cells.score));
                }
                line.push(mean_and_deviation(&cells.rounds));
            }
            lines.push(line);
        }
        lines
    }

    /// What each method cost, mean over its runs: tokens that student and teacher read and wrote.
    fn print_spent(&self, markdown: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let heading = ["student", "method", "student tokens", "teacher tokens", "together"];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        for (student, contender, _) in &self.rows {
            let Some(contender) = contender else { continue };
            let Some((student_tokens, teacher_tokens)) = self.mean_spent(student, contender) else {
                continue;
            };
            let together = student_tokens + teacher_tokens;
            lines.push(vec![
                student.clone(),
                contender.to_string(),
                group(student_tokens),
                group(teacher_tokens),
                group(together),
            ]);
        }
        if lines.len() == 1 {
            return Ok(());
        }
        writeln!(out)?;
        if !markdown {
            writeln!(out, "tokens read and written per run, evaluation left out")?;
        }
        write_table(&lines, markdown, out)
    }

    fn mean_spent(&self, student: &str, contender: &Contender) -> Option<(u64, u64)> {
        let runs: Vec<&SpentTokens> = self
            .spent
            .iter()
            .filter(|run| run.0 == student && run.1 == *contender && run.2.total() > 0)
            .map(|run| &run.2)
            .collect();
        let mean = |of: fn(&SpentTokens) -> u64| {
            runs.iter().map(|run| of(run)).sum::<u64>() / runs.len().max(1) as u64
        };
        (!runs.is_empty()).then(|| (mean(|run| run.student), mean(|run| run.teacher)))
    }

    fn print_json(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let splits = self.splits();
        let rows: Vec<serde_json::Value> = self
            .rows
            .iter()
            .flat_map(|row| splits.iter().map(move |split| (row, split)))
            .map(|((student, contender, seeds), split)| {
                let cells = self.cells(seeds, split);
                let contender = contender.as_ref();
                let spent = contender.and_then(|contender| self.mean_spent(student, contender));
                json!({
                    "student": student,
                    "method": contender.map(ToString::to_string),
                    "split": split,
                    "seeds": seeds.keys().collect::<Vec<_>>(),
                    "success_rate": cells.success,
                    "score": cells.score,
                    "rounds": cells.rounds,
                    "against": self.against,
                    "difference": self.difference(student, contender, seeds, split),
                    "student_tokens": spent.map(|spent| spent.0),
                    "teacher_tokens": spent.map(|spent| spent.1),
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
        let mut table = Table::new(&Config::default(), MethodName::Opd);
        let pair = |seed, solved, spent| Final {
            evaluations: vec![
                evaluation("valid_seen", seed, solved),
                evaluation("valid_unseen", seed, solved),
            ],
            spent,
        };
        table.add("small", None, 1, pair(1, 0, None));
        let spent = Some(SpentTokens { student: 3000, teacher: 1000 });
        for seed in [1, 2] {
            let (lens, opd) = (MethodName::Lens, MethodName::Opd);
            table.add("small", Some(Contender::method(lens)), seed, pair(seed, 3, None));
            let result = pair(seed, seed as usize, spent);
            table.add("small", Some(Contender::method(opd)), seed, result);
        }
        let mut narrow = Vec::new();
        table.print_text(false, &mut narrow).expect("memory takes it");
        let narrow = String::from_utf8(narrow).expect("text");
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "it wraps:\n{narrow}");
        let mut text = Vec::new();
        table.print(Format::Markdown, &mut text).expect("memory takes it");
        let text = String::from_utf8(text).expect("text");
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 9, "{text}");
        assert!(rows[2].contains("before training") && rows[3].contains("opd"), "{text}");
        let cells: Vec<&str> = rows[4].split('|').map(str::trim).collect();
        assert_eq!(&cells[1..4], ["small", "lens", "2"]);
        assert_eq!(cells[4], "75.0 ± 0.0");
        assert!(cells[5].starts_with("+37.5 ["), "{text}");
        assert_eq!(cells[7], "15.0 ± 0.0");
        assert_eq!(cells[12], "75.0 ± 0.0", "the pooled column comes last: {text}");
        assert!(rows[8].contains("3,000") && rows[8].contains("4,000"), "{text}");
    }

    #[test]
    fn official_games_have_columns_and_a_pooled_one_of_their_own() {
        let mut table = Table::new(&Config::default(), MethodName::Opd);
        let splits = ["valid_seen", "valid_unseen", "official/valid_seen", "official/valid_unseen"];
        let played = splits.into_iter().zip([1, 1, 2, 4]);
        let evaluations = played.map(|(split, solved)| evaluation(split, 1, solved)).collect();
        let opd = Some(Contender::method(MethodName::Opd));
        table.add("small", opd, 1, Final { evaluations, spent: None });
        assert_eq!(table.splits()[4..], ["pooled", "official/pooled"]);
        let success = |split| table.cells(&table.rows[0].2, split).success;
        assert_eq!((success("pooled"), success("official/pooled")), (vec![25.0], vec![75.0]));
    }
}
