//! The configuration's shape and its defaults: the paper's tables 4 and 5. What belongs to a method or a loss has its
//! default there, in `lens-opd`, and is taken over here.

use std::path::PathBuf;

use lens_opd::buffer::{MAX_STALENESS, TRAIN_BATCH_ROWS};
use lens_opd::methods::guided::GuidedParams;
use lens_opd::methods::lens::LensParams;
use lens_opd::methods::tcod_f2b::TcodF2bParams;
use lens_opd::objective::LossParams;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The method's own defaults, which live with the method.
fn lens() -> LensParams {
    LensParams::default()
}

/// Derives what every section has: serde with unknown keys refused, a schema, equality.
macro_rules! section {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

/// Derives what every word list has.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)*
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)* })
            }
        }
    };
}

words! {
    /// The benchmarks.
    BenchmarkName {
        /// Household tasks in text.
        Alfworld = "alfworld",
        /// Shopping on a simulated web shop.
        Webshop = "webshop",
        /// Elementary-school science experiments in text.
        Scienceworld = "scienceworld",
    }
}

words! {
    /// The methods.
    MethodName {
        /// LENS-OPD: locate, validate, refine.
        Lens = "lens",
        /// Plain on-policy distillation over full episodes.
        Opd = "opd",
        /// TCOD with a horizon that grows from the first turn.
        TcodF2b = "tcod-f2b",
        /// TCOD with a replayed prefix that shrinks from the last turn.
        TcodB2f = "tcod-b2f",
        /// Teacher turns mixed in with a decaying probability.
        Guided = "guided-opd",
        /// One validated teacher turn per episode as an extra row.
        Futurebridge = "futurebridge-opd",
    }
}

words! {
    /// How the rollout horizon of LENS grows.
    ClockName {
        /// At a pace set by how much of the entry gap has closed.
        GapAdaptive = "gap-adaptive",
        /// At TCOD-F2B's fixed pace (ablation).
        FixedF2b = "fixed-f2b",
        /// Not at all: always the full length (diagnostics of section 3).
        Full = "full",
    }
}

words! {
    /// How the candidate turn is chosen.
    ProposalName {
        /// The turn with the largest mean divergence.
        TopKl = "top-kl",
        /// The last valid turn (ablation).
        LastTurn = "last-turn",
        /// A random valid turn (diagnostics).
        Random = "random",
        /// Turns spread evenly over the range of divergences (diagnostic of figure 2b).
        KlRange = "kl-range",
    }
}

words! {
    /// What a branch that ends the task counts for.
    TerminalRule {
        /// Pairs are compared by the teacher's likelihood alone (paper).
        Exclude = "exclude",
        /// A branch that ends with success beats one that does not.
        Outcome = "outcome",
    }
}

words! {
    /// How the hint is put to the student.
    HintPrompt {
        /// Take the feedback into account (paper's default).
        FeedbackIncorporation = "feedback-incorporation",
        /// Reconsider your decision (ablation).
        Reconsideration = "reconsideration",
    }
}

words! {
    /// The token-level loss of OPD rows.
    EstimatorName {
        /// Full-vocabulary reverse KL, back-propagated (Eq. 1).
        RklFull = "rkl_full",
        /// Reverse KL over the teacher's top-k and one tail bucket.
        RklTopk = "rkl_topk",
        /// The sampled k1 policy gradient with PPO clipping (TCOD's lineage).
        K1Pg = "k1_pg",
    }
}

words! {
    /// What a turn's prompt contains of the past.
    ContextName {
        /// Each turn's prompt stands alone: the task, the latest steps, the present.
        Window = "window",
        /// Earlier turns also stay in the conversation.
        Chat = "chat",
    }
}

words! {
    /// How weights are held for generation and scoring.
    WeightsName {
        /// 32-bit floats.
        F32 = "f32",
        /// bfloat16 storage, f32 arithmetic.
        Bf16 = "bf16",
        /// 8-bit integers with a scale per row, f32 arithmetic.
        Int8 = "int8",
    }
}

section! {
    /// A whole run.
    Config {
        /// The run's name; also the name of its folder under `output`.
        name: String = "run".to_owned(),
        /// Where run folders are made.
        output: PathBuf = PathBuf::from("runs"),
        /// Seeds; one run each.
        seeds: Vec<u64> = vec![42, 43, 44, 45, 46],
        /// Worker threads; 0 means one per core. Results do not depend on it.
        threads: usize = 0,
        /// The benchmark and its data.
        task: TaskSection = TaskSection::default(),
        /// The model that learns.
        student: ModelSection = ModelSection { path: PathBuf::from("Qwen/Qwen3-1.7B"), weights: WeightsName::F32 },
        /// The model that teaches.
        teacher: ModelSection = ModelSection { path: PathBuf::from("Qwen/Qwen3-32B"), weights: WeightsName::Bf16 },
        /// Which method allocates supervision.
        method: MethodName = MethodName::Lens,
        /// Locate: horizon and proposal.
        locate: LocateSection = LocateSection::default(),
        /// Validate: forks, hints and the gate.
        validate: ValidateSection = ValidateSection::default(),
        /// Refine: internalisation and token focus.
        refine: RefineSection = RefineSection::default(),
        /// TCOD's fixed clocks, also used by FutureBridge.
        tcod: TcodSection = TcodSection::default(),
        /// Guided-OPD's decay.
        guided: GuidedSection = GuidedSection::default(),
        /// The token loss.
        loss: LossSection = LossSection::default(),
        /// AdamW.
        optimizer: OptimizerSection = OptimizerSection::default(),
        /// How episodes are played in training.
        rollout: RolloutSection = RolloutSection::default(),
        /// The training loop.
        train: TrainSection = TrainSection::default(),
        /// How a student is evaluated.
        eval: EvalSection = EvalSection::default(),
        /// The accelerators the paper's runs used; read by cluster engines and by nothing on one machine.
        cluster: ClusterSection = ClusterSection::default(),
    }
}

section! {
    /// The benchmark and its data.
    TaskSection {
        /// Which benchmark.
        benchmark: BenchmarkName = BenchmarkName::Alfworld,
        /// The official data (a folder or archive); empty means the games or catalogue that are built in.
        data: PathBuf = PathBuf::new(),
        /// Only tasks of these kinds, in every split; empty means all.
        kinds: Vec<String> = Vec::new(),
        /// The split to train on.
        train_split: String = "train".to_owned(),
        /// The splits to evaluate on.
        eval_splits: Vec<String> = vec!["valid_seen".to_owned(), "valid_unseen".to_owned()],
        /// The longest episode in turns (30, 30 and 15 in the paper).
        turn_limit: usize = 30,
    }
}

section! {
    /// A model in a Hugging Face directory.
    ModelSection {
        /// The directory.
        path: PathBuf = PathBuf::new(),
        /// How its weights are held for generation and scoring; training always keeps f32 masters.
        weights: WeightsName = WeightsName::F32,
    }
}

section! {
    /// Locate: horizon and proposal.
    LocateSection {
        /// How the horizon grows.
        clock: ClockName = ClockName::GapAdaptive,
        /// Curriculum residence budget eta: explorer batches at one depth when the pace is 1.
        residence: u32 = lens().locate.eta,
        /// Epsilon of the pace ratio and of the weights' normalisation.
        epsilon: f64 = lens().locate.eps,
        /// The deepest horizon; 0 means the task's turn limit.
        max_horizon: usize = 0,
        /// How the candidate turn is chosen.
        proposal: ProposalName = ProposalName::TopKl,
        /// Top-KL turn proposals per trajectory.
        proposals_per_episode: usize = lens().locate.proposals,
    }
}

section! {
    /// Validate: forks, hints and the gate.
    ValidateSection {
        /// Future-validation horizon H: turns after the fork turn.
        horizon: usize = lens().validate.continuation_turns,
        /// Guidance-score temperature tau.
        temperature: f64 = lens().validate.tau,
        /// What a branch that ends the task counts for.
        terminal: TerminalRule = TerminalRule::Exclude,
        /// The longest hint in tokens.
        hint_tokens: usize = 80,
        /// How the hint is put to the student.
        hint_prompt: HintPrompt = HintPrompt::FeedbackIncorporation,
    }
}

section! {
    /// Refine: internalisation and token focus.
    RefineSection {
        /// Whether accepted hints become guidance-internalisation rows.
        internalize: bool = lens().refine.internalize,
        /// Weight of the internalisation loss, lambda_GI.
        internalize_weight: f64 = lens().refine.lambda_gi,
        /// Whether tokens of an accepted turn are reweighted.
        focus: bool = lens().refine.focus,
        /// Token-focus scale beta.
        focus_scale: f64 = lens().refine.beta,
        /// Raw token-weight cap c_tok.
        weight_cap: f64 = lens().refine.c_tok,
    }
}

section! {
    /// TCOD's fixed clocks.
    TcodSection {
        /// Explorer batches per extra turn, eta.
        growth: u32 = TcodF2bParams::default().eta,
        /// The first horizon, k_start.
        start: usize = TcodF2bParams::default().start,
    }
}

section! {
    /// Guided-OPD's decay of teacher control.
    GuidedSection {
        /// Probability of a teacher turn at the start.
        start: f64 = GuidedParams::default().share_start,
        /// Probability at the end of the decay.
        end: f64 = GuidedParams::default().share_end,
        /// Share of training over which it decays.
        decay_share: f64 = GuidedParams::default().decay,
    }
}

section! {
    /// The token loss.
    LossSection {
        /// The token-level estimator.
        estimator: EstimatorName = EstimatorName::RklFull,
        /// KL coefficient (the advantage's scale in k1_pg).
        kl_coef: f64 = LossParams::default().kl_coef,
        /// PPO clip range of k1_pg.
        clip: f64 = LossParams::default().clip_range,
        /// Dual clip of k1_pg.
        dual_clip: f64 = LossParams::default().dual_clip,
        /// k of rkl_topk.
        top_k: usize = 64,
    }
}

section! {
    /// AdamW with FP32 master weights and a constant schedule.
    OptimizerSection {
        /// Learning rate.
        lr: f64 = 1e-6,
        /// Decay of the first moment.
        beta1: f64 = 0.9,
        /// Decay of the second moment.
        beta2: f64 = 0.999,
        /// Epsilon of the update.
        epsilon: f64 = 1e-8,
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01,
        /// Global-norm gradient clipping.
        grad_clip: f64 = 1.0,
    }
}

section! {
    /// How episodes are played in training.
    RolloutSection {
        /// Tasks in one explorer batch ("batch size").
        batch_size: usize = 16,
        /// Episodes per task.
        repeat_times: usize = 1,
        /// Sampling temperature.
        temperature: f64 = 1.0,
        /// Longest prompt; longer ones drop the turn with a reason.
        max_prompt_tokens: usize = 10_240,
        /// Longest response.
        max_response_tokens: usize = 512,
        /// Past steps shown in every prompt.
        history: usize = 2,
        /// What a turn's prompt contains of the past.
        context: ContextName = ContextName::Window,
    }
}

section! {
    /// The training loop.
    TrainSection {
        /// Optimiser steps.
        steps: u64 = 250,
        /// Rows in one optimiser step ("train batch size").
        batch_size: usize = TRAIN_BATCH_ROWS,
        /// Rows of a version older than the step's index minus this are dropped.
        max_staleness: u64 = MAX_STALENESS,
        /// Optimiser steps between checkpoints.
        save_interval: u64 = 250,
        /// Explorer batches between evaluations.
        eval_interval: u64 = 5,
        /// Checkpoints kept.
        keep_checkpoints: usize = 3,
        /// Non-finite steps in a row that stop the run.
        max_skipped_steps: u32 = 3,
    }
}

section! {
    /// How a student is evaluated.
    EvalSection {
        /// Longest response.
        max_tokens: usize = 4096,
        /// Sampling temperature.
        temperature: f64 = 0.4,
        /// Nucleus sampling.
        top_p: f64 = 1.0,
        /// Top-k sampling; -1 is off.
        top_k: i64 = -1,
        /// Min-p sampling.
        min_p: f64 = 0.0,
        /// Past steps shown in every prompt.
        history: usize = 2,
        /// Episodes played side by side.
        workers: usize = 8,
        /// Seconds before an evaluation is given up.
        timeout_seconds: u64 = 3600,
        /// Tasks per split during training; 0 means all of them.
        tasks_during_training: usize = 0,
    }
}

section! {
    /// The accelerators of the paper's runs.
    ClusterSection {
        /// Nodes.
        nodes: usize = 1,
        /// GPUs per node.
        gpus_per_node: usize = 8,
        /// GPU model.
        gpu: String = "NVIDIA H100".to_owned(),
        /// Tensor parallelism of the rollout engines.
        tensor_parallel: usize = 2,
        /// Ulysses sequence parallelism of the trainer.
        sequence_parallel: usize = 2,
        /// Maximum tokens per GPU in training.
        max_tokens_per_gpu: usize = 16_384,
        /// Share of GPU memory the rollout engines take.
        gpu_memory_utilization: f64 = 0.7,
        /// Arithmetic of the accelerators.
        precision: String = "bfloat16".to_owned(),
        /// How rollout weights follow the trainer's.
        synchronization: String = "dynamic-by-explorer".to_owned(),
    }
}

/// The JSON schema of [`Config`], every section written out in place.
pub(crate) fn section_schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

/// The JSON schema of a configuration file, for editors: [`Config`] and `include`, which is read before it.
pub fn json_schema() -> serde_json::Value {
    let mut schema = section_schema();
    if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(
            "include".to_owned(),
            serde_json::json!({
                "type": "array",
                "items": { "type": "string" },
                "description": "Files read before this one, relative to it."
            }),
        );
    }
    schema
}
