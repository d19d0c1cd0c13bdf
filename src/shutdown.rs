//! Ending a running thing: one cancellation that spreads, and a deadline for what is still open.
//!
//! Everything that runs holds a clone. `cancel` asks to stop; whoever owns the tasks waits for them up
//! to `drain` and then drops them.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Cancellation, task tracking and drain deadline of one running thing.
#[derive(Debug, Clone)]
pub struct Shutdown {
    token: CancellationToken,
    tracker: TaskTracker,
    drain: Duration,
}

impl Shutdown {
    /// A running thing whose open work gets `drain` to finish after `cancel`.
    pub fn new(drain: Duration) -> Self {
        Self { token: CancellationToken::new(), tracker: TaskTracker::new(), drain }
    }

    /// Asks everything that holds a clone to stop.
    pub fn cancel(&self) {
        self.token.cancel();
    }

    /// Whether `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Resolves once `cancel` was called.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// The token, for code that selects on it or makes children of it.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// The tracker on which tasks are spawned that `drained` waits for.
    pub fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Waits for the tracked tasks, at most the drain time. True when all have ended.
    pub async fn drained(&self) -> bool {
        self.tracker.close();
        tokio::time::timeout(self.drain, self.tracker.wait()).await.is_ok()
    }
}
