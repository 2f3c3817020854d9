//! Memory per GPU of a run whose models are behind servers or in the training worker. Activations and caches come on top.

use lens_config::Config;
use lens_config::schema::EngineName;
use lens_lm::config::ModelConfig;
use serde::Serialize;

/// Positions whose logits the worker holds at a time (its `--head-chunk`).
const HEAD_CHUNK: u64 = 1024;

/// What one part of a run keeps on each of its GPUs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct PartMemory {
    /// "student's server", "teacher's server" or "worker".
    pub(super) part: &'static str,
    /// GPUs it is split over.
    pub(super) gpus: u64,
    /// Bytes on each of them.
    pub(super) bytes_per_gpu: u64,
}

/// f32 weights, their gradient and two moments, split over the worker's GPUs.
fn training_bytes(student: &ModelConfig, gpus: u64) -> u64 {
    16 * student.parameter_count() as u64 / gpus
}

/// The published f32 weights that are kept while others are trained, split over the worker's GPUs.
fn published_bytes(student: &ModelConfig, gpus: u64) -> u64 {
    4 * student.parameter_count() as u64 / gpus
}

/// One chunk of f32 logits.
fn head_bytes(student: &ModelConfig) -> u64 {
    HEAD_CHUNK * student.vocab_size as u64 * 4
}

/// bf16 weights that are only read, split over GPUs.
fn frozen_bytes(model: &ModelConfig, gpus: u64) -> u64 {
    2 * model.parameter_count() as u64 / gpus
}

/// The parts of a configuration that are elsewhere.
pub(super) fn gpu_memory(
    config: &Config,
    student: &ModelConfig,
    teacher: &ModelConfig,
) -> Vec<PartMemory> {
    let mut parts = Vec::new();
    let served = [
        ("student's server", &config.student, student),
        ("teacher's server", &config.teacher, teacher),
    ];
    for (part, model, shape) in served.into_iter().filter(|(_, model, _)| model.engine.is_served())
    {
        let gpus = model.tensor_parallel.max(1) as u64;
        parts.push(PartMemory { part, gpus, bytes_per_gpu: frozen_bytes(shape, gpus) });
    }
    if config.learner.engine == EngineName::Torch {
        let gpus = config.learner.gpus.max(1) as u64;
        let mut bytes_per_gpu = training_bytes(student, gpus) + head_bytes(student);
        if config.train.overlap {
            bytes_per_gpu += published_bytes(student, gpus);
        }
        if config.learner.holds_teacher || config.teacher.engine == EngineName::Torch {
            bytes_per_gpu += frozen_bytes(teacher, gpus);
        }
        parts.push(PartMemory { part: "worker", gpus, bytes_per_gpu });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../../../../docs/guides/gpu.md");

    /// A Qwen3 model with heads of 128 and the family's vocabulary.
    fn qwen3(
        hidden: usize,
        intermediate: usize,
        layers: usize,
        heads: usize,
        tied: bool,
    ) -> ModelConfig {
        let recipe = lens_lab::recipe::Recipe::shipped("alfworld").expect("it is shipped");
        let mut shape = recipe.models[1].config(151_936);
        shape.hidden_size = hidden;
        shape.intermediate_size = intermediate;
        shape.layers = layers;
        (shape.heads, shape.kv_heads, shape.head_dim) = (heads, 8, 128);
        shape.tied_head = tied;
        shape
    }

    /// The figures of the guide's row that begins with these words, in GB.
    fn row(words: &str) -> [String; 2] {
        let line = GUIDE.lines().find(|line| line.starts_with(&format!("| {words}")));
        let cells: Vec<&str> = line.expect("the row is there").split('|').map(str::trim).collect();
        [cells[3], cells[4]].map(|cell| cell.trim_end_matches(" GB").to_owned())
    }

    fn gb(bytes: u64) -> String {
        format!("{:.1}", bytes as f64 / 1e9)
    }

    #[test]
    fn the_memory_table_of_the_guide_is_what_is_estimated() {
        let students = [qwen3(2048, 6144, 28, 16, true), qwen3(2560, 9728, 36, 32, true)];
        let teacher = qwen3(5120, 25_600, 64, 64, false);
        let each = |bytes: fn(&ModelConfig) -> u64| [0, 1].map(|at| gb(bytes(&students[at])));
        assert_eq!(row("worker: f32 weights"), each(|student| training_bytes(student, 4)));
        assert_eq!(row("worker: one chunk"), each(head_bytes));
        let published = each(|student| published_bytes(student, 4));
        assert_eq!(row("worker with `train.overlap`"), published);
        assert_eq!(row("student's server"), each(|student| frozen_bytes(student, 1)));
        let held = gb(frozen_bytes(&teacher, 4));
        assert_eq!(row("worker with `holds_teacher`"), [held.clone(), held]);
        let served = gb(frozen_bytes(&teacher, 2));
        assert_eq!(row("teacher's server"), [served.clone(), served]);
    }

    #[test]
    fn the_parts_of_a_run_add_up() {
        let (student, teacher) =
            (qwen3(2048, 6144, 28, 16, true), qwen3(5120, 25_600, 64, 64, false));
        let mut config = Config::default();
        assert_eq!(gpu_memory(&config, &student, &teacher), []);
        config.student.engine = EngineName::Vllm;
        config.teacher.engine = EngineName::Vllm;
        config.teacher.tensor_parallel = 2;
        config.learner.engine = EngineName::Torch;
        config.learner.gpus = 4;
        let found = |config: &Config| -> Vec<(&'static str, u64, String)> {
            let parts = gpu_memory(config, &student, &teacher);
            parts.into_iter().map(|part| (part.part, part.gpus, gb(part.bytes_per_gpu))).collect()
        };
        let [training, held] =
            [training_bytes(&student, 4) + head_bytes(&student), frozen_bytes(&teacher, 4)];
        let servers =
            [("student's server", 1, "3.4".to_owned()), ("teacher's server", 2, "32.8".to_owned())];
        assert_eq!(found(&config), [&servers[..], &[("worker", 4, gb(training))]].concat());
        config.learner.holds_teacher = true;
        assert_eq!(found(&config)[2], ("worker", 4, gb(training + held)));
        config.train.overlap = true;
        let published = published_bytes(&student, 4);
        assert_eq!(found(&config)[2], ("worker", 4, gb(training + held + published)));
    }
}
