//! One recorded request and its response, as raw bytes and stamps, and the bounded queue that takes
//! it to the observer once both have ended.
//!
//! This runs on the byte path: it copies and counts. What the bytes mean is `observe`'s to find out,
//! on its own thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, StatusCode};

use super::buffers::{Buffers, Lent};
use super::stats::{Active, Counters};
use crate::api::Api;
use crate::clock::Clock;
use crate::http::tee::{End, Watch};

/// With more exchanges than these waiting the observer works without a rest.
const FEW_EXCHANGES: u64 = 16;

/// What passed of one body, up to a limit beyond which nothing of it is kept.
#[derive(Debug)]
pub(super) struct BodyCopy {
    text: Lent,
    /// Stamp of each frame, and how many bytes had passed after it.
    marks: Vec<(i64, u64)>,
    bytes: u64,
    limit_bytes: u64,
}

impl BodyCopy {
    pub(super) fn new(buffers: &Arc<Buffers>, limit_bytes: u64) -> Self {
        Self { text: buffers.lend(), marks: Vec::new(), bytes: 0, limit_bytes }
    }

    pub(super) fn push(&mut self, data: &[u8], at_ns: i64) {
        self.bytes += data.len() as u64;
        if self.is_over_limit() {
            self.text.give_up();
            self.marks.truncate(1);
            return;
        }
        self.marks.push((at_ns, self.bytes));
        self.text.extend(data);
    }

    /// More passed than is kept.
    pub(super) fn is_over_limit(&self) -> bool {
        self.bytes > self.limit_bytes
    }

    /// Memory held, roughly.
    fn held_bytes(&self) -> u64 {
        let text = if self.is_over_limit() { 0 } else { self.bytes };
        text + 16 * self.marks.len() as u64
    }

    /// Stamp of the first frame.
    pub(super) fn first_ns(&self) -> Option<i64> {
        self.marks.first().map(|(at_ns, _)| *at_ns)
    }

    /// Everything as one piece, and the stamp and end of each frame.
    pub(super) fn into_parts(self) -> (Lent, Vec<(i64, u64)>) {
        (self.text, self.marks)
    }
}

/// A body that has ended.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) copy: BodyCopy,
    pub(super) end: End,
    pub(super) ended_ns: i64,
}

/// Head of the upstream's response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
}

/// No response came from the upstream.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    /// The agent went away within its upload.
    pub(super) by_client: bool,
    pub(super) at_ns: i64,
}

/// One recorded request and what became of it.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Order of arrival in the run.
    pub(super) number: u64,
    pub(super) api: Api,
    /// The engine that it went to.
    pub(super) engine: Option<Arc<str>>,
    /// Named by the URL prefix.
    pub(super) session: Option<String>,
    /// As sent, session prefix removed; may hold secrets.
    pub(super) path: String,
    /// Of the request, without secrets.
    pub(super) headers: HeaderMap,
    pub(super) arrived_ns: i64,
    pub(super) request: Option<Copied>,
    pub(super) head: Option<ResponseHead>,
    pub(super) response: Option<Copied>,
    pub(super) failure: Option<Failure>,
    /// The last part of it was dropped.
    pub(super) gone_ns: i64,
    /// It was open when the capture stopped waiting for its end.
    pub(super) was_cut: bool,
    /// What the switches changed of the request, by name.
    pub(super) changes: Vec<&'static str>,
    /// The agent's word that a subagent sends it, where a change took that out of the body.
    pub(super) says_subagent: bool,
}

impl Exchange {
    fn held_bytes(&self) -> u64 {
        let copies = [&self.request, &self.response];
        copies.iter().filter_map(|copied| copied.as_ref()).map(|c| c.copy.held_bytes()).sum()
    }
}

/// An exchange while it goes on, shared by its two bodies and the task that joins them. When the last
/// of them lets go, the exchange has ended and goes to the observer, however it ended.
#[derive(Debug)]
pub(super) struct Recording {
    exchange: Mutex<Option<Box<Exchange>>>,
    queue: Arc<Queue>,
    clock: Clock,
}

impl Recording {
    pub(super) fn start(exchange: Exchange, queue: Arc<Queue>, clock: Clock) -> Arc<Self> {
        Arc::new(Self { exchange: Mutex::new(Some(Box::new(exchange))), queue, clock })
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Exchange)) {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(exchange) = exchange.as_mut() {
            change(exchange);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let exchange = self.exchange.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut exchange) = exchange {
            exchange.gone_ns = self.clock.now_ns();
            exchange.was_cut = self.queue.is_cutting.load(Ordering::Relaxed);
            self.queue.offer(exchange);
        }
    }
}

/// Which way a body goes.
#[derive(Debug)]
pub(super) enum Direction {
    /// From the agent to the engine.
    Up(Upload),
    /// A body of the proxy's own to the engine; what came for it was counted already.
    Sent(Upload),
    /// From the engine to the agent; the request is active until its end.
    Down { engine: usize, _active: Active },
}

/// Whether the upload of a request is through, whichever way it ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Upload(Arc<AtomicBool>);

impl Upload {
    pub(super) fn has_ended(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Counts a body and, where it is recorded, copies it.
#[derive(Debug)]
pub(super) struct BodyWatch {
    direction: Direction,
    counters: Arc<Counters>,
    copy: Option<(BodyCopy, Arc<Recording>)>,
}

impl BodyWatch {
    pub(super) fn new(
        direction: Direction,
        counters: Arc<Counters>,
        copy: Option<(BodyCopy, Arc<Recording>)>,
    ) -> Self {
        Self { direction, counters, copy }
    }
}

impl Watch for BodyWatch {
    fn data(&mut self, data: &[u8], at_ns: i64) {
        let counter = match &self.direction {
            Direction::Up(_) => Some(&self.counters.bytes_up),
            Direction::Down { .. } => Some(&self.counters.bytes_down),
            Direction::Sent(_) => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        if let Some((copy, _)) = &mut self.copy {
            copy.push(data, at_ns);
        }
    }

    fn end(self, how: End, at_ns: i64) {
        match (&self.direction, &how) {
            // What is recorded is counted by its outcome: many clients hang up on the last event.
            (Direction::Down { .. }, End::Cancelled) if self.copy.is_none() => {
                self.counters.client_cancelled();
            }
            (Direction::Down { engine, .. }, End::Error(_)) => {
                self.counters.upstream_error(*engine);
            }
            (Direction::Up(upload) | Direction::Sent(upload), _) => {
                upload.0.store(true, Ordering::Release);
            }
            (Direction::Down { .. }, End::Complete | End::Cancelled) => {}
        }
        let Some((copy, recording)) = self.copy else { return };
        let copied = Some(Copied { copy, end: how, ended_ns: at_ns });
        recording.set(|exchange| match self.direction {
            Direction::Up(_) | Direction::Sent(_) => exchange.request = copied,
            Direction::Down { .. } => exchange.response = copied,
        });
    }
}

/// What the observer is told.
#[derive(Debug)]
pub(super) enum Message {
    /// An exchange has ended; the size is what the queue counted for it.
    Ended(Box<Exchange>, u64),
    /// Nothing more will come.
    Stop,
}

/// Takes ended exchanges to the observer; bounded in number by its channel and in bytes by itself.
#[derive(Debug)]
pub(super) struct Queue {
    sender: SyncSender<Message>,
    /// Exchanges that wait or are being read, and their bytes.
    held: AtomicU64,
    held_bytes: AtomicU64,
    limit_bytes: u64,
    is_cutting: AtomicBool,
    counters: Arc<Counters>,
    requests: Arc<Buffers>,
    responses: Arc<Buffers>,
}

impl Queue {
    pub(super) fn new(
        sender: SyncSender<Message>,
        limit_bytes: u64,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            sender,
            held: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            limit_bytes,
            is_cutting: AtomicBool::new(false),
            counters,
            requests: Arc::default(),
            responses: Arc::default(),
        }
    }

    /// Where the copies of requests lie. They are longer than responses: the two share no buffers.
    pub(super) fn requests(&self) -> &Arc<Buffers> {
        &self.requests
    }

    /// Where the copies of responses lie.
    pub(super) fn responses(&self) -> &Arc<Buffers> {
        &self.responses
    }

    /// Queues an exchange, or drops it where there is no room and counts the loss.
    pub(super) fn offer(&self, exchange: Box<Exchange>) {
        let size = exchange.held_bytes();
        self.held.fetch_add(1, Ordering::Relaxed);
        let before = self.held_bytes.fetch_add(size, Ordering::Relaxed);
        let sent = if before + size > self.limit_bytes {
            false
        } else {
            match self.sender.try_send(Message::Ended(exchange, size)) {
                Ok(()) => true,
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
            }
        };
        if !sent {
            self.done(size);
            self.counters.turn_dropped();
        }
    }

    /// The observer is through with an exchange of this size.
    pub(super) fn done(&self, size: u64) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.held_bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// Whether the observer has time: few exchanges wait for it.
    pub(super) fn keeps_up(&self) -> bool {
        self.held.load(Ordering::Relaxed) <= FEW_EXCHANGES
    }

    /// What ends from here on did not end by itself.
    pub(super) fn cut(&self) {
        self.is_cutting.store(true, Ordering::Relaxed);
    }

    /// Tells the observer to end once it has seen all that was queued before. Waits for room.
    pub(super) fn stop(&self) {
        // The observer may have ended before: then there is nobody to tell.
        let _ = self.sender.send(Message::Stop);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn copy_of(pieces: &[&[u8]], limit_bytes: u64) -> BodyCopy {
        let mut copy = BodyCopy::new(&Arc::default(), limit_bytes);
        for (index, piece) in pieces.iter().enumerate() {
            copy.push(piece, index as i64);
        }
        copy
    }

    #[test]
    fn pieces_of_any_size_make_the_whole() {
        let large = vec![b'x'; 5000];
        for pieces in [
            vec![],
            vec![b"a".as_slice(), b"bc"],
            vec![large.as_slice()],
            vec![b"a".as_slice(), &large, b"b", b"c", &large, &large, b"d"],
        ] {
            let (whole, marks) = copy_of(&pieces, u64::MAX).into_parts();
            assert_eq!(*whole, pieces.concat());
            let mut from = 0;
            for (index, (at_ns, end)) in marks.iter().enumerate() {
                assert_eq!(*at_ns, index as i64);
                assert_eq!(&whole[from..*end as usize], pieces[index]);
                from = *end as usize;
            }
            assert_eq!(marks.len(), pieces.len());
        }
    }

    #[test]
    fn beyond_the_limit_nothing_is_kept() {
        let within = copy_of(&[b"abc", b"d"], 4);
        assert!(!within.is_over_limit());
        let over = copy_of(&[b"abc", b"de", b"f"], 4);
        assert!(over.is_over_limit());
        assert_eq!(over.first_ns(), Some(0));
        assert_eq!(over.held_bytes(), 16);
        assert_eq!(*over.into_parts().0, *b"");
    }

    fn exchange(bytes: usize) -> Box<Exchange> {
        let copy = copy_of(&[&vec![0; bytes]], u64::MAX);
        Box::new(Exchange {
            number: 0,
            api: Api::Chat,
            engine: None,
            session: None,
            path: String::new(),
            headers: HeaderMap::new(),
            arrived_ns: 0,
            request: Some(Copied { copy, end: End::Complete, ended_ns: 0 }),
            head: None,
            response: None,
            failure: None,
            gone_ns: 0,
            was_cut: false,
            changes: Vec::new(),
            says_subagent: false,
        })
    }

    #[test]
    fn the_queue_drops_and_counts_beyond_its_bounds() {
        let counters = Arc::new(Counters::default());
        let (sender, receiver) = sync_channel(2);
        let queue = Queue::new(sender, 1000, Arc::clone(&counters));
        queue.offer(exchange(600));
        queue.offer(exchange(600));
        assert_eq!(counters.snapshot().turns_dropped, 1, "over the bytes");
        queue.offer(exchange(10));
        queue.offer(exchange(10));
        assert_eq!(counters.snapshot().turns_dropped, 2, "over the number");
        let Ok(Message::Ended(_, size)) = receiver.recv() else { panic!("nothing queued") };
        queue.done(size);
        queue.offer(exchange(600));
        assert_eq!(counters.snapshot().turns_dropped, 2, "room again");
        drop(receiver);
        queue.offer(exchange(10));
        assert_eq!(counters.snapshot().turns_dropped, 3, "nobody listens");
    }

    #[test]
    fn the_observer_keeps_up_while_few_exchanges_wait() {
        let (sender, receiver) = sync_channel(100);
        let queue = Queue::new(sender, 1000, Arc::default());
        for waiting in 0..=FEW_EXCHANGES {
            assert!(queue.keeps_up(), "{waiting}");
            queue.offer(exchange(1));
        }
        assert!(!queue.keeps_up());
        queue.offer(exchange(2000));
        assert_eq!(
            queue.held.load(Ordering::Relaxed),
            FEW_EXCHANGES + 1,
            "what is dropped does not wait"
        );
        let Ok(Message::Ended(_, size)) = receiver.recv() else { panic!("nothing queued") };
        queue.done(size);
        assert!(queue.keeps_up());
    }
}
