//! Gives up an attempt that has been silent for too long.
//!
//! One timer serves a whole stream and is moved only when it fires or the first piece has come: a
//! stream of a thousand chunks sets no thousand timers. How long is too long is `attempts`'s to say.

use std::pin::Pin;

use tokio::time::{Sleep, sleep_until};

use super::attempts::{Failure, Timeouts};
use crate::clock::Clock;

/// The silence of one attempt.
pub(super) struct Silence {
    clock: Clock,
    timeouts: Timeouts,
    start_ns: i64,
    heard_ns: Option<i64>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// The silence of an attempt that starts.
    pub(super) fn new(clock: Clock, timeouts: Timeouts, start_ns: i64) -> Self {
        Self { clock, timeouts, start_ns, heard_ns: None, timer: None }
    }

    /// A piece has come.
    pub(super) fn broken_at(&mut self, now_ns: i64) {
        if self.heard_ns.is_none() {
            // Another limit holds from here on.
            self.timer = None;
        }
        self.heard_ns = Some(now_ns);
    }

    /// What a future comes to, unless the silence lasts too long before.
    pub(super) async fn unless_too_long<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            value = future => Ok(value),
            () = self.too_long() => Err(self.timeouts.silence(self.heard_ns.is_some())),
        }
    }

    async fn too_long(&mut self) {
        loop {
            let Some(at_ns) = self.timeouts.silent_ns(self.start_ns, self.heard_ns) else {
                return std::future::pending().await;
            };
            let at = self.clock.instant_at(at_ns);
            match &mut self.timer {
                Some(timer) if timer.is_elapsed() => {
                    if self.clock.now_ns() >= at_ns {
                        return;
                    }
                    timer.as_mut().reset(at);
                }
                Some(_) => {}
                None => self.timer = Some(Box::pin(sleep_until(at))),
            }
            if let Some(timer) = &mut self.timer {
                timer.as_mut().await;
            }
        }
    }
}
