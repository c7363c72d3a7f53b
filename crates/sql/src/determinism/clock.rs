//! Texts that a date or time type reads off the server's clock.
//!
//! `now`, `today`, `tomorrow` and `yesterday` mean something in every text that becomes a date or a time, alone or
//! beside a time of day, a zone, a weekday; also as an element of an array or a bound of a range.

/// The ways in which the clock decides.
const CLOCK_WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];

/// Words that PostgreSQL knows in dates and times beside names of zones; sorted.
const CALENDAR_WORDS: [&str; 50] = [
    "ad",
    "allballs",
    "am",
    "apr",
    "april",
    "at",
    "aug",
    "august",
    "bc",
    "dec",
    "december",
    "dst",
    "feb",
    "february",
    "fri",
    "friday",
    "j",
    "jan",
    "january",
    "jul",
    "july",
    "jun",
    "june",
    "mar",
    "march",
    "may",
    "mon",
    "monday",
    "nov",
    "november",
    "oct",
    "october",
    "on",
    "pm",
    "sat",
    "saturday",
    "sep",
    "sept",
    "september",
    "sun",
    "sunday",
    "t",
    "thu",
    "thursday",
    "tue",
    "tuesday",
    "wed",
    "wednesday",
    "z",
    "zulu",
];

/// Whether a text could be read off the clock when it becomes a date, a time, or an array or range of these. For
/// parameters in text form and constants of unknown type. Texts with several words that no date has are prose.
pub fn may_read_clock(text: &str) -> bool {
    let words = || words(text);
    let on_clock = words().any(|word| CLOCK_WORDS.iter().any(|clock| word.eq_ignore_ascii_case(clock)));
    if !on_clock {
        return false;
    }
    // A date has at most one word that is a zone. Lists have commas or brackets, and as many as they have elements.
    let list = text.trim_start().starts_with(['{', '[', '(']);
    let foreign = words().filter(|word| !is_calendar(word)).count();
    list || foreign <= 1
}

/// Words as the server's lexer of dates cuts them: a zone's name may have strokes.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphabetic() || matches!(c, '/' | '_')))
        .filter(|word| word.chars().any(char::is_alphabetic))
}

fn is_calendar(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    CLOCK_WORDS.contains(&lower.as_str()) || CALENDAR_WORDS.binary_search(&lower.as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_words_are_found_and_prose_is_not() {
        assert!(CALENDAR_WORDS.is_sorted());
        for text in [
            "now",
            " NOW ",
            "today 12:00 EST",
            "tomorrow at 10 PM Europe/Berlin Monday AD",
            "{2020-01-01,now}",
            "[yesterday,today)",
            "now()",
            "{\"when\": \"now\"}",
            "Come now",
        ] {
            assert!(may_read_clock(text), "{text}");
        }
        for text in ["", "2020-01-01", "nowhere", "what we know now is little", "noon"] {
            assert!(!may_read_clock(text), "{text}");
        }
    }
}
