//! Attempts at one request: which failures are tried again and after which wait, how long an attempt
//! may be silent, and when so many requests have failed that a run is not worth its time.
//!
//! Pure. Sending and waiting are `client`'s affair, ending a run `load`'s.
//!
//! Tried again is what common clients of these APIs try again (no connection, a connection that ends
//! without an answer, silence, 408, 409, 429 and 500 upwards), and only while nothing of an output
//! has come: an engine that has begun to generate would generate twice, and the times of a request
//! would be those of two.

use std::time::{Duration, SystemTime};

use rand::{RngExt, SeedableRng};

use crate::error::{Error, Result};

/// Requests that must have ended before a share of failed ones ends a run: one early failure is no
/// rate.
pub const ERROR_RATE_MIN_REQUESTS: u64 = 20;

/// Longest time that a setting may name; what is longer is meant as none at all.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How often and when a failed request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts beside the first.
    pub max: u32,
    /// The wait before the second attempt, doubled for each further one; from half of it to the whole
    /// is drawn.
    pub backoff: Duration,
    /// The longest wait, also where the engine asks for a longer one.
    pub backoff_max: Duration,
    /// The same seed draws the same waits.
    pub seed: u64,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            max: 0,
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// Which request a wait is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestKey {
    /// The trajectory's number.
    pub trajectory: u64,
    /// The request's place in its session.
    pub request: u64,
}

impl Retries {
    /// The wait after a failed attempt; none when the request has failed for good. `attempts` were
    /// made, and the engine asked for `retry_after`.
    pub fn wait(
        &self,
        failure: &Failure,
        had_output: bool,
        attempts: u32,
        retry_after: Option<Duration>,
        key: RequestKey,
    ) -> Option<Duration> {
        if attempts > self.max || had_output || !failure.cause.may_be_tried_again() {
            return None;
        }
        let doublings = 2_u32.saturating_pow(attempts.saturating_sub(1));
        let longest = self.backoff.saturating_mul(doublings).min(self.backoff_max);
        let backoff = longest.mul_f64(0.5 + self.draw(key, attempts) / 2.0);
        Some(backoff.max(retry_after.unwrap_or_default()).min(self.backoff_max))
    }

    /// From 0 up to 1, the same for the same request and attempt whatever else is going on.
    fn draw(&self, key: RequestKey, attempts: u32) -> f64 {
        let mut seed = [0; 32];
        let numbers = [self.seed, key.trajectory, key.request, u64::from(attempts)];
        for (place, number) in seed.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        rand::rngs::StdRng::from_seed(seed).random()
    }

    pub(super) fn check(&self) -> Result<()> {
        check_time("retry_backoff", Some(self.backoff))?;
        check_time("retry_backoff_max", Some(self.backoff_max))
    }
}

/// What made an attempt fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The body could not be made.
    Body,
    /// No connection came about.
    Connect,
    /// The connection ended before a response.
    NoAnswer,
    /// A response of this status.
    Status(u16),
    /// A good status, and no stream.
    NoStream,
    /// The stream ended before its end mark.
    Broken,
    /// The stream told of an error.
    ErrorEvent,
    /// Nothing came for too long.
    Silence,
    /// The time for the whole request was up.
    OutOfTime,
}

impl Cause {
    fn may_be_tried_again(self) -> bool {
        match self {
            Self::Connect | Self::NoAnswer | Self::Broken | Self::ErrorEvent | Self::Silence => {
                true
            }
            Self::Status(status) => matches!(status, 408 | 409 | 429) || status >= 500,
            Self::Body | Self::NoStream | Self::OutOfTime => false,
        }
    }
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it is.
    pub cause: Cause,
    /// The same in words: `kind: details`.
    pub text: String,
}

impl Failure {
    /// A failure in words.
    pub fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self { cause, text: text.into() }
    }
}

/// How long an attempt may take; none is as long as it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until there is a connection, name and TLS included.
    pub connect: Duration,
    /// From the attempt's start to the first byte of the response's body.
    pub first_byte: Option<Duration>,
    /// Between two pieces of the response after that.
    pub idle: Option<Duration>,
    /// From the first attempt's start to the end of the last one's response, waits included.
    pub request: Option<Duration>,
}

impl Default for Timeouts {
    /// Only what hangs is given up: queues and decodes may take long, and a slow answer is a figure.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Some(Duration::from_secs(600)),
            idle: Some(Duration::from_secs(300)),
            request: None,
        }
    }
}

impl Timeouts {
    /// When an attempt has been silent for too long: it started then and was last heard of then.
    pub(super) fn silent_ns(&self, start_ns: i64, heard_ns: Option<i64>) -> Option<i64> {
        match heard_ns {
            None => Some(start_ns + nanoseconds(self.first_byte?)),
            Some(heard_ns) => Some(heard_ns + nanoseconds(self.idle?)),
        }
    }

    /// When a request that started then is given up.
    pub(super) fn end_ns(&self, start_ns: i64) -> Option<i64> {
        Some(start_ns + nanoseconds(self.request?))
    }

    /// Nothing came for too long.
    pub(super) fn silence(&self, heard: bool) -> Failure {
        let (name, limit, what) = if heard {
            ("idle", self.idle, "nothing more came for")
        } else {
            ("first-byte", self.first_byte, "no byte of a response within")
        };
        let seconds = limit.unwrap_or_default().as_secs_f64();
        Failure::new(Cause::Silence, format!("{name} time-out: {what} {seconds} s"))
    }

    /// No connection came about in time.
    pub(super) fn no_connection(&self) -> Failure {
        let seconds = self.connect.as_secs_f64();
        Failure::new(Cause::Connect, format!("connect time-out: no connection within {seconds} s"))
    }

    /// The whole request took too long.
    pub(super) fn out_of_time(&self) -> Failure {
        let seconds = self.request.unwrap_or_default().as_secs_f64();
        let text = format!("request time-out: not answered whole within {seconds} s");
        Failure::new(Cause::OutOfTime, text)
    }

    pub(super) fn check(&self) -> Result<()> {
        check_time("connect_timeout", Some(self.connect))?;
        check_time("first_byte_timeout", self.first_byte)?;
        check_time("idle_timeout", self.idle)?;
        check_time("request_timeout", self.request)
    }
}

fn check_time(name: &str, time: Option<Duration>) -> Result<()> {
    match time {
        Some(time) if time.is_zero() => {
            Err(Error::config(format!("{name}: 0 s is no time at all; give a longer one")))
        }
        Some(time) if time > LONGEST => {
            let days = LONGEST.as_secs() / 86_400;
            Err(Error::config(format!("{name}: give at most {days} days")))
        }
        _ => Ok(()),
    }
}

/// A time that `check_time` lets pass.
pub(super) fn nanoseconds(time: Duration) -> i64 {
    time.min(LONGEST).as_nanos() as i64
}

/// The wait that a `Retry-After` asks for: seconds, or a date, held against the response's own date
/// where it has one, so that clocks need not agree.
pub fn retry_after(value: &str, date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    // Whole seconds by the standard; parts of one are sent too.
    if let Some(wait) = value.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok()) {
        return Some(wait);
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = date.and_then(|date| httpdate::parse_http_date(date.trim()).ok()).unwrap_or(now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// Whether more of the requests that have ended failed than are allowed, and enough have ended to say
/// so.
pub fn too_many_failed(ok: u64, failed: u64, max_error_rate_pct: f64) -> bool {
    ok + failed >= ERROR_RATE_MIN_REQUESTS && above_error_rate(ok, failed, max_error_rate_pct)
}

/// Whether more of the requests failed than are allowed, however few they are.
pub fn above_error_rate(ok: u64, failed: u64, max_error_rate_pct: f64) -> bool {
    failed as f64 * 100.0 > max_error_rate_pct * (ok + failed) as f64
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
