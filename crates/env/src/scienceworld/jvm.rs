//! One Java virtual machine with a gateway inside: started, watched, and gone when we are.
//!
//! Two things tie its life to ours. Its standard input is a pipe that only we hold: when this process ends, however it
//! ends, the pipe breaks and the gateway exits. And it leads a process group of its own, which is killed when the
//! [`Jvm`] is dropped; a terminal's Ctrl-C therefore reaches us and not it, and it goes when we go.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::gateway::{self, Argument, Connection, GatewayError, Patience, Value};
use super::java::Java;
use super::package::Package;
use crate::EnvError;

/// How many of its last lines a virtual machine's obituary quotes.
const LAST_WORDS: usize = 20;

/// What a virtual machine may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JvmLimits {
    /// The largest heap, in MiB.
    pub heap_mib: usize,
    /// How many processors it may believe in: bounds its compiler and collector threads.
    pub processors: usize,
    /// How long it may take to start.
    pub start: Duration,
    /// How long a call may take; longer, if the machine is still working.
    pub call: Duration,
}

/// How a virtual machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It ran out of memory.
    OutOfMemory,
    /// It exited or was killed.
    Exited,
}

/// What a virtual machine printed last.
#[derive(Debug, Default)]
struct Diary {
    lines: Mutex<VecDeque<String>>,
    /// How many of its pipes are still open.
    open: AtomicUsize,
}

/// A running virtual machine.
#[derive(Debug)]
pub struct Jvm {
    child: Mutex<Child>,
    pid: u32,
    address: SocketAddr,
    token: Option<String>,
    limits: JvmLimits,
    diary: Arc<Diary>,
    /// Held open: closing it is the signal to exit.
    _guard: Option<ChildStdin>,
}

impl Jvm {
    /// Starts a virtual machine and waits for its gateway.
    pub fn start(java: &Java, package: &Package, limits: JvmLimits) -> Result<Self, EnvError> {
        let mut command = command(java, package, limits);
        let mut child = command.spawn().map_err(|source| EnvError::Backend {
            backend: "Java",
            message: format!("{} cannot be started: {source}", java.program().display()),
        })?;
        let diary = Arc::new(Diary::default());
        // The first lines are the port and the token, which are nobody else's business.
        let private = 1 + usize::from(package.authenticates());
        let lines = child.stdout.take().map(|pipe| drain(pipe, private, &diary));
        // Nobody waits for a line of the other pipe; it is only drained.
        drop(child.stderr.take().map(|pipe| drain(pipe, 0, &diary)));
        let guard = child.stdin.take();
        let mut jvm = Self {
            pid: child.id(),
            child: Mutex::new(child),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            token: None,
            limits,
            diary,
            _guard: guard,
        };
        // From here on dropping `jvm` ends the process.
        let end = Instant::now() + limits.start;
        let next_line = || match &lines {
            Some(lines) => lines.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => Err(RecvTimeoutError::Disconnected),
        };
        let port = next_line().map_err(|_| jvm.stillborn("it printed no port"))?;
        let port: u16 = port
            .trim()
            .parse()
            .map_err(|_| jvm.stillborn(&format!("it printed {port:?} instead of a port")))?;
        let token = if package.authenticates() {
            Some(next_line().map_err(|_| jvm.stillborn("it printed no token"))?)
        } else {
            None
        };
        jvm.address.set_port(port);
        jvm.token = token.map(|token| token.trim().to_owned());
        jvm.prepare()?;
        Ok(jvm)
    }

    /// Silences the simulator, which prints every step, and makes sure that the flag that makes it deterministic works.
    fn prepare(&self) -> Result<(), EnvError> {
        let fault = |error: GatewayError| self.stillborn(&error.to_string());
        let mut connection = self.connect().map_err(fault)?;
        let nowhere = connection
            .construct("java.io.PrintStream", &[Argument::Text("/dev/null")])
            .map_err(fault)?;
        connection
            .call_static("java.lang.System", "setOut", &[Argument::Object(&nowhere)])
            .map_err(fault)?;
        connection.release(&nowhere).map_err(fault)?;
        let mut hashes = Vec::new();
        for _ in 0..2 {
            let object = connection.construct("java.lang.Object", &[]).map_err(fault)?;
            let hash = connection
                .call_static("java.lang.System", "identityHashCode", &[Argument::Object(&object)])
                .map_err(fault)?;
            connection.release(&object).map_err(fault)?;
            hashes.push(hash);
        }
        if !matches!(hashes[0], Value::Int(_)) || hashes[0] != hashes[1] {
            return Err(self.stillborn(
                "it ignores -XX:hashCode=2, without which the simulator is not deterministic; \
                 use an OpenJDK (HotSpot) build of Java",
            ));
        }
        Ok(())
    }

    /// A new connection to the gateway. Each is served by a Java thread of its own.
    pub fn connect(&self) -> Result<Connection, GatewayError> {
        let patience = Patience { time: self.limits.call, process: Some(self.pid) };
        Connection::open(self.address, self.token.as_deref(), patience)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it was allowed.
    pub fn limits(&self) -> JvmLimits {
        self.limits
    }

    /// Resident memory in bytes, where the system tells (Linux).
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Processor time used so far, where the system tells (Linux).
    pub fn processor_time(&self) -> Option<Duration> {
        gateway::processor_time(self.pid)
    }

    /// How it ended, if it ends by itself within `patience`.
    pub fn await_death(&self, patience: Duration) -> Option<Death> {
        let end = Instant::now() + patience;
        // Its last words may still be in the pipes when it is gone.
        while self.exit_status().is_none() || self.diary.open.load(Ordering::Acquire) > 0 {
            if Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.exit_status()?;
        let out_of_memory = self.last_words().contains("OutOfMemoryError");
        Some(if out_of_memory { Death::OutOfMemory } else { Death::Exited })
    }

    /// Ends the process and reaps it.
    pub fn kill(&self) {
        if self.exit_status().is_some() {
            return;
        }
        let group = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // Fails only if the group is gone already, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }

    fn exit_status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// Its last lines, joined.
    pub fn last_words(&self) -> String {
        let lines = self.diary.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    fn stillborn(&self, what: &str) -> EnvError {
        // Its own words explain more than ours; they come through a pipe that another thread drains.
        self.await_death(Duration::from_millis(200));
        let words = self.last_words();
        let words = if words.is_empty() { String::new() } else { format!(" ({words})") };
        EnvError::Backend { backend: "Java", message: format!("it did not start: {what}{words}") }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(java: &Java, package: &Package, limits: JvmLimits) -> Command {
    let mut command = Command::new(java.program());
    command
        .args([
            format!("-Xmx{}m", limits.heap_mib),
            format!("-XX:ActiveProcessorCount={}", limits.processors.max(1)),
        ])
        // Objects live in sets ordered by identity hash: a constant one makes their order a matter of history alone.
        .args(["-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2"])
        .args(["-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError", "-XX:-UsePerfData"])
        .arg("-Djava.awt.headless=true")
        .arg("-cp")
        .arg(class_path(package))
        .arg("py4j.GatewayServer")
        .arg("--die-on-broken-pipe");
    if package.authenticates() {
        command.arg("--enable-auth");
    }
    command
        .arg("0")
        .current_dir(package.directory())
        // These would be put behind or before our flags, and the one that makes the simulator deterministic must stand.
        .env_remove("_JAVA_OPTIONS")
        .env_remove("JAVA_TOOL_OPTIONS")
        .env_remove("JDK_JAVA_OPTIONS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

/// The newer gateway, where there is one, goes first: its classes shadow those inside the simulator's JAR.
fn class_path(package: &Package) -> std::ffi::OsString {
    let jars: Vec<&Path> = package.gateway_jar().into_iter().chain([package.jar()]).collect();
    let mut joined = std::ffi::OsString::new();
    for (index, jar) in jars.into_iter().enumerate() {
        if index > 0 {
            joined.push(":");
        }
        joined.push(jar);
    }
    joined
}

/// Reads a pipe to its end, so that the process never blocks on it. The first lines, `private` of them, are handed over
/// and forgotten; the last are remembered.
fn drain<R: Read + Send + 'static>(
    pipe: R,
    private: usize,
    diary: &Arc<Diary>,
) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let diary = Arc::clone(diary);
    diary.open.fetch_add(1, Ordering::AcqRel);
    std::thread::spawn(move || {
        for (index, line) in BufReader::new(pipe).split(b'\n').enumerate() {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            if index < private {
                // Nobody is waiting if the machine was given up meanwhile.
                let _ = sender.send(line);
                continue;
            }
            let mut lines = diary.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == LAST_WORDS {
                lines.pop_front();
            }
            lines.push_back(line);
        }
        diary.open.fetch_sub(1, Ordering::AcqRel);
    });
    receiver
}
