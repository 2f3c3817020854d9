//! What is found in houses: which furniture a room has, what lies where, and what can be done with it.
//!
//! The numbers are counted from ALFWorld's training games, so that generated houses feel like real ones.

use std::sync::LazyLock;

use crate::alfworld::problem::Affordances;

/// A kind of room; a house is one room, as in ALFWorld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Room {
    /// With stove, sink, fridge and many cabinets.
    Kitchen,
    /// With sofa, tables and a television.
    LivingRoom,
    /// With bed, desk and drawers.
    Bedroom,
    /// With toilet, sink and towels.
    Bathroom,
}

impl Room {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Kitchen, Self::LivingRoom, Self::Bedroom, Self::Bathroom];

    /// The word used in task names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kitchen => "kitchen",
            Self::LivingRoom => "living_room",
            Self::Bedroom => "bedroom",
            Self::Bathroom => "bathroom",
        }
    }

    /// The receptacles found in it.
    pub(super) fn furniture(self) -> &'static [Furniture] {
        &TABLES[self as usize].0
    }

    /// The things found in it.
    pub(super) fn belongings(self) -> &'static [Belonging] {
        &TABLES[self as usize].1
    }
}

/// A kind of receptacle in a kind of room.
#[derive(Debug)]
pub(super) struct Furniture {
    pub(super) kind: &'static str,
    /// How many in a hundred can be opened.
    pub(super) openable: u8,
    /// How many in a hundred are reached from where another receptacle is.
    pub(super) shares: u8,
    /// Which kinds that may be.
    pub(super) partners: Vec<&'static str>,
    /// How many there are: one of these, each as likely as the others.
    pub(super) counts: Vec<u8>,
}

/// A kind of thing in a kind of room.
#[derive(Debug)]
pub(super) struct Belonging {
    pub(super) kind: &'static str,
    /// In how many of a hundred houses it is found.
    pub(super) presence: u8,
    /// A hundred times how many there are on average where it is found, from 100 to 300.
    pub(super) amount: u16,
    /// How many in a hundred lie in no receptacle.
    pub(super) loose: u8,
    /// Where it lies, with weights.
    pub(super) places: Vec<(&'static str, u8)>,
}

const FURNITURE: &str = include_str!("furniture.txt");
const THINGS: &str = include_str!("things.txt");

/// The two tables, read once, by room.
static TABLES: LazyLock<[(Vec<Furniture>, Vec<Belonging>); 4]> = LazyLock::new(|| {
    Room::ALL.map(|room| {
        (
            rows(FURNITURE, room).filter_map(read_furniture).collect(),
            rows(THINGS, room).filter_map(read_belonging).collect(),
        )
    })
});

/// The lines of a table that are about a room, without the room's name.
fn rows(table: &'static str, room: Room) -> impl Iterator<Item = &'static str> {
    table.lines().filter_map(move |line| line.strip_prefix(room.word())?.strip_prefix(' '))
}

fn read_furniture(line: &'static str) -> Option<Furniture> {
    let mut words = line.split_whitespace();
    Some(Furniture {
        kind: words.next()?,
        openable: words.next()?.parse().ok()?,
        shares: words.next()?.parse().ok()?,
        partners: words.next()?.split(',').filter(|kind| *kind != "-").collect(),
        counts: words.map(|count| count.parse().ok()).collect::<Option<_>>()?,
    })
}

fn read_belonging(line: &'static str) -> Option<Belonging> {
    let mut words = line.split_whitespace();
    let (kind, presence) = (words.next()?, words.next()?.parse().ok()?);
    let (amount, loose) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut places = Vec::new();
    while let Some(place) = words.next() {
        places.push((place, words.next()?.parse().ok()?));
    }
    Some(Belonging { kind, presence, amount, loose, places })
}

/// Things that no one can carry.
const FIXED: &[&str] = &[
    "Bathtub",
    "Blinds",
    "Chair",
    "Curtains",
    "DeskLamp",
    "FloorLamp",
    "HousePlant",
    "LaundryHamperLid",
    "LightSwitch",
    "Mirror",
    "Painting",
    "Poster",
    "ShowerDoor",
    "ShowerGlass",
    "Sink",
    "StoveKnob",
    "Television",
    "Window",
];
const CLEANABLE: &[&str] = &[
    "Apple",
    "Bowl",
    "ButterKnife",
    "Cloth",
    "Cup",
    "DishSponge",
    "Egg",
    "Fork",
    "Kettle",
    "Knife",
    "Ladle",
    "Lettuce",
    "Mug",
    "Pan",
    "Plate",
    "Pot",
    "Potato",
    "SoapBar",
    "Spatula",
    "Spoon",
    "Tomato",
];
const HEATABLE: &[&str] = &["Apple", "Bread", "Cup", "Egg", "Mug", "Plate", "Potato", "Tomato"];
const COOLABLE: &[&str] = &[
    "Apple",
    "Bowl",
    "Bread",
    "Cup",
    "Egg",
    "Lettuce",
    "Mug",
    "Pan",
    "Plate",
    "Pot",
    "Potato",
    "Tomato",
    "WineBottle",
];
const SLICEABLE: &[&str] = &["Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato"];
const VESSELS: &[&str] = &["Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"];
const LAMPS: &[&str] = &["DeskLamp", "FloorLamp"];

/// Small things that may lie in a vessel.
pub(super) const CUTLERY: &[&str] =
    &["ButterKnife", "Fork", "Knife", "Ladle", "Newspaper", "Pen", "Pencil", "Spatula", "Spoon"];

/// What can be done with a kind of thing.
pub(super) fn affordances(kind: &str) -> Affordances {
    Affordances {
        pickupable: !FIXED.contains(&kind),
        cleanable: CLEANABLE.contains(&kind),
        heatable: HEATABLE.contains(&kind),
        coolable: COOLABLE.contains(&kind),
        toggleable: LAMPS.contains(&kind),
        sliceable: SLICEABLE.contains(&kind),
        vessel: VESSELS.contains(&kind),
        cool: false,
    }
}

/// Food, dishes, and what else a kind of receptacle takes beyond what is usually found in it.
const EXTRA_ROOM: &[(&str, &[&str])] = &[
    ("CounterTop", &["HandTowel", "Ladle", "Kettle", "TissueBox"]),
    ("DiningTable", &["CellPhone", "Bowl", "Mug", "Plate"]),
    ("SideTable", &["Bowl", "Mug", "Plate", "SoapBottle", "Laptop", "HandTowel", "Pan", "Pot"]),
    ("Fridge", &["Glassbottle"]),
    ("Microwave", &["Bread", "Tomato", "Glassbottle"]),
    ("SinkBasin", &["Pan", "Pot", "HandTowel", "Mug"]),
    ("Shelf", &["Pot", "Kettle", "Box", "HandTowel", "Mug", "Plate"]),
    ("Cabinet", &["Book", "HandTowel", "Plunger"]),
    ("Drawer", &["SoapBottle", "SprayBottle", "HandTowel", "Newspaper"]),
    ("Safe", &["CreditCard", "CellPhone", "KeyChain", "CD"]),
    ("Toilet", &["HandTowel"]),
    ("Cart", &["HandTowel", "Plunger"]),
    ("BathtubBasin", &["HandTowel"]),
    ("GarbageCan", &["Cloth", "HandTowel", "TissueBox", "Newspaper"]),
    ("ArmChair", &["CellPhone", "Book", "Newspaper", "Pillow"]),
    ("Ottoman", &["KeyChain", "CreditCard", "Box", "Pillow", "Newspaper"]),
    ("Sofa", &["KeyChain", "Newspaper", "CellPhone"]),
    ("Desk", &["Box", "BasketBall", "TennisRacket"]),
    ("Bed", &["BaseballBat", "BasketBall", "TennisRacket"]),
    ("LaundryHamper", &["Cloth"]),
];

/// The kinds of receptacles that take a kind of thing; none for things that cannot be carried.
pub(super) fn containers(room: Room, thing: &str) -> Vec<&'static str> {
    if FIXED.contains(&thing) {
        return Vec::new();
    }
    let same = room.belongings().iter().filter(|belonging| belonging.kind == thing);
    let usual = same.flat_map(|belonging| belonging.places.iter().map(|(place, _)| *place));
    let extra = EXTRA_ROOM.iter().filter(|(_, things)| things.contains(&thing));
    usual.chain(extra.map(|(place, _)| *place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        let lines = |table: &str| table.lines().filter(|line| !line.starts_with('#')).count();
        let furniture: usize = Room::ALL.iter().map(|room| room.furniture().len()).sum();
        let belongings: usize = Room::ALL.iter().map(|room| room.belongings().len()).sum();
        assert_eq!((furniture, belongings), (lines(FURNITURE), lines(THINGS)));
    }

    #[test]
    fn things_lie_in_furniture_of_their_room() {
        for room in Room::ALL {
            let known =
                |kind: &str| room.furniture().iter().any(|furniture| furniture.kind == kind);
            for belonging in room.belongings() {
                for (place, _) in &belonging.places {
                    assert!(known(place), "{}: {} in {place}", room.word(), belonging.kind);
                }
            }
            for partner in room.furniture().iter().flat_map(|furniture| &furniture.partners) {
                assert!(known(partner), "{}: {partner}", room.word());
            }
        }
    }
}
