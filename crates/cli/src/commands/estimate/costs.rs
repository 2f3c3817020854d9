//! What the counts of a run cost: tokens, memory, disk, time.

use lens_config::Config;
use lens_lm::config::ModelConfig;
use lens_opd::methods::Driver;
use serde::Serialize;

use super::memory;
use super::typical::Typical;
use super::walk::walk;
use crate::failure::Failure;

/// Share of the processor's peak that whole iterations reach.
const EFFICIENCY: f64 = 0.35;

/// The costs of one seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Costs {
    pub(super) steps: u64,
    pub(super) explorer_batches: u64,
    pub(super) prompt_tokens: usize,
    pub(super) student_turns: u64,
    pub(super) teacher_turns: u64,
    /// Turns the teacher takes inside episodes.
    pub(super) guided_turns: u64,
    pub(super) forks: u64,
    pub(super) fork_turns: u64,
    pub(super) generated_tokens: u64,
    pub(super) prompt_tokens_read: u64,
    pub(super) teacher_scored_rows: u64,
    pub(super) teacher_hints: u64,
    pub(super) trained_tokens: u64,
    pub(super) memory_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) evaluation_episodes: u64,
    pub(super) hours: f64,
}

pub(super) fn costs(
    config: &Config,
    (student, teacher): (&ModelConfig, &ModelConfig),
    typical: &Typical,
    peak: f64,
) -> Result<Costs, Failure> {
    let (rollout, train) = (&config.rollout, &config.train);
    let driver = Driver::new(config.method, &config.methods, config.facts(0))
        .map_err(|error| Failure::User(error.into()))?;
    let needs = driver.needs();
    let validate = driver.validation().copied().unwrap_or_default();
    let reference = if needs.reference_actions { typical.reference } else { None };
    let played = walk(config, reference, &typical.episodes)?;
    let response = typical.response.min(rollout.max_response_tokens) as u64;
    let prompt_tokens = typical.prompt.min(rollout.max_prompt_tokens);
    let prompt = prompt_tokens as u64;
    let branches = 2 * validate.pairs as u64;
    let future = branches * validate.continuation_turns as u64;
    let plays_on = validate.play_on || validate.evaluator.is_of_end();
    // Played on, a branch may take every turn there is; only its continuation is judged.
    let turns = if plays_on { branches * config.task.turn_limit as u64 } else { future };
    // With a hint both branches write a fork turn; a bridge is the teacher's, and the base branch acts again as it did.
    let (fork_turns, hints, bridges) = if needs.hints {
        (played.forks * (turns + branches), played.forks, 0)
    } else {
        (played.forks * turns, 0, played.forks)
    };
    let evaluations = 1 + train.steps.div_ceil(train.eval_interval);
    let evaluation_episodes = evaluations * typical.eval_tasks;
    let eval_turns = (evaluation_episodes as f64
        * typical.episodes.turns(0, config.task.turn_limit))
    .round() as u64;
    let written = played.student_turns + fork_turns + eval_turns;
    let by_teacher = played.teacher_turns + hints + bridges;
    let scored = played.student_turns + played.forks * future + 2 * bridges;
    let row = prompt + response;
    let (n_student, n_teacher) =
        (student.parameter_count() as f64, teacher.parameter_count() as f64);
    let flops = 2.0 * n_student * (written * row) as f64
        + 2.0 * (n_student + n_teacher) * (scored * row) as f64
        + 2.0 * n_teacher * (by_teacher * row) as f64
        + 6.0 * n_student * (played.trained_rows * row) as f64;
    let parameters = student.parameter_count() as u64;
    let memory = memory::peak(config, (student, teacher), row, played.queued_rows, response);
    let disk =
        (train.keep_checkpoints as u64 + 2) * 12 * parameters + played.student_turns * 3 * row;
    Ok(Costs {
        steps: train.steps,
        explorer_batches: played.batches,
        prompt_tokens,
        student_turns: played.student_turns,
        teacher_turns: played.teacher_turns + bridges,
        guided_turns: played.teacher_turns,
        forks: played.forks,
        fork_turns,
        generated_tokens: written * response,
        prompt_tokens_read: written * prompt,
        teacher_scored_rows: scored,
        teacher_hints: hints,
        trained_tokens: played.trained_rows * row,
        memory_bytes: memory,
        disk_bytes: disk,
        evaluation_episodes,
        hours: flops / (peak * EFFICIENCY) / 3600.0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::typical::Episodes;
    use super::*;
    use lens_config::resolve;

    fn estimate(overrides: &[&str]) -> Costs {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let config = resolve(&[], &overrides).expect("it is sound").config;
        let recipe = lens_lab::recipe::Recipe::shipped("alfworld").expect("it is shipped");
        let mut shape = recipe.models[1].config(recipe.tokenizer.vocab_size);
        let student = shape.clone();
        shape.layers *= 2;
        let typical = Typical {
            prompt: 300,
            reference: Some(8),
            eval_tasks: 100,
            episodes: Episodes::AtMost,
            response: 20,
        };
        costs(&config, (&student, &shape), &typical, 1e11).expect("methods can be built")
    }

    #[test]
    fn plain_opd_throws_old_rows_away_and_forks_nowhere() {
        let opd = estimate(&["method=opd", "train.steps=30"]);
        assert_eq!((opd.fork_turns, opd.teacher_hints, opd.teacher_turns), (0, 0, 0));
        // A batch of 16 episodes of 30 turns feeds two steps before its other rows are too old.
        assert_eq!(opd.explorer_batches, 15);
        assert_eq!(opd.student_turns, 15 * 480);
        assert_eq!(opd.trained_tokens, 30 * 64 * 320);
        let all = estimate(&["method=opd", "train.steps=30", "train.max_staleness=1000"]);
        assert_eq!(all.explorer_batches, 4, "nothing is thrown away");
    }

    #[test]
    fn what_a_method_needs_decides_and_not_its_name() {
        let (opd, lens) = (estimate(&["method=opd"]), estimate(&["method=lens"]));
        assert_eq!(lens.teacher_hints, lens.explorer_batches * 16);
        assert_eq!(lens.fork_turns, lens.teacher_hints * 8, "both branches write their fork turn");
        let full = estimate(&["method=lens", "locate.clock=full"]);
        assert!(full.student_turns > lens.student_turns, "a full clock plays longer episodes");
        assert!(full.explorer_batches >= opd.explorer_batches - 10);
        let bridge = estimate(&["method=futurebridge-opd"]);
        assert_eq!(bridge.teacher_hints, 0, "a bridge is no hint");
        assert!(bridge.teacher_turns > 0 && bridge.fork_turns == bridge.teacher_turns * 6);
        let guided = estimate(&["method=guided-opd"]);
        assert!(guided.teacher_turns > guided.student_turns / 2);
    }
}
