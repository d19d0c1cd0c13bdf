//! Raw TCP on both sides of the proxy: every byte that a test sends or expects is its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use agentbench::capture::{Capture, CaptureConfig, CaptureHandle, CaptureStats};
use agentbench::clock::Clock;
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{Record, ToolCallRow, TurnRow};
use agentbench::trace::{Manifest, RowSender, Run, RunKind, RunWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// So long a test waits for what must come; it only bounds a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for something that must happen.
pub(crate) async fn must<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it must happen within the test's patience")
}

/// One end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = must(TcpStream::connect(addr)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        must(self.stream.write_all(bytes.as_ref())).await.unwrap();
    }

    async fn fill(&mut self) -> bool {
        self.unread.reserve(64 * 1024);
        let read = must(self.stream.read_buf(&mut self.unread)).await.unwrap_or(0);
        read > 0
    }

    /// Everything up to and with a marker.
    pub(crate) async fn read_until(&mut self, marker: &[u8]) -> Vec<u8> {
        let mut from = 0;
        loop {
            let found = self.unread[from..].windows(marker.len()).position(|w| w == marker);
            if let Some(at) = found {
                return self.unread.drain(..from + at + marker.len()).collect();
            }
            from = self.unread.len().saturating_sub(marker.len());
            let so_far = String::from_utf8_lossy(&self.unread).into_owned();
            assert!(self.fill().await, "closed before {marker:?}; got {so_far:?}");
        }
    }

    /// A head with its empty line.
    pub(crate) async fn read_head(&mut self) -> String {
        String::from_utf8(self.read_until(b"\r\n\r\n").await).unwrap()
    }

    pub(crate) async fn read_exact(&mut self, bytes: usize) -> Vec<u8> {
        while self.unread.len() < bytes {
            assert!(self.fill().await, "closed after {} of {bytes} bytes", self.unread.len());
        }
        self.unread.drain(..bytes).collect()
    }

    /// One chunk of a chunked body; empty for the last one, whose trailers stay unread.
    pub(crate) async fn read_chunk(&mut self) -> Vec<u8> {
        let size = String::from_utf8(self.read_until(b"\r\n").await).unwrap();
        let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
        if size == 0 {
            return Vec::new();
        }
        let chunk = self.read_exact(size).await;
        assert_eq!(self.read_exact(2).await, b"\r\n");
        chunk
    }

    /// The rest of a chunked body without trailers.
    pub(crate) async fn read_to_end_of_chunks(&mut self) {
        while !self.read_chunk().await.is_empty() {}
        assert_eq!(self.read_exact(2).await, b"\r\n");
    }

    /// Everything until the other side closes or breaks.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.unread)
    }

    /// Closes at once with a reset instead of an orderly end.
    pub(crate) fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }

    /// Two peers at the same end, one to read with and one to write with.
    pub(crate) fn split(self) -> (Self, Self) {
        let stream = self.stream.into_std().unwrap();
        let twin = TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
        let stream = TcpStream::from_std(stream).unwrap();
        (Self { stream, unread: self.unread }, Self { stream: twin, unread: Vec::new() })
    }

    /// A request head with one body of known length.
    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: proxy\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        self.send(head).await;
        self.send(body).await;
    }

    /// The head and body of a request with a known length.
    pub(crate) async fn read_message(&mut self) -> (String, Vec<u8>) {
        let head = self.read_head().await;
        let length = head
            .lines()
            .find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
            })
            .unwrap_or(0);
        let body = self.read_exact(length).await;
        (head, body)
    }

    /// Answers with a body of known length.
    pub(crate) async fn answer(&mut self, status: &str, headers: &str, body: &[u8]) {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n");
        self.send(head).await;
        self.send(body).await;
    }

    /// Begins a stream of server-sent events.
    pub(crate) async fn begin_stream(&mut self) {
        self.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    }

    pub(crate) async fn send_chunk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk).await;
    }

    pub(crate) async fn end_stream(&mut self) {
        self.send("0\r\n\r\n").await;
    }
}

/// A proxy before a listener on which the test plays the engine.
pub(crate) struct Setup {
    pub(crate) capture: CaptureHandle,
    pub(crate) listener: TcpListener,
    writer: RunWriter,
    dir: tempfile::TempDir,
}

/// What a stopped capture left behind.
pub(crate) struct Recorded {
    pub(crate) run: Run,
    pub(crate) turns: Vec<TurnRow>,
    pub(crate) calls: Vec<ToolCallRow>,
    pub(crate) stats: CaptureStats,
    dir: tempfile::TempDir,
}

impl Recorded {
    /// Every file of the run directory.
    pub(crate) fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(run_dir(&self.dir)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    }
}

impl Setup {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    /// Starts with changed settings.
    pub(crate) async fn start_with(change: impl FnOnce(&mut CaptureConfig)) -> Self {
        Self::start_as(change, Duration::from_secs(10)).await
    }

    /// Starts with a drain time of its own.
    pub(crate) async fn start_draining(drain: Duration) -> Self {
        Self::start_as(|_| {}, drain).await
    }

    async fn start_as(change: impl FnOnce(&mut CaptureConfig), drain: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut config =
            CaptureConfig::new("127.0.0.1:0".parse().unwrap(), url, "test-run".to_owned());
        change(&mut config);
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let manifest = Manifest::new(RunKind::Capture, "test-run", &clock);
        let writer = RunWriter::create(&run_dir(&dir), manifest).unwrap();
        let shutdown = Shutdown::new(drain);
        let capture = Capture::start(config, writer.sender(), clock, shutdown).await.unwrap();
        Self { capture, listener, writer, dir }
    }

    pub(crate) async fn client(&self) -> Peer {
        Peer::connect(self.capture.local_addr()).await
    }

    /// The next connection that the proxy opens to the engine.
    pub(crate) async fn engine(&self) -> Peer {
        accept(&self.listener).await
    }

    /// A client whose body of so many bytes arrived at the engine unchanged, both, and the body.
    pub(crate) async fn upload(&self, bytes: u32) -> (Peer, Peer, Vec<u8>) {
        let sent: Vec<u8> =
            (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut client = self.client().await;
        let up = sent.clone();
        let sending = tokio::spawn(async move {
            client.post("/v1/messages", "", &up).await;
            client
        });
        let mut engine = self.engine().await;
        let (_, received) = engine.read_message().await;
        assert!(received == sent, "the upload arrived changed");
        (must(sending).await.unwrap(), engine, sent)
    }

    /// Nobody listens any more where the engine was.
    pub(crate) fn without_engine(self) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener: TcpListener::from_std(listener).unwrap(), ..self }
    }

    /// Every file of the run directory while the run goes.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(run_dir(&self.dir)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// A sender of rows into this setup's run.
    pub(crate) fn rows(&self) -> RowSender {
        self.writer.sender()
    }

    /// Waits until so many turns are rows.
    pub(crate) async fn recorded(&self, turns: u64) {
        must(async {
            while self.capture.stats().turns < turns {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }

    /// Stops the proxy and opens the run.
    pub(crate) async fn finish(self) -> Recorded {
        let stats = must(self.capture.stop()).await;
        self.writer.finish().unwrap();
        let run = Run::open(&run_dir(&self.dir)).unwrap();
        let turns = rows(&run);
        let calls = rows(&run);
        Recorded { run, turns, calls, stats, dir: self.dir }
    }
}

/// The next connection that a listener gets.
pub(crate) async fn accept(listener: &TcpListener) -> Peer {
    let (stream, _) = must(listener.accept()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    Peer { stream, unread: Vec::new() }
}

fn run_dir(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("run")
}

fn rows<T: Record>(run: &Run) -> Vec<T> {
    run.rows::<T>().unwrap().map(Result::unwrap).collect()
}
