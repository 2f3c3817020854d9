//! The generated catalog: its statistics, its odd cases, its files.

use lens_env::webshop::generator::{self, BUILT_IN_SEED};
use lens_env::webshop::statistics::Statistics;
use lens_env::webshop::{GoalKind, Shop, ShopSettings};

use crate::shop;

#[test]
fn the_statistics_are_close_to_the_real_catalogs() {
    let statistics = Statistics::of(shop());
    assert_eq!(statistics.products, 1000);
    assert!((4196..9000).contains(&statistics.goals), "{}", statistics.goals);
    assert!((370..460).contains(&statistics.wanted), "{}", statistics.wanted);
    assert!((190..300).contains(&statistics.queries), "{}", statistics.queries);
    assert!((400..700).contains(&statistics.attributes), "{}", statistics.attributes);
    assert!((140..230).contains(&statistics.without_attributes));
    let [none, one, two, three] = statistics.by_options;
    assert!((520..630).contains(&none) && (200..290).contains(&one), "{none} {one}");
    assert!((130..210).contains(&two) && (5..40).contains(&three), "{two} {three}");
    // Medians of the real 1,000 products, with how far ours may be off.
    for (name, real, tolerance) in [
        ("category depth", 4.0, 0.0),
        ("title words", 18.0, 2.0),
        ("title characters", 117.0, 15.0),
        ("description characters", 307.0, 80.0),
        ("bullet points", 5.0, 0.0),
        ("bullet characters", 125.0, 25.0),
        ("price", 29.46, 10.0),
        ("values an option", 4.0, 1.0),
        ("attributes", 2.0, 0.0),
        ("goals a wanted product", 2.0, 1.0),
        ("searched terms", 77.0, 15.0),
    ] {
        let spread = statistics.spread(name).expect("a known name");
        assert!((spread.half - real).abs() <= tolerance, "{name}: {}", spread.half);
    }
    let values = statistics.spread("values an option").unwrap();
    assert_eq!((values.least, values.greatest), (2.0, 45.0));
}

#[test]
fn the_odd_cases_are_there() {
    let products = &shop().catalog().products;
    let has_value = |wanted: &str| {
        products.iter().any(|product| {
            product.options.iter().any(|option| option.values.iter().any(|v| &**v == wanted))
        })
    };
    for value in [
        "12\" x 18\"",
        "the maker's choice",
        "soft\u{a0}blue",
        "print_04",
        "black | white",
        "reviews",
    ] {
        assert!(has_value(value), "{value}");
    }
    let any = |odd: &dyn Fn(&lens_env::webshop::catalog::Product) -> bool| products.iter().any(odd);
    assert!(any(&|product| product.title.is_empty()));
    assert!(any(&|product| product.title.contains('★') && product.title.contains('👕')));
    assert!(any(&|product| product.bullets.iter().any(|bullet| &**bullet == " ")));
    assert!(any(&|product| product.description.len() > 8000));
    assert!(any(&|product| product.pricing.tag() == "$1284.5"));
    assert!(any(&|product| {
        let values = |name: &str| {
            let option = product.options.iter().find(|option| &*option.name == name);
            option.map_or(&[][..], |option| &option.values)
        };
        values("style").iter().any(|value| values("pattern name").contains(value))
    }));
    assert!((0..shop().goals().len()).any(|number| {
        !shop().goal(number).is_some_and(|goal| goal.text.contains("price lower than"))
    }));
}

#[test]
fn a_small_catalog_is_the_beginning_of_a_large_one_and_seeds_differ() {
    let few: Vec<_> = generator::products(3).take(20).collect();
    let many: Vec<_> = generator::products(3).take(40).collect();
    assert_eq!(few, many[..20]);
    let other: Vec<_> = generator::products(4).take(20).collect();
    assert!(few.iter().zip(&other).all(|(a, b)| a != b));
}

#[test]
fn the_written_files_give_the_same_shop() {
    let folder = tempfile::tempdir().unwrap();
    generator::write(folder.path(), BUILT_IN_SEED, 1000).unwrap();
    for goals in [GoalKind::Synthetic, GoalKind::Human] {
        let settings = ShopSettings { goals, ..ShopSettings::default() };
        let read = Shop::open(folder.path(), None, settings).unwrap();
        let made = generator::shop(BUILT_IN_SEED, settings).unwrap();
        assert_eq!(read.catalog().products, made.catalog().products);
        assert_eq!(read.prices(), made.prices());
        assert_eq!(read.goals().len(), made.goals().len());
        for number in 0..read.goals().len() {
            assert_eq!(read.goal(number), made.goal(number));
        }
        for product in &made.catalog().products {
            assert_eq!(read.nouns().of(&product.title), made.nouns().of(&product.title));
        }
    }
    let settings = ShopSettings { products: Some(50), ..ShopSettings::default() };
    let first = Shop::open(folder.path(), None, settings).unwrap();
    assert_eq!(first.catalog().products.len(), 50);
}
