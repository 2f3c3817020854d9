//! The words our own catalog is made of. Everyday words and invented names only.

/// A part of the shop.
pub(super) struct Department {
    /// Its name in the data.
    pub category: &'static str,
    /// The first piece of its category paths.
    pub path: &'static str,
    /// How many products of a thousand belong to it.
    pub weight: u32,
    /// Its kinds of product: group, and singular names.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// What may stand before a kind in a search term; the empty one is the most frequent.
    pub variants: &'static [&'static str],
    /// What its products are made of ...
    pub materials: &'static [&'static str],
    /// ... and which part of them.
    pub parts: &'static [&'static str],
    /// Where or for what they are used.
    pub uses: &'static [&'static str],
    /// Option names with their weights.
    pub options: &'static [(&'static str, u32)],
    /// How many products of a thousand have 0, 1, 2 and 3 options.
    pub option_counts: [u32; 4],
    /// How many products of a thousand are goals, among those that have attributes enough.
    pub goals: u32,
}

/// The departments, with the shares of the real catalog.
#[rustfmt::skip]
pub(super) const DEPARTMENTS: [Department; 5] = [
    Department {
        category: "garden",
        path: "House & Yard",
        weight: 216,
        groups: &[
            ("Lighting", &["table lamp", "floor lamp", "wall sconce", "string light", "desk lamp"]),
            ("Furniture", &["side table", "bar stool", "bookshelf", "coat rack", "desk chair", "night stand"]),
            ("Textiles", &["throw pillow", "area rug", "curtain panel", "duvet cover", "table runner", "bath mat"]),
            ("Decor", &["wall clock", "picture frame", "candle holder", "flower vase", "round mirror"]),
            ("Storage", &["storage basket", "shoe cabinet", "spice rack", "laundry hamper"]),
        ],
        variants: &["", "", "", "outdoor"],
        materials: &["oak", "steel", "bamboo", "rattan", "glass", "marble", "cotton", "linen", "velvet", "ceramic"],
        parts: &["frame", "base", "shelf", "cover", "handle", "finish", "legs", "weave"],
        uses: &["living room", "dining room", "guest room", "home office", "small spaces", "front porch", "reading corner",
            "kids room", "laundry room", "garden party", "studio flat", "entry hall"],
        options: &[("color", 50), ("size", 40), ("style", 5), ("pattern name", 3), ("item shape", 2)],
        option_counts: [715, 205, 77, 3],
        goals: 660,
    },
    Department {
        category: "fashion",
        path: "Clothing & Footwear",
        weight: 200,
        groups: &[
            ("Shoes", &["running shoe", "ankle boot", "walking sandal", "house slipper", "canvas sneaker"]),
            ("Tops", &["polo shirt", "knit sweater", "tank top", "flannel shirt", "zip hoodie", "tunic blouse"]),
            ("Bottoms", &["cargo pant", "swim short", "yoga legging", "denim skirt", "jogger"]),
            ("Outerwear", &["rain jacket", "puffer vest", "trench coat", "fleece pullover"]),
            ("Accessories", &["sun hat", "leather belt", "crossbody bag", "dress sock", "wool scarf"]),
        ],
        variants: &["women's", "women's", "men's", "men's", "girls'"],
        materials: &["stretch", "cotton", "rubber", "elastic", "fleece", "mesh", "nylon", "suede", "denim", "satin"],
        parts: &["waist", "sole", "lining", "sleeve", "collar", "closure", "strap", "fabric"],
        uses: &["daily wear", "gym workout", "summer trips", "office days", "winter walks", "beach days", "school run",
            "evening parties", "trail hiking", "rainy weather", "long flights", "weekend errands"],
        options: &[("color", 48), ("size", 48), ("fit type", 4)],
        option_counts: [200, 170, 600, 30],
        goals: 950,
    },
    Department {
        category: "beauty",
        path: "Beauty & Care",
        weight: 238,
        groups: &[
            ("Skin", &["face serum", "eye cream", "hand lotion", "clay mask", "body scrub", "sun lotion"]),
            ("Hair", &["hair brush", "shampoo bar", "curl cream", "hair clip", "beard oil", "hair dryer"]),
            ("Makeup", &["lip balm", "brow pencil", "nail polish", "makeup bag", "blush palette"]),
            ("Bath", &["bath sponge", "soap dish", "body wash", "foot file"]),
            ("Mouth", &["tooth brush", "mouth rinse", "tongue scraper", "floss pick"]),
        ],
        variants: &["", "", "", "travel"],
        materials: &["aloe", "argan", "rose", "honey", "oat", "clay", "shea", "mint", "citrus", "bamboo"],
        parts: &["extract", "oil", "scent", "formula", "powder", "bristles", "butter", "blend"],
        uses: &["dry skin", "oily skin", "fine hair", "thick hair", "sensitive gums", "damaged hair", "tired eyes",
            "mature skin", "curly hair", "night care", "travel kits", "gift sets"],
        options: &[("color", 40), ("size", 35), ("scent", 25)],
        option_counts: [715, 205, 77, 3],
        goals: 660,
    },
    Department {
        category: "electronics",
        path: "Gadgets & Sound",
        weight: 229,
        groups: &[
            ("Phones", &["phone case", "screen protector", "car charger", "phone grip", "power bank"]),
            ("Computers", &["laptop sleeve", "usb hub", "keyboard cover", "mouse pad", "memory card", "web camera"]),
            ("Audio", &["desk speaker", "ear bud", "head set", "record player", "radio clock"]),
            ("Video", &["hdmi cable", "wall mount", "projector screen", "remote control", "streaming box"]),
            ("Cameras", &["camera tripod", "lens cap", "ring light", "camera strap"]),
        ],
        variants: &["", "", "", "portable"],
        materials: &["aluminum", "copper", "silicone", "carbon", "glass", "gold", "nylon", "magnetic", "optical", "digital"],
        parts: &["plug", "shell", "sensor", "display", "wire", "hinge", "connector", "battery"],
        uses: &["video calls", "home theater", "game nights", "road trips", "small desks", "live streams", "field recording",
            "class rooms", "night shots", "office work", "train rides", "podcast studios"],
        options: &[("color", 50), ("size", 30), ("style", 20)],
        option_counts: [715, 205, 77, 3],
        goals: 660,
    },
    Department {
        category: "grocery",
        path: "Pantry & Drinks",
        weight: 117,
        groups: &[
            ("Drinks", &["green tea", "ground coffee", "coconut water", "fruit juice", "cocoa mix"]),
            ("Snacks", &["trail mix", "oat bar", "rice cracker", "popcorn bag", "veggie chip"]),
            ("Cooking", &["olive oil", "pasta sauce", "spice blend", "lentil soup", "rice noodle"]),
            ("Sweets", &["dark chocolate", "gummy candy", "fruit jam", "honey jar"]),
        ],
        variants: &["", "", "", "breakfast"],
        materials: &["almond", "oat", "maple", "cocoa", "ginger", "sesame", "berry", "lemon", "pea", "corn"],
        parts: &["protein", "flour", "fiber", "syrup", "flavor", "seeds", "starch", "bits"],
        uses: &["school lunch", "office snacks", "camping trips", "movie nights", "family dinners", "birthday tables",
            "early mornings", "post workout", "picnic days", "holiday baskets", "quick meals", "slow evenings"],
        options: &[("flavor name", 50), ("size", 40), ("flavor", 10)],
        option_counts: [715, 205, 77, 3],
        goals: 660,
    },
];

/// Qualities: every first word with every second of its row.
#[rustfmt::skip]
pub(super) const QUALITIES: [(&[&str], &[&str]); 5] = [
    (&["easy", "quick"], &["clean", "install", "carry", "store", "apply", "fold"]),
    (&["water", "stain", "heat", "rust", "dust", "fade"], &["resistant", "repellent"]),
    (&["long", "slow", "even"], &["lasting", "drying", "wearing"]),
    (&["gluten", "sugar", "paraben", "fragrance", "noise", "lead", "dairy"], &["free"]),
    (&["hand", "machine", "locally", "ethically", "carefully"], &["made", "sewn", "tested"]),
];

/// Syllables of invented brand names: beginnings, middles, ends.
#[rustfmt::skip]
pub(super) const SYLLABLES: [&[&str]; 3] = [
    &["Vel", "Tan", "Or", "Kel", "Mar", "Sun", "Bri", "Zan", "Pel", "Lum", "Cor", "Fen", "Had", "Jor", "Nim", "Quil", "Rud", "Sel", "Tor", "Wex"],
    &["da", "mo", "ri", "ve", "lo", "ni", "ta", "ka", "se", "bu", "zi", "pha", "ga", "ru", "mi", "no"],
    &["ra", "dex", "lin", "mont", "wick", "stra", "vo", "nix", "lle", "tho", "rell", "sby", "gard", "moor", "dane", "ques"],
];

/// Color words that stand for themselves.
#[rustfmt::skip]
pub(super) const COLORS: [&str; 20] = [
    "black", "white", "blue", "green", "pink", "purple", "yellow", "orange", "brown", "beige",
    "navy", "teal", "khaki", "maroon", "ivory", "turquoise", "silver", "gold", "lavender", "grey",
];

/// What may stand before a color without being one.
pub(super) const SHADES: [&str; 10] =
    ["deep", "pale", "soft", "matte", "warm", "cool", "bright", "vivid", "muted", "smoky"];

/// Flavours and scents.
#[rustfmt::skip]
pub(super) const TASTES: [&str; 24] = [
    "vanilla", "ginger", "cinnamon", "apple", "pear", "cherry", "mango", "coconut", "hazelnut", "lemon thyme",
    "sea breeze", "cedar", "jasmine", "green apple", "salted honey", "berry mix", "cocoa", "maple", "ginger peach",
    "basil", "cucumber", "fig", "plain", "smoked paprika",
];

/// Styles.
#[rustfmt::skip]
pub(super) const STYLES: [&str; 12] = [
    "classic", "modern", "country", "with tray", "without tray", "starter kit", "refill", "family edition",
    "travel edition", "left handed", "right handed", "deluxe",
];

/// Patterns.
pub(super) const PATTERNS: [&str; 6] =
    ["striped", "dotted", "floral", "checked", "plain weave", "leaf print"];

/// Shapes.
pub(super) const SHAPES: [&str; 5] = ["round", "square", "oval", "hexagon", "half moon"];

/// How clothes fit.
pub(super) const FITS: [&str; 6] = ["regular", "relaxed", "slim", "women", "men", "youth"];

/// What titles end with.
#[rustfmt::skip]
pub(super) const PRAISE: [(&str, &str); 10] = [
    ("great", "gift"), ("handy", "helper"), ("lovely", "addition"), ("sturdy", "companion"), ("compact", "size"),
    ("fresh", "look"), ("simple", "setup"), ("fair", "value"), ("quiet", "luxury"), ("new", "arrival"),
];

/// Sentences of descriptions and bullet points. Braces are filled with the product's words.
#[rustfmt::skip]
pub(super) const SENTENCES: [&str; 26] = [
    "This {kind} brings {part} and {quality} comfort to every {use} you can think of.",
    "We built it around {part}, so it stays {quality} for years.",
    "Ideal for {use}, yet light enough to move around.",
    "Each piece is checked twice before it leaves our workshop in a padded box.",
    "Pairs well with other {brand} pieces of the same series.",
    "The {kind} weighs {number} ounces and fits in most drawers.",
    "Set it up in {number} minutes without any tools.",
    "If anything is not as you expected, write to us and we will put it right.",
    "Color may look a little different on your screen.",
    "A thoughtful gift for friends who love {use}.",
    "Thanks to {part} it keeps its shape.",
    "Customers tell us that the {quality} finish makes the difference.",
    "Wipe with a damp cloth; do not soak.",
    "Please measure before you order: allow for {number} millimeters of difference.",
    "Package includes one {kind}, a short guide and a spare part.",
    "Designed by a team of {number} people who use it every day.",
    "Works in hot summers and cold winters alike.",
    "{quality} and made with {part}, it suits {use}.",
    "No harsh smell, no sharp edges, no fuss.",
    "We use recycled card for the wrapping.",
    "Stack several of them to save room.",
    "The {brand} promise: simple things, done with care.",
    "Great for {use} and for everyday needs.",
    "Keep in a cool and dry place.",
    "Tested over {number} hours of daily use.",
    "Choose from several looks to match what you own.",
];

/// Headlines of bullet points.
#[rustfmt::skip]
pub(super) const HEADLINES: [&str; 10] = [
    "Made to last", "Good to know", "For every day", "Care", "What you get", "Materials", "Our promise", "Fit", "Versatile", "Size guide",
];
