//! A house: its receptacles and the places from which they are reached.

use std::collections::HashSet;
use std::fmt::Write as _;

use lens_opd::random::{Purpose, Stream, StreamKey};

use super::knowledge::Room;
use crate::alfworld::problem::ReceptacleFacts;

/// A house without its things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct House {
    pub(super) room: Room,
    pub(super) number: u32,
    pub(super) receptacles: Vec<ReceptacleFacts>,
    /// For each receptacle, the one it stands on; what lies in the first lies in the second as well.
    pub(super) stands_on: Vec<Option<usize>>,
    /// Locations without a receptacle.
    pub(super) open_floor: Vec<String>,
}

/// The stream for houses; games draw from others.
const HOUSES: u64 = 0;
/// Locations without receptacles, on one of which the agent starts.
const OPEN_FLOOR: usize = 8;

/// A draw of `chances` in a hundred.
pub(super) fn chance(stream: &mut Stream, chances: u8) -> bool {
    stream.below(100).is_some_and(|draw| draw < u64::from(chances))
}

/// A uniform choice.
pub(super) fn choose<'a, T>(stream: &mut Stream, items: &'a [T]) -> Option<&'a T> {
    stream.below(items.len() as u64).and_then(|index| items.get(index as usize))
}

/// A type's name in a problem: `MugType`.
pub(super) fn type_name(kind: &str) -> String {
    format!("{kind}Type")
}

/// Draws ids and locations that were not drawn before.
pub(super) struct Fresh {
    used: HashSet<String>,
}

impl Fresh {
    pub(super) fn new() -> Self {
        Self { used: HashSet::new() }
    }

    /// An id in the simulator's manner: a kind and three coordinates.
    pub(super) fn id(&mut self, kind: &str, stream: &mut Stream) -> String {
        let (head, tail) = match kind {
            "SinkBasin" => ("Sink", "_bar_SinkBasin"),
            "BathtubBasin" => ("Bathtub", "_bar_BathtubBasin"),
            other => (other, ""),
        };
        loop {
            let mut id = head.to_owned();
            for (low, high) in [(-400, 400), (0, 250), (-400, 400)] {
                let at = low + stream.below((high - low + 1) as u64).unwrap_or(0) as i64;
                let sign = if at < 0 { "minus" } else { "plus" };
                let _ = write!(id, "_bar__{sign}_{:02}_dot_{:02}", at.abs() / 100, at.abs() % 100);
            }
            id.push_str(tail);
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }

    /// A location: two steps of a grid, a direction and a tilt.
    pub(super) fn location(&mut self, stream: &mut Stream) -> String {
        loop {
            let mut id = "loc".to_owned();
            for _ in 0..2 {
                let at = stream.below(25).unwrap_or(0) as i64 - 12;
                let sign = if at < 0 { "_minus_" } else { "" };
                let _ = write!(id, "_bar_{sign}{}", at.abs());
            }
            let direction = stream.below(4).unwrap_or(0);
            let tilt =
                choose(stream, &["60", "60", "60", "45", "45", "30"]).copied().unwrap_or("60");
            let _ = write!(id, "_bar_{direction}_bar_{tilt}");
            if self.used.insert(id.clone()) {
                return id;
            }
        }
    }
}

impl House {
    /// House `number` of the set that `seed` names.
    pub(super) fn build(seed: u64, room: Room, number: u32) -> Self {
        let mut stream =
            StreamKey::new(seed, HOUSES, u64::from(number), Purpose::Data, room as u32).open();
        let mut fresh = Fresh::new();
        let mut receptacles: Vec<ReceptacleFacts> = Vec::new();
        for furniture in room.furniture() {
            let count = choose(&mut stream, furniture.counts).copied().unwrap_or(0);
            let mut openable = chance(&mut stream, furniture.openable);
            for _ in 0..count {
                // Cabinets and drawers of a house mostly agree on whether they open.
                if chance(&mut stream, 40) {
                    openable = chance(&mut stream, furniture.openable);
                }
                let (share, partners) = furniture.shares;
                let shared = chance(&mut stream, share)
                    .then(|| {
                        let fits = |other: &&ReceptacleFacts| {
                            partners.iter().any(|partner| other.kind == type_name(partner))
                        };
                        let others: Vec<&ReceptacleFacts> =
                            receptacles.iter().filter(fits).collect();
                        choose(&mut stream, &others).map(|other| other.location.clone())
                    })
                    .flatten();
                receptacles.push(ReceptacleFacts {
                    id: fresh.id(furniture.kind, &mut stream),
                    kind: type_name(furniture.kind),
                    location: shared.unwrap_or_else(|| fresh.location(&mut stream)),
                    openable,
                });
            }
        }
        let stands_on =
            receptacles.iter().map(|upper| foundation(upper, &receptacles, &mut stream)).collect();
        let open_floor = (0..OPEN_FLOOR).map(|_| fresh.location(&mut stream)).collect();
        Self { room, number, receptacles, stands_on, open_floor }
    }

    /// The receptacles of a kind.
    pub(super) fn of_kind(&self, kind: &str) -> Vec<usize> {
        let name = type_name(kind);
        (0..self.receptacles.len()).filter(|&index| self.receptacles[index].kind == name).collect()
    }
}

/// What a receptacle stands on, if anything.
fn foundation(
    upper: &ReceptacleFacts,
    all: &[ReceptacleFacts],
    stream: &mut Stream,
) -> Option<usize> {
    let (chances, kinds): (u8, &[&str]) = match upper.kind.as_str() {
        "CoffeeMachineType" => (80, &["CounterTopType", "DiningTableType"]),
        "StoveBurnerType" => (32, &["CounterTopType", "StoveBurnerType"]),
        "HandTowelHolderType" => (5, &["CounterTopType"]),
        "SafeType" => (30, &["CabinetType", "DresserType"]),
        _ => return None,
    };
    if !chance(stream, chances) {
        return None;
    }
    let lower =
        |&index: &usize| all[index].id != upper.id && kinds.contains(&all[index].kind.as_str());
    let candidates: Vec<usize> = (0..all.len()).filter(lower).collect();
    // Where the two are reached from one location, they belong together.
    let near = candidates.iter().copied().find(|&index| all[index].location == upper.location);
    near.or_else(|| choose(stream, &candidates).copied())
}
