//! How much memory the models on this machine may use.

use lens_config::Config;

/// Where a machine does not say how much memory it has.
const ASSUMED: u64 = 8 << 30;
/// Sequences of the largest size that fit at once, whatever the batch.
const AT_LEAST: usize = 4;
/// Tokens of a typical prompt, where the longest one allowed is longer: what is kept is for these.
const TYPICAL_PROMPT: usize = 512;

/// Bytes for keys and values of models that take `per_token` bytes together.
pub(crate) fn budget(config: &Config, per_token: usize) -> usize {
    if config.memory.budget > 0 {
        return usize::try_from(config.memory.budget.saturating_mul(1 << 20)).unwrap_or(usize::MAX);
    }
    let (rollout, eval) = (&config.rollout, &config.eval);
    let response = rollout.max_response_tokens.max(eval.max_tokens);
    let longest = rollout.max_prompt_tokens + response;
    let typical = rollout.max_prompt_tokens.min(TYPICAL_PROMPT) + response;
    let episodes = (rollout.batch_size * rollout.repeat_times).max(eval.workers);
    let tokens = (episodes * typical).max(AT_LEAST * longest);
    let quarter = usize::try_from(machine() / 4).unwrap_or(usize::MAX);
    tokens.saturating_mul(per_token).min(quarter)
}

/// Bytes of memory this machine has.
pub(crate) fn machine() -> u64 {
    let total = || -> Option<u64> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
    };
    total().unwrap_or(ASSUMED)
}
