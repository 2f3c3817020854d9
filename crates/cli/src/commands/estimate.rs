//! `lens estimate`: what a configuration costs before it runs.

use std::io::Write;
use std::path::Path;

use lens_lm::checkpoint::ModelFiles;

use super::config::ConfigArgs;
use crate::assemble;
use crate::failure::Failure;
use crate::wording::{counted, group};

mod costs;
mod gpus;
mod memory;
mod typical;
mod walk;

use costs::costs;
use gpus::gpu_memory;
use typical::Typical;

/// Estimate what a configuration costs: tokens, teacher calls, memory, disk, time
///
/// Episodes are taken to last as long as the method lets them, so tokens and time are upper bounds; with --probe some are
/// played first, and the counts follow what they show. Of the models only `config.json` is needed, unless a probe plays.
/// Prompts of the benchmark's own tasks are measured with the student's tokenizer, or counted as four bytes per token
/// where it has none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  lens estimate configs/laboratory.toml
  lens estimate configs/laboratory.toml --probe 32
  lens estimate configs/laboratory.toml --set method=opd --set train.steps=250 --json")]
pub(crate) struct Estimate {
    #[command(flatten)]
    config: ConfigArgs,
    /// Tokens of a typical response; a probe measures them.
    #[arg(long, default_value_t = 32, conflicts_with = "probe")]
    response_tokens: usize,
    /// Play this many episodes with the student first, and count with their lengths and readable turns.
    #[arg(long, value_name = "EPISODES", default_value_t = 0)]
    probe: usize,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

impl Estimate {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        assemble::set_threads(config.threads)?;
        let student = files(&config.student.path, "student.path")?;
        let teacher = files(&config.teacher.path, "teacher.path")?;
        let typical = Typical::measure(&config, &student, self.response_tokens, self.probe)?;
        let peak = lens_lm::bench::peak_gflops() * 1e9;
        let shapes = (&student.config, &teacher.config);
        let costs = costs(&config, shapes, &typical, peak)?;
        let elsewhere = gpu_memory(&config, &student.config, &teacher.config);
        if self.json {
            let object = serde_json::json!({
                "seeds": config.seeds.len(), "per_seed": costs, "gpu_memory": elsewhere,
            });
            return Ok(writeln!(out, "{object:#}")?);
        }
        let count = group;
        let bounded = |what: &str| {
            let bound = if self.probe > 0 { "about" } else { "at most" };
            format!("{what}, {bound}")
        };
        let mib = |bytes: u64| format!("{} MiB", group(bytes.div_ceil(1 << 20)));
        let lines = [
            ("optimizer steps".to_owned(), count(costs.steps)),
            ("explorer batches, about".to_owned(), count(costs.explorer_batches)),
            ("tokens of a typical prompt".to_owned(), count(costs.prompt_tokens as u64)),
            (bounded("student turns"), count(costs.student_turns)),
            (bounded("teacher turns"), count(costs.teacher_turns)),
            (bounded("turns of forks"), count(costs.fork_turns)),
            ("tokens generated".to_owned(), count(costs.generated_tokens)),
            ("prompt tokens read".to_owned(), count(costs.prompt_tokens_read)),
            ("rows scored by the teacher".to_owned(), count(costs.teacher_scored_rows)),
            ("hints asked of the teacher".to_owned(), count(costs.teacher_hints)),
            ("tokens trained on".to_owned(), count(costs.trained_tokens)),
            ("episodes of evaluation".to_owned(), count(costs.evaluation_episodes)),
            ("memory at its peak, about".to_owned(), mib(costs.memory_bytes)),
            ("disk for checkpoints and records".to_owned(), mib(costs.disk_bytes)),
            (bounded("hours on this machine"), format!("{:.1}", costs.hours)),
        ];
        writeln!(
            out,
            "{} on {}, for each of {}:",
            config.method,
            config.task.benchmark,
            counted(config.seeds.len() as u64, "seed")
        )?;
        for (name, value) in lines {
            writeln!(out, "  {name:<34} {value:>18}")?;
        }
        for part in elsewhere {
            let name = format!("weights per GPU, {} on {}", part.part, part.gpus);
            writeln!(out, "  {name:<34} {:>18}", mib(part.bytes_per_gpu))?;
        }
        Ok(())
    }
}

/// The small files of a model; its weights need not be there.
fn files(path: &Path, key: &str) -> Result<ModelFiles, Failure> {
    Ok(ModelFiles::read(&assemble::model_folder(path, key)?)?)
}
