//! One file per verb.

use std::io::Write;

use crate::failure::Failure;

pub(crate) mod alfworld;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod env;
pub(crate) mod estimate;
pub(crate) mod eval;
pub(crate) mod expert;
pub(crate) mod figures;
pub(crate) mod generate;
pub(crate) mod lab;
pub(crate) mod model;
pub(crate) mod open_model;
pub(crate) mod play;
pub(crate) mod quickstart;
pub(crate) mod references;
pub(crate) mod scienceworld;
pub(crate) mod score;
pub(crate) mod sft;
pub(crate) mod show;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod view;
pub(crate) mod webshop;

/// The verbs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Train the shipped small student with LENS-OPD and show what changed
    Quickstart(quickstart::Quickstart),
    /// Train a student with the method the configuration names
    Train(train::Train),
    /// Play a benchmark with a model and print success rate, score and rounds
    Eval(eval::Eval),
    /// Train every method on every student with every seed and print the paper's table
    Sweep(sweep::Sweep),
    /// Measure the paper's section 3 on frozen students: support, gain, response to an update
    Diagnose(diagnose::Diagnose),
    /// Measure what hints really change, and how well every gate and proposal rule finds it
    Audit(audit::Audit),
    /// Collect the teacher's successful episodes, which backward curricula replay
    #[command(subcommand)]
    References(references::References),
    /// Look at runs in a browser: curves, episodes, forks and tokens
    View(view::View),
    /// Draw the paper's figures from the records of runs or sweeps
    Figures(figures::Figures),
    /// Look for reasons why a run does not learn
    Doctor(doctor::Doctor),
    /// Print one episode of a run, or one of its turns with its fork and tokens
    Show(show::Show),
    /// Fine-tune a model on demonstrations
    Sft(sft::Sft),
    /// Estimate what a configuration costs: tokens, teacher calls, memory, disk, time
    Estimate(estimate::Estimate),
    /// Build and examine the laboratory models
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Start servers and the training worker, and try them out before a run
    #[command(subcommand)]
    Engine(engine::EngineCommand),
    /// Show, check and import configurations
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Inspect, convert and create models
    #[command(subcommand)]
    Model(model::Model),
    /// Continue a prompt with a model
    Generate(generate::Generate),
    /// Score a response token by token, under one model or a student and its teacher
    Score(score::Score),
    /// Measure the engine's speed next to PyTorch and llama.cpp
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Play a benchmark yourself, or watch a model play
    #[command(subcommand)]
    Play(play::Play),
    /// Replay, watch and time the environments
    #[command(subcommand)]
    Env(env::EnvCommand),
    /// Show where to download a benchmark's official data, and verify a local copy
    #[command(subcommand)]
    Data(data::Data),
}

impl Command {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Quickstart(quickstart) => quickstart.run(out),
            Self::Train(train) => train.run(out),
            Self::Eval(eval) => eval.run(out),
            Self::Sweep(sweep) => sweep.run(out),
            Self::Diagnose(diagnose) => diagnose.run(out),
            Self::Audit(audit) => audit.run(out),
            Self::References(command) => command.run(out),
            Self::View(view) => view.run(out),
            Self::Figures(figures) => figures.run(out),
            Self::Doctor(doctor) => doctor.run(out),
            Self::Show(show) => show.run(out),
            Self::Sft(sft) => sft.run(out),
            Self::Estimate(estimate) => estimate.run(out),
            Self::Lab(lab) => lab.run(out),
            Self::Engine(command) => command.run(out),
            Self::Config(command) => command.run(out),
            Self::Model(model) => model.run(out),
            Self::Generate(generate) => generate.run(out),
            Self::Score(score) => score.run(out),
            Self::Bench(bench) => bench.run(out),
            Self::Play(play) => play.run(out),
            Self::Env(command) => command.run(out),
            Self::Data(data) => data.run(out),
        }
    }
}
