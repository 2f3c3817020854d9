//! `lens engine compare`: two runs of one configuration on different engines, step by step.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use lens_config::resolve;
use lens_lm::checkpoint::Checkpoint;
use lens_records::folder::collect;
use lens_records::metrics::{BatchLine, Record, StepLine};
use lens_records::{ReadProblem, RunFolder};

use crate::failure::Failure;
use crate::results::open_run;

/// Compare two runs step by step: losses, gains and saved weights.
#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// The folder of a run, such as runs/NAME/seed-42.
    first: PathBuf,
    /// The folder of another run of the same student.
    second: PathBuf,
}

/// What one run recorded.
struct Side {
    folder: RunFolder,
    steps: Vec<StepLine>,
    batches: Vec<BatchLine>,
}

/// How far two sets of weights lie apart.
struct Apart {
    /// The largest difference in a tensor by the largest value of that tensor, over all tensors.
    relative: f64,
    /// The distance between the two by the distance the first has moved from where training began.
    of_moved: f64,
}

impl Compare {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let sides = [Side::open(&self.first)?, Side::open(&self.second)?];
        let config = resolve(&[self.first.join("config.toml")], &[])?.config;
        steps(&sides, &config.student.path, out)?;
        writeln!(out)?;
        batches(&sides, out)
    }
}

impl Side {
    fn open(path: &Path) -> Result<Self, Failure> {
        let folder = open_run(path)?;
        let lines = folder.metrics().map_err(|error| Failure::User(error.into()))?;
        let (records, problems) = collect(lines);
        if let Some(problem) = problems.into_iter().next() {
            return Err(Failure::User(problem.into()));
        }
        let (mut steps, mut batches) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Step(line) => steps.push(line),
                Record::Batch(line) => batches.push(*line),
                Record::Eval(_) => {}
            }
        }
        Ok(Self { folder, steps, batches })
    }

    /// The tokens of every turn of a batch, by episode and turn.
    fn responses(&self, batch: u64) -> Result<BTreeMap<(u64, u64), Vec<u32>>, Failure> {
        let user = |error: ReadProblem| Failure::User(error.into());
        let mut found = BTreeMap::new();
        for episode in self.folder.episodes(batch).map_err(user)? {
            let episode = episode.map_err(user)?;
            for turn in episode.turns {
                found.insert((episode.episode, turn.turn), turn.tokens.ids);
            }
        }
        Ok(found)
    }

    fn saved(&self, step: u64) -> Option<PathBuf> {
        let found = self.folder.checkpoints().into_iter().find(|saved| saved.step == step);
        found.filter(|saved| saved.complete).map(|saved| saved.path.join("model"))
    }
}

fn steps(sides: &[Side; 2], start: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let [first, second] = sides;
    writeln!(
        out,
        "| step | loss | | gradient norm | | trained tokens | | weights: largest difference | of the way moved |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    for (ours, theirs) in first.steps.iter().zip(&second.steps) {
        let apart = match (first.saved(ours.step), second.saved(theirs.step)) {
            (Some(ours), Some(theirs)) => Some(apart(start, &ours, &theirs)?),
            _ => None,
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            ours.step,
            number(ours.loss),
            number(theirs.loss),
            number(ours.grad_norm),
            number(theirs.grad_norm),
            trained(ours),
            trained(theirs),
            apart.as_ref().map_or_else(dash, |apart| format!("{:.1e}", apart.relative)),
            apart.as_ref().map_or_else(dash, |apart| format!("{:.1e}", apart.of_moved)),
        )?;
    }
    Ok(())
}

fn batches(sides: &[Side; 2], out: &mut dyn Write) -> Result<(), Failure> {
    writeln!(
        out,
        "| batch | competence | | mean gain | | complete pairs | | accepted | | successes | | same responses |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    for (ours, theirs) in sides[0].batches.iter().zip(&sides[1].batches) {
        let responses = [sides[0].responses(ours.batch)?, sides[1].responses(theirs.batch)?];
        let same = responses[0].iter().filter(|(at, said)| responses[1].get(*at) == Some(*said));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} of {} |",
            ours.batch,
            number(competence(ours)),
            number(competence(theirs)),
            number(mean_gain(ours)),
            number(mean_gain(theirs)),
            ours.complete_pairs,
            theirs.complete_pairs,
            ours.accepted,
            theirs.accepted,
            ours.successes,
            theirs.successes,
            same.count(),
            responses[0].len().max(responses[1].len()),
        )?;
    }
    Ok(())
}

fn trained(step: &StepLine) -> u64 {
    step.opd_tokens + step.gi_tokens
}

fn competence(batch: &BatchLine) -> Option<f64> {
    batch.tick.and_then(|tick| tick.competence)
}

fn mean_gain(batch: &BatchLine) -> Option<f64> {
    let gains: Vec<f64> = batch.forks.iter().filter_map(|fork| fork.verdict.gain).collect();
    (!gains.is_empty()).then(|| gains.iter().sum::<f64>() / gains.len() as f64)
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(dash, |value| format!("{value:.5}"))
}

fn dash() -> String {
    "-".to_owned()
}

fn apart(start: &Path, ours: &Path, theirs: &Path) -> Result<Apart, Failure> {
    let [start, ours, theirs] =
        [Checkpoint::open(start)?, Checkpoint::open(ours)?, Checkpoint::open(theirs)?];
    let (mut relative, mut between, mut moved) = (0.0_f64, 0.0, 0.0);
    for name in ours.files.config.parameter_shapes().into_keys() {
        let (began, one, other) =
            (start.read_tensor(&name)?, ours.read_tensor(&name)?, theirs.read_tensor(&name)?);
        if began.data.len() != one.data.len() || one.data.len() != other.data.len() {
            return Err(Failure::user(format!("{name} has another shape in the other run")));
        }
        let (mut largest, mut value) = (0.0_f64, 0.0_f64);
        for ((began, one), other) in began.data.iter().zip(&one.data).zip(&other.data) {
            let (began, one, other) = (f64::from(*began), f64::from(*one), f64::from(*other));
            largest = largest.max((one - other).abs());
            value = value.max(one.abs());
            between += (one - other).powi(2);
            moved += (one - began).powi(2);
        }
        relative = relative.max(largest / value.max(f64::MIN_POSITIVE));
    }
    Ok(Apart { relative, of_moved: (between / moved.max(f64::MIN_POSITIVE)).sqrt() })
}
