//! Finds a Java runtime and makes sure that it is new enough.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::EnvError;

/// The oldest version that runs the simulator.
const OLDEST: u32 = 8;

/// How to get one, for the error that says there is none.
const HOW_TO_GET: &str = "install Java 8 or newer, for instance the package default-jre-headless \
    (Debian, Ubuntu: apt-get install default-jre-headless), java-latest-openjdk-headless (Fedora) or openjdk (Homebrew); \
    a runtime elsewhere is found through JAVA_HOME";

/// A Java runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Java {
    program: PathBuf,
    version: u32,
}

impl Java {
    /// The runtime of `JAVA_HOME`, or the first one on the search path.
    pub fn find() -> Result<Self, EnvError> {
        let home = std::env::var_os("JAVA_HOME").filter(|home| !home.is_empty());
        match home {
            Some(home) => Self::at(&Path::new(&home).join("bin").join("java")),
            None => Self::at(Path::new("java")),
        }
    }

    /// The runtime whose program this is.
    pub fn at(program: &Path) -> Result<Self, EnvError> {
        let missing = |why: String| EnvError::Missing {
            what: format!("a Java runtime ({}: {why})", program.display()),
            hint: HOW_TO_GET.to_owned(),
        };
        let output = Command::new(program)
            .arg("-version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| missing(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let version = parse_version(&text)
            .ok_or_else(|| missing(format!("-version answered {:?}", text.trim())))?;
        if version < OLDEST {
            return Err(missing(format!("it is version {version}")));
        }
        Ok(Self { program: program.to_owned(), version })
    }

    /// The program to run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The major version: 8, 11, 17, ...
    pub fn version(&self) -> u32 {
        self.version
    }
}

/// Reads the major version from what `java -version` prints: `1.8.0_402` is 8, `17.0.15` is 17, `25` is 25.
fn parse_version(text: &str) -> Option<u32> {
    let quoted = text.lines().find(|line| line.contains(" version \""))?.split('"').nth(1)?;
    let mut numbers = quoted.split(['.', '-', '+', '_']).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_old_and_new() {
        let first_line = |version: &str| format!("openjdk version \"{version}\" 2025-04-15\nmore");
        assert_eq!(parse_version(&first_line("1.8.0_402")), Some(8));
        assert_eq!(parse_version(&first_line("11.0.2")), Some(11));
        assert_eq!(parse_version(&first_line("17.0.15")), Some(17));
        assert_eq!(parse_version(&first_line("25-ea")), Some(25));
        assert_eq!(parse_version(&first_line("25")), Some(25));
        assert_eq!(
            parse_version(
                "Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version \"21\" 2023-09-19 LTS"
            ),
            Some(21)
        );
        assert_eq!(parse_version("command not found"), None);
    }

    #[test]
    fn a_missing_runtime_names_the_package_to_install() {
        let error = Java::at(Path::new("/nonexistent/bin/java")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/bin/java"), "{error}");
        assert!(error.contains("apt-get install default-jre-headless"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_java_is_refused() {
        let error = Java::at(Path::new("true")).unwrap_err().to_string();
        assert!(error.contains("-version answered"), "{error}");
    }
}
