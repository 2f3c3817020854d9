//! A benchmark that exists only here: walk to the end of a corridor. It fails where it is told to.

use std::borrow::Cow;
use std::sync::Arc;

use lens_env::{
    Actions, Benchmark, CommandStyle, EnvError, Environment, Expert, Laboratory, Profile,
    PromptStyle, ScoreScale, Snapshot, SplitInfo, Status, Task, View, names,
};

const PROFILE: Profile = Profile {
    name: Cow::Borrowed("corridor"),
    summary: Cow::Borrowed("Walk to the end of a corridor"),
    turn_limit: 12,
    train_split: Cow::Borrowed("train"),
    eval_splits: names!["train"],
    pooled_splits: names![],
    history: 2,
    prompt: PromptStyle {
        template: Cow::Borrowed(
            "{task_description} Step {current_step}. Before: {action_history} Now: {current_observation} You may: {admissible_actions}",
        ),
        commands: CommandStyle::Bare,
        hidden_commands: names![],
        fold_history: true,
    },
    score: ScoreScale::ZeroToOne,
    laboratory: Laboratory {
        expert: false,
        train_split: Cow::Borrowed("train"),
        held_out_split: Cow::Borrowed("train"),
        kinds: names![],
        numbered_names: false,
        marked_pages: false,
        generated: false,
    },
};

/// Where the corridor fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fault {
    /// Nowhere.
    #[default]
    None,
    /// No environment can be made.
    Environment,
    /// A task cannot be started.
    Reset,
    /// The action taken at this turn is not answered.
    Step(usize),
    /// The state cannot be saved.
    Snapshot,
    /// The state cannot be put back.
    Restore,
    /// The state that is put back is another one.
    Elsewhere,
    /// Replaying gives other answers.
    Fickle,
}

/// A corridor whose tasks are its lengths.
pub(crate) struct Corridor(pub(crate) Fault);

impl Benchmark for Corridor {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn splits(&self) -> Vec<SplitInfo> {
        vec![SplitInfo { name: "train".to_owned(), tasks: 1 }]
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(vec![task(9)])
    }

    fn environment(self: Arc<Self>) -> Result<Box<dyn Environment>, EnvError> {
        refuse(self.0 == Fault::Environment, "make")?;
        Ok(Box::new(Walk { fault: self.0, ..Walk::default() }))
    }

    fn reference_actions(&self, _: &Task) -> Result<Option<Vec<String>>, EnvError> {
        Ok(None)
    }

    fn expert(&self) -> Option<Box<dyn Expert>> {
        None
    }
}

/// The task to walk `length` steps.
pub(crate) fn task(length: usize) -> Task {
    Task { id: length.to_string(), kind: "walk".to_owned() }
}

fn refuse(fault: bool, what: &str) -> Result<(), EnvError> {
    let message = format!("told to fail at {what}");
    if fault { Err(EnvError::Backend { backend: "the corridor", message }) } else { Ok(()) }
}

#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    fault: Fault,
    length: usize,
    place: usize,
    turn: usize,
    fell: bool,
}

impl Environment for Walk {
    fn reset(&mut self, task: &Task) -> Result<View, EnvError> {
        refuse(self.fault == Fault::Reset, "reset")?;
        *self = Self {
            fault: self.fault,
            length: task.id.parse().map_err(|_| EnvError::NotReset)?,
            ..Self::default()
        };
        self.view()
    }

    fn step(&mut self, action: &str) -> Result<View, EnvError> {
        refuse(self.fault == Fault::Step(self.turn), "step")?;
        self.turn += 1;
        match action {
            "right" => self.place += 1,
            "left" => self.place = self.place.saturating_sub(1),
            "jump" => self.fell = true,
            _ => {}
        }
        self.view()
    }

    fn view(&self) -> Result<View, EnvError> {
        let status = match (self.fell, self.place >= self.length) {
            (true, _) => Status::Ended { success: false },
            (false, true) => Status::Ended { success: true },
            (false, false) => Status::Running,
        };
        Ok(View {
            task: format!("Walk {} steps.", self.length),
            observation: format!("place {}.", self.place),
            actions: Actions::Commands(["left", "right", "jump"].map(str::to_owned).into()),
            turn: self.turn,
            score: self.place as f64 / self.length as f64,
            status,
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, EnvError> {
        refuse(self.fault == Fault::Snapshot, "snapshot")?;
        Ok(Snapshot::new(*self))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<View, EnvError> {
        refuse(self.fault == Fault::Restore, "restore")?;
        if self.fault == Fault::Fickle {
            return Err(EnvError::NotRepeatable("the second answer differs".to_owned()));
        }
        *self = Self { fault: self.fault, ..*snapshot.get()? };
        self.place += usize::from(self.fault == Fault::Elsewhere);
        self.view()
    }
}
