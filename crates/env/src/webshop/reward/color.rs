//! Colors: a value that holds one of these words counts as that color and nothing else.

/// The color words, in the order in which they are tried.
#[rustfmt::skip]
const COLORS: [&str; 102] = [
    "alabaster", "apricot", "aqua", "ash", "asphalt", "azure", "banana", "beige", "black", "blue",
    "blush", "bordeaux", "bronze", "brown", "burgundy", "camel", "camo", "caramel", "champagne",
    "charcoal", "cheetah", "chestnut", "chocolate", "christmas", "coffee", "cognac", "copper",
    "coral", "cranberry", "cream", "crystal", "dark", "denim", "eggplant", "elephant", "espresso",
    "fuchsia", "gold", "granite", "grape", "graphite", "grass", "gray", "green", "grey", "heather",
    "indigo", "ivory", "ivy", "khaki", "lavender", "lemon", "leopard", "light", "lilac", "lime",
    "magenta", "maroon", "mauve", "merlot", "midnight", "mint", "mocha", "multicolor", "mushroom",
    "mustard", "natural", "navy", "nude", "olive", "orange", "peach", "pewter", "pink", "plum",
    "purple", "rainbow", "red", "rose", "royal", "rust", "sand", "sapphire", "seashell", "silver",
    "skull", "slate", "steel", "stone", "stonewash", "sunflower", "tan", "taupe", "teal", "tiger",
    "turquoise", "violet", "walnut", "wheat", "white", "wine", "yellow",
];

/// The first color word that occurs anywhere in `value`, or the value itself.
pub fn normalize(value: &str) -> &str {
    COLORS.into_iter().find(|color| value.contains(color)).unwrap_or(value)
}

/// The first color word that equals one of the two texts of a named option.
pub fn normalize_named(name: &str, value: &str) -> Option<&'static str> {
    COLORS.into_iter().find(|&color| color == name || color == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_the_list_wins_wherever_it_stands() {
        assert_eq!(normalize("white and black"), "black");
        assert_eq!(normalize("washed black"), "ash");
        assert_eq!(normalize("x-large"), "x-large");
        assert_eq!(normalize(""), "");
    }

    #[test]
    fn a_named_option_is_compared_whole() {
        assert_eq!(normalize_named("color", "black"), Some("black"));
        assert_eq!(normalize_named("color", "matte black"), None);
        assert_eq!(normalize_named("denim", "red"), Some("denim"));
    }
}
