//! The names players see: "cabinet 6" for `cabinet_bar__plus_00_dot_95_...`.

use std::collections::BTreeMap;

/// The part of an id that is printed.
fn base(id: &str) -> String {
    let head = id.split("_bar_").next().unwrap_or(id);
    // "sink..._sinkbasin" and "bathtub..._bathtubbasin" are not the same things as the sink and the bathtub.
    if id.contains("basin") { format!("{head}basin") } else { head.to_owned() }
}

/// Numbers the ids of a game. `ids` are all ids that occur in its facts, in lower case; the ids of each base
/// name get falling numbers in code-point order, so that the last one is number 1.
pub(crate) fn number<'a>(ids: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, (String, u32)> {
    let mut names: BTreeMap<&str, (String, u32)> = ids.map(|id| (id, (base(id), 0))).collect();
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    for (name, number) in names.values_mut().rev() {
        let last = given.entry(name.clone()).or_default();
        *last += 1;
        *number = *last;
    }
    names
}

/// Writes a list as the game does.
pub(crate) fn push_list<'a>(
    text: &mut String,
    article: &str,
    names: impl Iterator<Item = &'a str>,
) {
    let mut names = names.peekable();
    if names.peek().is_none() {
        text.push_str("nothing");
    }
    let mut first = true;
    while let Some(name) = names.next() {
        if !first {
            text.push_str(if names.peek().is_some() { ", " } else { ", and " });
        }
        first = false;
        text.push_str(article);
        text.push_str(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fall_in_id_order() {
        let ids = [
            "cabinet_bar_2",
            "cabinet_bar_1",
            "sink_bar_1",
            "sink_bar_1_bar_sinkbasin",
            "cabinet_bar_10",
        ];
        let names = number(ids.into_iter());
        assert_eq!(names["cabinet_bar_1"], ("cabinet".into(), 3));
        assert_eq!(names["cabinet_bar_10"], ("cabinet".into(), 2));
        assert_eq!(names["cabinet_bar_2"], ("cabinet".into(), 1));
        assert_eq!(names["sink_bar_1"], ("sink".into(), 1));
        assert_eq!(names["sink_bar_1_bar_sinkbasin"], ("sinkbasin".into(), 1));
    }

    #[test]
    fn two_things_are_joined_with_a_comma_as_well() {
        let list = |names: &[&str]| {
            let mut text = String::new();
            push_list(&mut text, "a ", names.iter().copied());
            text
        };
        assert_eq!(list(&[]), "nothing");
        assert_eq!(list(&["pen 3"]), "a pen 3");
        assert_eq!(list(&["pen 3", "cd 1"]), "a pen 3, and a cd 1");
        assert_eq!(list(&["pen 3", "cd 1", "mug 1"]), "a pen 3, a cd 1, and a mug 1");
    }
}
