//! What a configuration must satisfy: every section's own rules, and the rules that cross sections.

use lens_env::EnvError;
use lens_opd::OpdError;
use lens_opd::objective::Estimator;

use crate::error::ConfigError;
use crate::layers::Resolved;

/// Refuses a prompt's template that cannot be read or would not render. Apart from the rest, because a configuration
/// outlives the files it names: a run's own can be read when they are gone.
pub fn check_prompt(resolved: &Resolved) -> Result<(), ConfigError> {
    resolved.config.prompt.read_template().map(drop).map_err(|error| {
        let (key, message) = match error {
            EnvError::Setting { key, message } => (key, message),
            other => ("prompt.template".to_owned(), other.to_string()),
        };
        ConfigError::BadValue { origin: resolved.origin(&key), key, message }
    })
}

/// Refuses a configuration that could not run or would not mean what it says.
pub(crate) fn check(resolved: &Resolved) -> Result<(), ConfigError> {
    let config = &resolved.config;
    let refuse = |key: &str, message: String| {
        Err(ConfigError::BadValue { origin: resolved.origin(key), key: key.to_owned(), message })
    };
    match config.check_sections() {
        Ok(()) => {}
        Err(OpdError::Parameter { key, value, expected }) => {
            return refuse(key, format!("must be {expected}, not {value}"));
        }
        Err(other) => return refuse("method", other.to_string()),
    }
    if let Err(EnvError::Setting { key, message }) = config.environment.check() {
        return refuse(&key, message);
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
    if config.loss.estimator == Estimator::K1Pg && config.rollout.temperature != 1.0 {
        return refuse(
            "rollout.temperature",
            "must be 1.0 with loss.estimator = \"k1_pg\", which compares the rollout's log-probabilities with the teacher's at temperature 1"
                .to_owned(),
        );
    }
    Ok(())
}
