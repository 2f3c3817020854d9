//! In which order places are searched: open and likely ones first, what must be opened later.

/// Where most things are found, most promising first. Places of one kind are visited in the order of the
/// list of admissible commands.
const COMMON: [&str; 27] = [
    "countertop",
    "diningtable",
    "sidetable",
    "desk",
    "coffeetable",
    "dresser",
    "toilet",
    "sofa",
    "bed",
    "armchair",
    "bathtubbasin",
    "tvstand",
    "sinkbasin",
    "garbagecan",
    "shelf",
    "cart",
    "fridge",
    "microwave",
    "ottoman",
    "laundryhamper",
    "cabinet",
    "drawer",
    "safe",
    "stoveburner",
    "coffeemachine",
    "toaster",
    "handtowelholder",
];

/// Places that hold hardly anything but these things.
const TOWEL_PLACES: [&str; 3] = ["handtowelholder", "towelholder", "toiletpaperhanger"];

/// Things that have a place of their own, which is tried first.
const SPECIAL: &[(&str, &[&str])] = &[
    ("desklamp", &["sidetable", "desk", "dresser", "shelf"]),
    ("pan", &["stoveburner"]),
    ("pot", &["stoveburner"]),
    ("kettle", &["stoveburner"]),
    ("mug", &["coffeemachine"]),
    ("handtowel", &["handtowelholder"]),
    ("towel", &["towelholder"]),
    ("pillow", &["bed", "sofa"]),
    ("book", &["bed"]),
    ("laptop", &["bed", "sofa"]),
    ("cellphone", &["bed"]),
    ("box", &["sofa"]),
    ("vase", &["shelf"]),
    ("statue", &["shelf"]),
    ("remotecontrol", &["coffeetable", "sofa"]),
];

/// The kinds of receptacles there are; anything else that can be examined is an object.
pub(super) fn is_receptacle(base: &str) -> bool {
    COMMON.contains(&base) || TOWEL_PLACES.contains(&base)
}

/// How early a kind of place is searched for a kind of thing; lower is earlier.
pub(super) fn rank(thing: &str, place: &str) -> usize {
    let special =
        SPECIAL.iter().find(|(name, _)| *name == thing).map_or(&[][..], |(_, places)| places);
    let first = special.iter().position(|name| *name == place);
    let common = || COMMON.iter().position(|name| *name == place).unwrap_or(COMMON.len());
    first.unwrap_or_else(|| special.len() + common())
}
