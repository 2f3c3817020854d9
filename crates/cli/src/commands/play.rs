//! `lens play`: a person plays a benchmark in the terminal.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use lens_agent::parse;
use lens_agent::prompts::turn_message;
use lens_config::schema::WeightsName;
use lens_engine::native::NativePolicy;
use lens_engine::{Deadline, EngineError, GenerateCall, Message, Policy, Sampling};
use lens_env::{Actions, Benchmark, Environment, PastStep, Snapshot, Status, Task, View, Window};

use lens_opd::random::{Purpose, StreamKey};

use super::{alfworld, scienceworld, webshop};
use crate::assemble;
use crate::failure::Failure;

/// Which benchmark to play, each with its own options.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Play {
    /// Household tasks in text: fetch, clean, heat, cool, put away.
    Alfworld(alfworld::Play),
    /// Primary-school science in text: boil, grow, measure, connect, find.
    Scienceworld(scienceworld::Play),
    /// Shopping: find, configure and buy what an instruction asks for.
    Webshop(webshop::Play),
}

impl Play {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Alfworld(play) => play.run(out),
            Self::Scienceworld(play) => play.run(out),
            Self::Webshop(play) => play.run(out),
        }
    }
}

/// Which task to play, and for how long; the same for every benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct Choice {
    /// The split to play from; the benchmark's first one by default.
    #[arg(long)]
    pub(crate) split: Option<String>,
    /// The task: its number in the split, counted from 0, or its name.
    #[arg(long, default_value = "0")]
    pub(crate) task: String,
    /// The turn limit; the benchmark's own by default.
    #[arg(long)]
    pub(crate) turns: Option<usize>,
    /// A model to play with, a Hugging Face directory: typing "model" lets it take the next turn.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<PathBuf>,
}

impl Choice {
    /// Finds the task and plays it on standard input.
    pub(crate) fn play(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let task = self.find(&**benchmark)?;
        let input = std::io::stdin();
        let mut session = Session::new(Arc::clone(benchmark), &task, self.turns)?;
        session.echo = !input.is_terminal();
        if let Some(model) = &self.model {
            session.model = Some(assemble::policy(model, WeightsName::F32)?);
        }
        session.play(&mut input.lock(), out)
    }

    fn find(&self, benchmark: &dyn Benchmark) -> Result<Task, Failure> {
        let splits = benchmark.splits();
        let first = splits.first().map(|split| split.name.clone());
        let split = self
            .split
            .clone()
            .or(first)
            .ok_or_else(|| Failure::user("this benchmark has no tasks"))?;
        let tasks = benchmark.tasks(&split)?;
        let found = match self.task.parse::<usize>() {
            Ok(number) => tasks.get(number),
            Err(_) => tasks.iter().find(|task| task.id == self.task),
        };
        found.cloned().ok_or_else(|| {
            Failure::user(format!(
                "split \"{split}\" has no task \"{}\"; give a number below {} or a task's full name",
                self.task,
                tasks.len()
            ))
        })
    }
}

const RULES: &str = "Type an action or its number. Also: undo, hint, score, actions, quit.";
const MODEL_RULE: &str = "Type \"model\" to let the model take the next turn.";

/// The longest response of a model that plays along.
const MODEL_TOKENS: usize = 512;

/// A person's game.
pub(crate) struct Session {
    benchmark: Arc<dyn Benchmark>,
    environment: Box<dyn Environment>,
    view: View,
    /// The steps so far, each with the state before it.
    past: Vec<(PastStep, Snapshot, View)>,
    turn_limit: usize,
    /// Repeat what was read, because no terminal shows it.
    pub(crate) echo: bool,
    /// A model that takes turns when asked to.
    pub(crate) model: Option<NativePolicy>,
}

impl Session {
    /// Starts a task.
    pub(crate) fn new(
        benchmark: Arc<dyn Benchmark>,
        task: &Task,
        turn_limit: Option<usize>,
    ) -> Result<Self, Failure> {
        let turn_limit = turn_limit.unwrap_or_else(|| benchmark.profile().turn_limit);
        let mut environment = Arc::clone(&benchmark).environment()?;
        let view = environment.reset(task)?;
        let past = Vec::new();
        Ok(Self { benchmark, environment, view, past, turn_limit, echo: false, model: None })
    }

    /// Reads lines and plays them until `quit` or the end of the input.
    pub(crate) fn play(
        &mut self,
        input: &mut dyn BufRead,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        writeln!(out, "{RULES}")?;
        if self.model.is_some() {
            writeln!(out, "{MODEL_RULE}")?;
        }
        writeln!(out)?;
        writeln!(out, "Task: {}\n", self.view.task)?;
        self.show(out)?;
        let mut line = String::new();
        loop {
            write!(out, "> ")?;
            out.flush()?;
            line.clear();
            if input.read_line(&mut line)? == 0 {
                writeln!(out)?;
                return Ok(());
            }
            let text = line.trim_end_matches(['\n', '\r']);
            if self.echo {
                writeln!(out, "{text}")?;
            }
            match text.trim() {
                "quit" => return Ok(()),
                "undo" => self.undo(out)?,
                "hint" => self.hint(out)?,
                "score" => self.score(out)?,
                "actions" => self.show_actions(out)?,
                "model" => self.let_model_act(out)?,
                _ => self.act(text, out)?,
            }
        }
    }

    fn over(&self) -> bool {
        self.view.status != Status::Running || self.view.turn >= self.turn_limit
    }

    fn act(&mut self, text: &str, out: &mut dyn Write) -> Result<(), Failure> {
        if self.over() {
            writeln!(out, "The game is over: undo or quit.")?;
            return Ok(());
        }
        let action = match (&self.view.actions, text.trim().parse::<usize>()) {
            (Actions::Commands(commands), Ok(number)) => {
                let chosen = number.checked_sub(1).and_then(|index| commands.get(index));
                let Some(command) = chosen else {
                    writeln!(out, "There are actions 1 to {}.", commands.len())?;
                    return Ok(());
                };
                command.clone()
            }
            _ => text.to_owned(),
        };
        let snapshot = self.environment.snapshot()?;
        let next = self.environment.step(&action)?;
        let before = std::mem::replace(&mut self.view, next);
        let step = PastStep { step: before.turn, observation: before.observation.clone(), action };
        self.past.push((step, snapshot, before));
        self.show(out)
    }

    fn undo(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let Some((step, snapshot, before)) = self.past.pop() else {
            writeln!(out, "There is nothing to undo.")?;
            return Ok(());
        };
        self.view = self.environment.restore(&snapshot)?;
        if self.view.fingerprint() != before.fingerprint() {
            return Err(Failure::Runtime(anyhow::anyhow!(
                "undoing \"{}\" did not lead back to where it was typed",
                step.action
            )));
        }
        writeln!(out, "Took back \"{}\".\n", step.action)?;
        self.show(out)
    }

    fn hint(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let Some(expert) = self.benchmark.expert() else {
            writeln!(out, "There is no expert for {}.", self.benchmark.profile().name)?;
            return Ok(());
        };
        let decision = if self.over() { None } else { expert.decide(&self.window()) };
        match decision {
            Some(decision) => writeln!(out, "{} Try: {}", decision.thought, decision.action)?,
            None => writeln!(out, "The expert has no advice here.")?,
        }
        Ok(())
    }

    /// What a prompt would show of this game now.
    fn window(&self) -> Window {
        let past: Vec<PastStep> = self.past.iter().map(|(step, _, _)| step.clone()).collect();
        Window::new(&self.view, &past, self.benchmark.profile().history)
    }

    /// The model answers the very prompt it is trained on, and its action is carried out.
    fn let_model_act(&mut self, out: &mut dyn Write) -> Result<(), Failure> {
        let Some(model) = &self.model else {
            writeln!(out, "No model plays along; start with --model DIRECTORY.")?;
            return Ok(());
        };
        if self.over() {
            writeln!(out, "The game is over: undo or quit.")?;
            return Ok(());
        }
        let broken = |error: EngineError| Failure::Runtime(error.into());
        let message = turn_message(&self.benchmark.profile().prompt, &self.window());
        let call = GenerateCall {
            prompt: model.codec().prompt(&[Message::user(message)]).map_err(broken)?,
            max_prompt_tokens: usize::MAX,
            max_new_tokens: MODEL_TOKENS,
            sampling: Sampling::GREEDY,
            stream: StreamKey::new(0, 0, 0, Purpose::Evaluation, self.view.turn as u32),
        };
        let mut answers = model.generate(&[call], Deadline::never()).map_err(broken)?;
        let answer = match answers.pop() {
            Some(Ok(answer)) => answer,
            Some(Err(failure)) => return Err(Failure::Runtime(anyhow::anyhow!("{failure}"))),
            None => return Err(Failure::Runtime(anyhow::anyhow!("the model gave no answer"))),
        };
        let text = model.codec().text(&answer.tokens).map_err(broken)?;
        writeln!(out, "model: {}\n", text.trim())?;
        match parse::action(&text) {
            Some(action) => self.act(action, out),
            None => Ok(writeln!(out, "There is no action in that.")?),
        }
    }

    fn score(&self, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(
            out,
            "Score {}, turn {} of {}.",
            self.view.score, self.view.turn, self.turn_limit
        )?;
        Ok(())
    }

    fn show(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let bold = anstyle::Style::new().bold();
        writeln!(out, "{bold}{}{bold:#}\n", self.view.observation.trim_end())?;
        match self.view.status {
            Status::Ended { success: true } => {
                writeln!(
                    out,
                    "Done: success after {} turns, score {}.",
                    self.view.turn, self.view.score
                )?;
            }
            Status::Ended { success: false } => {
                writeln!(
                    out,
                    "Over after {} turns without success, score {}.",
                    self.view.turn, self.view.score
                )?;
            }
            Status::Running if self.over() => {
                writeln!(out, "Out of turns ({}), score {}.", self.turn_limit, self.view.score)?;
            }
            Status::Running => self.show_actions(out)?,
        }
        Ok(())
    }

    fn show_actions(&self, out: &mut dyn Write) -> Result<(), Failure> {
        match &self.view.actions {
            Actions::Commands(commands) => {
                for (index, command) in commands.iter().enumerate() {
                    writeln!(out, "{:>4}  {command}", index + 1)?;
                }
            }
            Actions::Templates { templates, objects } => {
                writeln!(out, "actions: {}", templates.join(", "))?;
                writeln!(out, "objects: {}", objects.join(", "))?;
            }
            Actions::Free => writeln!(out, "actions: any text")?,
        }
        Ok(())
    }
}
