//! What the driver adds to the time of servers: episodes against simulated ones whose ideal time is known.

mod simulated;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_agent::{Context, Plan, Prompting, RolloutConfig, play};
use lens_engine::http::{Endpoint, Retry};
use lens_engine::native::NativeCodec;
use lens_engine::remote::{Served, ServedOptions, ServedPolicy, ServerKind};
use lens_engine::{
    CallFailure, Codec, Completion, Deadline, EngineError, GenerateCall, Policy, Sampling,
};
use lens_env::{BenchmarkOptions, registry};
use lens_lm::checkpoint::ModelFiles;
use lens_lm::train::bench::peak_rss_bytes;
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;
use simulated::{Pace, Process};

use crate::cpu_time::CpuTime;
use crate::failure::Failure;

/// Episodes against simulated servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Engines {
    /// Benchmarks to play.
    #[arg(long, value_delimiter = ',', default_values_t = ["alfworld".to_owned(), "webshop".to_owned()])]
    benchmarks: Vec<String>,
    /// Episodes at once.
    #[arg(long, default_value_t = 512)]
    episodes: usize,
    /// Turns per episode.
    #[arg(long, default_value_t = 10)]
    turns: usize,
    /// Servers that share the load.
    #[arg(long, default_value_t = 4)]
    servers: usize,
    /// Sequences one server writes at once; more wait.
    #[arg(long, default_value_t = 128)]
    slots: usize,
    /// Tokens per second of one sequence.
    #[arg(long, default_value_t = 100.0)]
    speed: f64,
    /// The longest response; lengths are drawn evenly from a quarter of it to all of it.
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// The model whose tokenizer is used.
    #[arg(long, default_value = "assets/lab/student-large")]
    model: PathBuf,
    /// Be the servers.
    #[arg(long, hide = true)]
    serve: bool,
}

/// A policy whose tokens are counted, and whose episodes advance together if that is asked for.
struct Counted {
    served: ServedPolicy,
    lockstep: bool,
    /// Tokens per episode.
    tokens: Mutex<HashMap<u64, usize>>,
}

impl Policy for Counted {
    fn codec(&self) -> &dyn Codec {
        self.served.codec()
    }

    fn version(&self) -> u64 {
        self.served.version()
    }

    fn concurrency(&self) -> Option<usize> {
        self.served.concurrency().filter(|_| !self.lockstep)
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let answers = self.served.generate(calls, deadline)?;
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        for (call, answer) in calls.iter().zip(&answers) {
            let length = answer.as_ref().map_or(0, |completion| completion.tokens.len());
            *tokens.entry(call.stream.episode).or_default() += length;
        }
        Ok(answers)
    }
}

impl Engines {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let pace = Pace {
            servers: self.servers.max(1),
            slots: self.slots.max(1),
            speed: self.speed.max(1e-3),
        };
        if self.serve {
            return simulated::serve(pace, &self.model, out);
        }
        let process = Process::start(pace, &self.model)?;
        writeln!(
            out,
            "{} episodes of {} turns, {} servers of {} slots, {} tokens/s per sequence",
            self.episodes, self.turns, self.servers, self.slots, self.speed
        )?;
        writeln!(
            out,
            "benchmark     mode       wall s  ideal s  over ideal  CPU us/token  peak MB"
        )?;
        for benchmark in &self.benchmarks {
            for lockstep in [false, true] {
                self.measure(benchmark, lockstep, &process.urls, out)?;
            }
        }
        Ok(())
    }

    fn connect(&self, urls: &[String]) -> Result<ServedPolicy, Failure> {
        let user = |error: EngineError| Failure::User(error.into());
        let codec = NativeCodec::new(&ModelFiles::read(&self.model)?).map_err(user)?;
        let endpoints = urls.iter().map(|url| Endpoint::new(url, None));
        let endpoints = endpoints.collect::<Result<_, _>>().map_err(user)?;
        let options = ServedOptions {
            concurrency: self.episodes.max(1),
            timeout: Duration::from_mins(10),
            retry: Retry::default(),
            scores: false,
        };
        let served = Served::connect(ServerKind::Vllm, endpoints, Arc::new(codec), options);
        Ok(ServedPolicy::frozen(Arc::new(served.map_err(user)?)))
    }

    fn measure(
        &self,
        benchmark: &str,
        lockstep: bool,
        urls: &[String],
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let policy = Counted { served: self.connect(urls)?, lockstep, tokens: Mutex::default() };
        let benchmark_name = benchmark;
        let benchmark = registry::open(benchmark, &BenchmarkOptions::default())?;
        let tasks = benchmark.tasks(&benchmark.profile().train_split)?;
        let config = RolloutConfig {
            benchmark,
            prompting: Prompting::default(),
            context: Context::Window,
            history: 2,
            turn_limit: self.turns,
            max_prompt_tokens: 1 << 16,
            max_response_tokens: self.tokens.max(64),
            timeout: None,
            deadline: Deadline::never(),
        };
        let plans =
            tasks.into_iter().cycle().take(self.episodes).enumerate().map(|(key, task)| Plan {
                key: key as u64,
                task,
                exposure: Exposure::student(self.turns),
                reference: None,
                seed: 1,
                batch: 1,
                purpose: Purpose::Rollout,
                sampling: Sampling::at(1.0),
            });
        let plans = plans.collect();
        let (began, cpu) = (Instant::now(), CpuTime::now());
        play(&config, &policy, None, plans, false, &mut |_, _| {})
            .map_err(|error| Failure::Runtime(error.into()))?;
        let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu.seconds());
        let tokens = policy.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (longest, all) = (tokens.values().max().copied().unwrap_or(0), tokens.values().sum());
        // No driver is faster than the longest episode, nor than all slots busy all the time.
        let slots = self.servers.max(1) * self.slots.max(1);
        let ideal = ideal_seconds(longest, all, slots, self.speed.max(1e-3));
        writeln!(
            out,
            "{benchmark_name:<12}  {:<9} {wall:>7.2}  {ideal:>7.2}  {:>8.1} %  {:>12.1}  {:>7}",
            if lockstep { "lockstep" } else { "tasks" },
            100.0 * (wall / ideal.max(1e-9) - 1.0),
            1e6 * cpu / all.max(1) as f64,
            peak_rss_bytes().map_or_else(|| "?".to_owned(), |peak| (peak >> 20).to_string())
        )?;
        out.flush()?;
        Ok(())
    }
}

fn ideal_seconds(longest: usize, all: usize, slots: usize, speed: f64) -> f64 {
    (longest as f64).max(all as f64 / slots as f64) / speed
}
