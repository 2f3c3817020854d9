//! Playing demonstrations: what the expert does, what else is executed, and the samples of every turn.

use std::sync::Arc;

use lens_agent::prompts::turn_message;
use lens_env::{
    Actions, Benchmark, Decision, EnvError, Environment, Expert, PastStep, PromptStyle, Status,
    Task, View, Window,
};
use lens_opd::random::{Purpose, Stream, StreamKey};
use rayon::prelude::*;

use crate::corpus::{Corpus, CorpusOptions, Critique, Sample, SampleKind, act_answer};
use crate::corrupted::corrupted;
use crate::exercises::counterfactual;
use crate::habits::{Lapses, Turn, reworded};

/// Lapses that are executed one after another; then the expert's action follows, so that no demonstration is lost.
const MAX_LAPSES: usize = 3;

/// Share of dithering among executed lapses and among lapses as criticized plans.
const DITHER: f64 = 0.5;

/// The highest number in a stumble.
const MAX_NUMBER: u64 = 4;

/// What demonstrations give.
#[derive(Debug, Clone, Default)]
pub struct Demonstrated {
    /// The samples.
    pub samples: Vec<Sample>,
    /// The turns, for samples of students' habits; none where the expert does not tell situations apart.
    pub turns: Vec<Turn>,
}

/// Samples and turns from demonstrations of `tasks`, one stream of draws per task. The expert demonstrates; where there is
/// none, or where it does not know the task, the reference solution does. A task that has neither gives nothing.
pub fn demonstrations(
    benchmark: &Arc<dyn Benchmark>,
    tasks: &[Task],
    options: &CorpusOptions,
) -> Result<Demonstrated, EnvError> {
    let per_task: Result<Vec<Demonstrated>, EnvError> = tasks
        .par_iter()
        .enumerate()
        .map(|(number, task)| {
            let stream =
                |branch| StreamKey::new(options.seed, 0, number as u64, Purpose::Data, branch);
            let reference = |draws: &mut Stream| {
                let samples = reference_episode(benchmark, task, options, draws)?;
                Ok(Demonstrated { samples, turns: Vec::new() })
            };
            match benchmark.expert() {
                Some(expert) => {
                    let episode = ExpertEpisode {
                        style: &benchmark.profile().prompt,
                        expert: &*expert,
                        options,
                        draws: stream(0).open(),
                        corrupted_draws: stream(4).open(),
                        wording_draws: stream(6).open(),
                        demonstrated: Demonstrated::default(),
                    };
                    let played = episode.play(&mut *benchmark.clone().environment()?, task)?;
                    // An expert may know some kinds of task only.
                    if played.samples.is_empty() {
                        reference(&mut stream(8).open())
                    } else {
                        Ok(played)
                    }
                }
                None => reference(&mut stream(0).open()),
            }
        })
        .collect();
    let mut all = Demonstrated::default();
    for one in per_task? {
        all.samples.extend(one.samples);
        all.turns.extend(one.turns);
    }
    Ok(all)
}

/// The thought before an action of a reference solution, which comes without reasons.
const REFERENCE_THOUGHT: &str = "The next step is clear.";

/// The samples of a reference solution. Wrong plans are other actions of it.
fn reference_episode(
    benchmark: &Arc<dyn Benchmark>,
    task: &Task,
    options: &CorpusOptions,
    draws: &mut Stream,
) -> Result<Vec<Sample>, EnvError> {
    let Some(actions) = benchmark.reference_actions(task)? else { return Ok(Vec::new()) };
    let style = &benchmark.profile().prompt;
    let mut environment = benchmark.clone().environment()?;
    let mut view = environment.reset(task)?;
    let mut past: Vec<PastStep> = Vec::new();
    let mut samples = Vec::new();
    for action in actions.iter().take(options.corpus.turn_limit) {
        if view.status != Status::Running {
            break;
        }
        let window = Window::new(&view, &past, options.history);
        let decision = Decision { thought: REFERENCE_THOUGHT.to_owned(), action: action.clone() };
        let other = draws.below(2 * actions.len() as u64).unwrap_or_default() as usize;
        let plan = actions.get(other).unwrap_or(action);
        turn_samples(style, &window, &decision, plan, &options.corpus, draws, &mut samples);
        view = step(&mut *environment, view, action, &mut past)?;
    }
    Ok(samples)
}

/// An episode that the expert plays.
struct ExpertEpisode<'a> {
    style: &'a PromptStyle,
    expert: &'a dyn Expert,
    options: &'a CorpusOptions,
    draws: Stream,
    /// Draws of their own, so that the other samples do not depend on the share of corrupted ones.
    corrupted_draws: Stream,
    /// The same for other words.
    wording_draws: Stream,
    demonstrated: Demonstrated,
}

impl ExpertEpisode<'_> {
    fn play(
        mut self,
        environment: &mut dyn Environment,
        task: &Task,
    ) -> Result<Demonstrated, EnvError> {
        let shares = &self.options.corpus;
        let mut view = environment.reset(task)?;
        let mut past: Vec<PastStep> = Vec::new();
        let wandering = shares.wandering > 0.0 && self.draws.uniform() < shares.wandering;
        let mut lapses = 0;
        while view.status == Status::Running && past.len() < shares.turn_limit {
            let window = Window::new(&view, &past, self.options.history);
            let decided = self.expert.decide(&window);
            if let Some(decision) = &decided {
                self.turn(&window, decision);
            }
            self.counterfactual(&window);
            let lapse = (wandering && lapses < MAX_LAPSES).then(|| self.lapse(&window)).flatten();
            lapses = if lapse.is_some() { lapses + 1 } else { 0 };
            let random = self.draws.uniform() < shares.random_actions;
            let stumble = self.stumble(&window, decided.as_ref());
            let action = match (stumble, lapse, decided, random) {
                (Some(stumble), ..) => stumble,
                (None, Some(lapse), _, false) => lapse,
                (None, None, Some(decision), false) => decision.action,
                _ => match random_command(&window.actions, &mut self.draws) {
                    Some(command) => command,
                    None => break,
                },
            };
            view = step(environment, view, &action, &mut past)?;
        }
        Ok(self.demonstrated)
    }

    /// Adds the samples of a turn at which the expert made this decision, and the turn itself.
    fn turn(&mut self, window: &Window, decision: &Decision) {
        let shares = &self.options.corpus;
        let lapses = Lapses::at(self.expert, window);
        let plan = self.draw_plan(window, decision, &lapses);
        let first = self.demonstrated.samples.len();
        let (draws, samples) = (&mut self.draws, &mut self.demonstrated.samples);
        turn_samples(self.style, window, decision, &plan, shares, draws, samples);
        self.reword(decision, first);
        let message = || turn_message(self.style, window);
        if self.corrupted_draws.uniform() < shares.corrupted
            && let Some(wrong) = corrupted(self.expert, window, decision)
        {
            let answer = act_answer(&wrong);
            let sample = Sample { kind: SampleKind::Corrupted, message: message(), answer };
            self.demonstrated.samples.push(sample);
        }
        if let Some(situation) = self.expert.situation(window) {
            self.demonstrated.turns.push(Turn {
                message: message(),
                situation,
                right: decision.clone(),
                lapses,
                rewordings: self.expert.rewordings(),
            });
        }
    }

    /// Adds the samples of the turn as if the task asked for another object, at some of the turns.
    fn counterfactual(&mut self, window: &Window) {
        let shares = &self.options.corpus;
        if self.draws.uniform() < shares.counterfactual
            && let Some(other) = counterfactual(window, &mut self.draws)
            && let Some(decision) = self.expert.decide(&other)
        {
            let first = self.demonstrated.samples.len();
            let plan = self.draw_plan(&other, &decision, &Lapses::at(self.expert, &other));
            let (draws, samples) = (&mut self.draws, &mut self.demonstrated.samples);
            turn_samples(self.style, &other, &decision, &plan, shares, draws, samples);
            self.reword(&decision, first);
            for sample in samples_from(&mut self.demonstrated, first) {
                sample.kind = SampleKind::Counterfactual;
            }
        }
    }

    /// Says the answers to act from sample `first` on in other words, where the recipe wants that.
    fn reword(&mut self, decision: &Decision, first: usize) {
        let share = self.options.corpus.rewording;
        if share == 0.0 {
            return;
        }
        for sample in samples_from(&mut self.demonstrated, first) {
            let words = self.expert.rewordings();
            let thought = reworded(&decision.thought, words, share, &mut self.wording_draws);
            sample.answer = act_answer(&Decision { thought, action: decision.action.clone() });
        }
    }

    /// The action of a lapse, at some of the turns.
    fn lapse(&mut self, window: &Window) -> Option<String> {
        if self.draws.uniform() >= self.options.corpus.lapses {
            return None;
        }
        let lapses = Lapses::at(self.expert, window);
        Some(lapses.draw(DITHER, &mut self.draws)?.action.clone())
    }

    /// The right command with a wrong number, at some of the turns.
    fn stumble(&mut self, window: &Window, decided: Option<&Decision>) -> Option<String> {
        let share = self.options.corpus.stumbles;
        if share == 0.0 || self.draws.uniform() >= share {
            return None;
        }
        let number = 1 + self.draws.below(MAX_NUMBER)?;
        let (start, _) = decided?.action.rsplit_once(' ')?;
        let wrong = format!("{start} {number}");
        let Actions::Commands(commands) = &window.actions else { return None };
        (!commands.contains(&wrong)).then_some(wrong)
    }

    /// A plan to critique: a quarter of them are right, half are lapses, a quarter are any command. If most were right,
    /// a model trained on the critiques would learn to agree.
    fn draw_plan(&mut self, window: &Window, decision: &Decision, lapses: &Lapses) -> String {
        let kind = self.draws.uniform();
        let plan = if kind < 0.25 {
            None
        } else if kind < 0.75 {
            match lapses.draw(DITHER, &mut self.draws) {
                Some(lapse) => Some(lapse.action.clone()),
                None => corrupted(self.expert, window, decision).map(|wrong| wrong.action),
            }
        } else {
            random_command(&window.actions, &mut self.draws)
        };
        plan.unwrap_or_else(|| decision.action.clone())
    }
}

/// The samples to act from sample `first` on.
fn samples_from(
    demonstrated: &mut Demonstrated,
    first: usize,
) -> impl Iterator<Item = &mut Sample> {
    demonstrated.samples.iter_mut().skip(first).filter(|one| one.kind == SampleKind::Act)
}

/// Executes an action and remembers it.
fn step(
    environment: &mut dyn Environment,
    view: View,
    action: &str,
    past: &mut Vec<PastStep>,
) -> Result<View, EnvError> {
    let next = environment.step(action)?;
    past.push(PastStep {
        step: past.len(),
        observation: view.observation,
        action: action.to_owned(),
    });
    Ok(next)
}

/// Adds the samples of one turn; the critique is of `plan`.
pub(crate) fn turn_samples(
    style: &PromptStyle,
    window: &Window,
    decision: &Decision,
    plan: &str,
    shares: &Corpus,
    draws: &mut Stream,
    samples: &mut Vec<Sample>,
) {
    let share = draws.uniform();
    let Critique { question, followed } = Critique::new(style, window, decision, plan);
    if share < shares.critique {
        samples.push(question);
    }
    if share < shares.instruction_following {
        samples.push(followed);
    }
    let message = turn_message(style, window);
    samples.push(Sample { kind: SampleKind::Act, message, answer: act_answer(decision) });
}

fn random_command(actions: &Actions, draws: &mut Stream) -> Option<String> {
    match actions {
        Actions::Commands(commands) => {
            let index = draws.below(commands.len() as u64)?;
            commands.get(index as usize).cloned()
        }
        Actions::Templates { templates, objects } => {
            let template = templates.get(draws.below(templates.len() as u64)? as usize)?;
            let object = objects.get(draws.below(objects.len() as u64)? as usize)?;
            Some(template.replace("OBJ", object))
        }
        Actions::Free => None,
    }
}
