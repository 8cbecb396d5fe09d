//! Dates of the Gregorian calendar, before its invention too.

/// Days of a 400-year cycle.
const CYCLE: i64 = 146_097;
/// Days from the first of March of year 0 to the start of 1970.
const MARCH_TO_UNIX: i64 = 719_468;

/// A year, month and day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// The year; year 0 comes before year 1.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

impl Date {
    /// The date so many days after the start of 1970.
    pub fn from_days(days: i64) -> Self {
        // Years are counted from March, so that the leap day is the last one.
        let days = days + MARCH_TO_UNIX;
        let (cycle, of_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
        let year = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
        let of_year = of_cycle - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Date {
            year: cycle * 400 + year + i64::from(month <= 2),
            month: month as u32,
            day: day as u32,
        }
    }

    /// Days since the start of 1970.
    pub fn to_days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (cycle, of_cycle) = (year.div_euclid(400), year.rem_euclid(400));
        let month = i64::from((self.month + 9) % 12);
        let of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        cycle * CYCLE + of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year - MARCH_TO_UNIX
    }

    /// The day of the week; Sunday is 0.
    pub fn weekday(self) -> u32 {
        (self.to_days() + 4).rem_euclid(7) as u32
    }

    /// The day of the year, from 1.
    pub fn year_day(self) -> u32 {
        (self.to_days() - Date { month: 1, day: 1, ..self }.to_days() + 1) as u32
    }

    /// How many days the month has.
    pub fn days_in_month(self) -> u32 {
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if is_leap(self.year) => 29,
            2 => 28,
            _ => 31,
        }
    }
}

/// Whether the year has a leap day.
pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_follows_the_one_before() {
        let mut date = Date { year: -1, month: 12, day: 31 };
        let first = Date { year: 0, month: 1, day: 1 };
        for days in first.to_days()..200_000 {
            let next = Date::from_days(days);
            let expected = if date.day < date.days_in_month() {
                Date { day: date.day + 1, ..date }
            } else if date.month < 12 {
                Date { month: date.month + 1, day: 1, ..date }
            } else {
                Date { year: date.year + 1, month: 1, day: 1 }
            };
            assert_eq!(next, expected);
            assert_eq!(next.to_days(), days);
            date = next;
        }
    }

    #[test]
    fn weekdays_and_days_of_the_year() {
        let date = |year, month, day| Date { year, month, day };
        assert_eq!(date(1970, 1, 1).weekday(), 4);
        assert_eq!(date(2000, 2, 29).weekday(), 2);
        assert_eq!(date(2000, 12, 31).year_day(), 366);
        assert_eq!(date(1900, 3, 1).year_day(), 60);
    }
}
