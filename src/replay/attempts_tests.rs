//! What is tried again, when, and when it is too much.

use std::time::{Duration, SystemTime};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn retries(max: u32) -> Retries {
    Retries { max, backoff: SECOND, backoff_max: 10 * SECOND, seed: 7 }
}

#[test]
fn causes_and_statuses_that_are_tried_again() {
    use Cause::{
        Body, Broken, Connect, ErrorEvent, NoAnswer, NoStream, OutOfTime, Silence, Status,
    };
    for (cause, expected) in [
        (Body, false),
        (Connect, true),
        (NoAnswer, true),
        (NoStream, false),
        (Broken, true),
        (ErrorEvent, true),
        (Silence, true),
        (OutOfTime, false),
        (Status(302), false),
        (Status(400), false),
        (Status(401), false),
        (Status(404), false),
        (Status(408), true),
        (Status(409), true),
        (Status(413), false),
        (Status(422), false),
        (Status(429), true),
        (Status(499), false),
        (Status(500), true),
        (Status(503), true),
        (Status(529), true),
    ] {
        let failure = Failure::new(cause, "x");
        let wait = |had_output, attempts| {
            retries(2).wait(&failure, had_output, attempts, None, RequestKey::default()).is_some()
        };
        assert_eq!(wait(false, 1), expected, "{cause:?}");
        assert_eq!(wait(false, 2), expected, "{cause:?}");
        assert!(!wait(false, 3), "{cause:?}: two retries were allowed");
        assert!(!wait(true, 1), "{cause:?}: output had come");
    }
}

#[test]
fn nothing_is_tried_again_by_default() {
    let failure = Failure::new(Cause::Status(503), "x");
    assert_eq!(Retries::default().wait(&failure, false, 1, None, RequestKey::default()), None);
}

/// Attempts made and what the engine asks for -> the bounds of the wait, in ms.
#[track_caller]
fn check_wait(attempts: u32, retry_after_s: Option<u64>, from_ms: u128, to_ms: u128) {
    let failure = Failure::new(Cause::Status(429), "x");
    for request in 0..50 {
        let key = RequestKey { trajectory: 3, request };
        let asked = retry_after_s.map(Duration::from_secs);
        let wait = || retries(100).wait(&failure, false, attempts, asked, key).unwrap();
        let ms = wait().as_millis();
        assert!((from_ms..=to_ms).contains(&ms), "{ms} is not within {from_ms}..={to_ms}");
        assert_eq!(wait(), wait(), "the same request waits the same");
    }
}

#[test]
fn waits_double_up_to_the_longest_and_are_never_shorter_than_asked_for() {
    check_wait(1, None, 500, 1000);
    check_wait(2, None, 1000, 2000);
    check_wait(4, None, 4000, 8000);
    check_wait(5, None, 5000, 10_000);
    check_wait(90, None, 5000, 10_000);
    check_wait(1, Some(0), 500, 1000);
    check_wait(1, Some(4), 4000, 4000);
    check_wait(1, Some(3600), 10_000, 10_000);
}

#[test]
fn waits_differ_between_requests_attempts_and_seeds() {
    let failure = Failure::new(Cause::Connect, "x");
    let wait = |seed, trajectory, request, attempts| {
        let retries = Retries { seed, backoff_max: 1000 * SECOND, ..retries(9) };
        let key = RequestKey { trajectory, request };
        let whole = SECOND * 2_u32.pow(attempts - 1);
        let wait = retries.wait(&failure, false, attempts, None, key).unwrap();
        (wait.as_secs_f64() / whole.as_secs_f64() * 1e9) as u64
    };
    let waits = [wait(1, 0, 0, 1), wait(2, 0, 0, 1), wait(1, 1, 0, 1), wait(1, 0, 1, 1)];
    let mut all = waits.to_vec();
    all.push(wait(1, 0, 0, 2));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5);
}

#[test]
fn a_retry_after_is_seconds_or_a_date() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let date = "Sun, 06 Nov 1994 08:49:37 GMT"; // that very moment
    let later = "Sun, 06 Nov 1994 08:50:07 GMT";
    let off_clock = now + Duration::from_secs(1000);
    for (value, own_date, now, expected) in [
        ("0", None, now, Some(0)),
        ("120", None, now, Some(120)),
        (" 7 ", None, now, Some(7)),
        (later, None, now, Some(30)),
        (date, None, now, Some(0)),
        (date, None, off_clock, Some(0)),
        (later, Some(date), off_clock, Some(30)),
        (later, Some("yesterday"), now, Some(30)),
        ("soon", None, now, None),
        ("-1", None, now, None),
        ("inf", None, now, None),
        ("", None, now, None),
    ] {
        let expected = expected.map(Duration::from_secs);
        assert_eq!(retry_after(value, own_date, now), expected, "{value:?}");
    }
    assert_eq!(retry_after("1.5", None, now), Some(Duration::from_millis(1500)));
}

#[test]
fn silence_is_counted_from_the_start_and_then_from_the_last_piece() {
    let limits = Timeouts {
        connect: SECOND,
        first_byte: Some(5 * SECOND),
        idle: Some(2 * SECOND),
        request: Some(30 * SECOND),
    };
    assert_eq!(limits.silent_ns(100, None), Some(5_000_000_100));
    assert_eq!(limits.silent_ns(100, Some(700)), Some(2_000_000_700));
    assert_eq!(limits.end_ns(100), Some(30_000_000_100));
    let none = Timeouts { first_byte: None, idle: None, request: None, ..limits };
    assert_eq!(none.silent_ns(100, None), None);
    assert_eq!(none.silent_ns(100, Some(700)), None);
    assert_eq!(none.end_ns(100), None);
    for (failure, cause, text) in [
        (limits.no_connection(), Cause::Connect, "connect time-out: no connection within 1 s"),
        (
            limits.silence(false),
            Cause::Silence,
            "first-byte time-out: no byte of a response within 5 s",
        ),
        (limits.silence(true), Cause::Silence, "idle time-out: nothing more came for 2 s"),
        (
            limits.out_of_time(),
            Cause::OutOfTime,
            "request time-out: not answered whole within 30 s",
        ),
    ] {
        assert_eq!(failure, Failure::new(cause, text));
    }
}

#[test]
fn times_of_nothing_and_of_ages_are_refused() {
    let refused = |timeouts: Timeouts| timeouts.check().unwrap_err().to_string();
    let usual = Timeouts::default();
    assert!(usual.check().is_ok());
    assert!(refused(Timeouts { connect: Duration::ZERO, ..usual }).contains("connect_timeout"));
    let first_byte = Some(Duration::ZERO);
    assert!(refused(Timeouts { first_byte, ..usual }).contains("first_byte_timeout"));
    let idle = Some(Duration::MAX);
    assert!(refused(Timeouts { idle, ..usual }).contains("idle_timeout: give at most 365 days"));
    let request = Some(Duration::ZERO);
    assert!(refused(Timeouts { request, ..usual }).contains("request_timeout"));
    let backoff = Duration::ZERO;
    let error = Retries { backoff, ..Retries::default() }.check().unwrap_err().to_string();
    assert!(error.contains("retry_backoff: 0 s"), "{error}");
}

#[test]
fn a_rate_of_failures_needs_requests_to_be_a_rate_of() {
    for (ok, failed, limit_pct, too_many, above) in [
        (0, 1, 5.0, false, true),
        (0, 19, 5.0, false, true),
        (0, 20, 5.0, true, true),
        (19, 1, 5.0, false, false),
        (18, 2, 5.0, true, true),
        (95, 5, 5.0, false, false),
        (94, 6, 5.0, true, true),
        (1000, 0, 0.0, false, false),
        (1000, 1, 0.0, true, true),
        (0, 1000, 100.0, false, false),
    ] {
        assert_eq!(too_many_failed(ok, failed, limit_pct), too_many, "{ok} {failed} {limit_pct}");
        assert_eq!(above_error_rate(ok, failed, limit_pct), above, "{ok} {failed} {limit_pct}");
    }
}
