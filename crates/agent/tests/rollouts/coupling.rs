//! Common random numbers: branches that see the same draw the same, so what does not differ has gain exactly 0.

use lens_agent::{ForkRun, run_forks};
use lens_engine::scripted::{CharCodec, ScriptedPolicy};
use lens_engine::{
    CallFailure, Codec, Compared, Completion, CrossContext, Deadline, EngineError, FinishReason,
    GenerateCall, Internalized, Models, Policy, Position, ScoreCall, Target,
};
use lens_opd::episode::DivergenceSource;
use lens_opd::validate::Validate;
use lens_opd::validate::fork::{BranchEnd, Coupling, ForkRequest, ForkResult};
use lens_opd::validate::gate::judge;
use lens_opd::validate::value::BranchValue;

use crate::corridor::Fault;
use crate::forks::{FORKS, HINT, request};
use crate::support::{config, plan, played};

/// Walks at random: what it does depends on the stream, and on the hint if it listens.
struct Wanderer {
    listens: bool,
}

impl Policy for Wanderer {
    fn codec(&self) -> &dyn Codec {
        &CharCodec
    }

    fn version(&self) -> u64 {
        0
    }

    fn generate(
        &self,
        calls: &[GenerateCall],
        _: Deadline,
    ) -> Result<Vec<Result<Completion, CallFailure>>, EngineError> {
        let answer = |call: &GenerateCall| {
            let prompt = CharCodec.text(&call.prompt)?;
            let mut stream = call.stream.open();
            let drawn = ["left", "right"][stream.below(2).unwrap_or(0) as usize];
            let hinted = self.listens && prompt.contains("Go on.");
            let action = if hinted { "right" } else { drawn };
            let tokens = CharCodec.response(&format!("<action>{action}</action>"))?;
            let logprobs = vec![-0.7; tokens.len()];
            Ok(Ok(Completion { tokens, logprobs, finish: FinishReason::Stop }))
        };
        calls.iter().map(answer).collect()
    }
}

/// A teacher whose opinion of a token depends on everything before it.
struct Opinions {
    student: Wanderer,
    teacher: ScriptedPolicy,
}

fn opinion(prompt: &[u32], response: &[u32], position: usize) -> f32 {
    let seen = prompt.iter().chain(&response[..=position]);
    let hash = seen.fold(17_u32, |hash, &token| hash.wrapping_mul(31).wrapping_add(token));
    -0.01 - (hash % 1009) as f32 / 331.0
}

impl Models for Opinions {
    fn student(&self) -> &dyn Policy {
        &self.student
    }

    fn teacher(&self) -> &dyn Policy {
        &self.teacher
    }

    fn divergence(&self) -> DivergenceSource {
        DivergenceSource::Sampled
    }

    fn compare(
        &self,
        calls: &[ScoreCall],
        _: Deadline,
    ) -> Result<Vec<Result<Compared, CallFailure>>, EngineError> {
        let positions = |call: &ScoreCall| {
            let position = |position| Position {
                teacher_logprob: Some(opinion(&call.prompt, &call.response, position)),
                student_logprob: None,
                top: None,
                kl: None,
            };
            (0..call.response.len()).map(position).collect()
        };
        Ok(calls
            .iter()
            .map(|call| Ok(Compared { positions: positions(call), target: None }))
            .collect())
    }

    fn internalize(
        &self,
        calls: &[CrossContext],
        _: Deadline,
    ) -> Result<Vec<Result<Internalized, CallFailure>>, EngineError> {
        Ok(calls.iter().map(|_| Ok(Internalized { target: Target::tokens(), gap: None })).collect())
    }
}

const PAIRS: usize = 6;

fn runs(listens: bool, coupling: Coupling, play_on: bool) -> Vec<ForkRun> {
    let config = config(Fault::None);
    let student = Wanderer { listens: false };
    let episodes = played(&config, &student, vec![plan(0, 9), plan(1, 9)]);
    let models =
        Opinions { student: Wanderer { listens }, teacher: ScriptedPolicy::saying("Go on.") };
    let requests: Vec<ForkRequest> = [(0, 1), (0, 4), (1, 2)]
        .map(|(episode, turn)| ForkRequest {
            pairs: PAIRS,
            coupling,
            play_on,
            ..request(episode, turn, HINT)
        })
        .to_vec();
    run_forks(&config, &FORKS, &models, &episodes, &requests).expect("it runs")
}

fn gains(runs: &[ForkRun], evaluator: BranchValue) -> Vec<f64> {
    let rules = Validate { continuation_turns: 2, pairs: PAIRS, evaluator, ..Validate::default() };
    let verdict = |run: &ForkRun| judge(&run.finished, &rules).expect("scored");
    runs.iter().map(|run| verdict(run).gain.expect("complete")).collect()
}

#[test]
fn equal_branches_have_gain_exactly_zero_with_common_draws_and_not_with_independent_ones() {
    for evaluator in [
        BranchValue::TeacherLikelihood,
        BranchValue::TurnMean,
        BranchValue::ActionTokens,
        BranchValue::Advantage,
    ] {
        let common = gains(&runs(false, Coupling::Common, false), evaluator);
        let bits: Vec<u64> = common.iter().map(|gain| gain.to_bits()).collect();
        assert_eq!(bits, [0_f64.to_bits(); 3], "{evaluator:?}");
        let apart = gains(&runs(false, Coupling::Independent, false), evaluator);
        assert!(apart.iter().all(|&gain| gain != 0.0), "{evaluator:?}: {apart:?}");
    }
    let listening = gains(&runs(true, Coupling::Common, false), BranchValue::TeacherLikelihood);
    assert!(listening.iter().any(|&gain| gain != 0.0), "a hint that acts is seen: {listening:?}");
}

#[test]
fn pairs_of_one_fork_are_drawn_apart() {
    for run in runs(false, Coupling::Common, false) {
        let ForkResult::Pair(pair) = &run.finished.result else { panic!("a pair") };
        assert_eq!(pair.draws().count(), PAIRS);
        assert_eq!(run.repeats.len(), PAIRS - 1);
        let actions: std::collections::BTreeSet<Vec<Option<String>>> = std::iter::once(&run.base)
            .chain(run.repeats.iter().map(|pair| &pair.base))
            .map(|log| log.turns.iter().map(|turn| turn.action.clone()).collect())
            .collect();
        assert!(actions.len() > 1, "all pairs are the same");
    }
}

#[test]
fn branches_that_are_played_on_reach_the_limit_and_only_their_continuation_is_judged() {
    for run in runs(false, Coupling::Common, true) {
        let ForkResult::Pair(pair) = &run.finished.result else { panic!("a pair") };
        for (base, guided) in pair.draws() {
            for branch in [base, guided] {
                assert_eq!(branch.end, BranchEnd::TurnLimit, "nine steps to the right are rare");
                assert_eq!(branch.continuation.len(), 2);
                assert!(branch.score.is_some_and(|score| score < 1.0));
            }
        }
        assert_eq!(run.base.turns.len(), 12 - run.finished.turn);
    }
}
