//! The typed metadata of a GGUF file.

/// One metadata value. All integer widths are widened.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An unsigned or non-negative number.
    Unsigned(u64),
    /// A negative number.
    Negative(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Several values of one type.
    Array(Vec<Self>),
}

impl Value {
    /// From any signed width.
    pub(super) fn signed(value: i64) -> Self {
        u64::try_from(value).map_or(Self::Negative(value), Self::Unsigned)
    }

    /// A non-negative whole number.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(*value),
            _ => None,
        }
    }

    /// Any number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Unsigned(value) => Some(*value as f64),
            Self::Negative(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The values of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }
}
