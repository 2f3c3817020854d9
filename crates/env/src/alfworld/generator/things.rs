//! Things in a house: what there is, and where it lies.

use lens_opd::random::Stream;

use super::house::{Fresh, House, chance, choose, type_name};
use super::knowledge::{self, Belonging, CUTLERY, Room};
use crate::alfworld::problem::{ObjectFacts, type_word};

/// How many in a hundred small things beside a vessel lie in it.
const IN_VESSEL: u8 = 2;
/// In how many kitchens in a hundred something in the fridge counts as cool from the start.
const COOL_FROM_THE_START: u8 = 18;

/// Puts things into a house.
pub(super) fn arrange(house: &House, stream: &mut Stream) -> Vec<ObjectFacts> {
    let mut fresh = Fresh::new();
    let mut objects = Vec::new();
    for belonging in house.room.belongings() {
        if !chance(stream, belonging.presence) {
            continue;
        }
        // One, and two more that are there or not, so that the average is the belonging's.
        let extra = (belonging.amount.saturating_sub(100) / 2) as u8;
        let count = 1 + u8::from(chance(stream, extra)) + u8::from(chance(stream, extra));
        for _ in 0..count {
            objects.push(place(belonging, house, &mut fresh, stream));
        }
    }
    fill_vessels(&mut objects, stream);
    if house.room == Room::Kitchen && chance(stream, COOL_FROM_THE_START) {
        let fridges = house.of_kind("Fridge");
        let in_fridge = |object: &ObjectFacts| {
            object.affordances.coolable
                && fridges.iter().any(|&r| object.inside.contains(&house.receptacles[r].id))
        };
        let cold: Vec<usize> =
            (0..objects.len()).filter(|&index| in_fridge(&objects[index])).collect();
        if let Some(&index) = choose(stream, &cold) {
            objects[index].affordances.cool = true;
        }
    }
    objects
}

fn place(
    belonging: &Belonging,
    house: &House,
    fresh: &mut Fresh,
    stream: &mut Stream,
) -> ObjectFacts {
    let mut object = ObjectFacts {
        id: fresh.id(belonging.kind, stream),
        kind: Some(type_name(belonging.kind)),
        affordances: knowledge::affordances(belonging.kind),
        location: None,
        inside: Vec::new(),
        holds: Vec::new(),
    };
    let receptacle = if chance(stream, belonging.loose) {
        None
    } else {
        draw_receptacle(belonging, house, stream)
    };
    match receptacle {
        Some(index) => {
            object.location = Some(house.receptacles[index].location.clone());
            object.inside.push(house.receptacles[index].id.clone());
            if let Some(lower) = house.stands_on[index] {
                object.inside.push(house.receptacles[lower].id.clone());
            }
        }
        None => object.location = choose(stream, &house.open_floor).cloned(),
    }
    object
}

/// A receptacle of one of the belonging's kinds, by weight; `None` where the house has none of them.
fn draw_receptacle(belonging: &Belonging, house: &House, stream: &mut Stream) -> Option<usize> {
    let present: Vec<(Vec<usize>, u64)> = belonging
        .places
        .iter()
        .map(|(kind, weight)| (house.of_kind(kind), u64::from(*weight)))
        .filter(|(members, _)| !members.is_empty())
        .collect();
    let mut left = stream.below(present.iter().map(|(_, weight)| weight).sum())?;
    for (members, weight) in &present {
        match left.checked_sub(*weight) {
            Some(rest) => left = rest,
            None => return choose(stream, members).copied(),
        }
    }
    None
}

/// Whether a desk lamp could stand in the house.
pub(super) fn has_room_for_a_lamp(house: &House) -> bool {
    let mut lamps = house.room.belongings().iter().filter(|belonging| belonging.kind == "DeskLamp");
    lamps.any(|lamp| lamp.places.iter().any(|(kind, _)| !house.of_kind(kind).is_empty()))
}

/// Lets some small things lie in the vessels beside them.
fn fill_vessels(objects: &mut [ObjectFacts], stream: &mut Stream) {
    for inner in 0..objects.len() {
        let small =
            objects[inner].kind.as_deref().is_some_and(|kind| CUTLERY.contains(&type_word(kind)));
        let Some(receptacle) = objects[inner].inside.first().cloned().filter(|_| small) else {
            continue;
        };
        let id = objects[inner].id.clone();
        for outer in objects.iter_mut() {
            if outer.affordances.vessel
                && outer.inside.contains(&receptacle)
                && chance(stream, IN_VESSEL)
            {
                outer.holds.push(id.clone());
            }
        }
    }
}

/// Which types of the house's receptacles take which types of its things.
pub(super) fn can_contain(house: &House, objects: &[ObjectFacts]) -> Vec<(String, String)> {
    let mut receptacles: Vec<&str> =
        house.receptacles.iter().map(|receptacle| receptacle.kind.as_str()).collect();
    receptacles.sort_unstable();
    receptacles.dedup();
    let mut things: Vec<&str> =
        objects.iter().filter_map(|object| object.kind.as_deref()).collect();
    things.sort_unstable();
    things.dedup();
    let pairs = receptacles
        .iter()
        .flat_map(|receptacle| things.iter().map(move |thing| (*receptacle, *thing)));
    pairs
        .filter(|(receptacle, thing)| {
            knowledge::can_contain(house.room, type_word(receptacle), type_word(thing))
        })
        .map(|(receptacle, thing)| (receptacle.to_owned(), thing.to_owned()))
        .collect()
}
