//! The odd cases that real listings have, each planted in one product of a hundred.

use super::options::{self, MOST_VALUES};
use super::product::Thing;
use super::text::{Title, sentence};
use super::{Dice, RawProduct};

/// Plants what belongs into the product with this number. False if the product should not be a goal, because what it
/// is asked for cannot be had.
pub(super) fn plant(
    number: u64,
    thing: &Thing,
    product: &mut RawProduct,
    title: &mut Title,
    dice: &mut Dice,
) -> bool {
    let mut value = |name: &str, value: &str| add_value(product, thing, name, value, dice);
    match number % 100 {
        3 => value("size", "12\" x 18\""),
        7 => value("style", "the maker's choice"),
        13 => value("color", "soft\u{a0}blue"),
        19 => value("color", "print_04"),
        23 => value("color", "black/white"),
        29 => value("color", "crème brûlée"),
        31 => {
            value("style", "classic");
            value("pattern name", "classic");
        }
        37 => value("color", "washed black"),
        41 => title.clear(),
        43 => product.small_description.push(" ".to_owned()),
        47 => product.pricing = Some("$1,284.50".to_owned()),
        53 => {
            value("style", "reviews");
            return false;
        }
        59 => {
            title.push("★ 5\u{a0}Stars ❤\u{fe0f} 👕", false);
            product.small_description.insert(0, "☑ Approved: 100% happy™ ¼ cup".to_owned());
        }
        61 => value("color", "shade black137"),
        67 => title.push("<b>Bold</b> & \"Quoted\" [2 Pack] 5'6", false),
        71 => product.small_description[0].push_str(" \n\tSecond line. \u{a0}"),
        73 => {
            let more: Vec<String> = (0..160).map(|_| sentence(thing, dice)).collect();
            product.full_description.push_str(&more.join(" "));
        }
        79 => {
            let category = thing.department.category;
            let many = options::values("size", MOST_VALUES, category, dice);
            product.customization_options = vec![("size".to_owned(), many)];
        }
        83 => product.small_description = vec![String::new()],
        89 => value("style", "red, and ready \\ steady"),
        97 => product.pricing = Some("$20.00 - $20.00".to_owned()),
        _ => {}
    }
    true
}

/// Adds a value to an option, which gets two ordinary values first if the product does not have it.
fn add_value(product: &mut RawProduct, thing: &Thing, name: &str, value: &str, dice: &mut Dice) {
    let known = product.customization_options.iter_mut().find(|(known, _)| known == name);
    if let Some((_, values)) = known {
        values.push(value.to_owned());
        return;
    }
    let mut values = options::values(name, 2, thing.department.category, dice);
    values.push(value.to_owned());
    product.customization_options.push((name.to_owned(), values));
}
