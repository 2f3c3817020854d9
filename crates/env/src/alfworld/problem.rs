//! A problem as facts: what a `pddl_problem` text says, and how such a text is written.

use std::fmt::Write as _;

use super::goal::{Goal, TaskKind};

/// A receptacle and the facts about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceptacleFacts {
    /// Its id: `Cabinet_bar__plus_00_dot_95_...`.
    pub id: String,
    /// Its type: `CabinetType`.
    pub kind: String,
    /// The location from which it is reached.
    pub location: String,
    /// Whether it starts closed and can be opened.
    pub openable: bool,
}

/// What can be done with an object, and how it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own in the file format")]
pub struct Affordances {
    /// It can be taken.
    pub pickupable: bool,
    /// It can be cleaned.
    pub cleanable: bool,
    /// It can be heated.
    pub heatable: bool,
    /// It can be cooled.
    pub coolable: bool,
    /// It can be switched on.
    pub toggleable: bool,
    /// It can be sliced.
    pub sliceable: bool,
    /// Things can lie in it.
    pub vessel: bool,
    /// It starts cool.
    pub cool: bool,
}

/// An object and the facts about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Its id: `Mug_bar__minus_00_dot_82_...`.
    pub id: String,
    /// Its type: `MugType`. In two of the real games a cracked egg has none.
    pub kind: Option<String>,
    /// What can be done with it.
    pub affordances: Affordances,
    /// The location it is at, if any.
    pub location: Option<String>,
    /// The receptacles it lies in.
    pub inside: Vec<String>,
    /// The objects that lie in it.
    pub holds: Vec<String>,
}

/// Everything a problem text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The problem's name: `plan_trial_T...`.
    pub name: String,
    /// The agent's first location.
    pub start: String,
    /// The receptacles.
    pub receptacles: Vec<ReceptacleFacts>,
    /// The objects.
    pub objects: Vec<ObjectFacts>,
    /// Which receptacle types take which object types.
    pub can_contain: Vec<(String, String)>,
    /// The kind of task.
    pub kind: TaskKind,
    /// The type of the thing the goal is about.
    pub goal_object: String,
    /// The type of the goal's place or lamp.
    pub goal_target: String,
}

impl Problem {
    /// The goal with types as sentences print them.
    pub fn goal(&self) -> Goal {
        Goal {
            kind: self.kind,
            object: type_word(&self.goal_object).to_ascii_lowercase(),
            target: type_word(&self.goal_target).to_ascii_lowercase(),
        }
    }

    /// Puts every list into the order in which the parser returns it, and ids and types into lower case.
    #[must_use]
    pub fn canonical(mut self) -> Self {
        let lower = |text: &mut String| text.make_ascii_lowercase();
        for text in [&mut self.name, &mut self.start, &mut self.goal_object, &mut self.goal_target]
        {
            lower(text);
        }
        for receptacle in &mut self.receptacles {
            lower(&mut receptacle.id);
            lower(&mut receptacle.kind);
            lower(&mut receptacle.location);
        }
        for object in &mut self.objects {
            lower(&mut object.id);
            for text in [&mut object.kind, &mut object.location].into_iter().flatten() {
                lower(text);
            }
            for list in [&mut object.inside, &mut object.holds] {
                list.iter_mut().for_each(lower);
                list.sort_unstable();
                list.dedup();
            }
        }
        for (receptacle, object) in &mut self.can_contain {
            lower(receptacle);
            lower(object);
        }
        self.receptacles.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        self.objects.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        self.can_contain.sort_unstable();
        self.can_contain.dedup();
        self
    }

    /// The problem as a `pddl_problem` text that ALFWorld's own engine reads.
    pub fn text(&self) -> String {
        let mut text = format!(
            "\n(define (problem {})\n(:domain alfred)\n(:objects\nagent1 - agent\n",
            self.name
        );
        let mut declare = |name: &str, kind: &str| {
            let _ = writeln!(text, "        {name} - {kind}");
        };
        self.objects.iter().for_each(|object| declare(&object.id, "object"));
        self.object_types().iter().for_each(|name| declare(name, "otype"));
        self.receptacle_types().iter().for_each(|name| declare(name, "rtype"));
        self.receptacles.iter().for_each(|receptacle| declare(&receptacle.id, "receptacle"));
        self.locations().iter().for_each(|location| declare(location, "location"));
        text.push_str("        )\n\n\n(:init\n\n\n");
        self.for_each_fact(|fact| {
            let _ = writeln!(text, "        ({})", fact.join(" "));
        });
        text.push_str("        )\n\n        ");
        text.push_str(&Goal::problem_text(self.kind, &self.goal_object, &self.goal_target));
        text.push_str("\n    )\n");
        text
    }

    fn for_each_fact(&self, mut say: impl FnMut(&[&str])) {
        for receptacle in &self.receptacles {
            say(&["receptacleType", &receptacle.id, &receptacle.kind]);
        }
        for object in &self.objects {
            if let Some(kind) = &object.kind {
                say(&["objectType", &object.id, kind]);
            }
        }
        for (receptacle, object) in &self.can_contain {
            say(&["canContain", receptacle, object]);
        }
        for object in &self.objects {
            let can = &object.affordances;
            for (name, holds) in [
                ("pickupable", can.pickupable),
                ("isReceptacleObject", can.vessel),
                ("cleanable", can.cleanable),
                ("heatable", can.heatable),
                ("coolable", can.coolable),
                ("isCool", can.cool),
                ("toggleable", can.toggleable),
                ("sliceable", can.sliceable),
            ] {
                if holds {
                    say(&[name, &object.id]);
                }
            }
        }
        for receptacle in self.receptacles.iter().filter(|receptacle| receptacle.openable) {
            say(&["openable", &receptacle.id]);
        }
        say(&["atLocation", "agent1", &self.start]);
        for object in &self.objects {
            for receptacle in &object.inside {
                say(&["inReceptacle", &object.id, receptacle]);
            }
            for inner in &object.holds {
                say(&["inReceptacleObject", inner, &object.id]);
            }
        }
        for receptacle in &self.receptacles {
            say(&["receptacleAtLocation", &receptacle.id, &receptacle.location]);
        }
        for object in &self.objects {
            if let Some(location) = &object.location {
                say(&["objectAtLocation", &object.id, location]);
            }
        }
    }

    /// The object types that occur, sorted; the goal's own is declared even where no object has it.
    fn object_types(&self) -> Vec<&str> {
        let goal_target = (self.kind == TaskKind::Light).then_some(self.goal_target.as_str());
        let named = self.objects.iter().filter_map(|object| object.kind.as_deref());
        let contained = self.can_contain.iter().map(|(_, object)| object.as_str());
        // The domain speaks of the two knives and of the sink by name.
        let always = ["KnifeType", "ButterKnifeType", "SinkType", &self.goal_object];
        sorted_types(named.chain(contained).chain(always).chain(goal_target))
    }

    fn receptacle_types(&self) -> Vec<&str> {
        let goal_target = (self.kind != TaskKind::Light).then_some(self.goal_target.as_str());
        let named = self.receptacles.iter().map(|receptacle| receptacle.kind.as_str());
        let containing = self.can_contain.iter().map(|(receptacle, _)| receptacle.as_str());
        // The domain speaks of the three devices by name.
        let always = ["SinkBasinType", "MicrowaveType", "FridgeType"];
        sorted_types(named.chain(containing).chain(always).chain(goal_target))
    }

    fn locations(&self) -> Vec<&str> {
        let of_receptacles = self.receptacles.iter().map(|receptacle| receptacle.location.as_str());
        let of_objects = self.objects.iter().filter_map(|object| object.location.as_deref());
        sorted_types(of_receptacles.chain(of_objects).chain([self.start.as_str()]))
    }
}

/// `mugtype` or `MugType` without its ending.
pub(crate) fn type_word(name: &str) -> &str {
    let end = name.len().saturating_sub("type".len());
    match name.get(end..) {
        Some(ending) if ending.eq_ignore_ascii_case("type") => &name[..end],
        _ => name,
    }
}

fn sorted_types<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable_by_key(|name| name.to_ascii_lowercase());
    names.dedup_by_key(|name| name.to_ascii_lowercase());
    names
}
