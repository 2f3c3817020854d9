//! Episodes and forks that run as tasks of their own give what lockstep gives, whatever ends first.

use std::time::Duration;

use lens_agent::{Context, Episode, ForkConfig, Plan, Prompting, RolloutConfig, play, run_forks};
use lens_engine::scripted::{CharCodec, Scripted, ScriptedPolicy};
use lens_engine::{
    CallFailure, Codec, Compared, Completion, CrossContext, Deadline, EngineError, FinishReason,
    GenerateCall, Internalized, Models, Policy, Sampling, ScoreCall,
};
use lens_env::{BenchmarkOptions, registry};
use lens_opd::episode::DivergenceSource;
use lens_opd::methods::exposure::Exposure;
use lens_opd::random::Purpose;

use lens_opd::validate::fork::{Coupling, ForkKind, ForkRequest, HintPrompt};

/// Takes an action that its stream draws from those in the prompt, after a while that another draw decides.
struct Drawn {
    width: Option<usize>,
}

impl Policy for Drawn {
    fn codec(&self) -> &dyn Codec {
        &CharCodec
    }

    fn version(&self) -> u64 {
        3
    }

    fn concurrency(&self) -> Option<usize> {
        self.width
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        _: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let answer = |call: &GenerateCall| {
            let mut stream = call.stream.open();
            let prompt = CharCodec.text(&call.prompt)?;
            let choices = ["look", "inventory", "go to desk 1", "go to shelf 1", "go to bed 1"];
            let chosen = choices[stream.below(5).unwrap_or(0) as usize];
            let pause = Duration::from_micros(stream.below(3000).unwrap_or(0));
            if self.width.is_some() {
                std::thread::sleep(pause);
            }
            let text = format!("{} letters. <action>{chosen}</action>", prompt.len());
            let tokens = CharCodec.response(&text)?;
            let logprobs = tokens.iter().map(|_| -(stream.uniform() as f32)).collect();
            Ok(Ok(Completion { tokens, logprobs, finish: FinishReason::Stop }))
        };
        calls.iter().map(answer).collect()
    }
}

struct Both {
    student: Drawn,
    rest: Scripted,
}

impl Models for Both {
    fn student(&self) -> &dyn Policy {
        &self.student
    }

    fn teacher(&self) -> &dyn Policy {
        self.rest.teacher()
    }

    fn divergence(&self) -> DivergenceSource {
        self.rest.divergence()
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        deadline: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        self.rest.compare(calls, deadline)
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        deadline: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        self.rest.internalize(calls, deadline)
    }
}

fn models(width: Option<usize>) -> Both {
    let scripted = || ScriptedPolicy::saying("Look around.");
    Both { student: Drawn { width }, rest: Scripted::new(scripted(), scripted()) }
}

fn config() -> RolloutConfig {
    RolloutConfig {
        benchmark: registry::open("alfworld", &BenchmarkOptions::default()).expect("built in"),
        prompting: Prompting::default(),
        context: Context::Window,
        history: 2,
        turn_limit: 6,
        max_prompt_tokens: 100_000,
        max_response_tokens: 200,
        timeout: None,
        deadline: Deadline::never(),
    }
}

fn played(config: &RolloutConfig, width: Option<usize>) -> Vec<Episode> {
    let tasks = config.benchmark.tasks("train").expect("tasks");
    let plans = tasks.into_iter().take(12).enumerate().map(|(key, task)| Plan {
        key: key as u64,
        task,
        exposure: Exposure::student(2 + key % 5),
        reference: None,
        seed: 5,
        batch: 1,
        purpose: Purpose::Rollout,
        sampling: Sampling::at(1.0),
    });
    let mut seen = Vec::new();
    let student = Drawn { width };
    let episodes = play(config, &student, None, plans.collect(), true, &mut |ended, all| {
        seen.push((ended, all));
    });
    assert_eq!(seen.last(), Some(&(12, 12)), "the watcher is told of the end");
    episodes.expect("played")
}

#[test]
fn tasks_of_their_own_give_what_lockstep_gives() {
    let config = config();
    let together = played(&config, None);
    for width in [1, 5, 64] {
        let apart = played(&config, Some(width));
        for (a, b) in together.iter().zip(&apart) {
            assert_eq!(a.plan.key, b.plan.key, "in the order of the plans");
            assert_eq!((a.end, a.success, &a.past), (b.end, b.success, &b.past));
            for (a, b) in a.turns.iter().zip(&b.turns) {
                assert_eq!(
                    (&a.prompt, &a.response, &a.logprobs),
                    (&b.prompt, &b.response, &b.logprobs)
                );
            }
        }
    }
    let requests: Vec<ForkRequest> = together
        .iter()
        .map(|episode| ForkRequest {
            episode: episode.plan.key,
            turn: episode.turns.len() - 1,
            kind: ForkKind::Hint { tokens: 32, prompt: HintPrompt::default() },
            continuation_turns: 2,
            temperature: 1.0,
            divergence: 0.5,
            pairs: 2,
            coupling: Coupling::Common,
            play_on: false,
            favorites: false,
        })
        .collect();
    let forks =
        ForkConfig { seed: 5, batch: 1, sampling: Sampling::at(1.0), snapshot_targets: true };
    let run = |width| {
        let models = models(width);
        let runs = run_forks(&config, &forks, &models, &together, &requests).expect("run");
        let judged: Vec<Vec<u32>> =
            models.rest.judged().into_iter().map(|call| call.response).collect();
        let shown: Vec<_> = runs
            .into_iter()
            .map(|run| (run.finished.episode, run.base, run.guided, run.guided_response))
            .collect();
        (shown, judged)
    };
    let together = run(None);
    assert!(together.1.len() > 12, "continuations were judged");
    for width in [1, 5, 64] {
        assert_eq!(run(Some(width)), together, "width {width}");
    }
}
