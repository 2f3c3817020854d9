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

/// What the interface answers itself, without the game.
const INTERFACE_WORDS: [&str; 3] = ["help", "objects", "task"];

/// What the interface says where the game says nothing.
const UNKNOWN_ACTION: &str = "Unknown action.  Type 'help' for a list of actions, and 'objects' for a list of possible object referents. ";

/// What belongs to the task that was loaded last.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Tells one load from the next.
    pub(super) serial: u64,
    /// The simplifications in force, in the order in which the simulator applies them.
    pub(super) simplifications: String,
    /// The part of the simulator that plays the task.
    agent: Handle,
    /// What the last action led to.
    standing: Standing,
    /// The list of valid actions that was asked for last.
    valid: Option<Handle>,
}

impl Loaded {
    pub(super) fn into_handles(self) -> impl Iterator<Item = Handle> {
        [Some(self.agent), self.valid].into_iter().flatten()
    }
}

/// A world whose turn it is: it can be asked and acted in.
///
/// A failure inside the simulator that the caller can do something about (a task or variation that does not exist) comes
/// back as a text; a failure of the conversation is a [`GatewayError`].
#[derive(Debug)]
pub struct Simulator<'a> {
    connection: &'a mut Connection,
    interface: &'a Handle,
    loaded: &'a mut Option<Loaded>,
}

impl<'a> Simulator<'a> {
    pub(super) fn new(
        connection: &'a mut Connection,
        interface: &'a Handle,
        loaded: &'a mut Option<Loaded>,
    ) -> Self {
        Self { connection, interface, loaded }
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
        let serial = self.loaded.as_ref().map_or(0, |loaded| loaded.serial + 1);
        for handle in self.loaded.take().into_iter().flat_map(Loaded::into_handles) {
            self.connection.release(&handle)?;
        }
        let option = self.connection.object(self.interface, "agentInterface", &[])?;
        let agent = self.connection.object(&option, "get", &[])?;
        self.connection.release(&option)?;
        let simplifications = self.connection.text(&agent, "simplificationStr", &[])?;
        let standing = Standing { score: 0.0, completed: false, moves: 0 };
        *self.loaded = Some(Loaded { serial, simplifications, agent, standing, valid: None });
        Ok((!complaint.is_empty()).then_some(complaint))
    }

    /// Drops the simulator's catalog of all tasks (11 MB), which only `load` needs and makes anew, and until the next
    /// one the answers to [`Simulator::task_names`], [`Simulator::variations`] and [`Simulator::folds`]. The world itself
    /// takes some hundreds of kilobytes.
    pub fn forget_catalog(&mut self) -> Result<(), GatewayError> {
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

    /// Carries out an action; gives the observation and where that leaves the episode.
    ///
    /// This is what [`Simulator::step`] and [`Simulator::standing`] give, for a third less of the simulator's time: the
    /// interface describes the room and the inventory before and every object after each action, for a history and a
    /// log that nobody reads. Only the answers that the interface itself gives still come from there.
    pub fn act(&mut self, action: &str) -> Result<(String, Standing), GatewayError> {
        let word = action.trim().to_lowercase();
        let Some(loaded) =
            self.loaded.as_mut().filter(|_| !INTERFACE_WORDS.contains(&word.as_str()))
        else {
            let observation = self.step(action)?;
            let standing = match &self.loaded {
                Some(loaded) => loaded.standing,
                None => self.standing()?,
            };
            return Ok((observation, standing));
        };
        let outcome = self.connection.object(&loaded.agent, "step", &[Argument::Text(action)])?;
        let text = self.connection.text(&outcome, "toString", &[])?;
        self.connection.release(&outcome)?;
        let (observation, score, completed) = parse_outcome(&text).ok_or_else(|| {
            GatewayError::unexpected("step", "an outcome", &Value::Text(text.clone()))
        })?;
        let observation = if observation.is_empty() { UNKNOWN_ACTION } else { observation };
        let moves = match self.connection.call(&loaded.agent, "getCurIterations", &[])? {
            Value::Int(moves) => moves,
            other => return Err(GatewayError::unexpected("getCurIterations", "an int", &other)),
        };
        loaded.standing = Standing { score, completed, moves };
        Ok((observation.to_owned(), loaded.standing))
    }

    /// Carries out an action as the simulator's own client does; gives the observation.
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

    /// Asks for the valid actions, with all that this does to the game's generator, but leaves the list where it is.
    /// Gives its hash, which tells lists apart.
    pub fn ask_valid_actions(&mut self) -> Result<i32, GatewayError> {
        let list =
            self.connection.object(self.interface, "getValidActionObjectCombinations", &[])?;
        let hash = match self.connection.call(&list, "hashCode", &[])? {
            Value::Int(hash) => hash,
            other => return Err(GatewayError::unexpected("hashCode", "an int", &other)),
        };
        let before = match self.loaded.as_mut() {
            Some(loaded) => loaded.valid.replace(list),
            None => Some(list),
        };
        if let Some(before) = before {
            self.connection.release(&before)?;
        }
        Ok(hash)
    }

    /// The list that was asked for by [`Simulator::ask_valid_actions`].
    pub fn asked_valid_actions(&mut self) -> Result<Vec<String>, GatewayError> {
        match self.loaded.as_ref().and_then(|loaded| loaded.valid.as_ref()) {
            Some(list) => self.connection.list_of_texts(list),
            None => Ok(Vec::new()),
        }
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

/// Takes apart how Scala writes a triple: `(observation,score,completed)`, of which only the observation holds commas.
fn parse_outcome(text: &str) -> Option<(&str, f64, bool)> {
    let inner = text.strip_prefix('(')?.strip_suffix(')')?;
    let (inner, completed) = inner.rsplit_once(',')?;
    let (observation, score) = inner.rsplit_once(',')?;
    Some((observation, score.parse().ok()?, completed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_taken_apart_from_behind() {
        assert_eq!(
            parse_outcome("(The door is open.,0.25,false)"),
            Some(("The door is open.", 0.25, false))
        );
        assert_eq!(parse_outcome("(a, b (c),d,-1.0,true)"), Some(("a, b (c),d", -1.0, true)));
        assert_eq!(parse_outcome("(,1.0E-4,false)"), Some(("", 1e-4, false)));
        for bad in ["", "()", "(a,b,c)", "(a,0.5)", "a,0.5,true", "(a,0.5,True)"] {
            assert_eq!(parse_outcome(bad), None, "{bad}");
        }
    }
}
