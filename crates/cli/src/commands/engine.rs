//! `lens engine`: servers and the training worker, started and tried out, and what they make beside what another makes.

mod compare;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lens_config::schema::{Config, EngineName, TransferName};
use lens_engine::Deadline;
use lens_engine::http::Endpoint;
use lens_engine::native::NativeCodec;
use lens_engine::remote::{Finding, Needed, check, check_transfer, same_endings};
use lens_lm::checkpoint::ModelFiles;

use super::config::ConfigArgs;
use crate::assemble::called_as;
use crate::engines;
use crate::failure::Failure;
use crate::interrupt;
use crate::launch::{self, Launch};

/// The longest time until everything is ready: large models load for minutes.
const READY: Duration = Duration::from_mins(30);

/// Start and try out the engines of a configuration
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens engine check configs/laboratory.toml
  lens engine launch configs/laboratory.toml
  lens engine compare runs/served/seed-42 runs/native/seed-42")]
pub(crate) enum EngineCommand {
    /// Try out every server and the worker before a run depends on them.
    Check(Check),
    /// Start the servers and the worker on this machine, and stop them on Ctrl-C.
    Launch(LaunchArgs),
    /// Compare two runs step by step: losses, gains and saved weights.
    Compare(compare::Compare),
}

/// Try out every server and the worker before a run depends on them.
#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    #[command(flatten)]
    config: ConfigArgs,
    /// Also publish the student's own weights to its servers and read the version back.
    #[arg(long)]
    publish: bool,
}

/// Start the servers and the worker on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct LaunchArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the commands instead: as a shell script, a compose file for one node or a Slurm job for two.
    #[arg(long, value_name = "FORM", num_args = 0..=1, default_missing_value = "shell")]
    print: Option<Form>,
    /// Start these parts alone, by their names in --print: student-0, teacher-0, learner.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    Shell,
    Compose,
    Slurm,
}

impl EngineCommand {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Check(check) => check.run(out),
            Self::Launch(launch) => launch.run(out),
            Self::Compare(compare) => compare.run(out),
        }
    }
}

impl Check {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config;
        let (mut bad, mut students) = (0, None);
        for (role, model) in [("student", &config.student), ("teacher", &config.teacher)] {
            if !model.engine.is_served() {
                writeln!(out, "{role}: {}, nothing to try out", model.engine)?;
                continue;
            }
            let scores = role == "teacher" && !config.learner.holds_teacher;
            let served = match engines::served(role, model, scores) {
                Ok(served) => served,
                Err(failure) => {
                    bad += 1;
                    writeln!(out, "{role}: FAILED {}", words(failure))?;
                    continue;
                }
            };
            for (endpoint, info) in served.servers() {
                writeln!(
                    out,
                    "{role}: {} {} {} as \"{}\"",
                    endpoint.url(),
                    served.kind().name(),
                    info.release,
                    info.model
                )?;
            }
            let trained = role == "student" && config.learner.engine == EngineName::Torch;
            let nccl = trained && config.learner.transfer == TransferName::Nccl;
            let path = std::path::absolute(&model.path)?;
            let needed = Needed {
                context: launch::context(&config) - 1,
                top_k: scores.then_some(config.loss.top_k),
                weights: (trained && !nccl && self.publish).then_some(path.as_path()),
                nccl,
            };
            for finding in check(&served, needed) {
                bad += say(role, &finding, out)?;
            }
            if nccl && self.publish {
                students = Some(served);
            }
        }
        let endings = endings(&config.student.path, &config.teacher.path);
        bad += say("both", &Finding { what: "ends of turns", result: endings }, out)?;
        if config.learner.engine == EngineName::Torch {
            bad += say("learner", &learner(&config), out)?;
        }
        // Whoever waits for one that cannot come would wait long.
        if let (Some(students), 0) = (students, bad) {
            let limit = Duration::from_secs(config.student.timeout_seconds);
            let finding = check_transfer(engines::worker(&config)?, &students, limit);
            bad += say("learner", &finding, out)?;
        }
        if bad > 0 {
            return Err(Failure::user(format!("{bad} checks failed")));
        }
        writeln!(out, "everything works; start with: {} train", called_as())?;
        Ok(())
    }
}

fn words(failure: Failure) -> String {
    match failure {
        Failure::User(error) | Failure::Runtime(error) => format!("{error:#}"),
        Failure::Interrupted(words) => words,
    }
}

fn say(role: &str, finding: &Finding, out: &mut dyn Write) -> Result<usize, Failure> {
    let what = finding.what;
    match &finding.result {
        Ok(word) => writeln!(out, "{role}: {what}: {word}")?,
        Err(word) => writeln!(out, "{role}: {what}: FAILED {word}")?,
    }
    Ok(usize::from(finding.result.is_err()))
}

fn endings(student: &Path, teacher: &Path) -> Result<String, String> {
    let codec = |path: &Path| {
        let files = ModelFiles::read(path).map_err(|error| error.to_string())?;
        NativeCodec::new(&files).map_err(|error| error.to_string())
    };
    same_endings(&codec(student)?, &codec(teacher)?)
}

fn learner(config: &Config) -> Finding {
    let info = engines::worker(config)
        .and_then(|worker| worker.info().map_err(|error| Failure::User(error.into())));
    let result = match info {
        Err(failure) => Err(words(failure)),
        Ok(info) if config.teacher_is_exact() && info.teacher.is_none() => {
            Err("it holds no teacher: start it with --teacher".to_owned())
        }
        Ok(info) => Ok(format!(
            "torch {}, {} ranks, {}, at step {}",
            info.torch, info.world_size, info.compute, info.version
        )),
    };
    Finding { what: "worker", result }
}

impl LaunchArgs {
    fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        let config = self.config.resolve()?.config.with_absolute_paths();
        let launches = chosen(launch::launches(&config)?, &self.only)?;
        match self.print {
            None => run_all(&launches, out),
            Some(Form::Shell) => Ok(write!(out, "{}", launch::shell(&launches))?),
            Some(Form::Slurm) => Ok(write!(out, "{}", launch::slurm(&launches, "lens"))?),
            Some(Form::Compose) => {
                let absolute =
                    |path: &Path| std::path::absolute(path).map(|path| path.display().to_string());
                let mut folders = vec![
                    absolute(&config.student.path)?,
                    absolute(&config.teacher.path)?,
                    absolute(&config.output)?,
                ];
                let more = [&config.learner.weights, &config.learner.key_file];
                for path in more.into_iter().filter(|path| !path.as_os_str().is_empty()) {
                    folders.push(absolute(path)?);
                }
                folders.dedup();
                Ok(write!(out, "{}", launch::compose(&launches, &folders))?)
            }
        }
    }
}

/// The parts that were asked for; all of them if none was.
fn chosen(launches: Vec<Launch>, only: &[String]) -> Result<Vec<Launch>, Failure> {
    let names: Vec<&str> = launches.iter().map(|launch| launch.name.as_str()).collect();
    if let Some(other) = only.iter().find(|&name| !names.contains(&name.as_str())) {
        return Err(Failure::user_with_hint(
            format!("--only {other}: this configuration has no such part"),
            format!("its parts are {}", names.join(", ")),
        ));
    }
    let wanted = |launch: &Launch| only.is_empty() || only.contains(&launch.name);
    Ok(launches.into_iter().filter(wanted).collect())
}

/// A process that ends with this one.
struct Running {
    name: String,
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // torchrun and the servers end their own children on this signal; killing would leave those behind.
        if let Some(id) =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(launch: &Launch) -> Result<Running, Failure> {
    let words = launch.command.iter().map(launch::Value::content).collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    for (name, value) in &launch.env {
        command.env(name, value.content()?);
    }
    let child = command.spawn().map_err(|error| {
        Failure::user_with_hint(
            format!("{}: {} cannot be started: {error}", launch.name, words[0]),
            "install it where this command can find it, or use --print",
        )
    })?;
    Ok(Running { name: launch.name.clone(), child })
}

fn run_all(launches: &[Launch], out: &mut dyn Write) -> Result<(), Failure> {
    let stop = interrupt::stop_flag_saying("servers and the worker are stopped first");
    let mut running = launches.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let began = Instant::now();
    let mut waiting: Vec<&Launch> = launches.iter().collect();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        for one in &mut running {
            if let Some(status) = one.child.try_wait()? {
                return Err(Failure::Runtime(anyhow::anyhow!(
                    "{} ended ({status}); the others are stopped",
                    one.name
                )));
            }
        }
        let before = waiting.len();
        waiting.retain(|launch| !is_ready(launch));
        if waiting.is_empty() && before > 0 {
            writeln!(out, "all {} are ready; Ctrl-C stops them", launches.len())?;
            out.flush()?;
        }
        if !waiting.is_empty() && began.elapsed() > READY {
            return Err(Failure::Runtime(anyhow::anyhow!(
                "{} is not ready after {} minutes",
                waiting[0].name,
                READY.as_secs() / 60
            )));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The worker wants its token even here, and says 401 without it: then it listens, and `lens engine check` asks the rest.
fn is_ready(launch: &Launch) -> bool {
    let Ok(endpoint) = Endpoint::new(&launch.url, None) else { return false };
    let answer = endpoint.get(launch.ready, Deadline::after(Duration::from_secs(2)));
    answer.is_ok_and(|answer| matches!(answer.status, 200 | 401))
}
