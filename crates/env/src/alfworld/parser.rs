//! Reads a `pddl_problem` text. Only what ALFWorld's problems contain is accepted; anything else is
//! refused with its line, because an engine that guesses at a foreign rule would play another game.

use std::collections::{BTreeMap, HashMap};

use super::goal::Goal;
use super::problem::{Affordances, ObjectFacts, Problem, ReceptacleFacts, type_word};

/// More than this many receptacles or objects is no house (real games have at most 54 and 73).
const MOST_THINGS: usize = 1024;

/// Where a problem text is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

/// Reads a problem. The lists of the result are sorted and everything is in lower case, as in the real engine.
pub fn parse(text: &str) -> Result<Problem, Complaint> {
    let lower = text.to_ascii_lowercase();
    let mut tokens = Tokens { rest: &lower, line: 1 };
    tokens.expect("(")?;
    tokens.expect("define")?;
    tokens.expect("(")?;
    tokens.expect("problem")?;
    let name = tokens.word("the problem's name")?.to_owned();
    tokens.expect(")")?;
    for word in ["(", ":domain", "alfred", ")", "(", ":objects"] {
        tokens.expect(word)?;
    }
    let mut facts = Facts::declare(&mut tokens)?;
    for word in ["(", ":init"] {
        tokens.expect(word)?;
    }
    loop {
        let token = tokens.next("a fact or the end of :init")?;
        match token.text {
            ")" => break,
            "(" => facts.read(&mut tokens)?,
            other => {
                return Err(
                    token.complain(format!("expected a fact in parentheses, found \"{other}\""))
                );
            }
        }
    }
    let goal_line = tokens.line;
    let mut goal = Vec::new();
    let mut depth = 0_usize;
    loop {
        let token = tokens.next("the goal")?;
        match token.text {
            "(" => depth += 1,
            ")" if depth == 0 => {
                return Err(token.complain("expected the goal, found \")\"".to_owned()));
            }
            ")" => depth -= 1,
            _ => {}
        }
        goal.push(token.text);
        if depth == 0 {
            break;
        }
    }
    tokens.expect(")")?;
    if let Some(extra) = tokens.peek() {
        return Err(
            extra.complain(format!("text after the end of the problem: \"{}\"", extra.text))
        );
    }
    let (kind, goal_object, goal_target) = Goal::from_tokens(&goal).ok_or_else(|| Complaint {
        line: Some(goal_line),
        message: "the goal has none of ALFWorld's six shapes".to_owned(),
    })?;
    facts.finish(name, kind, goal_object, goal_target)
}

/// One parenthesis or word.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

impl Token<'_> {
    fn complain(&self, message: String) -> Complaint {
        Complaint { line: Some(self.line), message }
    }
}

/// The text still to be read.
struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    fn peek(&mut self) -> Option<Token<'a>> {
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                b';' => {
                    at += bytes[at..]
                        .iter()
                        .position(|&byte| byte == b'\n')
                        .unwrap_or(bytes.len() - at);
                    continue;
                }
                _ => break,
            }
            at += 1;
        }
        self.rest = &self.rest[at..];
        let bytes = self.rest.as_bytes();
        let length = match bytes.first()? {
            b'(' | b')' => 1,
            _ => bytes
                .iter()
                .position(|byte| matches!(byte, b'(' | b')' | b';' | b' ' | b'\t' | b'\r' | b'\n'))
                .unwrap_or(bytes.len()),
        };
        Some(Token { text: &self.rest[..length], line: self.line })
    }

    fn next(&mut self, wanted: &str) -> Result<Token<'a>, Complaint> {
        let token = self.peek().ok_or_else(|| Complaint {
            line: Some(self.line),
            message: format!("the text ends where {wanted} should follow"),
        })?;
        self.rest = &self.rest[token.text.len()..];
        Ok(token)
    }

    fn expect(&mut self, text: &str) -> Result<(), Complaint> {
        let token = self.next(&format!("\"{text}\""))?;
        if token.text == text {
            Ok(())
        } else {
            Err(token.complain(format!("expected \"{text}\", found \"{}\"", token.text)))
        }
    }

    fn word(&mut self, what: &str) -> Result<&'a str, Complaint> {
        let token = self.next(what)?;
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if token.text.bytes().all(sound) {
            Ok(token.text)
        } else {
            Err(token.complain(format!("expected {what}, found \"{}\"", token.text)))
        }
    }
}

/// What a name was declared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Agent,
    Object,
    ObjectType,
    ReceptacleType,
    Receptacle,
    Location,
}

impl Sort {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Agent, "agent"),
        (Self::Object, "object"),
        (Self::ObjectType, "otype"),
        (Self::ReceptacleType, "rtype"),
        (Self::Receptacle, "receptacle"),
        (Self::Location, "location"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(sort, _)| *sort == self).map_or("", |(_, word)| word)
    }
}

#[derive(Default)]
struct ReceptacleDraft<'a> {
    kind: Option<&'a str>,
    location: Option<&'a str>,
    openable: bool,
}

#[derive(Default)]
struct ObjectDraft<'a> {
    kind: Option<&'a str>,
    affordances: Affordances,
    location: Option<&'a str>,
    inside: Vec<&'a str>,
    holds: Vec<&'a str>,
}

/// The facts read so far.
struct Facts<'a> {
    declared: HashMap<&'a str, Sort>,
    start: Option<&'a str>,
    receptacles: BTreeMap<&'a str, ReceptacleDraft<'a>>,
    objects: BTreeMap<&'a str, ObjectDraft<'a>>,
    can_contain: Vec<(&'a str, &'a str)>,
}

impl<'a> Facts<'a> {
    fn declare(tokens: &mut Tokens<'a>) -> Result<Self, Complaint> {
        let mut declared = HashMap::new();
        let mut names = Vec::new();
        loop {
            let token = tokens.next("a declaration or the end of :objects")?;
            match token.text {
                ")" => break,
                "-" => {
                    let word = tokens.next("a type")?;
                    let sort = Sort::ALL
                        .iter()
                        .find(|(_, name)| *name == word.text)
                        .ok_or_else(|| {
                            word.complain(format!("\"{}\" is not a type of this domain", word.text))
                        })?
                        .0;
                    for name in names.drain(..) {
                        if declared.insert(name, sort).is_some_and(|before| before != sort) {
                            return Err(word.complain(format!(
                                "\"{name}\" is declared twice with different types"
                            )));
                        }
                    }
                }
                name if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                    names.push(name);
                }
                other => return Err(token.complain(format!("expected a name, found \"{other}\""))),
            }
        }
        if let Some(name) = names.first() {
            return Err(Complaint {
                line: Some(tokens.line),
                message: format!("\"{name}\" is declared without a type"),
            });
        }
        Ok(Self {
            declared,
            start: None,
            receptacles: BTreeMap::new(),
            objects: BTreeMap::new(),
            can_contain: Vec::new(),
        })
    }

    /// The next argument, which must have been declared as `sort`.
    fn argument(&self, tokens: &mut Tokens<'a>, sort: Sort) -> Result<&'a str, Complaint> {
        let token = tokens.next("an argument")?;
        match self.declared.get(token.text) {
            Some(found) if *found == sort => Ok(token.text),
            Some(found) => Err(token.complain(format!(
                "\"{}\" is declared as {}, {} is needed here",
                token.text,
                found.word(),
                sort.word()
            ))),
            None => Err(token.complain(format!("\"{}\" is not declared in :objects", token.text))),
        }
    }

    fn object(&mut self, tokens: &mut Tokens<'a>) -> Result<&mut ObjectDraft<'a>, Complaint> {
        let id = self.argument(tokens, Sort::Object)?;
        Ok(self.objects.entry(id).or_default())
    }

    /// Reads one fact, after its opening parenthesis.
    fn read(&mut self, tokens: &mut Tokens<'a>) -> Result<(), Complaint> {
        let predicate = tokens.next("a fact's name")?;
        let once =
            |slot: &mut Option<&'a str>, value: &'a str, what: &str| match slot.replace(value) {
                Some(before) if before != value => {
                    Err(predicate.complain(format!("a second {what}: {before} and {value}")))
                }
                _ => Ok(()),
            };
        match predicate.text {
            "receptacletype" => {
                let id = self.argument(tokens, Sort::Receptacle)?;
                let kind = self.argument(tokens, Sort::ReceptacleType)?;
                once(&mut self.receptacles.entry(id).or_default().kind, kind, "receptacle type")?;
            }
            "objecttype" => {
                let id = self.argument(tokens, Sort::Object)?;
                let kind = self.argument(tokens, Sort::ObjectType)?;
                once(&mut self.objects.entry(id).or_default().kind, kind, "object type")?;
            }
            "cancontain" => {
                let receptacle = self.argument(tokens, Sort::ReceptacleType)?;
                let object = self.argument(tokens, Sort::ObjectType)?;
                self.can_contain.push((receptacle, object));
            }
            "atlocation" => {
                self.argument(tokens, Sort::Agent)?;
                let location = self.argument(tokens, Sort::Location)?;
                once(&mut self.start, location, "location of the agent")?;
            }
            "receptacleatlocation" => {
                let id = self.argument(tokens, Sort::Receptacle)?;
                let location = self.argument(tokens, Sort::Location)?;
                once(
                    &mut self.receptacles.entry(id).or_default().location,
                    location,
                    "location of a receptacle",
                )?;
            }
            "objectatlocation" => {
                let id = self.argument(tokens, Sort::Object)?;
                let location = self.argument(tokens, Sort::Location)?;
                once(
                    &mut self.objects.entry(id).or_default().location,
                    location,
                    "location of an object",
                )?;
            }
            "inreceptacle" => {
                let id = self.argument(tokens, Sort::Object)?;
                let receptacle = self.argument(tokens, Sort::Receptacle)?;
                self.objects.entry(id).or_default().inside.push(receptacle);
            }
            "inreceptacleobject" => {
                let inner = self.argument(tokens, Sort::Object)?;
                let outer = self.argument(tokens, Sort::Object)?;
                self.objects.entry(inner).or_default();
                self.objects.entry(outer).or_default().holds.push(inner);
            }
            "openable" => {
                let id = self.argument(tokens, Sort::Receptacle)?;
                self.receptacles.entry(id).or_default().openable = true;
            }
            "pickupable" => self.object(tokens)?.affordances.pickupable = true,
            "isreceptacleobject" => self.object(tokens)?.affordances.vessel = true,
            "cleanable" => self.object(tokens)?.affordances.cleanable = true,
            "heatable" => self.object(tokens)?.affordances.heatable = true,
            "coolable" => self.object(tokens)?.affordances.coolable = true,
            "toggleable" => self.object(tokens)?.affordances.toggleable = true,
            "sliceable" => self.object(tokens)?.affordances.sliceable = true,
            "iscool" => self.object(tokens)?.affordances.cool = true,
            other => {
                return Err(predicate.complain(format!(
                    "the fact \"{other}\" does not occur in ALFWorld's problems"
                )));
            }
        }
        tokens.expect(")")
    }

    fn finish(
        self,
        name: String,
        kind: super::goal::TaskKind,
        goal_object: &str,
        goal_target: &str,
    ) -> Result<Problem, Complaint> {
        let complain = |message: String| Complaint { line: None, message };
        let target_sort = match kind {
            super::goal::TaskKind::Light => Sort::ObjectType,
            _ => Sort::ReceptacleType,
        };
        for (name, sort) in [(goal_object, Sort::ObjectType), (goal_target, target_sort)] {
            if self.declared.get(name) != Some(&sort) {
                return Err(complain(format!(
                    "the goal's type \"{name}\" is not declared as {}",
                    sort.word()
                )));
            }
            if type_word(name) == name {
                return Err(complain(format!(
                    "the goal's type \"{name}\" does not end in \"Type\""
                )));
            }
        }
        if self.receptacles.len().max(self.objects.len()) > MOST_THINGS {
            return Err(complain(format!("more than {MOST_THINGS} receptacles or objects")));
        }
        // The engine takes a thing's printed name from the part of its id before the first "_bar_".
        for id in self.receptacles.keys().chain(self.objects.keys()) {
            if !id.contains("_bar_") {
                return Err(complain(format!(
                    "\"{id}\" is used in a fact but has no \"_bar_\" in its name"
                )));
            }
        }
        let missing = |id: &str, what: &str| complain(format!("\"{id}\" has no {what}"));
        let receptacles = self
            .receptacles
            .iter()
            .map(|(id, draft)| {
                Ok(ReceptacleFacts {
                    id: (*id).to_owned(),
                    kind: draft.kind.ok_or_else(|| missing(id, "receptacleType"))?.to_owned(),
                    location: draft
                        .location
                        .ok_or_else(|| missing(id, "receptacleAtLocation"))?
                        .to_owned(),
                    openable: draft.openable,
                })
            })
            .collect::<Result<Vec<_>, Complaint>>()?;
        let objects = self
            .objects
            .iter()
            .map(|(id, draft)| {
                if let Some(lost) =
                    draft.inside.iter().find(|place| !self.receptacles.contains_key(*place))
                {
                    return Err(missing(lost, "receptacleType"));
                }
                let own = |list: &[&str]| list.iter().map(|&id| id.to_owned()).collect();
                Ok(ObjectFacts {
                    id: (*id).to_owned(),
                    kind: draft.kind.map(str::to_owned),
                    affordances: draft.affordances,
                    location: draft.location.map(str::to_owned),
                    inside: own(&draft.inside),
                    holds: own(&draft.holds),
                })
            })
            .collect::<Result<Vec<_>, Complaint>>()?;
        Ok(Problem {
            name,
            start: self
                .start
                .ok_or_else(|| complain("the agent has no atLocation".to_owned()))?
                .to_owned(),
            receptacles,
            objects,
            can_contain: self
                .can_contain
                .iter()
                .map(|&(receptacle, object)| (receptacle.to_owned(), object.to_owned()))
                .collect(),
            kind,
            goal_object: goal_object.to_owned(),
            goal_target: goal_target.to_owned(),
        }
        .canonical())
    }
}
