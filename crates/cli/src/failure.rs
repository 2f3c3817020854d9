//! How a command fails: the kind of failure decides the exit code.

use std::io::Write;
use std::process::ExitCode;

/// A failed command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The user can mend it: bad arguments, bad configuration, bad input files. Exit code 1.
    User(anyhow::Error),
    /// Something failed while running. Exit code 2.
    Runtime(anyhow::Error),
    /// Stopped on request with everything saved. Exit code 3.
    Interrupted(String),
}

impl Failure {
    /// A user error from a plain message.
    pub(crate) fn user(message: impl std::fmt::Display) -> Self {
        Self::User(anyhow::anyhow!("{message}"))
    }

    /// A user error from a plain message, and what to do about it.
    pub(crate) fn user_with_hint(
        message: impl std::fmt::Display,
        hint: impl std::fmt::Display,
    ) -> Self {
        Self::User(Advice { message: message.to_string(), hint: hint.to_string() }.into())
    }

    /// Prints the failure to standard error and gives the exit code. A reader that closed the pipe has seen enough:
    /// that is success, and says nothing.
    pub(crate) fn report(&self) -> ExitCode {
        let (code, error) = match self {
            Self::User(error) => (1, error),
            Self::Runtime(error) => (2, error),
            Self::Interrupted(message) => {
                // Standard error may be closed; the exit code still tells.
                let _ = writeln!(anstream::stderr(), "{message}");
                return ExitCode::from(3);
            }
        };
        let broken_pipe = error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
        });
        if broken_pipe {
            return ExitCode::SUCCESS;
        }
        let red = anstyle::AnsiColor::Red.on_default().bold();
        let mut err = anstream::stderr();
        // Standard error may be closed as well; the exit code still tells.
        let mut causes = error.chain().map(message);
        let _ = writeln!(err, "{red}error{red:#}: {}", causes.next().unwrap_or_default());
        for cause in causes {
            let _ = writeln!(err, "  caused by: {cause}");
        }
        if let Some(hint) = error.chain().find_map(hint) {
            let bold = anstyle::Style::new().bold();
            let _ = writeln!(err, "{bold}hint{bold:#}: {hint}");
        }
        ExitCode::from(code)
    }
}

/// An error's message, without the advice that is printed on a line of its own.
fn message(cause: &(dyn std::error::Error + 'static)) -> String {
    match cause.downcast_ref::<lens_env::EnvError>() {
        Some(error) => error.message(),
        None => cause.to_string(),
    }
}

/// What an error of ours advises.
fn hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<lens_train::TrainError>() {
        return error.hint();
    }
    if let Some(error) = cause.downcast_ref::<lens_lab::LabError>() {
        return error.hint();
    }
    if let Some(error) = cause.downcast_ref::<lens_config::ConfigError>() {
        return error.hint();
    }
    if let Some(error) = cause.downcast_ref::<lens_env::EnvError>() {
        return error.hint().map(str::to_owned);
    }
    cause.downcast_ref::<Advice>().map(|advice| advice.hint.clone())
}

/// A message with advice of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Advice {
    message: String,
    hint: String,
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Runtime(error.into())
    }
}

impl From<lens_env::EnvError> for Failure {
    fn from(error: lens_env::EnvError) -> Self {
        match error {
            lens_env::EnvError::Backend { .. }
            | lens_env::EnvError::Restore(_)
            | lens_env::EnvError::NotRepeatable(_) => Self::Runtime(error.into()),
            other => Self::User(other.into()),
        }
    }
}

impl From<lens_config::ConfigError> for Failure {
    fn from(error: lens_config::ConfigError) -> Self {
        Self::User(error.into())
    }
}

impl From<lens_lm::error::LmError> for Failure {
    fn from(error: lens_lm::error::LmError) -> Self {
        if error.is_user_error() { Self::User(error.into()) } else { Self::Runtime(error.into()) }
    }
}

impl From<lens_view::ViewError> for Failure {
    fn from(error: lens_view::ViewError) -> Self {
        match error {
            lens_view::ViewError::Listen { .. } => Self::User(error.into()),
            other => Self::Runtime(other.into()),
        }
    }
}

impl From<lens_train::TrainError> for Failure {
    fn from(error: lens_train::TrainError) -> Self {
        use lens_train::TrainError;
        match error {
            TrainError::Folder { .. }
            | TrainError::Busy { .. }
            | TrainError::Disk { .. }
            | TrainError::NoUsableCheckpoint { .. }
            | TrainError::NewerCheckpoint { .. }
            | TrainError::Changed { .. }
            | TrainError::References { .. }
            | TrainError::NoReferences { .. }
            | TrainError::NoExamples
            | TrainError::Measures { .. } => Self::User(error.into()),
            // A place that a file of the user's takes, or that they may not write to, is theirs to mend.
            TrainError::File { ref source, .. }
                if matches!(
                    source.kind(),
                    std::io::ErrorKind::NotADirectory
                        | std::io::ErrorKind::AlreadyExists
                        | std::io::ErrorKind::PermissionDenied
                        | std::io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Self::User(error.into())
            }
            TrainError::Environment(error) => error.into(),
            other => Self::Runtime(other.into()),
        }
    }
}
