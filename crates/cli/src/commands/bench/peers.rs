//! `lens bench peers`: whole iterations beside the same iterations in PyTorch.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use lens_config::Config;
use lens_config::schema::WeightsName;
use lens_lm::kernels::dispatch::Isa;
use lens_opd::methods::MethodName;
use lens_opd::objective::Estimator;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::measurement::printed;
use super::peer::Python;
use super::roofline::speed;
use crate::commands::config::ConfigArgs;
use crate::failure::Failure;

/// The twin.
const LOOP: &str = include_str!("../../../../../benches/peers/loop.py");
/// The trainer of TRL on the parts of an iteration that it has.
const TRL: &str = include_str!("../../../../../benches/peers/trl_step.py");

/// Options of `lens bench peers`.
#[derive(Debug, clap::Args)]
pub(crate) struct Peers {
    #[command(flatten)]
    config: ConfigArgs,
    /// The methods to measure.
    #[arg(long, value_delimiter = ',', value_name = "METHOD", default_value = "opd,lens", value_parser = crate::values::method())]
    methods: Vec<MethodName>,
    /// Explorer batches of each method, after one to warm up.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    batches: u16,
    /// The rollout horizon of every method.
    #[arg(long, default_value_t = 10)]
    horizon: usize,
    /// The precision of PyTorch's teacher, float32 or bfloat16; what is trained is float32 on both sides. That of the
    /// configuration's teacher by default.
    #[arg(long, value_name = "TYPE", value_parser = ["float32", "bfloat16"])]
    teacher_dtype: Option<String>,
    /// Rounds in which ours and the peers take turns.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Leave out TRL's trainer, which takes long for models that are not small.
    #[arg(long)]
    no_trl: bool,
    /// A Python that can import torch and transformers, and trl for its trainer; without it the one in the environment
    /// variable LENS_PYTHON.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

/// One side's seconds by method and stage.
#[derive(Debug, Clone, Deserialize)]
struct Side {
    methods: Map<String, Value>,
    peak_rss_bytes: Option<u64>,
    /// Mean divergences, ours and the twin's, for every judged batch.
    #[serde(default)]
    mean_kl: Vec<(f64, f64)>,
    #[serde(default)]
    capability: Option<String>,
    /// Floating-point operations by method and stage; the twin is asked for the same.
    #[serde(default)]
    flops: Map<String, Value>,
    /// The machine's peak of f32 multiply-adds.
    #[serde(default)]
    peak_gflops: Option<f64>,
}

/// What TRL's trainer says.
#[derive(Debug, Clone, Deserialize)]
struct Trainer {
    rows: usize,
    seconds: f64,
}

impl Peers {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let program =
            self.python.clone().or_else(|| std::env::var_os("LENS_PYTHON").map(PathBuf::from));
        let Some(program) = program else {
            return Err(Failure::user(
                "the twin needs a Python that can import torch and transformers; give it with --python or LENS_PYTHON",
            ));
        };
        let python = Python::find(Some(&program));
        let config = self.config.resolve()?.config;
        same_work(&config)?;
        let teacher = config.teacher.weights;
        let dtype = match (&self.teacher_dtype, teacher) {
            (Some(dtype), _) => dtype.as_str(),
            (None, WeightsName::F32) => "float32",
            (None, _) => "bfloat16",
        };
        let folder = tempfile::tempdir()?;
        let trace = folder.path().join("trace.jsonl");
        let (mut ours, mut twins, mut trainers) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            ours.push(self.ours(&trace)?);
            twins.push(script(&program, "the twin", LOOP, &trace, dtype)?);
            if !self.json {
                let ratios = self.names().map(|method| {
                    let [ratio, ..] = ratios(last(&ours), last(&twins), method);
                    format!("{method} {ratio:.2}")
                });
                let ratios: Vec<String> = ratios.collect();
                writeln!(
                    out,
                    "round {round} of {}: times PyTorch, {}",
                    self.rounds,
                    ratios.join(", ")
                )?;
                out.flush()?;
            }
            if python.has("trl") && !self.no_trl && self.methods.contains(&MethodName::Opd) {
                trainers.push(script(&program, "TRL's trainer", TRL, &trace, dtype)?);
            }
        }
        let isa = Isa::chosen().map_err(Failure::user)?;
        if self.json {
            return self.print_json(&python, isa, &ours, &twins, &trainers, out);
        }
        let sides = format!("{teacher} here, {dtype} in PyTorch");
        self.print(&python, isa, &sides, &ours, &twins, &trainers, out)
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.methods.iter().map(|method| method.as_str())
    }

    /// Our side, in a process of its own.
    fn ours(&self, trace: &Path) -> Result<Side, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "loop", "--json", "--record"]).arg(trace);
        command.args(["--methods", &self.names().collect::<Vec<_>>().join(",")]);
        command.args(["--batches", &self.batches.to_string()]);
        command.args(["--horizon", &self.horizon.to_string()]);
        for setting in &self.config.overrides {
            command.args(["--set", setting]);
        }
        let printed: Value =
            printed("lens bench loop", &command.args(&self.config.files).output()?)?;
        let of = |key: &'static str| {
            let printed = &printed;
            self.names().map(|method| (method.to_owned(), printed[method][key].clone())).collect()
        };
        Ok(Side {
            methods: of("seconds"),
            flops: of("flops"),
            peak_gflops: printed["peak_gflops"].as_f64(),
            peak_rss_bytes: printed["peak_rss_bytes"].as_u64(),
            mean_kl: Vec::new(),
            capability: None,
        })
    }

    fn print(
        &self,
        python: &Python,
        isa: Isa,
        teachers: &str,
        ours: &[Side],
        twins: &[Side],
        trainers: &[Trainer],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let capability = twins.iter().find_map(|twin| twin.capability.as_deref());
        writeln!(out, "{}", python.sentences().join("\n"))?;
        writeln!(
            out,
            "instruction sets: {isa} here, {} in PyTorch; {} threads; the teacher's weights: {teachers}",
            capability.unwrap_or("unknown"),
            rayon::current_num_threads()
        )?;
        writeln!(
            out,
            "{} explorer batches, horizon {}; seconds, the median of {} rounds",
            self.batches, self.horizon, self.rounds
        )?;
        for method in self.names() {
            writeln!(
                out,
                "\n{:<30} {:>9} {:>9} {:>9} {:>16} {:>16}",
                method, "lens", "PyTorch", "ratio", "lens", "PyTorch"
            )?;
            let peak = ours.iter().filter_map(|side| side.peak_gflops).fold(0.0, f64::max);
            let reached = |flops: f64, seconds: f64| speed(flops, seconds, peak);
            for stage in stages(ours, method) {
                let (a, b) = (median(ours, method, &stage), median(twins, method, &stage));
                match (a, b) {
                    (Some(a), Some(b)) => {
                        let flops = flops_of(ours, method, &stage);
                        let [ours, theirs] = [reached(flops, a), reached(flops, b)];
                        let ratio = b / a;
                        writeln!(
                            out,
                            "{stage:<30} {a:>9.2} {b:>9.2} {ratio:>9.2} {ours:>16} {theirs:>16}"
                        )?;
                    }
                    (Some(a), None) if a > 0.0 => writeln!(out, "{stage:<30} {a:>9.2}")?,
                    _ => {}
                }
            }
            let [low, middle, high] = ratios(ours, twins, method);
            let (a, b) = (middle_of(totals(ours, method)), middle_of(totals(twins, method)));
            let flops: f64 =
                stages(ours, method).iter().map(|stage| flops_of(ours, method, stage)).sum();
            let [own, theirs] = [reached(flops, a), reached(flops, b)];
            writeln!(out, "{:<30} {a:>9.2} {b:>9.2} {middle:>9.2} {own:>16} {theirs:>16}", "all")?;
            writeln!(out, "rounds between {low:.2} and {high:.2}")?;
            let least = flops / peak / 1e9;
            writeln!(
                out,
                "at the peak of f32 multiply-adds, {peak:.0} GFLOP/s, the models' work takes {least:.2} s: a program that does all of it in f32 and nothing else would be {:.2} times PyTorch",
                b / least
            )?;
        }
        writeln!(out)?;
        if let (Some(a), Some(b)) = (peak(ours), peak(twins)) {
            writeln!(out, "peak memory: {a:.0} MiB here, {b:.0} MiB in PyTorch")?;
        }
        if let Some(&(a, b)) = twins.first().and_then(|twin| twin.mean_kl.first()) {
            writeln!(out, "the same work: mean divergence {a:.5} here, {b:.5} in PyTorch")?;
        }
        // Without an optimizer step in the batches that count there is nothing to compare with.
        let opd = self.methods.contains(&MethodName::Opd);
        for trainer in trainers.iter().take(1).filter(|trainer| opd && trainer.rows > 0) {
            let seconds = middle_of(trainers.iter().map(|one| one.seconds).collect());
            let own = ["generate", "score", "train"]
                .iter()
                .filter_map(|stage| median(ours, "opd", stage))
                .sum::<f64>();
            writeln!(
                out,
                "TRL's DistillationTrainer (generate, judge, train on the {} rows of the OPD batches, each as a prompt of its own): {seconds:.2} s; ours, for whole episodes: {own:.2} s",
                trainer.rows
            )?;
        }
        Ok(())
    }

    fn print_json(
        &self,
        python: &Python,
        isa: Isa,
        ours: &[Side],
        twins: &[Side],
        trainers: &[Trainer],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let side = |sides: &[Side]| -> Vec<Value> {
            let each = sides.iter().map(
                |side| json!({"methods": side.methods, "peak_rss_bytes": side.peak_rss_bytes, "flops": side.flops, "peak_gflops": side.peak_gflops}),
            );
            each.collect()
        };
        let summary: Map<String, Value> = self
            .names()
            .map(|method| (method.to_owned(), json!(ratios(ours, twins, method))))
            .collect();
        let object = json!({
            "batches": self.batches, "horizon": self.horizon, "rounds": self.rounds,
            "instruction_set": isa.name(), "peers": python.facts(),
            "lens": side(ours), "pytorch": side(twins),
            "trl_seconds": trainers.iter().map(|one| one.seconds).collect::<Vec<_>>(),
            "mean_kl": twins.first().map(|twin| twin.mean_kl.clone()),
            "ratio_low_median_high": summary,
        });
        Ok(writeln!(out, "{object:#}")?)
    }
}

/// Refuses configurations that train otherwise than the twin does: every weight, on whole distributions.
fn same_work(config: &Config) -> Result<(), Failure> {
    let refuse = |what: &str| {
        Err(Failure::user_with_hint(
            format!("{what}: the twin in PyTorch would do other work"),
            "`lens bench loop` measures any configuration without a peer",
        ))
    };
    if config.loss.estimator != Estimator::RklFull {
        return refuse("loss.estimator is not rkl_full");
    }
    if config.learner.lora.rank > 0 {
        return refuse(&format!("learner.lora.rank is {}", config.learner.lora.rank));
    }
    Ok(())
}

fn script<T: for<'de> Deserialize<'de>>(
    program: &Path,
    what: &str,
    code: &str,
    trace: &Path,
    dtype: &str,
) -> Result<T, Failure> {
    printed(what, &Command::new(program).args(["-c", code]).arg(trace).arg(dtype).output()?)
}

/// The stages of a method, in the order of an iteration.
fn stages(sides: &[Side], method: &str) -> Vec<String> {
    let named = sides.first().and_then(|side| side.methods.get(method)?.as_object());
    let mut names: Vec<String> = named.map(|map| map.keys().cloned().collect()).unwrap_or_default();
    let rank = |name: &str| super::iteration::stage_names().position(|known| known == name);
    names.sort_by_key(|name| rank(name));
    names
}

fn median(sides: &[Side], method: &str, stage: &str) -> Option<f64> {
    let of = |side: &Side| side.methods.get(method).and_then(|stages| stages[stage].as_f64());
    let values: Vec<f64> = sides.iter().filter_map(of).collect();
    (!values.is_empty()).then(|| middle_of(values))
}

/// Floating-point operations that a stage asked for, the median of the rounds.
fn flops_of(sides: &[Side], method: &str, stage: &str) -> f64 {
    let of = |side: &Side| side.flops.get(method).and_then(|stages| stages[stage].as_f64());
    middle_of(sides.iter().filter_map(of).collect())
}

fn totals(sides: &[Side], method: &str) -> Vec<f64> {
    let total = |side: &Side| {
        let stages = side.methods.get(method).and_then(Value::as_object);
        stages.map_or(0.0, |stages| stages.values().filter_map(Value::as_f64).sum())
    };
    sides.iter().map(total).collect()
}

/// The side of the latest round.
fn last(sides: &[Side]) -> &[Side] {
    sides.get(sides.len().saturating_sub(1)..).unwrap_or_default()
}

/// The lowest, the middle and the highest ratio of a round.
fn ratios(ours: &[Side], twins: &[Side], method: &str) -> [f64; 3] {
    let mut ratios: Vec<f64> = totals(ours, method)
        .into_iter()
        .zip(totals(twins, method))
        .map(|(ours, theirs)| theirs / ours.max(f64::MIN_POSITIVE))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    [at(0), middle_of(ratios.clone()), at(ratios.len().saturating_sub(1))]
}

fn middle_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// The largest peak of the rounds, in MiB.
fn peak(sides: &[Side]) -> Option<f64> {
    let bytes = sides.iter().filter_map(|side| side.peak_rss_bytes).max()?;
    Some(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(train: f64, score: f64) -> Side {
        let seconds = json!({"train": train, "score": score});
        Side {
            methods: [("opd".to_owned(), seconds)].into_iter().collect(),
            peak_rss_bytes: Some(3 << 20),
            mean_kl: Vec::new(),
            capability: None,
            flops: [("opd".to_owned(), json!({"train": 2e9, "score": 1e9}))].into_iter().collect(),
            peak_gflops: Some(10.0),
        }
    }

    #[test]
    fn a_configuration_that_the_twin_cannot_follow_is_refused() {
        assert!(same_work(&Config::default()).is_ok());
        let mut other = Config::default();
        other.loss.estimator = Estimator::K1Pg;
        assert!(same_work(&other).is_err());
        let mut adapters = Config::default();
        adapters.learner.lora.rank = 4;
        assert!(same_work(&adapters).is_err());
    }

    #[test]
    fn ratios_are_of_whole_rounds_and_the_middle_one_counts() {
        let ours = [side(1.0, 1.0), side(1.0, 3.0), side(0.5, 0.5)];
        let theirs = [side(4.0, 4.0), side(4.0, 4.0), side(4.0, 1.0)];
        assert_eq!(ratios(&ours, &theirs, "opd"), [2.0, 4.0, 5.0]);
        assert_eq!(median(&ours, "opd", "score"), Some(1.0));
        assert_eq!(median(&ours, "opd", "fork: score"), None);
        assert_eq!(stages(&ours, "opd"), ["score", "train"]);
        assert_eq!(ratios(last(&ours), last(&theirs), "opd"), [5.0, 5.0, 5.0]);
        assert_eq!(peak(&ours), Some(3.0));
        assert_eq!(flops_of(&ours, "opd", "train"), 2e9);
    }

    #[test]
    fn the_middle_of_an_even_number_lies_between_the_two() {
        assert_eq!(middle_of(vec![4.0, 1.0]), 2.5);
        assert!(middle_of(Vec::new()).is_nan());
    }
}
