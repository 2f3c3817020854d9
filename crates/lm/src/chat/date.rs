//! The date a template may print. It is given, never asked from the machine, so that a prompt is reproducible.

/// A day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: i32,
    month: u32,
    day: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// A date of the Gregorian calendar, or `None` when there is no such day.
    pub fn new(year: i32, month: u32, day: u32) -> Option<Self> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        ((1..=9999).contains(&year) && (1..=days).contains(&day)).then_some(Self {
            year,
            month,
            day,
        })
    }

    /// Python's `strftime` for the directives that concern days; others are kept as they are written. The time of day is
    /// midnight.
    pub fn format(self, format: &str) -> String {
        let month = MONTHS[self.month as usize - 1];
        let weekday = WEEKDAYS[self.weekday()];
        let mut text = String::new();
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                text.push(letter);
                continue;
            }
            match letters.next() {
                Some('Y') => text.push_str(&format!("{:04}", self.year)),
                Some('y') => text.push_str(&format!("{:02}", self.year % 100)),
                Some('m') => text.push_str(&format!("{:02}", self.month)),
                Some('d') => text.push_str(&format!("{:02}", self.day)),
                Some('B') => text.push_str(month),
                Some('b' | 'h') => text.push_str(&month[..3]),
                Some('A') => text.push_str(weekday),
                Some('a') => text.push_str(&weekday[..3]),
                Some('F') => {
                    text.push_str(&format!("{:04}-{:02}-{:02}", self.year, self.month, self.day));
                }
                Some('H' | 'M' | 'S') => text.push_str("00"),
                Some('%') | None => text.push('%'),
                Some(other) => text.extend(['%', other]),
            }
        }
        text
    }

    /// Days since Sunday (Sakamoto's table).
    fn weekday(self) -> usize {
        let table = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        let sum = year + year / 4 - year / 100
            + year / 400
            + table[self.month as usize - 1]
            + self.day as i32;
        sum.rem_euclid(7) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_print_as_python_prints_them() {
        let date = Date::new(2026, 11, 15).expect("a day");
        assert_eq!(date.format("%d %b %Y"), "15 Nov 2026");
        assert_eq!(
            date.format("%A, %B %d, %y 100%% %F %q %"),
            "Sunday, November 15, 26 100% 2026-11-15 %q %"
        );
        assert_eq!(Date::new(2024, 2, 29).expect("a leap day").format("%a"), "Thu");
        assert_eq!(Date::new(2000, 1, 1).expect("a day").format("%a"), "Sat");
    }

    #[test]
    fn impossible_days_do_not_exist() {
        for (year, month, day) in
            [(2023, 2, 29), (1900, 2, 29), (2024, 4, 31), (2024, 13, 1), (2024, 1, 0)]
        {
            assert_eq!(Date::new(year, month, day), None);
        }
        assert!(Date::new(2000, 2, 29).is_some());
    }
}
