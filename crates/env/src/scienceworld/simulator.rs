//! One simulator inside a virtual machine, and every call it answers.

use std::sync::Arc;
use std::time::Duration;

use super::gateway::{Argument, Connection, GatewayError, Handle, Value};
use super::jvm::Jvm;
use super::random::GeneratorState;

const INTERFACE: &str = "scienceworld.runtime.pythonapi.PythonInterface";

/// What the simulator tells about itself after a step, apart from the observation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// The score as the simulator has it: 0 to 1, or -1 after a fatal mistake.
    pub score: f64,
    /// Whether the task is done.
    pub completed: bool,
    /// How much time has passed.
    pub moves: i32,
}

/// A simulator with singletons of its own. Nothing it does shows in another one, even in the same virtual machine.
#[derive(Debug)]
pub struct Simulator {
    // Dropped first: the gateway thread ends before its machine may.
    connection: Connection,
    interface: Handle,
    generator: Handle,
    jvm: Arc<Jvm>,
}

impl Simulator {
    /// Makes a simulator in `jvm`. The simulator keeps its state in singletons, so each gets a class loader of its own.
    pub fn new(jvm: Arc<Jvm>, jar: &std::path::Path) -> Result<Self, GatewayError> {
        // The gateway caches methods by class name for each connection, and each loader has its own class of that
        // name: one connection for each simulator.
        let mut connection = jvm.connect()?;
        let loader = class_loader(&mut connection, jar)?;
        let class = connection.object(&loader, "loadClass", &[Argument::Text(INTERFACE)])?;
        let interface = connection.object(&class, "newInstance", &[])?;
        let generator = generator(&mut connection, &loader)?;
        connection.release(&class)?;
        connection.release(&loader)?;
        Ok(Self { connection, interface, generator, jvm })
    }

    /// The machine it runs in.
    pub fn jvm(&self) -> &Arc<Jvm> {
        &self.jvm
    }

    /// Starts a task from its beginning. A wrong task, variation or simplification is an error text inside `Ok(Err(_))`.
    pub fn load(
        &mut self,
        task: &str,
        variation: i32,
        simplifications: &str,
        gold: bool,
    ) -> Result<Result<(), String>, GatewayError> {
        let arguments = [
            Argument::Text(task),
            Argument::Int(variation),
            Argument::Text(simplifications),
            Argument::Bool(gold),
        ];
        let complaint = self.connection.text(&self.interface, "load", &arguments)?;
        Ok(if complaint.is_empty() { Ok(()) } else { Err(complaint) })
    }

    /// Loads with the gold path, which can take minutes, and reads it.
    pub fn gold_path(
        &mut self,
        task: &str,
        variation: i32,
        simplifications: &str,
        deadline: Duration,
    ) -> Result<Result<Vec<String>, String>, GatewayError> {
        let usual = self.connection.deadline();
        self.connection.set_deadline(deadline);
        let loaded = self.load(task, variation, simplifications, true);
        self.connection.set_deadline(usual);
        match loaded? {
            Ok(()) => self.connection.texts(&self.interface, "getGoldActionSequence").map(Ok),
            Err(complaint) => Ok(Err(complaint)),
        }
    }

    /// Carries out an action; gives the observation.
    pub fn step(&mut self, action: &str) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "step", &[Argument::Text(action)])
    }

    /// Score, completion and moves.
    pub fn standing(&mut self) -> Result<Standing, GatewayError> {
        let score = match self.connection.call(&self.interface, "getScore", &[])? {
            Value::Double(score) => score,
            other => return Err(wrong("getScore", "a double", &other)),
        };
        let completed = match self.connection.call(&self.interface, "getCompleted", &[])? {
            Value::Bool(completed) => completed,
            other => return Err(wrong("getCompleted", "a boolean", &other)),
        };
        let moves = match self.connection.call(&self.interface, "getNumMoves", &[])? {
            Value::Int(moves) => moves,
            other => return Err(wrong("getNumMoves", "an int", &other)),
        };
        Ok(Standing { score, completed, moves })
    }

    /// What looking around would show; no time passes.
    pub fn look(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "freeActionLook", &[])
    }

    /// What the agent carries; no time passes.
    pub fn inventory(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "freeActionInventory", &[])
    }

    /// What the agent is asked to do.
    pub fn task_description(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "getTaskDescription", &[])
    }

    /// The task description as the `task` action words it; no time passes.
    pub fn task_reminder(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "freeActionTaskDesc", &[])
    }

    /// Complete actions that would be understood. Draws from the game's generator where names clash.
    pub fn valid_actions(&mut self) -> Result<Vec<String>, GatewayError> {
        self.connection.texts(&self.interface, "getValidActionObjectCombinations")
    }

    /// Action templates with `OBJ` holes; the same throughout an episode.
    pub fn templates(&mut self) -> Result<Vec<String>, GatewayError> {
        self.connection.texts(&self.interface, "getPossibleActions")
    }

    /// Names of what can be seen. Draws from the game's generator where names clash.
    pub fn objects(&mut self) -> Result<Vec<String>, GatewayError> {
        self.connection.texts(&self.interface, "getPossibleObjects")
    }

    /// The simplifications in force, as the simulator spells them.
    pub fn simplifications_used(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "getSimplificationsUsed", &[])
    }

    /// The tasks it knows, sorted.
    pub fn task_names(&mut self) -> Result<Vec<String>, GatewayError> {
        self.connection.texts(&self.interface, "getTaskNames")
    }

    /// How many variations a task has; -1 if there is no such task.
    pub fn variations(&mut self, task: &str) -> Result<i32, GatewayError> {
        match self.connection.call(&self.interface, "getTaskMaxVariations", &[Argument::Text(task)])? {
            Value::Int(count) => Ok(count),
            other => Err(wrong("getTaskMaxVariations", "an int", &other)),
        }
    }

    /// The variations of the loaded task in the simulator's own training, development and test folds.
    pub fn folds(&mut self) -> Result<[Vec<i32>; 3], GatewayError> {
        Ok([
            self.connection.integers(&self.interface, "getVariationsTrain")?,
            self.connection.integers(&self.interface, "getVariationsDev")?,
            self.connection.integers(&self.interface, "getVariationsTest")?,
        ])
    }

    /// The table of sub-goals and whether they are met.
    pub fn goal_progress(&mut self) -> Result<String, GatewayError> {
        self.connection.text(&self.interface, "getGoalProgressStr", &[])
    }

    /// The state of the game's random generator. It can only be read by drawing from it, so it is put back at once.
    pub fn generator_state(&mut self) -> Result<GeneratorState, GatewayError> {
        let drawn = match self.connection.call(&self.generator, "nextLong", &[])? {
            Value::Long(drawn) => drawn,
            other => return Err(wrong("nextLong", "a long", &other)),
        };
        let state = GeneratorState::before_long(drawn)
            .ok_or_else(|| wrong("nextLong", "a draw of java.util.Random", &Value::Long(drawn)))?;
        self.set_generator_state(state)?;
        Ok(state)
    }

    /// Puts the game's random generator into a state read before.
    pub fn set_generator_state(&mut self, state: GeneratorState) -> Result<(), GatewayError> {
        self.connection.call(&self.generator, "setSeed", &[Argument::Long(state.seed())]).map(drop)
    }

    /// A number that grows by one with each object the gateway was asked to hold: shows whether handles leak.
    pub fn newest_handle(&mut self) -> Result<u64, GatewayError> {
        let probe = self.connection.construct("java.lang.Object", &[])?;
        self.connection.release(&probe)?;
        Ok(probe.id()[1..].parse().unwrap_or(u64::MAX))
    }
}

fn class_loader(
    connection: &mut Connection,
    jar: &std::path::Path,
) -> Result<Handle, GatewayError> {
    let file = connection.construct("java.io.File", &[Argument::Text(&jar.to_string_lossy())])?;
    let uri = connection.object(&file, "toURI", &[])?;
    let url = connection.object(&uri, "toURL", &[])?;
    let urls = connection.array("java.net.URL", &[Argument::Object(&url)])?;
    // Java 8 has no platform loader; there the boot loader (null) is the parent of everything but the application.
    let parent =
        match connection.call_static("java.lang.ClassLoader", "getPlatformClassLoader", &[]) {
            Ok(Value::Object(parent)) => Some(parent),
            Ok(_) | Err(GatewayError::Refused { .. }) => None,
            Err(error) => return Err(error),
        };
    let parent_argument = parent.as_ref().map_or(Argument::Null, Argument::Object);
    let loader = connection
        .construct("java.net.URLClassLoader", &[Argument::Object(&urls), parent_argument])?;
    for handle in [Some(file), Some(uri), Some(url), Some(urls), parent].into_iter().flatten() {
        connection.release(&handle)?;
    }
    Ok(loader)
}

/// The generator that the simulator of this loader draws from: a `java.util.Random` inside a Scala singleton.
fn generator(connection: &mut Connection, loader: &Handle) -> Result<Handle, GatewayError> {
    let class = connection.object(loader, "loadClass", &[Argument::Text("scala.util.Random$")])?;
    let field = connection.object(&class, "getField", &[Argument::Text("MODULE$")])?;
    let singleton = connection.object(&field, "get", &[Argument::Null])?;
    let generator = connection.object(&singleton, "self", &[])?;
    for handle in [class, field, singleton] {
        connection.release(&handle)?;
    }
    Ok(generator)
}

fn wrong(method: &str, wanted: &'static str, got: &Value) -> GatewayError {
    GatewayError::Unexpected { method: method.to_owned(), wanted, got: format!("{got:?}") }
}
