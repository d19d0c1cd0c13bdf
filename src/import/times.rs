//! Times as logs write them.

use chrono::{DateTime, NaiveDateTime};

/// Seconds since the Unix epoch of an RFC 3339 time; one without a zone is taken for UTC.
pub(super) fn unix_of(text: &str) -> Option<f64> {
    let zoned = DateTime::parse_from_rfc3339(text).map(|time| time.timestamp_micros());
    let naive = || text.parse::<NaiveDateTime>().map(|time| time.and_utc().timestamp_micros());
    let micros = zoned.ok().or_else(|| naive().ok())?;
    Some(micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::unix_of;

    #[test]
    fn times_are_read_in_any_zone() {
        for (text, expected) in [
            ("1970-01-01T00:00:01.5Z", Some(1.5)),
            ("2026-06-01T05:40:20.151Z", Some(1_780_292_420.151)),
            ("2026-06-01T07:40:20.151+02:00", Some(1_780_292_420.151)),
            ("2026-06-01T05:40:20.151", Some(1_780_292_420.151)),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(unix_of(text), expected, "{text}");
        }
    }
}
