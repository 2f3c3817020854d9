//! The planner against exhaustive search, on small worlds with every quirk the rules have.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use lens_env::alfworld::problem::{Affordances, ObjectFacts, Problem, ReceptacleFacts};
use lens_env::alfworld::{Episode, Game, TaskKind, Wording, planner};
use lens_opd::random::{Purpose, Stream, StreamKey};

const PLACES: [&str; 5] = ["Shelf", "Cabinet", "SinkBasin", "Microwave", "Fridge"];
const THINGS: [&str; 2] = ["Mug", "Apple"];

fn draw(stream: &mut Stream, bound: usize) -> usize {
    stream.below(bound as u64).expect("the bound is positive") as usize
}

fn happens(stream: &mut Stream, chances: usize) -> bool {
    draw(stream, 100) < chances
}

/// A small world: few receptacles, shared locations, doors, things in two receptacles at once, lamps.
fn world(stream: &mut Stream, kind: TaskKind) -> Problem {
    let mut receptacles: Vec<ReceptacleFacts> = Vec::new();
    let device = match kind {
        TaskKind::Clean => Some("SinkBasin"),
        TaskKind::Heat => Some("Microwave"),
        TaskKind::Cool => Some("Fridge"),
        TaskKind::Place | TaskKind::Light | TaskKind::Two => None,
    };
    let others = (0..3).map(|_| PLACES[draw(stream, 2)]).collect::<Vec<_>>();
    for (number, name) in others.into_iter().chain(device).enumerate() {
        let shared =
            happens(stream, 25).then(|| receptacles.last().map(|r| r.location.clone())).flatten();
        receptacles.push(ReceptacleFacts {
            id: format!("{name}_bar_{number}"),
            kind: format!("{name}Type"),
            location: shared.unwrap_or_else(|| format!("loc_bar_{number}")),
            openable: happens(stream, 50),
        });
    }
    let mut objects: Vec<ObjectFacts> = Vec::new();
    for number in 0..3 {
        let name = THINGS[usize::from(number == 2)];
        let able = Affordances {
            pickupable: true,
            cleanable: happens(stream, 80),
            heatable: happens(stream, 80),
            coolable: happens(stream, 80),
            cool: happens(stream, 10),
            ..Affordances::default()
        };
        objects.push(object(name, number, able, &receptacles, stream));
    }
    if kind == TaskKind::Light {
        let lamp = Affordances { toggleable: true, ..Affordances::default() };
        for number in 3..=4 {
            objects.push(object("DeskLamp", number, lamp, &receptacles, stream));
        }
    }
    let mut can_contain = Vec::new();
    for place in PLACES {
        for thing in THINGS {
            if happens(stream, 75) {
                can_contain.push((format!("{place}Type"), format!("{thing}Type")));
            }
        }
    }
    let target = if kind == TaskKind::Light {
        "DeskLampType"
    } else {
        ["ShelfType", "CabinetType"][draw(stream, 2)]
    };
    Problem {
        name: "small".into(),
        start: "loc_bar_start".into(),
        receptacles,
        objects,
        can_contain,
        kind,
        goal_object: "MugType".into(),
        goal_target: target.into(),
    }
    .canonical()
}

fn object(
    name: &str,
    number: usize,
    affordances: Affordances,
    receptacles: &[ReceptacleFacts],
    stream: &mut Stream,
) -> ObjectFacts {
    let first = draw(stream, receptacles.len());
    let mut inside = vec![receptacles[first].id.clone()];
    if happens(stream, 30) {
        inside.push(receptacles[draw(stream, receptacles.len())].id.clone());
    }
    ObjectFacts {
        id: format!("{name}_bar_{number}"),
        kind: Some(format!("{name}Type")),
        affordances,
        location: Some(receptacles[first].location.clone()),
        inside,
        holds: Vec::new(),
    }
}

/// The length of the shortest way to the goal, by trying everything that could matter. `None` if there is none. Closing
/// a door, slicing and treatments the goal does not ask for only take possibilities away. Gives up after `most` states.
fn search(start: &Episode, most: usize) -> Option<usize> {
    let mut idle =
        vec!["look", "inventory", "help", "examine", "slice", "close", "clean", "heat", "cool"];
    let asked_for = match start.game().goal().kind {
        TaskKind::Clean => "clean",
        TaskKind::Heat => "heat",
        TaskKind::Cool => "cool",
        TaskKind::Place | TaskKind::Light | TaskKind::Two => "",
    };
    idle.retain(|verb| *verb != asked_for);
    let mut seen = HashSet::from([start.state().clone()]);
    let mut queue = VecDeque::from([(start.clone(), 0)]);
    while let Some((episode, depth)) = queue.pop_front() {
        if episode.won() {
            return Some(depth);
        }
        if seen.len() > most {
            return None;
        }
        for command in
            episode.commands().iter().filter(|c| !idle.iter().any(|verb| c.starts_with(verb)))
        {
            let mut next = episode.clone();
            next.step(command);
            if seen.insert(next.state().clone()) {
                queue.push_back((next, depth + 1));
            }
        }
    }
    None
}

#[test]
fn plans_are_as_short_as_exhaustive_search_from_any_state() {
    let mut solved = 0;
    let mut hopeless = 0;
    for (number, kind) in TaskKind::ALL.into_iter().cycle().take(120).enumerate() {
        let mut stream = StreamKey::new(4, 0, number as u64, Purpose::Data, 0).open();
        let problem = world(&mut stream, kind);
        let game =
            Arc::new(Game::new(&problem, Wording::Second, "a small task.".into(), Vec::new()));
        let mut episode = Episode::new(game);
        for _ in 0..draw(&mut stream, 12) {
            let commands = episode.commands();
            episode.step(&commands[draw(&mut stream, commands.len())]);
        }
        let plan = planner::shortest_plan(episode.game(), episode.state());
        // What the planner thinks hopeless is searched far, but not to the last state.
        let most = if plan.is_some() { usize::MAX } else { 4000 };
        let best = search(&episode, most);
        assert_eq!(
            plan.as_ref().map(Vec::len),
            best,
            "world {number}, {kind}: {plan:?}\n{}",
            problem.text()
        );
        match plan {
            Some(plan) => {
                solved += 1;
                for command in &plan {
                    episode.step(command);
                }
                assert!(episode.won(), "world {number}, {kind}: {plan:?} does not win");
            }
            None => hopeless += 1,
        }
    }
    assert!(
        solved > 70 && hopeless > 5,
        "the worlds are too much alike: {solved} solved, {hopeless} hopeless"
    );
}
