//! A virtual machine that keeps many worlds apart.
//!
//! The simulator keeps three things in singletons: the counter that names objects, the random generator, and the
//! simplifications in force. Everything else belongs to a world. A [`Host`] therefore lets one world act at a time, and
//! when the turn passes from one to another, puts the three things back as the other left them. A world costs some
//! hundreds of kilobytes that way, instead of the 75 MB of a class loader or the 300 MB of a virtual machine, and all
//! worlds run the same compiled code.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::gateway::{Argument, Connection, GatewayError, Handle, Value};
use super::java::Java;
use super::jvm::{Jvm, JvmLimits};
use super::package::Package;
use super::random::GeneratorState;
use super::simulator::Simulator;
use crate::EnvError;

const INTERFACE: &str = "scienceworld.runtime.pythonapi.PythonInterface";
const GENERATOR: &str = "scala.util.Random$";
const IDENTIFIERS: &str = "util.UniqueIdentifier$";
const SIMPLIFIER: &str = "main.scala.scienceworld.runtime.SimplifierProcessor$";

/// The part of a world's state that the simulator keeps in counters shared by all worlds.
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
    desk: Mutex<Desk>,
    failure: OnceLock<Failure>,
    buried: AtomicBool,
    worlds: AtomicUsize,
    loads: AtomicUsize,
    /// Worlds that are no more, to be released at the next turn.
    gone: Mutex<Vec<Handle>>,
}

/// What the world in charge works with.
#[derive(Debug)]
struct Desk {
    connection: Connection,
    generator: Handle,
    identifiers: Handle,
    simplifier: Handle,
    simplifications: String,
    in_charge: Option<u64>,
}

impl Host {
    /// Starts a virtual machine.
    pub fn start(java: &Java, package: &Package, limits: JvmLimits) -> Result<Self, EnvError> {
        let jvm = Jvm::start(java, package, limits)?;
        let desk = Desk::open(&jvm).map_err(|error| EnvError::Backend {
            backend: "ScienceWorld",
            message: format!("{} does not answer as it should: {error}", display(package.jar())),
        })?;
        Ok(Self {
            jvm,
            desk: Mutex::new(desk),
            failure: OnceLock::new(),
            buried: AtomicBool::new(false),
            worlds: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            gone: Mutex::new(Vec::new()),
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

    /// Whether this was asked before: a failure shows in every world of a machine and is counted once.
    pub(super) fn is_buried(&self) -> bool {
        self.buried.swap(true, Ordering::AcqRel)
    }

    fn note<T>(&self, outcome: &Result<T, GatewayError>) {
        if let Some(failure) = outcome.as_ref().err().and_then(Failure::of) {
            self.failure.get_or_init(|| failure);
        }
    }

    /// How many Java objects the gateway keeps alive for us.
    pub fn held_objects(&self) -> Result<i32, GatewayError> {
        let mut desk = self.desk()?;
        self.release_gone(&mut desk)?;
        let connection = &mut desk.connection;
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

    fn desk(&self) -> Result<MutexGuard<'_, Desk>, GatewayError> {
        let desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failure().is_some() { Err(GatewayError::Closed) } else { Ok(desk) }
    }

    fn release_gone(&self, desk: &mut Desk) -> Result<(), GatewayError> {
        let gone = std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner));
        gone.iter().try_for_each(|interface| desk.connection.release(interface))
    }
}

impl Desk {
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
    fn shared(&mut self) -> Result<Shared, GatewayError> {
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

    fn set_shared(&mut self, shared: Shared) -> Result<(), GatewayError> {
        self.set_generator(shared.generator)?;
        let count = [Argument::Long(shared.identifiers)];
        self.connection.call(&self.identifiers, "count_$eq", &count).map(drop)
    }

    fn set_simplifications(&mut self, wanted: &str) -> Result<(), GatewayError> {
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

/// A simulated world. It lives as long as its host; when the host dies, its history can be played again in another.
#[derive(Debug)]
pub struct World {
    host: Arc<Host>,
    serial: u64,
    interface: Handle,
    simplifications: String,
    shared: Option<Shared>,
}

impl World {
    /// Makes an empty world; load a task before anything else.
    pub fn new(host: Arc<Host>) -> Result<Self, GatewayError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let interface = {
            let mut desk = host.desk()?;
            let made = desk.connection.construct(INTERFACE, &[]);
            // Making one names objects and draws numbers.
            desk.in_charge = None;
            host.note(&made);
            made?
        };
        host.worlds.fetch_add(1, Ordering::Relaxed);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Ok(Self { host, serial, interface, simplifications: String::new(), shared: None })
    }

    /// Where it lives.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The shared state as this world's last turn left it; `None` before the first.
    pub fn shared(&self) -> Option<Shared> {
        self.shared
    }

    /// Makes the next turn begin with this shared state instead of the one the last turn left.
    pub fn set_shared(&mut self, shared: Shared) -> Result<(), GatewayError> {
        self.shared = Some(shared);
        let mut desk = self.host.desk()?;
        if desk.in_charge == Some(self.serial) {
            desk.in_charge = None;
        }
        Ok(())
    }

    /// Acts in this world, as the only one in its host while it lasts. After a fatal error the host is dead.
    pub fn turn<T>(
        &mut self,
        work: impl FnOnce(&mut Simulator<'_>) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        let host = Arc::clone(&self.host);
        let mut desk = host.desk()?;
        let outcome = host.release_gone(&mut desk).and_then(|()| self.take_turn(&mut desk, work));
        host.note(&outcome);
        outcome
    }

    fn take_turn<T>(
        &mut self,
        desk: &mut Desk,
        work: impl FnOnce(&mut Simulator<'_>) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        if desk.in_charge != Some(self.serial) {
            desk.in_charge = None;
            desk.set_simplifications(&self.simplifications)?;
            if let Some(shared) = self.shared {
                desk.set_shared(shared)?;
            }
            desk.in_charge = Some(self.serial);
        }
        let mut simulator = Simulator::new(&mut desk.connection, &self.interface);
        let outcome = work(&mut simulator);
        if let Some(loaded) = simulator.take_loaded() {
            self.host.loads.fetch_add(1, Ordering::Relaxed);
            self.simplifications.clone_from(&loaded);
            desk.simplifications = loaded;
        }
        if !outcome.as_ref().is_err_and(GatewayError::is_fatal) {
            self.shared = Some(desk.shared()?);
        }
        outcome
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.host.worlds.fetch_sub(1, Ordering::Relaxed);
        let mut gone = self.host.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.push(self.interface.clone());
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
