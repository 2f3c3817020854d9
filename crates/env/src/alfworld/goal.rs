//! The six kinds of task: their names, their sentences and their goals in a problem text.

use std::fmt;

/// A kind of task.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// Put a thing somewhere.
    #[serde(rename = "pick_and_place_simple")]
    Place,
    /// Hold a thing where a lamp is that has been switched on.
    #[serde(rename = "look_at_obj_in_light")]
    Light,
    /// Put a cleaned thing somewhere.
    #[serde(rename = "pick_clean_then_place_in_recep")]
    Clean,
    /// Put a heated thing somewhere.
    #[serde(rename = "pick_heat_then_place_in_recep")]
    Heat,
    /// Put a cooled thing somewhere.
    #[serde(rename = "pick_cool_then_place_in_recep")]
    Cool,
    /// Put two things of a type into one and the same place.
    #[serde(rename = "pick_two_obj_and_place")]
    Two,
}

impl TaskKind {
    /// All kinds, in ALFWorld's order.
    pub const ALL: [Self; 6] =
        [Self::Place, Self::Light, Self::Clean, Self::Heat, Self::Cool, Self::Two];

    /// ALFWorld's name of the kind, with which its task folders begin.
    pub fn name(self) -> &'static str {
        match self {
            Self::Place => "pick_and_place_simple",
            Self::Light => "look_at_obj_in_light",
            Self::Clean => "pick_clean_then_place_in_recep",
            Self::Heat => "pick_heat_then_place_in_recep",
            Self::Cool => "pick_cool_then_place_in_recep",
            Self::Two => "pick_two_obj_and_place",
        }
    }

    /// The two sentences ALFWorld chooses from; `{o}` is the thing, `{t}` the place or lamp.
    fn sentences(self) -> [&'static str; 2] {
        match self {
            Self::Place => ["put a {o} in {t}", "put some {o} on {t}"],
            Self::Light => ["look at {o} under the {t}", "examine the {o} with the {t}"],
            Self::Clean => ["put a clean {o} in {t}", "clean some {o} and put it in {t}"],
            Self::Heat => ["put a hot {o} in {t}", "heat some {o} and put it in {t}"],
            Self::Cool => ["put a cool {o} in {t}", "cool some {o} and put it in {t}"],
            Self::Two => ["put two {o} in {t}", "find two {o} and put them in {t}"],
        }
    }

    /// The goal as a problem text writes it; `@o` and `@t` stand for the two types.
    fn shape(self) -> &'static str {
        match self {
            Self::Place => {
                "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) \
                 (objectType ?o @o) (receptacleType ?r @t))))))"
            }
            Self::Light => {
                "(:goal (and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and \
                 (objectType ?ot @t) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) \
                 (atLocation ?a ?l) (inReceptacle ?ot ?r))) (exists (?o - object ?a - agent) (and \
                 (objectType ?o @o) (holds ?a ?o)))))"
            }
            Self::Clean => {
                "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (cleanable ?o) \
                 (objectType ?o @o) (receptacleType ?r @t) (isClean ?o) (inReceptacle ?o ?r))))))"
            }
            Self::Heat => {
                "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) \
                 (objectType ?o @o) (receptacleType ?r @t) (isHot ?o) (inReceptacle ?o ?r))))))"
            }
            Self::Cool => {
                "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (coolable ?o) \
                 (objectType ?o @o) (receptacleType ?r @t) (isCool ?o) (inReceptacle ?o ?r))))))"
            }
            Self::Two => {
                "(:goal (and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 @o) \
                 (receptacleType ?r @t) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) \
                 (objectType ?o2 @o) (receptacleType ?r @t) (inReceptacle ?o2 ?r))))))))"
            }
        }
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What has to be achieved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Goal {
    /// The kind of task.
    pub kind: TaskKind,
    /// The thing's type as sentences print it: "mug".
    pub object: String,
    /// The place's type, or the lamp's: "coffeemachine", "desklamp".
    pub target: String,
}

impl Goal {
    /// How many ways there are to say a goal.
    pub const WORDINGS: usize = 2;

    /// The goal as a sentence with its full stop, in one of two wordings.
    pub fn sentence(&self, wording: usize) -> String {
        let template = self.kind.sentences()[wording % Self::WORDINGS];
        let mut text = template.replace("{o}", &self.object).replace("{t}", &self.target);
        text.push('.');
        text
    }

    /// Reads a goal from one of ALFWorld's sentences; `None` for sentences people wrote.
    pub fn from_sentence(sentence: &str) -> Option<Self> {
        let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
        // "put a clean mug in shelf" also fits "put a {o} in {t}" with two words for {o}, so words must be single.
        TaskKind::ALL.iter().find_map(|&kind| {
            kind.sentences().iter().find_map(|template| {
                let (object, target) = match_template(template, sentence)?;
                Some(Self { kind, object: object.to_owned(), target: target.to_owned() })
            })
        })
    }

    /// The goal as a problem text writes it, with the types as given (`MugType`).
    pub(crate) fn problem_text(kind: TaskKind, object_type: &str, target_type: &str) -> String {
        kind.shape().replace("@o", object_type).replace("@t", target_type)
    }

    /// Recognizes the tokens of a `(:goal ...)` form, in lower case; types keep their `type` ending.
    pub(crate) fn from_tokens<'a>(tokens: &[&'a str]) -> Option<(TaskKind, &'a str, &'a str)> {
        TaskKind::ALL.iter().find_map(|&kind| {
            let shape = kind.shape().to_ascii_lowercase();
            let mut expected = tokens_of(&shape);
            let (mut object, mut target) = (None, None);
            for &token in tokens {
                let slot = match expected.next()? {
                    "@o" => &mut object,
                    "@t" => &mut target,
                    word if word == token => continue,
                    _ => return None,
                };
                if *slot.get_or_insert(token) != token {
                    return None;
                }
            }
            if expected.next().is_some() {
                return None;
            }
            Some((kind, object?, target?))
        })
    }
}

/// Splits well-formed text into parentheses and words.
fn tokens_of(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let length = if first == '(' || first == ')' {
            1
        } else {
            rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')').unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        Some(token)
    })
}

/// Fits a sentence to a template whose two holes take one word each.
fn match_template<'a>(template: &str, sentence: &'a str) -> Option<(&'a str, &'a str)> {
    let (before, rest) = template.split_once("{o}")?;
    let (between, after) = rest.split_once("{t}")?;
    let (object, target) =
        sentence.strip_prefix(before)?.strip_suffix(after)?.split_once(between)?;
    let word = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    (word(object) && word(target)).then_some((object, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_reads_back_as_its_goal() {
        for kind in TaskKind::ALL {
            let goal = Goal { kind, object: "soapbar".into(), target: "towelholder".into() };
            for wording in 0..Goal::WORDINGS {
                assert_eq!(Goal::from_sentence(&goal.sentence(wording)), Some(goal.clone()));
            }
        }
        assert_eq!(Goal::from_sentence("Place a clean mug by the coffee maker.."), None);
        assert_eq!(Goal::from_sentence(""), None);
    }

    #[test]
    fn every_goal_text_reads_back_as_its_goal() {
        for kind in TaskKind::ALL {
            let text = Goal::problem_text(kind, "MugType", "ShelfType").to_ascii_lowercase();
            let tokens: Vec<&str> = tokens_of(&text).collect();
            assert_eq!(Goal::from_tokens(&tokens), Some((kind, "mugtype", "shelftype")));
            assert_eq!(Goal::from_tokens(&tokens[..tokens.len() - 1]), None);
        }
    }

    #[test]
    fn a_pair_goal_must_name_one_type_twice() {
        let text = Goal::problem_text(TaskKind::Two, "MugType", "ShelfType").to_ascii_lowercase();
        let broken = text.replacen("mugtype", "cuptype", 1);
        assert_eq!(Goal::from_tokens(&tokens_of(&broken).collect::<Vec<_>>()), None);
    }
}
