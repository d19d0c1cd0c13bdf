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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::kv_cache::TokenChain;
    use crate::simulator::plan::Finish;
    use crate::simulator::scheduler::SchedulerConfig;
    use crate::simulator::timing::Timing;

    /// An engine whose steps take `step_us`, and its orders.
    fn engine(step_us: f64) -> (Engine, mpsc::Sender<Command>, Clock) {
        let zero = 0.0;
        let scheduler = Scheduler::new(SchedulerConfig {
            timing: Timing {
                step_us,
                prefill_token_us: zero,
                decode_sequence_us: zero,
                kv_token_us: zero,
            },
            kv_blocks: 100,
            max_num_seqs: 8,
            max_num_batched_tokens: 512,
        });
        let (orders, commands) = mpsc::channel(8);
        let clock = Clock::start();
        let metrics = Arc::new(Mutex::new(Metrics::new(1_000)));
        (Engine::new(scheduler, metrics, clock, commands), orders, clock)
    }

    fn request(id: RequestId, arrived_ns: i64, output: usize) -> NewRequest {
        NewRequest {
            id,
            arrived_ns,
            prompt: TokenChain::new(None, &[1, 2, 3]),
            output: vec![7; output],
            finish: Finish::Length,
            max_tokens: output as u32,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_keep_to_the_schedule_and_do_not_drift() {
        // The timer's grain is a millisecond: sleeps one after another would take 4 ms a step, or none.
        for (step_us, step_ns) in [(3_300.0, 3_300_000), (170.0, 170_000)] {
            let (engine, orders, clock) = engine(step_us);
            let stop = CancellationToken::new();
            let running = tokio::spawn(engine.run(stop.clone()));
            let (stream, mut tokens) = mpsc::channel(400);
            let arrived_ns = clock.now_ns();
            orders
                .send(Command::Submit(Box::new(request(1, arrived_ns, 400)), stream))
                .await
                .unwrap();
            let mut due_ns = arrived_ns;
            while let Some(token) = tokens.recv().await {
                due_ns += step_ns;
                let late_ns = clock.now_ns() - due_ns;
                assert!(late_ns.abs() <= GRAIN_NS, "token {}: {late_ns} ns", token.index);
            }
            assert_eq!(due_ns, arrived_ns + 400 * step_ns);
            stop.cancel();
            running.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_leaves_makes_room_for_the_next() {
        let (engine, orders, clock) = engine(5_000.0);
        let metrics = Arc::clone(&engine.metrics);
        let running = tokio::spawn(engine.run(CancellationToken::new()));
        let (stream, mut tokens) = mpsc::channel(900);
        let submit = Command::Submit(Box::new(request(1, clock.now_ns(), 900)), stream);
        orders.send(submit).await.unwrap();
        tokens.recv().await.unwrap();
        drop(tokens);
        let (answer, success) = oneshot::channel();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        orders.send(Command::ResetPrefixCache(answer)).await.unwrap();
        assert!(success.await.unwrap(), "nothing is in work any more");
        assert_eq!(with_metrics(&metrics, |it| (it.finished_abort, it.running)), (1, 0));
        // Without anybody to give orders the engine ends by itself.
        drop(orders);
        running.await.unwrap();
    }
}
