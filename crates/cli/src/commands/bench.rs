//! `lens bench`: how fast the engine is, next to what people use otherwise.

mod context;
mod decode;
mod engines;
mod iteration;
mod load;
mod measurement;
mod peer;
mod peers;
mod prefill;
mod roofline;
mod score;
mod table;
mod trace;
mod train;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use lens_config::schema::{MomentsName, RecomputeName, WeightsName};
use lens_lm::kernels::dispatch::{self, Isa};
use lens_lm::model::WeightFormat;
use lens_lm::train::TrainerOptions;
use lens_lm::train::bench::BenchShape;
use serde_json::json;

use crate::assemble::{moment_format, recompute, weight_format};
use crate::failure::Failure;
use measurement::Measurement;
use peer::{Peer, Python};
use table::Peaks;

/// Measure the engine's speed next to PyTorch and llama.cpp
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens bench engine --work decode --shape laboratory
  lens bench loop configs/laboratory.toml --batches 2
  lens bench peers configs/laboratory.toml --python venv/bin/python
  lens bench context --lengths 1024,4096,10240
  lens bench load model.gguf")]
pub(crate) enum Bench {
    /// Time training, decoding and scoring on model shapes up to 0.6 billion parameters
    ///
    /// Every measurement is a process of its own, ours and the peers' in turn, and the best of each counts: what matters
    /// is their ratio in the same run. PyTorch takes part when the given Python can import `torch` and `transformers`,
    /// llama.cpp when it can import `llama_cpp` or `xllamacpp`.
    Engine(Engine),
    /// Time the stages of an iteration, for OPD and LENS at the same horizon
    Loop(iteration::Iteration),
    /// Time whole iterations beside the same iterations in PyTorch
    ///
    /// A twin written with `transformers` replays what our models were asked: the same prompts in the same batches, responses
    /// of the same lengths, the same rows judged and trained on. TRL's trainer takes part on what it has of an iteration.
    Peers(peers::Peers),
    /// Time prompts up to the paper's longest, 10,240 tokens
    ///
    /// The cost of a token should grow by what attention adds for longer prompts and by nothing else.
    Context(context::Context),
    /// Time a model from its file to its first token
    Load(load::Load),
    /// Time what the driver adds to servers, against simulated ones: tasks beside lockstep
    Engines(engines::Engines),
    /// Take one measurement and print it as JSON; `engine` runs it in a process of its own
    #[command(hide = true)]
    Measure(Measure),
}

impl Bench {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Engine(engine) => engine.run(out),
            Self::Loop(iteration) => iteration.run(out),
            Self::Peers(peers) => peers.run(out),
            Self::Context(context) => context.run(out),
            Self::Load(load) => load.run(out),
            Self::Engines(engines) => engines.run(out),
            Self::Measure(measure) => measure.run(out),
        }
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// Forward, backward and AdamW with full-vocabulary KL against a teacher.
    Train,
    /// Sixteen sequences with 512 tokens of cache, bf16 weights.
    Decode,
    /// Prompts of 1,000 tokens, 30 response positions, f32 weights.
    Score,
    /// One prompt of 8,192 tokens, f32 weights.
    Prefill,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Decode => "decode",
            Self::Score => "score",
            Self::Prefill => "prefill",
        }
    }

    /// How weights are held unless told otherwise; training has its own.
    fn weights(self) -> WeightFormat {
        match self {
            Self::Decode => WeightFormat::Bf16,
            Self::Train | Self::Score | Self::Prefill => WeightFormat::F32,
        }
    }

    fn measure(
        self,
        shape: &BenchShape,
        held: Held,
        repeats: usize,
    ) -> Result<Measurement, Failure> {
        let format = held.weights.map_or(self.weights(), weight_format);
        match self {
            Self::Train => train::measure(shape, held.training(), repeats),
            Self::Decode => decode::measure(shape, format, repeats),
            Self::Score => score::measure(shape, format, repeats),
            Self::Prefill => prefill::measure(shape, format, repeats),
        }
    }

    fn peers(self, shape: &BenchShape, repeats: usize) -> Vec<Peer> {
        match self {
            Self::Train => train::peers(shape, repeats),
            Self::Decode => decode::peers(shape, repeats),
            Self::Score => score::peers(shape, repeats),
            Self::Prefill => prefill::peers(shape, repeats),
        }
    }
}

/// How our side holds what it works on.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Held {
    /// How our weights are held for decoding, scoring and prefill: f32, bf16, bf16-dot or int8; each work has its own default.
    #[arg(long, value_name = "WEIGHTS", value_parser = crate::values::weights())]
    weights: Option<WeightsName>,
    /// How training holds both moments of the optimizer: f32, bf16 or int8.
    #[arg(long, default_value = "f32", value_name = "MOMENTS", value_parser = crate::values::moments())]
    moments: MomentsName,
    /// Whether training computes activations again in the backward pass: auto, always or never.
    #[arg(long, default_value = "auto", value_name = "WHEN", value_parser = crate::values::recompute())]
    recompute: RecomputeName,
}

impl Held {
    fn training(self) -> TrainerOptions {
        TrainerOptions {
            moments: moment_format(self.moments),
            recompute: recompute(self.recompute),
            ..TrainerOptions::default()
        }
    }
}

/// Options of `lens bench engine`.
#[derive(Debug, clap::Args)]
pub(crate) struct Engine {
    /// The work to measure; training, decoding and scoring by default.
    #[arg(long, value_delimiter = ',', value_name = "WORK")]
    work: Vec<Work>,
    /// The shapes to measure; all of them by default.
    #[arg(long, value_delimiter = ',', value_name = "SHAPE", value_parser = shape_name)]
    shape: Vec<String>,
    /// Rounds in which ours and the peers take turns.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measurements of each in one turn, after one to warm up.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// The instruction set of our side: portable, avx2 or avx512; the best of this processor, or the one in the
    /// environment variable LENS_KERNELS, by default.
    #[arg(long, value_name = "SET", value_parser = instruction_set)]
    kernels: Option<Isa>,
    #[command(flatten)]
    held: Held,
    /// A Python that can import the peers; without it the one in the environment variable LENS_PYTHON.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Print JSON for scripts.
    #[arg(long)]
    json: bool,
}

impl Engine {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let works = if self.work.is_empty() {
            vec![Work::Train, Work::Decode, Work::Score]
        } else {
            self.work.clone()
        };
        let shapes: Vec<BenchShape> = BenchShape::all()
            .into_iter()
            .filter(|shape| {
                self.shape.is_empty() || self.shape.iter().any(|name| name == shape.name)
            })
            .collect();
        let program =
            self.python.clone().or_else(|| std::env::var_os("LENS_PYTHON").map(PathBuf::from));
        let python = Python::find(program.as_deref());
        let isa = match self.kernels {
            Some(isa) => isa,
            None => Isa::chosen().map_err(Failure::user)?,
        };
        let peaks = Peaks::measure(isa);
        if !self.json {
            table::heading(&python, &peaks, out)?;
        }
        let mut rows = Vec::new();
        for work in works {
            for shape in &shapes {
                let row = self.row(work, shape, isa, &python)?;
                if self.json {
                    rows.push(row.json(peaks.used));
                } else {
                    row.print(peaks.used, out)?;
                    out.flush()?;
                }
            }
        }
        if self.json {
            let object = json!({
                "threads": rayon::current_num_threads(),
                "instruction_set": isa.name(),
                "peak_gflops": peaks.facts(),
                "peers": python.facts(),
                "rows": rows,
            });
            writeln!(out, "{object:#}")?;
        }
        Ok(())
    }

    /// What was just measured, for those who wait: a row of the table may take a quarter of an hour.
    fn say(
        &self,
        work: Work,
        shape: &BenchShape,
        engine: &str,
        measured: &Measurement,
    ) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        let speed = measured.tokens_per_second;
        let (work, shape) = (work.name(), shape.name);
        Ok(writeln!(std::io::stderr(), "measured {work} {shape} {engine}: {speed:.1} tokens/s")?)
    }

    fn row(
        &self,
        work: Work,
        shape: &BenchShape,
        isa: Isa,
        python: &Python,
    ) -> Result<table::Row, Failure> {
        let repeats = usize::from(self.repeats);
        let peers: Vec<Peer> =
            work.peers(shape, repeats).into_iter().filter(|peer| python.can_run(peer)).collect();
        let mut ours: Option<Measurement> = None;
        let mut theirs: Vec<Option<Measurement>> = vec![None; peers.len()];
        for _ in 0..self.rounds {
            let measured = measure_apart(work, shape, isa, self.held, repeats)?;
            self.say(work, shape, "lens", &measured)?;
            Measurement::keep_best(&mut ours, measured);
            for (peer, best) in peers.iter().zip(&mut theirs) {
                let measured = python.run(peer)?;
                self.say(work, shape, peer.name, &measured)?;
                Measurement::keep_best(best, measured);
            }
        }
        let Some(ours) = ours else {
            return Err(Failure::user("at least one round is needed"));
        };
        let peers =
            peers.into_iter().zip(theirs).filter_map(|(peer, best)| Some((peer.name, best?)));
        Ok(table::Row { work: work.name(), shape: shape.name, ours, peers: peers.collect() })
    }
}

fn instruction_set(name: &str) -> Result<Isa, String> {
    Isa::from_name(name)
}

fn shape_name(name: &str) -> Result<String, String> {
    let names: Vec<&str> = BenchShape::all().iter().map(|shape| shape.name).collect();
    if names.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("expected one of {}", names.join(", ")))
}

/// Runs one measurement in a process of its own, so that its peak memory is its own as well.
fn measure_apart(
    work: Work,
    shape: &BenchShape,
    isa: Isa,
    held: Held,
    repeats: usize,
) -> Result<Measurement, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(dispatch::VARIABLE, isa.name());
    command.args(["bench", "measure", work.name(), shape.name, &repeats.to_string()]);
    command.args(["--moments", &held.moments.to_string()]);
    command.args(["--recompute", &held.recompute.to_string()]);
    if let Some(weights) = held.weights {
        command.args(["--weights", &weights.to_string()]);
    }
    measurement::printed("lens bench measure", &command.output()?)
}

/// Options of `lens bench measure`.
#[derive(Debug, clap::Args)]
pub(crate) struct Measure {
    work: Work,
    #[arg(value_parser = shape_name)]
    shape: String,
    repeats: u16,
    #[command(flatten)]
    held: Held,
}

impl Measure {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        for shape in BenchShape::all().iter().filter(|shape| shape.name == self.shape) {
            let measured = self.work.measure(shape, self.held, usize::from(self.repeats))?;
            writeln!(out, "{}", json!(measured))?;
        }
        Ok(())
    }
}
