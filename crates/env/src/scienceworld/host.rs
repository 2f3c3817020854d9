//! A virtual machine that keeps many worlds apart.
//!
//! The simulator keeps three things in singletons: the counter that names objects, the random generator, and the
//! simplifications in force. Everything else belongs to a world. A [`Host`] therefore lets one world act at a time, and
//! when the turn passes from one to another, puts the three things back as the other left them. A world costs some
//! hundreds of kilobytes that way, instead of the 75 MB of a class loader or the 300 MB of a virtual machine, and all
//! worlds run the same compiled code.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::gateway::{Argument, Connection, GatewayError, Handle, Value};
use super::java::Java;
use super::jvm::{Jvm, JvmLimits};
use super::package::Package;
use super::random::GeneratorState;
use crate::EnvError;

/// How many interfaces without a world a host keeps. Each holds on to its last world.
const MOST_SPARE: usize = 32;

const INTERFACE: &str = "scienceworld.runtime.pythonapi.PythonInterface";
const GENERATOR: &str = "scala.util.Random$";
const IDENTIFIERS: &str = "util.UniqueIdentifier$";
const SIMPLIFIER: &str = "main.scala.scienceworld.runtime.SimplifierProcessor$";

/// The part of a [`World`](super::world::World)'s state that the simulator keeps in counters shared by all worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shared {
    /// The random generator.
    pub generator: GeneratorState,
    /// How many objects have been named.
    pub identifiers: i64,
}

/// How a virtual machine failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It closed the connection.
    Lost,
    /// It did not answer in time.
    Hung,
    /// It answered nonsense.
    Garbled,
}

impl Failure {
    fn of(error: &GatewayError) -> Option<Self> {
        match error {
            GatewayError::Closed | GatewayError::Io(_) => Some(Self::Lost),
            GatewayError::Deadline(_) => Some(Self::Hung),
            GatewayError::Malformed(_) | GatewayError::Fatal(_) => Some(Self::Garbled),
            GatewayError::Unexpected { .. }
            | GatewayError::Thrown { .. }
            | GatewayError::Refused { .. } => None,
        }
    }
}

/// A virtual machine with its one connection.
#[derive(Debug)]
pub struct Host {
    jvm: Jvm,
    session: Mutex<Session>,
    failure: OnceLock<Failure>,
    recorded: AtomicBool,
    worlds: AtomicUsize,
    loads: AtomicUsize,
    /// What worlds that are no more have left behind: their interfaces, for others to use, and handles to be released.
    recycled: Mutex<Recycled>,
}

/// What worlds leave behind.
#[derive(Debug, Default)]
struct Recycled {
    interfaces: Vec<Handle>,
    to_release: Vec<Handle>,
}

/// What the world in charge works with.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    generator: Handle,
    identifiers: Handle,
    simplifier: Handle,
    pub(super) simplifications: String,
    pub(super) in_charge: Option<u64>,
}

impl Host {
    /// Starts a virtual machine.
    pub fn start(java: &Java, package: &Package, limits: JvmLimits) -> Result<Self, EnvError> {
        let jvm = Jvm::start(java, package, limits)?;
        let session = Session::open(&jvm).map_err(|error| EnvError::Backend {
            backend: "ScienceWorld",
            message: format!("{} does not answer as it should: {error}", display(package.jar())),
        })?;
        Ok(Self {
            jvm,
            session: Mutex::new(session),
            failure: OnceLock::new(),
            recorded: AtomicBool::new(false),
            worlds: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            recycled: Mutex::new(Recycled::default()),
        })
    }

    /// The virtual machine.
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// How many worlds live here.
    pub fn worlds(&self) -> usize {
        self.worlds.load(Ordering::Relaxed)
    }

    /// How many tasks have been loaded here.
    pub fn loads(&self) -> usize {
        self.loads.load(Ordering::Relaxed)
    }

    /// How it failed, if it has.
    pub fn failure(&self) -> Option<Failure> {
        self.failure.get().copied()
    }

    /// Ends it; every world in it answers [`GatewayError::Closed`] from now on.
    pub fn kill(&self) {
        self.failure.get_or_init(|| Failure::Lost);
        self.jvm.kill();
    }

    /// Marks the failure as counted; returns whether it was already. A failure shows in every world of a machine.
    pub(super) fn mark_recorded(&self) -> bool {
        self.recorded.swap(true, Ordering::AcqRel)
    }

    pub(super) fn note<T>(&self, outcome: &Result<T, GatewayError>) {
        if let Some(failure) = outcome.as_ref().err().and_then(Failure::of) {
            self.failure.get_or_init(|| failure);
        }
    }

    /// How many Java objects the gateway keeps alive for us.
    pub fn held_objects(&self) -> Result<i32, GatewayError> {
        let mut session = self.session()?;
        self.clear_up(&mut session)?;
        let connection = &mut session.connection;
        let gateway = connection.object(&Handle::gateway_server(), "getGateway", &[])?;
        let bindings = connection.object(&gateway, "getBindings", &[])?;
        let count = match connection.call(&bindings, "size", &[])? {
            Value::Int(count) => count,
            other => return Err(GatewayError::unexpected("size", "an int", &other)),
        };
        connection.release(&bindings)?;
        connection.release(&gateway)?;
        Ok(count)
    }

    pub(super) fn session(&self) -> Result<MutexGuard<'_, Session>, GatewayError> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failure().is_some() { Err(GatewayError::Closed) } else { Ok(session) }
    }

    /// An interface that a world can be loaded into. Making one takes as long as loading a task.
    pub(super) fn interface(&self) -> Result<Handle, GatewayError> {
        let mut session = self.session()?;
        if let Some(interface) = self.recycled().interfaces.pop() {
            return Ok(interface);
        }
        let made = session.connection.construct(INTERFACE, &[]);
        // Making one names objects and draws numbers.
        session.in_charge = None;
        self.note(&made);
        made
    }

    /// Takes over what a world leaves behind.
    pub(super) fn inherit(&self, interface: Handle, to_release: impl IntoIterator<Item = Handle>) {
        let mut recycled = self.recycled();
        recycled.to_release.extend(to_release);
        if recycled.interfaces.len() < MOST_SPARE {
            recycled.interfaces.push(interface);
        } else {
            recycled.to_release.push(interface);
        }
    }

    pub(super) fn clear_up(&self, session: &mut Session) -> Result<(), GatewayError> {
        let to_release = std::mem::take(&mut self.recycled().to_release);
        to_release.iter().try_for_each(|handle| session.connection.release(handle))
    }

    fn recycled(&self) -> MutexGuard<'_, Recycled> {
        self.recycled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn world_came(&self) {
        self.worlds.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn world_went(&self) {
        self.worlds.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn task_loaded(&self) {
        self.loads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Session {
    fn open(jvm: &Jvm) -> Result<Self, GatewayError> {
        let mut connection = jvm.connect()?;
        let scala_random = singleton(&mut connection, GENERATOR)?;
        let generator = connection.object(&scala_random, "self", &[])?;
        connection.release(&scala_random)?;
        let identifiers = singleton(&mut connection, IDENTIFIERS)?;
        let simplifier = singleton(&mut connection, SIMPLIFIER)?;
        Ok(Self {
            connection,
            generator,
            identifiers,
            simplifier,
            simplifications: String::new(),
            in_charge: None,
        })
    }

    /// The generator's state can only be read by drawing from it, so it is put back at once.
    pub(super) fn shared(&mut self) -> Result<Shared, GatewayError> {
        let drawn = match self.connection.call(&self.generator, "nextLong", &[])? {
            Value::Long(drawn) => drawn,
            other => return Err(GatewayError::unexpected("nextLong", "a long", &other)),
        };
        let generator = GeneratorState::before_long(drawn).ok_or_else(|| {
            let drawn = Value::Long(drawn);
            GatewayError::unexpected("nextLong", "a draw of java.util.Random", &drawn)
        })?;
        self.set_generator(generator)?;
        let identifiers = match self.connection.call(&self.identifiers, "count", &[])? {
            Value::Long(count) => count,
            // The gateway gives small longs the type of an int.
            Value::Int(count) => i64::from(count),
            other => return Err(GatewayError::unexpected("count", "a long", &other)),
        };
        Ok(Shared { generator, identifiers })
    }

    fn set_generator(&mut self, state: GeneratorState) -> Result<(), GatewayError> {
        self.connection.call(&self.generator, "setSeed", &[Argument::Long(state.seed())]).map(drop)
    }

    pub(super) fn set_shared(&mut self, shared: Shared) -> Result<(), GatewayError> {
        self.set_generator(shared.generator)?;
        let count = [Argument::Long(shared.identifiers)];
        self.connection.call(&self.identifiers, "count_$eq", &count).map(drop)
    }

    pub(super) fn set_simplifications(&mut self, wanted: &str) -> Result<(), GatewayError> {
        if self.simplifications == wanted {
            return Ok(());
        }
        let verdict = self.connection.object(
            &self.simplifier,
            "parseSimplificationStr",
            &[Argument::Text(wanted)],
        )?;
        self.connection.release(&verdict)?;
        wanted.clone_into(&mut self.simplifications);
        Ok(())
    }
}

/// The one instance of a Scala `object`.
fn singleton(connection: &mut Connection, class: &str) -> Result<Handle, GatewayError> {
    let class =
        match connection.call_static("java.lang.Class", "forName", &[Argument::Text(class)])? {
            Value::Object(class) => class,
            other => return Err(GatewayError::unexpected("forName", "a class", &other)),
        };
    let field = connection.object(&class, "getField", &[Argument::Text("MODULE$")])?;
    let singleton = connection.object(&field, "get", &[Argument::Null])?;
    connection.release(&field)?;
    connection.release(&class)?;
    Ok(singleton)
}

fn display(path: &Path) -> String {
    path.display().to_string()
}
