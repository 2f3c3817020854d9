//! One `game.tw-pddl` file.

use std::borrow::Cow;

use md5::{Digest, Md5};

use super::game::{Game, Wording};
use super::goal::Goal;
use super::parser;
use super::problem::Problem;
use crate::EnvError;

/// A domain and a grammar this engine plays exactly, known by their MD5 sums.
struct Known {
    release: &'static str,
    domain: &'static str,
    /// With the goal put back to "UNKNOWN GOAL."
    grammar: &'static str,
    wording: Wording,
}

const KNOWN: [Known; 3] = [
    Known {
        release: "2.1.2 and 2.1.3",
        domain: "574a98ddcfd0745755a35fbd9d73a583",
        grammar: "9c61a8239e6b95ed5aa1e7ea12f6a9f7",
        wording: Wording::Second,
    },
    Known {
        release: "2.1.1",
        domain: "e9f0f8b0c43ab77f7eab54b826b21243",
        grammar: "02dfb0c97c59699c75b0d0fcc1219d8b",
        wording: Wording::First,
    },
    // What `alfworld-generate` of the Python package 0.4.2 writes into new games.
    Known {
        release: "the package 0.4.2",
        domain: "8dce276defba646f48ea00dc0c5202e7",
        grammar: "468c80f18e11a832edf35a8e1fb77d8d",
        wording: Wording::Second,
    },
];

const TASK_MARK: &str = "Your task is to: ";
const GOAL_HOLE: &str = "UNKNOWN GOAL";

/// The JSON object of a game file.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct GameFile<'a> {
    /// The rules of the world.
    #[serde(borrow)]
    pub pddl_domain: Cow<'a, str>,
    /// The texts, with the goal's sentence in them.
    #[serde(borrow)]
    pub grammar: Cow<'a, str>,
    /// The house and the goal.
    #[serde(borrow)]
    pub pddl_problem: Cow<'a, str>,
    /// Whether ALFWorld's planner found a solution.
    pub solvable: bool,
    /// That solution; release 2.1.1 has none.
    #[serde(default)]
    pub walkthrough: Vec<String>,
}

/// The rules and texts of a real game, to be put around problems of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    domain: String,
    /// The grammar up to the goal's sentence, and after it.
    grammar: (String, String),
    wording: Wording,
}

impl Template {
    /// Takes domain and grammar from a real game file.
    pub fn from_game_file(path: &str, bytes: &[u8]) -> Result<Self, EnvError> {
        let file = read(path, bytes)?;
        let wording = wording(path, &file)?;
        let (before, _, after) = split_grammar(path, &file.grammar)?;
        Ok(Self {
            grammar: (before.to_owned(), after.to_owned()),
            domain: file.pddl_domain.into_owned(),
            wording,
        })
    }

    /// Takes domain and grammar from the two files of the Python package (`alfred.pddl`, `alfred.twl2`).
    pub fn from_package(path: &str, domain: String, grammar: &str) -> Result<Self, EnvError> {
        let file = GameFile {
            pddl_domain: domain.as_str().into(),
            grammar: grammar.into(),
            pddl_problem: "".into(),
            solvable: true,
            walkthrough: Vec::new(),
        };
        let wording = wording(path, &file)?;
        let (before, _, after) = split_grammar(path, grammar)?;
        let grammar = (before.to_owned(), after.to_owned());
        Ok(Self { domain, grammar, wording })
    }

    /// A complete game file around a problem.
    pub fn game_file(&self, problem: &Problem, sentence: &str, walkthrough: &[String]) -> String {
        let written = serde_json::to_string(sentence).unwrap_or_default();
        let (before, after) = &self.grammar;
        let file = GameFile {
            pddl_domain: self.domain.as_str().into(),
            grammar: format!("{before}{}{after}", written.trim_matches('"')).into(),
            pddl_problem: problem.text().into(),
            solvable: true,
            walkthrough: walkthrough.to_vec(),
        };
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// Which release's texts the template speaks.
    pub fn wording(&self) -> Wording {
        self.wording
    }
}

/// Reads the JSON of a game file.
pub fn read<'a>(path: &str, bytes: &'a [u8]) -> Result<GameFile<'a>, EnvError> {
    serde_json::from_slice(bytes).map_err(|error| EnvError::Malformed {
        path: path.to_owned(),
        line: Some(error.line()),
        message: format!(
            "not an ALFWorld game file ({error}); expected the JSON object of a game.tw-pddl"
        ),
    })
}

/// Reads a game file and makes it ready to play. `None` for a game that is marked as unsolvable, which ALFWorld skips.
pub fn load(path: &str, bytes: &[u8]) -> Result<Option<Game>, EnvError> {
    let file = read(path, bytes)?;
    if !file.solvable {
        return Ok(None);
    }
    let wording = wording(path, &file)?;
    let (_, sentence, _) = split_grammar(path, &file.grammar)?;
    let problem = parser::parse(&file.pddl_problem).map_err(|complaint| EnvError::Malformed {
        path: format!("{path} (pddl_problem)"),
        line: complaint.line,
        message: format!(
            "{}; the file is damaged or not one of ALFWorld's, download it again",
            complaint.message
        ),
    })?;
    if let Some(said) = Goal::from_sentence(&sentence)
        && said != problem.goal()
    {
        return Err(EnvError::Malformed {
            path: path.to_owned(),
            line: None,
            message: format!(
                "the task reads \"{sentence}\" but the goal is to {}",
                problem.goal().sentence(0)
            ),
        });
    }
    Ok(Some(Game::new(&problem, wording, sentence, file.walkthrough)))
}

/// Checks the domain and the grammar against those whose rules are built in.
fn wording(path: &str, file: &GameFile<'_>) -> Result<Wording, EnvError> {
    let (before, _, after) = split_grammar(path, &file.grammar)?;
    let domain = hex_md5([file.pddl_domain.as_bytes()]);
    let grammar = hex_md5([before.as_bytes(), GOAL_HOLE.as_bytes(), b".", after.as_bytes()]);
    match KNOWN.iter().find(|known| known.domain == domain && known.grammar == grammar) {
        Some(known) => Ok(known.wording),
        None => Err(EnvError::Malformed {
            path: path.to_owned(),
            line: None,
            message: format!(
                "unknown rules: domain {domain}, grammar {grammar}; the rules of ALFWorld's releases {} are built in, \
                 so use the official data (\"lens data alfworld\" says where to get them)",
                KNOWN.map(|known| known.release).join(", ")
            ),
        }),
    }
}

/// The grammar before the goal's sentence, the sentence as the player reads it, and the grammar after it.
fn split_grammar<'a>(path: &str, grammar: &'a str) -> Result<(&'a str, String, &'a str), EnvError> {
    let parts = || {
        let start = grammar.find(TASK_MARK)? + TASK_MARK.len();
        let line = grammar[start..].split('\n').next()?;
        let end = start + line.rfind('"')?;
        let sentence = serde_json::from_str(&format!("\"{}\"", &grammar[start..end])).ok()?;
        Some((&grammar[..start], sentence, &grammar[end..]))
    };
    parts().ok_or_else(|| EnvError::Malformed {
        path: path.to_owned(),
        line: None,
        message: format!(
            "the grammar has no sentence after \"{TASK_MARK}\"; this is not an ALFWorld game"
        ),
    })
}

/// The MD5 sum of some bytes, in hexadecimal.
pub(crate) fn hex_md5<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    use std::fmt::Write as _;
    let mut hash = Md5::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
