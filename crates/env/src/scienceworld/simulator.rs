//! Every call that a simulated world answers.

use std::time::Duration;

use super::gateway::{Argument, Connection, GatewayError, Handle, Patience, Value};

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

/// A world whose turn it is: it can be asked and acted in.
///
/// A failure inside the simulator that the caller can do something about (a task or variation that does not exist) comes
/// back as a text; a failure of the conversation is a [`GatewayError`].
#[derive(Debug)]
pub struct Simulator<'a> {
    connection: &'a mut Connection,
    interface: &'a Handle,
    /// The simplifications that the last `load` put in force, spelt out.
    loaded: Option<String>,
}

impl<'a> Simulator<'a> {
    pub(super) fn new(connection: &'a mut Connection, interface: &'a Handle) -> Self {
        Self { connection, interface, loaded: None }
    }

    pub(super) fn take_loaded(&mut self) -> Option<String> {
        self.loaded.take()
    }

    /// Starts a task from its beginning; gives the simulator's complaint if there is no such task or variation.
    pub fn load(
        &mut self,
        task: &str,
        variation: i32,
        simplifications: &str,
    ) -> Result<Option<String>, GatewayError> {
        self.load_with(task, variation, simplifications, false)
    }

    fn load_with(
        &mut self,
        task: &str,
        variation: i32,
        simplifications: &str,
        gold: bool,
    ) -> Result<Option<String>, GatewayError> {
        let arguments = [
            Argument::Text(task),
            Argument::Int(variation),
            Argument::Text(simplifications),
            Argument::Bool(gold),
        ];
        let complaint = self.text("load", &arguments)?;
        self.loaded = Some(self.simplifications_in_force()?);
        Ok((!complaint.is_empty()).then_some(complaint))
    }

    /// The simplifications of the loaded task in the order in which the simulator applies them.
    fn simplifications_in_force(&mut self) -> Result<String, GatewayError> {
        let option = self.connection.object(self.interface, "agentInterface", &[])?;
        let agent = self.connection.object(&option, "get", &[])?;
        let text = self.connection.text(&agent, "simplificationStr", &[])?;
        self.connection.release(&agent)?;
        self.connection.release(&option)?;
        Ok(text)
    }

    /// Drops the simulator's catalogue of all tasks (11 MB), which only `load` needs and makes anew, and with it the
    /// answers to [`Simulator::task_names`], [`Simulator::variations`] and [`Simulator::folds`]. The world itself
    /// takes some hundreds of kilobytes.
    pub fn forget_catalogue(&mut self) -> Result<(), GatewayError> {
        self.connection.call(self.interface, "taskMaker_$eq", &[Argument::Null]).map(drop)
    }

    /// Loads a task and has its own solver play it, which can take minutes; gives the actions, or its complaint.
    pub fn gold_path(
        &mut self,
        task: &str,
        variation: i32,
        simplifications: &str,
        deadline: Duration,
    ) -> Result<Result<Vec<String>, String>, GatewayError> {
        // The solver remembers routes between tasks, and draws random numbers only for those it does not remember.
        let finder = "scienceworld.goldagent.PathFinder";
        if let Value::Object(routes) =
            self.connection.call_static(finder, "precomputedExhaustivePaths", &[])?
        {
            self.connection.call(&routes, "clear", &[])?;
            self.connection.release(&routes)?;
        }
        let usual = self.connection.patience();
        self.connection.set_patience(Patience { time: deadline, ..usual });
        let loaded = self.load_with(task, variation, simplifications, true);
        self.connection.set_patience(usual);
        match loaded? {
            None => self.texts("getGoldActionSequence").map(Ok),
            Some(complaint) => Ok(Err(complaint)),
        }
    }

    /// Carries out an action; gives the observation.
    pub fn step(&mut self, action: &str) -> Result<String, GatewayError> {
        self.text("step", &[Argument::Text(action)])
    }

    /// Score, completion and moves.
    pub fn standing(&mut self) -> Result<Standing, GatewayError> {
        let score = match self.call("getScore", &[])? {
            Value::Double(score) => score,
            other => return Err(GatewayError::unexpected("getScore", "a double", &other)),
        };
        let completed = match self.call("getCompleted", &[])? {
            Value::Bool(completed) => completed,
            other => return Err(GatewayError::unexpected("getCompleted", "a boolean", &other)),
        };
        let moves = self.integer("getNumMoves", &[])?;
        Ok(Standing { score, completed, moves })
    }

    /// What looking around would show; no time passes.
    pub fn look(&mut self) -> Result<String, GatewayError> {
        self.text("freeActionLook", &[])
    }

    /// What the agent carries; no time passes.
    pub fn inventory(&mut self) -> Result<String, GatewayError> {
        self.text("freeActionInventory", &[])
    }

    /// What the agent is asked to do.
    pub fn task_description(&mut self) -> Result<String, GatewayError> {
        self.text("getTaskDescription", &[])
    }

    /// The task description as the action `task` words it; no time passes.
    pub fn task_reminder(&mut self) -> Result<String, GatewayError> {
        self.text("freeActionTaskDesc", &[])
    }

    /// Complete actions that would be understood, sorted. Draws from the game's generator where names clash.
    pub fn valid_actions(&mut self) -> Result<Vec<String>, GatewayError> {
        self.texts("getValidActionObjectCombinations")
    }

    /// Action templates with `OBJ` holes, sorted; the same throughout an episode.
    pub fn templates(&mut self) -> Result<Vec<String>, GatewayError> {
        self.texts("getPossibleActions")
    }

    /// Names of what can be seen, sorted. Draws from the game's generator where names clash.
    pub fn objects(&mut self) -> Result<Vec<String>, GatewayError> {
        self.texts("getPossibleObjects")
    }

    /// The simplifications in force, sorted.
    pub fn simplifications_used(&mut self) -> Result<String, GatewayError> {
        self.text("getSimplificationsUsed", &[])
    }

    /// The tasks there are, sorted.
    pub fn task_names(&mut self) -> Result<Vec<String>, GatewayError> {
        self.texts("getTaskNames")
    }

    /// How many variations a task has; -1 if there is no such task.
    pub fn variations(&mut self, task: &str) -> Result<i32, GatewayError> {
        self.integer("getTaskMaxVariations", &[Argument::Text(task)])
    }

    /// The variations of the loaded task in the simulator's own training, development and test folds.
    pub fn folds(&mut self) -> Result<[Vec<i32>; 3], GatewayError> {
        Ok([
            self.connection.integers(self.interface, "getVariationsTrain")?,
            self.connection.integers(self.interface, "getVariationsDev")?,
            self.connection.integers(self.interface, "getVariationsTest")?,
        ])
    }

    /// The table of sub-goals and whether they are met.
    pub fn goal_progress(&mut self) -> Result<String, GatewayError> {
        self.text("getGoalProgressStr", &[])
    }

    fn call(&mut self, method: &str, arguments: &[Argument<'_>]) -> Result<Value, GatewayError> {
        self.connection.call(self.interface, method, arguments)
    }

    fn text(&mut self, method: &str, arguments: &[Argument<'_>]) -> Result<String, GatewayError> {
        self.connection.text(self.interface, method, arguments)
    }

    fn texts(&mut self, method: &str) -> Result<Vec<String>, GatewayError> {
        self.connection.texts(self.interface, method)
    }

    fn integer(&mut self, method: &str, arguments: &[Argument<'_>]) -> Result<i32, GatewayError> {
        match self.call(method, arguments)? {
            Value::Int(value) => Ok(value),
            other => Err(GatewayError::unexpected(method, "an int", &other)),
        }
    }
}
