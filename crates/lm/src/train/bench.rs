//! The train step as a benchmark: forward, backward and AdamW with full-vocabulary KL against a teacher.

use std::time::Instant;

use serde::Serialize;

use super::{AdamWConfig, Head, Heads, RowLoss, TrainError, TrainRow, Trainer, TrainerOptions};
use crate::bench::training_flops;
use crate::checkpoint::TensorSource;
use crate::config::{Family, ModelConfig};
use crate::error::LmError;
use crate::model::{Model, WeightFormat};
use crate::tensor::{Parameters, Tensor};
use lens_opd::random::{Purpose, StreamKey};

/// A model shape and the batch it is trained on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchShape {
    /// What the shape is called on the command line and in the peer.
    pub name: &'static str,
    /// The student.
    pub config: ModelConfig,
    /// Width of the teacher's hidden states.
    pub teacher_hidden: usize,
    /// Rows per step.
    pub rows: usize,
    /// Shortest and longest row.
    pub lengths: (usize, usize),
    /// Share of each row that is response and carries loss.
    pub response_share: f64,
}

impl BenchShape {
    /// The shapes whose speed is watched.
    pub fn all() -> Vec<Self> {
        let base = ModelConfig {
            family: Family::Llama,
            hidden_size: 128,
            intermediate_size: 384,
            layers: 4,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            vocab_size: 2048,
            max_position: 2048,
            rms_norm_eps: 1e-5,
            rope_theta: 1e5,
            rope_scaling: None,
            tied_head: true,
            qkv_bias: false,
            qk_norm: false,
        };
        let smollm2 = ModelConfig {
            hidden_size: 576,
            intermediate_size: 1536,
            layers: 30,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab_size: 49_152,
            ..base.clone()
        };
        let qwen3 = ModelConfig {
            family: Family::Qwen3,
            hidden_size: 1024,
            intermediate_size: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            vocab_size: 151_936,
            rms_norm_eps: 1e-6,
            rope_theta: 1e6,
            qk_norm: true,
            ..base.clone()
        };
        let shape = |name, config: ModelConfig, rows, lengths| Self {
            name,
            teacher_hidden: config.hidden_size,
            config,
            rows,
            lengths,
            response_share: 0.5,
        };
        vec![
            shape("laboratory", base, 64, (300, 500)),
            shape("smollm2-135m", smollm2, 4, (512, 512)),
            shape("qwen3-0.6b", qwen3, 1, (512, 512)),
        ]
    }

    /// Shapes whose memory is watched where only adapters are trained.
    pub fn large() -> Vec<Self> {
        let Some(small) = Self::all().into_iter().find(|shape| shape.name == "qwen3-0.6b") else {
            return Vec::new();
        };
        let shape = |name, hidden_size, intermediate_size, layers, heads| Self {
            name,
            config: ModelConfig {
                hidden_size,
                intermediate_size,
                layers,
                heads,
                ..small.config.clone()
            },
            teacher_hidden: hidden_size,
            ..small.clone()
        };
        vec![shape("qwen3-1.7b", 2048, 6144, 28, 16), shape("qwen3-4b", 2560, 9728, 36, 32)]
    }

    /// The length of each row: spread evenly between the shortest and the longest, in a scattered order.
    pub fn row_lengths(&self) -> Vec<usize> {
        let span = self.lengths.1 - self.lengths.0 + 1;
        (0..self.rows).map(|row| self.lengths.0 + row * 7919 % span).collect()
    }

    /// Floating-point operations of the matrix products that a step cannot avoid.
    pub fn flops(&self) -> f64 {
        let row = |length| {
            let response = self.response_length(length);
            training_flops(&self.config, self.teacher_hidden, length - 1, response)
        };
        self.row_lengths().into_iter().map(row).sum()
    }

    fn response_length(&self, length: usize) -> usize {
        ((length as f64 * self.response_share) as usize).clamp(1, length - 1)
    }
}

/// What a benchmark measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchResult {
    /// The shape's name.
    pub name: &'static str,
    /// Tokens per second of the best step.
    pub tokens_per_second: f64,
    /// Seconds of each step, the first (which warms up) left out.
    pub seconds: Vec<f64>,
    /// Processor seconds of the step that took fewest, all threads together, where the system tells.
    pub cpu_seconds: Option<f64>,
    /// Tokens per step.
    pub tokens: usize,
    /// Most memory the process ever held, where the system tells.
    pub peak_rss_bytes: Option<u64>,
    /// Useful floating-point operations per second of the best step.
    pub gflops: f64,
    /// Loss of each step, to show that all steps did their work.
    pub losses: Vec<f64>,
}

/// Random parameters of a model, norms at one.
pub fn random_parameters(config: &ModelConfig) -> Parameters {
    let mut stream = StreamKey::new(0, 0, 0, Purpose::Weights, 0).open();
    let shapes = config.parameter_shapes();
    shapes
        .into_iter()
        .map(|(name, shape)| {
            let mut tensor = Tensor::zeros(&shape);
            if name.contains("norm") {
                tensor.data.fill(1.0);
            } else {
                tensor.data.fill_with(|| (0.07 * (stream.uniform() - 0.5)) as f32);
            }
            (name, tensor)
        })
        .collect()
}

/// The batch of a shape, with random tokens and random hidden states of a teacher.
fn random_rows(shape: &BenchShape) -> Vec<TrainRow> {
    let mut stream = StreamKey::new(1, 0, 0, Purpose::Data, 0).open();
    let mut noise = |count: usize, scale: f64| -> Vec<f32> {
        (0..count).map(|_| (scale * (stream.uniform() - 0.5)) as f32).collect()
    };
    let lengths = shape.row_lengths();
    let losses: usize = lengths.iter().map(|&length| shape.response_length(length)).sum();
    lengths
        .iter()
        .map(|&length| {
            let count = shape.response_length(length);
            TrainRow {
                tokens: noise(length, 1.0)
                    .iter()
                    .map(|x| ((f64::from(*x) + 0.5) * shape.config.vocab_size as f64) as u32)
                    .map(|token| token.min(shape.config.vocab_size as u32 - 1))
                    .collect(),
                response_start: length - count,
                weights: vec![1.0 / losses as f32; count],
                loss: RowLoss::ReverseKl {
                    teacher_hidden: noise(count * shape.teacher_hidden, 4.0),
                },
            }
        })
        .collect()
}

/// Weights that are cheap to make in any piece: norms at one, matrices uniform by a mix of each value's index.
#[derive(Debug)]
struct Uniform<'a>(&'a ModelConfig);

impl TensorSource for Uniform<'_> {
    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.0.parameter_shapes().remove(name)
    }

    fn read_values(&self, name: &str, first: usize, out: &mut [f32]) -> Result<(), LmError> {
        if name.contains("norm") {
            out.fill(1.0);
            return Ok(());
        }
        let salt = name.bytes().fold(0_u32, |salt, byte| salt.wrapping_mul(31) ^ u32::from(byte));
        for (index, value) in out.iter_mut().enumerate() {
            let word = ((first + index) as u32 ^ salt).wrapping_mul(2_654_435_761);
            let word = (word ^ (word >> 15)).wrapping_mul(0x2c1b_3c6d) >> 8;
            *value = 0.07 * (word as f32 / 16_777_216.0 - 0.5);
        }
        Ok(())
    }
}

/// A trainer of adapters and the student it publishes in bf16, as a run holds both; a train step; publishing again. Returns
/// the process's largest resident size and the loss of each step.
pub fn adapter_memory(
    shape: &BenchShape,
    options: TrainerOptions,
    steps: usize,
) -> Result<(Option<u64>, Vec<f64>), TrainError> {
    let config = &shape.config;
    let mut trainer = Trainer::load(config.clone(), &Uniform(config), options)?;
    let mut published = Model::load(config, &trainer, WeightFormat::Bf16)?;
    let head = vec![half::bf16::from_f32(0.01); config.vocab_size * shape.teacher_hidden];
    let heads = Heads {
        teacher: Some(Head { weight: head.as_slice().into(), hidden: shape.teacher_hidden }),
        snapshot: None,
    };
    let rows = random_rows(shape);
    let mut losses = Vec::new();
    for _ in 0..steps {
        losses.push(trainer.accumulate(&rows, &heads)?.loss);
        trainer.step(&AdamWConfig::default())?;
        trainer.release();
        published.refresh_from(&trainer)?;
    }
    Ok((peak_rss_bytes(), losses))
}

/// Trains for one warm-up step and `steps` measured ones.
pub fn run(
    shape: &BenchShape,
    options: TrainerOptions,
    steps: usize,
) -> Result<BenchResult, TrainError> {
    let mut trainer =
        Trainer::new(shape.config.clone(), random_parameters(&shape.config), options)?;
    let mut stream = StreamKey::new(2, 0, 0, Purpose::Data, 0).open();
    let teacher: Vec<f32> = (0..shape.config.vocab_size * shape.teacher_hidden)
        .map(|_| (0.1 * (stream.uniform() - 0.5)) as f32)
        .collect();
    let tokens: usize = shape.row_lengths().iter().sum();
    let rows = random_rows(shape);
    let heads = Heads {
        teacher: Some(Head { weight: (&teacher).into(), hidden: shape.teacher_hidden }),
        snapshot: None,
    };
    let adam = AdamWConfig::default();
    let (mut seconds, mut losses, mut cpu) = (Vec::new(), Vec::new(), None::<f64>);
    for step in 0..=steps {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        losses.push(trainer.accumulate(&rows, &heads)?.loss);
        trainer.step(&adam)?;
        seconds.push(start.elapsed().as_secs_f64());
        if let (true, Some(start), Some(end)) = (step > 0, cpu_start, cpu_seconds()) {
            cpu = Some(cpu.map_or(end - start, |least| least.min(end - start)));
        }
    }
    seconds.remove(0);
    let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(BenchResult {
        name: shape.name,
        tokens_per_second: tokens as f64 / best,
        seconds,
        cpu_seconds: cpu,
        tokens,
        peak_rss_bytes: peak_rss_bytes(),
        gflops: shape.flops() / best / 1e9,
        losses,
    })
}

/// The process's largest resident size so far, where the system tells.
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Processor time of this process so far, where the system tells.
pub(crate) fn cpu_seconds() -> Option<f64> {
    /// Linux counts in hundredths of a second here, whatever the kernel's own clock.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The command in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}
