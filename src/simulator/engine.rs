//! The engine's heartbeat: drives the scheduler in real time and hands out tokens when they are done.
//!
//! One task. A step's end is reckoned from the previous step's end, never from when a sleep happened to
//! return, so nothing drifts. Sleeps have the timer's grain of a millisecond: the task sleeps only when
//! it is at least that far ahead. A machine too slow to keep up stalls the engine visibly instead of
//! letting its clock fall behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;
use super::scheduler::{Emitted, NewRequest, RequestId, Scheduler};
use crate::clock::Clock;

/// Ahead by less than this the engine does not sleep.
const GRAIN_NS: i64 = 1_000_000;
/// Behind by more than this the engine starts its next step now.
const STALL_NS: i64 = 20_000_000;

/// What the server asks of the engine.
#[derive(Debug)]
pub enum Command {
    /// A request, and where its tokens go. The room must hold all of them.
    Submit(Box<NewRequest>, mpsc::Sender<Emitted>),
    /// Forget the prefix cache, and whether that was possible.
    ResetPrefixCache(oneshot::Sender<bool>),
}

/// Figures shared between the engine and the page that shows them.
pub type SharedMetrics = Arc<Mutex<Metrics>>;

/// Runs `read` on the figures. A panic elsewhere leaves plain numbers behind, so poison is no matter.
pub fn with_metrics<T>(metrics: &SharedMetrics, read: impl FnOnce(&mut Metrics) -> T) -> T {
    read(&mut metrics.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    scheduler: Scheduler,
    metrics: SharedMetrics,
    clock: Clock,
    commands: mpsc::Receiver<Command>,
    streams: HashMap<RequestId, mpsc::Sender<Emitted>>,
}

impl Engine {
    /// An engine that takes its orders from `commands`.
    pub fn new(
        scheduler: Scheduler,
        metrics: SharedMetrics,
        clock: Clock,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        Self { scheduler, metrics, clock, commands, streams: HashMap::new() }
    }

    /// Runs until `stop` or until nobody can give orders any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut free_ns = self.clock.now_ns();
        loop {
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            self.drop_abandoned();
            if self.scheduler.is_idle() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    command = self.commands.recv() => match command {
                        Some(command) => self.obey(command),
                        None => return,
                    },
                }
                continue;
            }
            let now_ns = self.clock.now_ns();
            let mut start_ns = self.scheduler.next_start_ns(free_ns);
            if now_ns - start_ns > STALL_NS {
                start_ns = now_ns;
            }
            let scheduler = &mut self.scheduler;
            let begun = with_metrics(&self.metrics, |it| scheduler.start_step(start_ns, it));
            free_ns = start_ns + begun.unwrap_or(GRAIN_NS);
            if self.wait_until(free_ns, &stop).await.is_err() {
                return;
            }
            if begun.is_some() {
                self.finish_step(free_ns);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(request, stream) => {
                self.streams.insert(request.id, stream);
                self.scheduler.submit(*request);
            }
            Command::ResetPrefixCache(answer) => {
                // Whoever asked may be gone already; the reset stands.
                let _ = answer.send(self.scheduler.reset_prefix_cache());
            }
        }
    }

    /// Requests whose stream nobody reads any more are cancelled.
    fn drop_abandoned(&mut self) {
        if self.streams.values().any(mpsc::Sender::is_closed) {
            let (scheduler, streams) = (&mut self.scheduler, &mut self.streams);
            let gone = |id| streams.get(&id).is_none_or(mpsc::Sender::is_closed);
            with_metrics(&self.metrics, |metrics| scheduler.abort_if(gone, metrics));
            streams.retain(|_, stream| !stream.is_closed());
        }
    }

    async fn wait_until(&self, due_ns: i64, stop: &CancellationToken) -> Result<(), ()> {
        if due_ns - self.clock.now_ns() < GRAIN_NS {
            // Without a sleep the server's tasks still need their turn.
            tokio::task::yield_now().await;
            return if stop.is_cancelled() { Err(()) } else { Ok(()) };
        }
        tokio::select! {
            () = stop.cancelled() => Err(()),
            () = tokio::time::sleep_until(self.clock.instant_at(due_ns)) => Ok(()),
        }
    }

    fn finish_step(&mut self, now_ns: i64) {
        let scheduler = &mut self.scheduler;
        // Counted before anything is sent: who has read a reply finds it on the metrics page.
        let emitted = with_metrics(&self.metrics, |it| scheduler.finish_step(now_ns, it));
        for token in emitted {
            if let Some(stream) = self.streams.get(&token.id) {
                // The room holds every token; a closed stream is swept before the next step.
                let _ = stream.try_send(token);
            }
            if token.last {
                self.streams.remove(&token.id);
            }
        }
    }
}
