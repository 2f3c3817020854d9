//! Files that are not what they should be: a clear error or a sound shop, never a panic.

use std::path::Path;

use lens_env::EnvError;
use lens_env::webshop::{GoalKind, ObservationMode, Session, Shop, ShopSettings, generator};
use proptest::prelude::*;

const INSTRUCTIONS: &str = "items_ins_v2.json";
const PRODUCTS: &str = "items_shuffle.json";

fn folder(products: &str, instructions: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(PRODUCTS), products).unwrap();
    std::fs::write(folder.path().join(INSTRUCTIONS), instructions).unwrap();
    folder
}

fn open(folder: &Path) -> Result<Shop, EnvError> {
    Shop::open(folder, None, ShopSettings::default())
}

/// A product with one field put in place of an ordinary one.
fn product(key: &str, value: &serde_json::Value) -> String {
    let mut product = serde_json::json!({
        "asin": "LW00000001", "name": "Lamp", "category": "garden", "query": "lamps", "product_category": "A › B",
        "full_description": "", "small_description": ["Bright"], "pricing": "$5", "images": ["x"],
        "customization_options": {"Color": [{"value": "Red"}, {"value": "Blue", "price": null}], "Size": null},
    });
    product[key] = value.clone();
    format!("[{product}]")
}

fn message(products: &str, instructions: &str) -> String {
    let folder = folder(products, instructions);
    let text = open(folder.path()).expect_err("bad input").to_string();
    text.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn missing_files_are_named_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let error = open(empty.path()).unwrap_err().to_string();
    assert!(error.starts_with("items_shuffle.json or items_shuffle_1000.json in "), "{error}");
    assert!(error.contains("lens data webshop"), "{error}");
    std::fs::write(empty.path().join("items_shuffle_1000.json"), "[]").unwrap();
    let error = open(empty.path()).unwrap_err().to_string();
    assert!(error.contains("items_ins_v2_1000.json is missing: it belongs to "), "{error}");
    let folder = folder("[]", "{}");
    let human = ShopSettings { goals: GoalKind::Human, ..ShopSettings::default() };
    let error = Shop::open(folder.path(), None, human).unwrap_err().to_string();
    assert!(error.starts_with("items_human_ins.json is missing: put it beside "), "{error}");
    let nouns = folder.path().join("no-such-table.jsonl");
    let error = Shop::open(folder.path(), Some(&nouns), ShopSettings::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read "), "{error}");
}

#[test]
fn malformed_files_are_named_with_line_and_place() {
    assert_eq!(
        message("{}", "{}"),
        "items_shuffle.json:1: after 0 good entries: invalid type: map, expected a list at line 1 column 1"
    );
    assert_eq!(
        message("[]", "[]"),
        "items_ins_v2.json:1: after 0 good entries: invalid type: sequence, expected an object at line 1 column 1"
    );
    let plain = product("name", &"Lamp".into());
    let open = plain.trim_end_matches(']');
    assert!(message(open, "{}").contains("EOF while parsing"));
    let two = format!("{open},\n{{\"asin\": 5}}]");
    assert_eq!(
        message(&two, "{}"),
        "items_shuffle.json:2: after 1 good entries: invalid type: integer `5`, expected a string at line 2 column 11"
    );
    for key in ["asin", "name", "category", "query", "product_category", "full_description"] {
        let without = product(key, &serde_json::Value::Null);
        assert!(message(&without, "{}").contains("expected a string"), "{key}");
    }
    let text = message(&product("small_description", &5.into()), "{}");
    assert!(text.contains("a list of strings or one string"), "{text}");
    let text = message(&product("customization_options", &"Red".into()), "{}");
    assert!(text.contains("an object of option lists, or an empty string"), "{text}");
}

#[test]
fn absurd_values_are_named_with_the_product() {
    for (price, reason) in [
        ("5 dollars", "has no dollar sign"),
        ("$", "has no number after a dollar sign (\"\")"),
        ("$1.2.3", "has no number after a dollar sign (\"1.2.3\")"),
    ] {
        assert_eq!(
            message(&product("pricing", &price.into()), "{}"),
            format!("items_shuffle.json: product 1 (LW00000001): the price \"{price}\" {reason}")
        );
    }
    let instruction = "{\"LW00000001\": {\"attributes\": [], \"instruction\": \"Find me lamps\", \
                       \"instruction_attributes\": []}}";
    assert_eq!(
        message(&product("name", &"Lamp".into()), instruction),
        "items_shuffle.json: product 1 (LW00000001): its instruction has no instruction_attributes"
    );
    let many: Vec<_> = (0..50).map(|n| serde_json::json!({"value": n.to_string()})).collect();
    let options: serde_json::Map<String, serde_json::Value> =
        (0..12).map(|n| (format!("option {n}"), many.clone().into())).collect();
    let instruction = "{\"LW00000001\": {\"instruction\": \"Find me lamps\", \"instruction_attributes\": [\"x\"]}}";
    let text = message(&product("customization_options", &options.into()), instruction);
    assert!(text.starts_with("product LW00000001: its options have more than 1000000"), "{text}");
}

#[test]
fn odd_but_sound_products_are_taken_as_the_original_takes_them() {
    let shop = |products: &str| open(folder(products, "{}").path()).unwrap();
    let plain = product("name", &"Lamp".into());
    let loaded = shop(&plain);
    let lamp = &loaded.catalog().products[0];
    assert_eq!(lamp.options.len(), 1, "an option without values is none");
    assert_eq!((&*lamp.options[0].name, &*lamp.options[0].values[0]), ("color", "red"));
    assert_eq!(&*lamp.attributes[0], "DUMMY_ATTR");
    for skipped in ["nan", "LONGER-THAN-TEN"] {
        assert!(shop(&product("asin", &skipped.into())).catalog().products.is_empty());
    }
    let other = product("name", &"Other".into());
    let twice = format!("{},{}", plain.trim_end_matches(']'), other.trim_start_matches('['));
    let loaded = shop(&twice);
    assert_eq!(loaded.catalog().products.len(), 1, "the first of two equal numbers stays");
    assert_eq!(&*loaded.catalog().products[0].title, "Lamp");
    let cased = product(
        "customization_options",
        &serde_json::json!({"Color": [{"value": " Red/Blue "}], "size": [{"value": "8"}], "COLOR": [{"value": "x"}]}),
    );
    let loaded = shop(&cased);
    let names: Vec<&str> = loaded.catalog().products[0].options.iter().map(|o| &*o.name).collect();
    assert_eq!(names, ["color", "size"]);
    assert_eq!(&*loaded.catalog().products[0].options[0].values[0], "x");
    let one = product("small_description", &"only one".into());
    assert_eq!(shop(&one).catalog().products[0].bullets.len(), 1);
    let empty = shop("[]");
    assert!(empty.goals().is_empty() && Session::start(&empty, 0).is_none());
}

/// A few generated products as files, and the same with some bytes changed.
fn mangled(changes: &[(usize, usize, u8)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generator::write(folder.path(), 1, 12).unwrap();
    let files = [PRODUCTS, INSTRUCTIONS, "items_human_ins.json", "nouns.jsonl"];
    for &(file, place, byte) in changes {
        let path = folder.path().join(files[file % files.len()]);
        let mut bytes = std::fs::read(&path).unwrap();
        let place = place % bytes.len();
        match byte % 4 {
            0 => bytes.truncate(place),
            1 => drop(bytes.remove(place)),
            2 => bytes.insert(place, byte),
            _ => bytes[place] = byte,
        }
        bytes.push(b'\n');
        std::fs::write(&path, bytes).unwrap();
    }
    folder
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn mangled_files_never_panic(
        changes in prop::collection::vec((0_usize..4, any::<usize>(), any::<u8>()), 1..4),
        human in any::<bool>(),
    ) {
        let folder = mangled(&changes);
        let goals = if human { GoalKind::Human } else { GoalKind::Synthetic };
        let settings = ShopSettings { goals, ..ShopSettings::default() };
        match Shop::open(folder.path(), None, settings) {
            Err(error) => prop_assert!(error.to_string().len() > 10, "{error}"),
            Ok(shop) => {
                for number in 0..shop.goals().len().min(3) {
                    let mut visit = Session::start(&shop, number).unwrap();
                    let text = shop.goal(number).unwrap().text;
                    visit.step(&shop, &format!("search[{text}]"));
                    for _ in 0..8 {
                        let last = visit.clickables(&shop).pop().unwrap_or_default();
                        visit.step(&shop, &format!("click[{last}]"));
                        visit.observation(&shop, ObservationMode::TextRich);
                    }
                    let outcome = visit.step(&shop, "click[buy now]");
                    prop_assert!((0.0..=1.0).contains(&outcome.reward));
                }
            }
        }
    }
}
