//! `DateStyle` is two settings in one: a style, and the order of day, month and year.
//!
//! `SET datestyle = iso` keeps the order, and `SET datestyle = dmy` keeps the style. So the last value of each part
//! counts, and a replay may need two statements.

pub(super) const NAME: &str = "datestyle";

/// Whether the later value sets all parts that the earlier one sets. `None` is an unknown value, or the one that the
/// session began with.
pub(super) fn replaces(later: Option<&str>, earlier: Option<&str>) -> bool {
    let (later, earlier) = (parts(later), parts(earlier));
    (later.style || !earlier.style) && (later.order || !earlier.order)
}

/// The parts that a value sets.
struct Parts {
    style: bool,
    order: bool,
}

fn parts(value: Option<&str>) -> Parts {
    let both = Parts { style: true, order: true };
    let Some(value) = value else { return both };
    let mut said = Parts { style: false, order: false };
    for word in value.split(',').map(|word| word.trim().to_ascii_lowercase()) {
        match word.as_str() {
            "iso" | "sql" => said.style = true,
            "ymd" | "dmy" | "mdy" | "us" => said.order = true,
            _ if word.starts_with("postgres") => said.style = true,
            _ if word.starts_with("euro") || word.starts_with("noneuro") => said.order = true,
            // German also sets the order, and DEFAULT sets both.
            _ => return both,
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use crate::client::settings::Settings;

    #[test]
    fn style_and_order_are_kept_each() {
        let mut settings = Settings::new(&[], "joe", "postgres").unwrap();
        let mut set = |value: Option<&str>, statement: &str| {
            settings.stage("datestyle", value, statement);
            settings.keep_staged();
            settings.dress().to_string()
        };
        assert_eq!(set(Some("iso"), "A"), "A\n;");
        assert_eq!(set(Some("DMY"), "B"), "A\n;B\n;");
        assert_eq!(set(Some("SQL"), "C"), "B\n;C\n;", "C says nothing of the order");
        assert_eq!(set(Some("European"), "D"), "C\n;D\n;");
        assert_eq!(set(Some("German"), "E"), "E\n;");
        assert_eq!(set(Some("ymd"), "F"), "E\n;F\n;");
        assert_eq!(set(Some("Postgres, MDY"), "G"), "G\n;");
        assert_eq!(set(None, "RESET datestyle"), "", "as it began");
    }
}
