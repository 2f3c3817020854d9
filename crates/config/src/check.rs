//! What types cannot say: ranges, and values that contradict each other.

use crate::error::ConfigError;
use crate::layers::Resolved;
use crate::schema::{EstimatorName, MethodName};

/// Refuses a configuration that could not run or would not mean what it says.
pub(crate) fn check(resolved: &Resolved) -> Result<(), ConfigError> {
    let config = &resolved.config;
    let refuse = |key: &str, message: String| {
        Err(ConfigError::BadValue { origin: resolved.origin(key), key: key.to_owned(), message })
    };

    let positive_counts = [
        ("task.turn_limit", config.task.turn_limit),
        ("rollout.batch_size", config.rollout.batch_size),
        ("rollout.repeat_times", config.rollout.repeat_times),
        ("rollout.max_prompt_tokens", config.rollout.max_prompt_tokens),
        ("rollout.max_response_tokens", config.rollout.max_response_tokens),
        ("train.batch_size", config.train.batch_size),
        ("train.keep_checkpoints", config.train.keep_checkpoints),
        ("validate.horizon", config.validate.horizon),
        ("validate.hint_tokens", config.validate.hint_tokens),
        ("tcod.start", config.tcod.start),
        ("loss.top_k", config.loss.top_k),
        ("eval.max_tokens", config.eval.max_tokens),
        ("eval.workers", config.eval.workers),
        ("train.steps", config.train.steps as usize),
        ("train.save_interval", config.train.save_interval as usize),
        ("train.eval_interval", config.train.eval_interval as usize),
        ("tcod.growth", config.tcod.growth as usize),
    ];
    for (key, value) in positive_counts {
        if value == 0 {
            return refuse(key, "must be at least 1".to_owned());
        }
    }

    let positive = [
        ("locate.epsilon", config.locate.epsilon),
        ("validate.temperature", config.validate.temperature),
        ("refine.weight_cap", config.refine.weight_cap),
        ("loss.clip", config.loss.clip),
        ("optimizer.lr", config.optimizer.lr),
        ("optimizer.epsilon", config.optimizer.epsilon),
        ("optimizer.grad_clip", config.optimizer.grad_clip),
        ("rollout.temperature", config.rollout.temperature),
        ("eval.top_p", config.eval.top_p),
    ];
    for (key, value) in positive {
        if !(value > 0.0 && value.is_finite()) {
            return refuse(key, format!("must be a positive number, not {value}"));
        }
    }

    let not_negative = [
        ("refine.internalize_weight", config.refine.internalize_weight),
        ("refine.focus_scale", config.refine.focus_scale),
        ("optimizer.weight_decay", config.optimizer.weight_decay),
        ("loss.kl_coef", config.loss.kl_coef),
        ("eval.temperature", config.eval.temperature),
    ];
    for (key, value) in not_negative {
        if !(value >= 0.0 && value.is_finite()) {
            return refuse(key, format!("must be zero or a positive number, not {value}"));
        }
    }

    let shares = [
        ("guided.start", config.guided.start),
        ("guided.end", config.guided.end),
        ("guided.decay_share", config.guided.decay_share),
        ("eval.top_p", config.eval.top_p),
        ("eval.min_p", config.eval.min_p),
        ("cluster.gpu_memory_utilization", config.cluster.gpu_memory_utilization),
        ("optimizer.beta1", config.optimizer.beta1),
        ("optimizer.beta2", config.optimizer.beta2),
    ];
    for (key, value) in shares {
        if !(0.0..=1.0).contains(&value) {
            return refuse(key, format!("must lie between 0 and 1, not {value}"));
        }
    }
    for (key, value) in
        [("optimizer.beta1", config.optimizer.beta1), ("optimizer.beta2", config.optimizer.beta2)]
    {
        if value == 1.0 {
            return refuse(key, "must be below 1".to_owned());
        }
    }

    if config.refine.weight_cap < 1.0 {
        return refuse(
            "refine.weight_cap",
            "must be at least 1: a raw weight is never below 1".to_owned(),
        );
    }
    if config.loss.dual_clip <= 1.0 {
        return refuse("loss.dual_clip", "must be above 1".to_owned());
    }
    if config.eval.top_k == 0 || config.eval.top_k < -1 {
        return refuse("eval.top_k", "must be -1 (off) or at least 1".to_owned());
    }
    if config.locate.proposals_per_episode != 1 {
        return refuse(
            "locate.proposals_per_episode",
            "the method audits exactly one turn per trajectory; only 1 is supported".to_owned(),
        );
    }
    if config.locate.max_horizon > config.task.turn_limit {
        return refuse(
            "locate.max_horizon",
            format!("must not pass task.turn_limit ({})", config.task.turn_limit),
        );
    }
    if config.locate.residence < 2 {
        return refuse(
            "locate.residence",
            "must be at least 2: the fastest pace is 1.5, and one batch advances at most one turn"
                .to_owned(),
        );
    }
    if config.seeds.is_empty() {
        return refuse("seeds", "needs at least one seed, such as seeds = [42]".to_owned());
    }
    let mut seeds = config.seeds.clone();
    seeds.sort_unstable();
    if seeds.windows(2).any(|pair| pair[0] == pair[1]) {
        return refuse("seeds", "names a seed twice; each seed is one run".to_owned());
    }
    if config.name.is_empty() || config.name.contains(['/', '\\']) || config.name.starts_with('.') {
        return refuse(
            "name",
            "must be a plain folder name: not empty, no slashes, no leading dot".to_owned(),
        );
    }
    if config.method == MethodName::Guided && config.guided.end > config.guided.start {
        return refuse("guided.end", "must not be above guided.start: control decays".to_owned());
    }
    if config.loss.estimator == EstimatorName::K1Pg && config.rollout.temperature != 1.0 {
        return refuse(
            "rollout.temperature",
            "k1_pg compares the rollout's log-probabilities with the teacher's at temperature 1; use 1.0"
                .to_owned(),
        );
    }
    Ok(())
}
