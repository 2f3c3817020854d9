//! `lens play`: a person plays a benchmark in the terminal.

mod input;
mod remote;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use lens_agent::Prompting;
use lens_config::schema::WeightsName;
use lens_engine::native::NativePolicy;
use lens_engine::{Deadline, EngineError, GenerateCall, Policy, Sampling};
use lens_env::{Actions, Benchmark, Environment, PastStep, Snapshot, Status, Task, View, Window};

use lens_opd::random::{Purpose, StreamKey};

use super::{alfworld, scienceworld, webshop};
use crate::assemble;
use crate::failure::Failure;
use crate::terminal::{output_columns, wrap};
use crate::wording::counted;
use input::{Input, Piped, Typed};
use remote::RemotePlay;

/// Play a benchmark yourself, or watch a model play
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "\
Examples:
  lens play alfworld --split valid_unseen --task 3
  lens play webshop --model runs/webshop/seed-42/checkpoints/step-000060/model")]
pub(crate) enum Play {
    /// Play household tasks in text: fetch, clean, heat, cool, put away
    Alfworld(alfworld::Play),
    /// Play primary-school science in text: boil, grow, measure, connect, find
    Scienceworld(scienceworld::Play),
    /// Play shopping: find, configure and buy what an instruction asks for
    Webshop(webshop::Play),
    /// Play an environment of your own: an OpenEnv server
    Openenv(RemotePlay),
    /// Play an environment of your own: an AgentGym server
    Agentgym(RemotePlay),
    /// Play an environment of your own: a program that speaks JSON lines
    Stdio(RemotePlay),
}

impl Play {
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Failure> {
        match self {
            Self::Alfworld(play) => play.run(out),
            Self::Scienceworld(play) => play.run(out),
            Self::Webshop(play) => play.run(out),
            Self::Openenv(play) => play.run("openenv", out),
            Self::Agentgym(play) => play.run("agentgym", out),
            Self::Stdio(play) => play.run("stdio", out),
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
    /// A model's Hugging Face directory; typing "model" lets it take the next turn.
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
        self.play_with(benchmark, Prompting::default(), out)
    }

    /// The same, with the prompts of a configuration for the model that plays along.
    pub(crate) fn play_with(
        &self,
        benchmark: &Arc<dyn Benchmark>,
        prompting: Prompting,
        out: &mut dyn Write,
    ) -> Result<(), Failure> {
        let task = self.find(&**benchmark)?;
        let input = std::io::stdin();
        let mut session = Session::new(Arc::clone(benchmark), &task, self.turns)?;
        session.prompting = prompting;
        if let Some(model) = &self.model {
            session.model = Some(assemble::policy(model, "--model", WeightsName::F32)?);
        }
        if input.is_terminal() {
            session.play(&mut Typed::new()?, out)
        } else {
            session.play(&mut Piped(input.lock()), out)
        }
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
            Failure::user_with_hint(
                format!("split \"{split}\" has no task \"{}\"", self.task),
                format!("give a number below {} or a task's full name", tasks.len()),
            )
        })
    }
}

const RULES: &str = "Type an action or its number; \"help\" lists the other commands.";

/// What a line can be besides an action.
const COMMANDS: [(&str, &str); 7] = [
    ("undo", "take back the last action"),
    ("hint", "ask the benchmark's expert"),
    ("score", "show the score and the turns used"),
    ("actions", "list the actions again"),
    ("model", "let the model take the next turn (with --model)"),
    ("help", "show this list"),
    ("quit", "leave the game"),
];

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
    /// A model that takes turns when asked to.
    pub(crate) model: Option<NativePolicy>,
    prompting: Prompting,
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
        Ok(Self {
            benchmark,
            environment,
            view,
            past,
            turn_limit,
            model: None,
            prompting: Prompting::default(),
        })
    }

    /// Reads lines and plays them until `quit` or the end of the input.
    fn play(&mut self, input: &mut dyn Input, out: &mut dyn Write) -> Result<(), Failure> {
        writeln!(out, "{RULES}\n")?;
        writeln!(out, "{}\n", wrap(&format!("Task: {}", self.view.task), output_columns()))?;
        self.show(out)?;
        loop {
            let turn = (self.view.turn + 1).min(self.turn_limit);
            let prompt = format!("[{turn}/{}] > ", self.turn_limit);
            let Some(line) = input.line(&prompt, &self.words(), out)? else { return Ok(()) };
            match line.trim() {
                "" => {}
                "quit" => return Ok(()),
                "help" => show_help(out)?,
                "undo" => self.undo(out)?,
                "hint" => self.hint(out)?,
                "score" => self.score(out)?,
                "actions" => self.show_actions(out)?,
                "model" => self.let_model_act(out)?,
                text => {
                    if let Some(action) = self.chosen(text, input, out)? {
                        self.act(action, out)?;
                    }
                }
            }
        }
    }

    /// What a line can be completed to.
    fn words(&self) -> Vec<String> {
        let actions = match &self.view.actions {
            Actions::Commands(commands) => commands.clone(),
            Actions::Templates { templates, .. } => templates.clone(),
            Actions::Free => Vec::new(),
        };
        let commands = COMMANDS.iter().map(|(word, _)| (*word).to_owned());
        actions.into_iter().chain(commands).collect()
    }

    /// The action that a line means; `None` if it means none.
    fn chosen(
        &self,
        text: &str,
        input: &mut dyn Input,
        out: &mut dyn Write,
    ) -> Result<Option<String>, Failure> {
        let action = match (&self.view.actions, text.parse::<usize>()) {
            (Actions::Commands(commands), Ok(number)) => {
                let chosen = number.checked_sub(1).and_then(|index| commands.get(index));
                let Some(command) = chosen else {
                    writeln!(out, "There are actions 1 to {}.", commands.len())?;
                    return Ok(None);
                };
                command.clone()
            }
            _ => text.to_owned(),
        };
        fill_in(&action, input, out)
    }

    fn over(&self) -> bool {
        self.view.status != Status::Running || self.view.turn >= self.turn_limit
    }

    fn act(&mut self, action: String, out: &mut dyn Write) -> Result<(), Failure> {
        if self.over() {
            writeln!(out, "The game is over: undo or quit.")?;
            return Ok(());
        }
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
            Some(decision) => {
                writeln!(out, "{}", wrap(&decision.thought, output_columns()))?;
                writeln!(out, "  Try: {}", decision.action)?;
            }
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
            writeln!(out, "There is no model in this game; start it with --model FOLDER.")?;
            return Ok(());
        };
        if self.over() {
            writeln!(out, "The game is over: undo or quit.")?;
            return Ok(());
        }
        let broken = |error: EngineError| Failure::Runtime(error.into());
        let style = &self.benchmark.profile().prompt;
        let message = self.prompting.turn_message(style, &self.window())?;
        let messages = self.prompting.messages(&[], &message);
        let call = GenerateCall {
            prompt: model.codec().prompt(&messages).map_err(broken)?,
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
        match self.prompting.parser.action(&text) {
            Ok(action) => self.act(action, out),
            Err(_) => Ok(writeln!(out, "There is no action in that.")?),
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
        let seen = wrap(self.view.observation.trim_end(), output_columns());
        writeln!(out, "{bold}{seen}{bold:#}\n")?;
        match self.view.status {
            Status::Ended { success: true } => {
                writeln!(
                    out,
                    "Done: success after {}, score {}.",
                    counted(self.view.turn as u64, "turn"),
                    self.view.score
                )?;
            }
            Status::Ended { success: false } => {
                writeln!(
                    out,
                    "Over after {} without success, score {}.",
                    counted(self.view.turn as u64, "turn"),
                    self.view.score
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
                let columns = output_columns();
                for (name, list) in [("actions", templates), ("objects", objects)] {
                    writeln!(out, "{}", wrap(&format!("{name}: {}", list.join(", ")), columns))?;
                }
            }
            Actions::Free => writeln!(out, "actions: any text")?,
        }
        Ok(())
    }
}

fn show_help(out: &mut dyn Write) -> Result<(), Failure> {
    for (word, what) in COMMANDS {
        writeln!(out, "{word:>9}  {what}")?;
    }
    Ok(())
}

/// An action whose blank, such as the query of `search[<query>]`, was asked for; `None` if nothing was said.
fn fill_in(
    action: &str,
    input: &mut dyn Input,
    out: &mut dyn Write,
) -> Result<Option<String>, Failure> {
    let blank = action.find('<').zip(action.find('>')).filter(|(open, close)| open < close);
    let Some((open, close)) = blank else { return Ok(Some(action.to_owned())) };
    let name = &action[open + 1..close];
    let Some(words) = input.line(&format!("{name}: "), &[], out)? else { return Ok(None) };
    let words = words.trim();
    if words.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!("{}{words}{}", &action[..open], &action[close + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_asks_for_its_words() {
        let mut out = Vec::new();
        let mut fill = |action: &str, typed: &str| {
            fill_in(action, &mut Piped(typed.as_bytes()), &mut out).ok().flatten()
        };
        assert_eq!(fill("search[<query>]", "red shoes\n"), Some("search[red shoes]".to_owned()));
        assert_eq!(fill("search[<query>]", "\n"), None, "nothing to search for");
        assert_eq!(fill("click[back]", ""), Some("click[back]".to_owned()));
    }
}
