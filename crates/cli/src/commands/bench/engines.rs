//! What the driver adds to the time of servers: episodes against simulated ones whose ideal time is known.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lens_agent::{Context, Plan, Prompting, RolloutConfig, play};
use lens_engine::scripted::CharCodec;
use lens_engine::{
    CallFailure, Codec, Completion, Deadline, EngineError, FinishReason, GenerateCall, Policy,
    Sampling, fan_out,
};
use lens_env::{BenchmarkOptions, registry};
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;

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
}

/// Servers that write letters at a speed, so many sequences at once.
struct Simulated {
    free: Mutex<usize>,
    freed: Condvar,
    slots: usize,
    speed: f64,
    tokens: usize,
    lockstep: bool,
    /// Seconds of work per episode, and tokens in all.
    work: Mutex<(HashMap<u64, f64>, usize)>,
}

impl Simulated {
    fn write(&self, call: &GenerateCall) -> Result<Completion, EngineError> {
        let mut stream = call.stream.open();
        let shortest = self.tokens / 4;
        let length =
            shortest + stream.below((self.tokens - shortest + 1) as u64).unwrap_or(0) as usize;
        let seconds = length as f64 / self.speed;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        drop(free);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.freed.notify_one();
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        *work.0.entry(call.stream.episode).or_default() += seconds;
        work.1 += length;
        drop(work);
        let mut tokens = CharCodec.response("I look around. <action>look</action>")?;
        let end = tokens.pop();
        tokens.splice(
            0..0,
            std::iter::repeat_n(u32::from('.'), length.saturating_sub(tokens.len() + 1)),
        );
        tokens.extend(end);
        Ok(Completion { logprobs: vec![-0.5; tokens.len()], tokens, finish: FinishReason::Stop })
    }
}

impl Policy for Simulated {
    fn codec(&self) -> &dyn Codec {
        &CharCodec
    }

    fn version(&self) -> u64 {
        0
    }

    fn concurrency(&self) -> Option<usize> {
        (!self.lockstep).then_some(self.slots)
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        _: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        fan_out(calls.len(), self.slots, |index| self.write(&calls[index]).map(Ok), &mut |_| {})
    }
}

impl Engines {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
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
                self.measure(benchmark, lockstep, out)?;
            }
        }
        Ok(())
    }

    fn measure(&self, benchmark: &str, lockstep: bool, out: &mut dyn Write) -> Result<(), Failure> {
        let slots = (self.servers * self.slots).max(1);
        let policy = Simulated {
            free: Mutex::new(slots),
            freed: Condvar::new(),
            slots,
            speed: self.speed.max(1e-3),
            tokens: self.tokens.max(64),
            lockstep,
            work: Mutex::default(),
        };
        let benchmark_name = benchmark;
        let benchmark = registry::open(benchmark, &BenchmarkOptions::default())?;
        let tasks = benchmark.tasks(&benchmark.profile().train_split)?;
        let config = RolloutConfig {
            benchmark,
            prompting: Prompting::default(),
            context: Context::Window,
            history: 2,
            turn_limit: self.turns,
            max_prompt_tokens: usize::MAX,
            max_response_tokens: usize::MAX,
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
        let work = policy.work.lock().unwrap_or_else(PoisonError::into_inner);
        // No driver is faster than the longest episode, nor than all slots busy all the time.
        let longest = work.0.values().copied().fold(0.0, f64::max);
        let ideal = longest.max(work.0.values().sum::<f64>() / slots as f64);
        writeln!(
            out,
            "{benchmark_name:<12}  {:<9} {wall:>7.2}  {ideal:>7.2}  {:>8.1} %  {:>12.1}  {:>7}",
            if lockstep { "lockstep" } else { "tasks" },
            100.0 * (wall / ideal.max(1e-9) - 1.0),
            1e6 * cpu / work.1.max(1) as f64,
            peak_megabytes().map_or_else(|| "?".to_owned(), |peak| peak.to_string())
        )?;
        out.flush()?;
        Ok(())
    }
}

/// The most memory this process has held, where the system tells.
fn peak_megabytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes / 1024)
}
