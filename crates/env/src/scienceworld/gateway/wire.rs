//! The py4j text protocol: what requests and answers look like on the wire.
//!
//! Everything is lines of UTF-8 ended by LF. A request is several lines and ends with a line `e`; an answer is one
//! line. Only the subset that a simulator needs is here.

use super::GatewayError;

/// The id of an object that the gateway keeps alive for us until it is released.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle(String);

impl Handle {
    /// A handle from an id such as `o12`; ids are a letter and digits and never hold a line break.
    pub fn parse(id: &str) -> Option<Self> {
        let digits = id.strip_prefix('o')?;
        let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        valid.then(|| Self(id.to_owned()))
    }

    /// The gateway itself, which is always there.
    pub fn gateway_server() -> Self {
        Self("GATEWAY_SERVER".to_owned())
    }

    /// The id.
    pub fn id(&self) -> &str {
        &self.0
    }
}

/// One argument of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument<'a> {
    /// A `java.lang.String`.
    Text(&'a str),
    /// An `int`.
    Int(i32),
    /// A `long`.
    Long(i64),
    /// A `boolean`.
    Bool(bool),
    /// `null`.
    Null,
    /// An object the gateway holds.
    Object(&'a Handle),
}

impl Argument<'_> {
    /// Appends the argument's line, with its line break.
    pub fn write(&self, request: &mut String) {
        match self {
            Self::Text(text) => {
                request.push('s');
                escape(text, request);
            }
            Self::Int(value) => request.push_str(&format!("i{value}")),
            Self::Long(value) => request.push_str(&format!("L{value}")),
            Self::Bool(value) => request.push_str(if *value { "btrue" } else { "bfalse" }),
            Self::Null => request.push('n'),
            Self::Object(handle) => {
                request.push('r');
                request.push_str(handle.id());
            }
        }
        request.push('\n');
    }
}

/// What a call gave back.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing (`void`).
    Void,
    /// `null`.
    Null,
    /// A string.
    Text(String),
    /// An `int`.
    Int(i32),
    /// A `long`.
    Long(i64),
    /// A `double` (or `float`).
    Double(f64),
    /// A `boolean`.
    Bool(bool),
    /// An object of any kind: list, array, set, map, iterator or plain.
    Object(Handle),
}

/// An answer line, taken apart.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The call returned.
    Returned(Value),
    /// The Java code threw; the exception is held until released.
    Thrown(Handle),
    /// The gateway itself could not do what was asked (no such method, no such object).
    Refused(String),
    /// The gateway gave up; it closes the connection.
    Fatal(String),
}

impl Answer {
    /// Reads an answer line (without its line break).
    pub fn parse(line: &str) -> Result<Self, GatewayError> {
        let malformed = || GatewayError::malformed(line);
        let body = line.strip_prefix('!').ok_or_else(malformed)?;
        let mut letters = body.chars();
        let status = letters.next().ok_or_else(malformed)?;
        let body = letters.as_str();
        match status {
            'y' => Value::parse(body).map(Self::Returned).ok_or_else(malformed),
            'x' | 'z' => match Value::parse(body) {
                Some(Value::Object(exception)) if status == 'x' => Ok(Self::Thrown(exception)),
                Some(Value::Text(text)) if status == 'x' => Ok(Self::Refused(text)),
                Some(Value::Text(text)) => Ok(Self::Fatal(text)),
                None if body.is_empty() => Ok(Self::Fatal("no reason given".to_owned())),
                _ => Err(malformed()),
            },
            _ => Err(malformed()),
        }
    }
}

impl Value {
    fn parse(body: &str) -> Option<Self> {
        let mut letters = body.chars();
        let kind = letters.next()?;
        let text = letters.as_str();
        match kind {
            'v' if text.is_empty() => Some(Self::Void),
            'n' if text.is_empty() => Some(Self::Null),
            's' => Some(Self::Text(unescape(text))),
            'i' => text.parse().ok().map(Self::Int),
            'L' => text.parse().ok().map(Self::Long),
            'd' => parse_double(text).map(Self::Double),
            'b' => match text {
                "true" => Some(Self::Bool(true)),
                "false" => Some(Self::Bool(false)),
                _ => None,
            },
            'r' | 'l' | 't' | 'h' | 'a' | 'g' => Handle::parse(text).map(Self::Object),
            _ => None,
        }
    }
}

/// Java writes doubles as Rust reads them, except for the spelling of infinity.
fn parse_double(text: &str) -> Option<f64> {
    match text {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ if text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) => {
            text.parse().ok()
        }
        _ => None,
    }
}

/// Appends `text` with backslash, LF and CR escaped; every other character travels as it is.
pub fn escape(text: &str, to: &mut String) {
    for letter in text.chars() {
        match letter {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            other => to.push(other),
        }
    }
}

/// Undoes [`escape`]. A backslash before any other letter is dropped, as py4j does.
pub fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn returned(line: &str) -> Value {
        match Answer::parse(line) {
            Ok(Answer::Returned(value)) => value,
            other => panic!("{line:?} gave {other:?}"),
        }
    }

    #[test]
    fn answers_of_every_kind() {
        assert_eq!(returned("!yv"), Value::Void);
        assert_eq!(returned("!yn"), Value::Null);
        assert_eq!(returned("!ys"), Value::Text(String::new()));
        assert_eq!(returned("!ysa\\nb\\\\n\\r\t"), Value::Text("a\nb\\n\r\t".to_owned()));
        assert_eq!(returned("!yi-7"), Value::Int(-7));
        assert_eq!(returned("!yL4294967296"), Value::Long(1 << 32));
        assert_eq!(returned("!yd1.0E-4"), Value::Double(1e-4));
        assert_eq!(returned("!yd-Infinity"), Value::Double(f64::NEG_INFINITY));
        assert_eq!(returned("!ybtrue"), Value::Bool(true));
        for letter in ['r', 'l', 't', 'h', 'a', 'g'] {
            assert_eq!(returned(&format!("!y{letter}o3")), Value::Object(Handle("o3".to_owned())));
        }
        assert_eq!(Answer::parse("!xro9").unwrap(), Answer::Thrown(Handle("o9".to_owned())));
        assert_eq!(Answer::parse("!xsno\\nway").unwrap(), Answer::Refused("no\nway".to_owned()));
        assert_eq!(Answer::parse("!zsgone").unwrap(), Answer::Fatal("gone".to_owned()));
    }

    #[test]
    fn answers_that_are_none() {
        for line in [
            "",
            "!",
            "y",
            "!y",
            "!yi",
            "!yix",
            "!yi99999999999",
            "!yb1",
            "!yr",
            "!yro",
            "!yrx3",
            "!yvx",
            "!ydinf",
            "!yq",
            "!wv",
            "!xi3",
            "!yro3 ",
            "ys",
        ] {
            assert!(Answer::parse(line).is_err(), "{line:?} was taken for an answer");
        }
    }

    #[test]
    fn an_empty_text_argument_is_not_an_empty_line() {
        let mut request = String::new();
        Argument::Text("").write(&mut request);
        assert_eq!(request, "s\n");
    }

    proptest! {
        #[test]
        fn escaping_is_undone_and_never_breaks_a_line(text in any::<String>()) {
            let mut escaped = String::new();
            escape(&text, &mut escaped);
            prop_assert!(!escaped.contains(['\n', '\r']));
            prop_assert_eq!(unescape(&escaped), text);
        }

        #[test]
        fn any_line_is_read_without_a_panic(line in "[!yxzsiLdbnvrlthago0-9\\\\. é-]{0,24}") {
            let _ = Answer::parse(&line);
            let _ = unescape(&line);
        }
    }
}
