//! What a product costs: the tag that shoppers see and the numbers behind it.

use crate::webshop::python::float_repr;
use crate::webshop::random::PythonRandom;

/// A price or a range of prices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pricing {
    low: f64,
    high: Option<f64>,
}

impl Pricing {
    /// What a product without a price costs.
    pub const MISSING: Self = Self { low: 100.0, high: None };

    /// Reads a listing's price text, such as `$12.99` or `$5.00 - $9.00`; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::MISSING);
        }
        let mut numbers = text.split('$').skip(1).map(number);
        let Some(low) = numbers.next() else {
            return Err("has no dollar sign".to_owned());
        };
        let pricing = Self { low: low?, high: numbers.next().transpose()? };
        // Further numbers are ignored, but the original reads them, so they must be readable.
        numbers.try_for_each(|number| number.map(|_| ()))?;
        Ok(pricing)
    }

    /// The text on the page: `$19.99`, or `$5.0 to $9.0`.
    pub fn tag(&self) -> String {
        let low = float_repr(self.low);
        match self.high {
            None => format!("${low}"),
            Some(high) => format!("${low} to ${}", float_repr(high)),
        }
    }

    /// The price used for rewards and ceilings: a range is drawn from.
    pub fn sample(&self, random: &mut PythonRandom) -> f64 {
        match self.high {
            None => self.low,
            Some(high) => random.uniform(self.low, high),
        }
    }
}

/// The number in the text after a dollar sign: everything but digits and periods is dropped first.
fn number(text: &str) -> Result<f64, String> {
    if let Some(digit) = text.chars().find(|c| c.is_numeric() && !c.is_ascii()) {
        return Err(format!("has the digit {digit:?}, which is not one of 0 to 9"));
    }
    let digits: String = text.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        Ok(_) => Err("is too large".to_owned()),
        Err(_) => Err(format!("has no number after a dollar sign (\"{digits}\")")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_the_original() {
        for (text, tag) in [
            ("", "$100.0"),
            ("$19.99", "$19.99"),
            ("$27", "$27.0"),
            ("$5.00 - $9.00", "$5.0 to $9.0"),
            ("from $1,299.50 each", "$1299.5"),
            ("$1 $2 $3", "$1.0 to $2.0"),
            ("$.5", "$0.5"),
            ("$0.00001", "$1e-05"),
        ] {
            assert_eq!(Pricing::parse(text).map(|pricing| pricing.tag()), Ok(tag.to_owned()));
        }
    }

    #[test]
    fn absurd_prices_are_refused_in_words() {
        for (text, reason) in [
            ("12.99", "has no dollar sign"),
            ("$", "has no number after a dollar sign (\"\")"),
            ("$1.2.3", "has no number after a dollar sign (\"1.2.3\")"),
            ("$5 - $", "has no number after a dollar sign (\"\")"),
            ("$5 $6 $x", "has no number after a dollar sign (\"\")"),
            ("$٣", "has the digit '٣', which is not one of 0 to 9"),
        ] {
            assert_eq!(Pricing::parse(text), Err(reason.to_owned()), "{text}");
        }
        let huge = format!("${}", "9".repeat(400));
        assert_eq!(Pricing::parse(&huge), Err("is too large".to_owned()));
    }

    #[test]
    fn only_ranges_draw_from_the_generator() {
        let mut random = PythonRandom::seed(0);
        assert_eq!(Pricing::MISSING.sample(&mut random), 100.0);
        let range = Pricing::parse("$59.99 - $107.99").unwrap();
        assert_eq!(range.sample(&mut random), 100.522_248_873_202_3);
    }
}
