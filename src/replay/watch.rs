//! The client watches itself while it replays: how late its timers are, how much CPU its process takes,
//! how many sockets are open.
//!
//! A task on the runtime that sends is due every 10 ms; the time by which it is late is what any send or
//! stamp there may be late by. Ticks that passed meanwhile count with their own lateness, so a stall
//! weighs as much as it lasts. A thread of its own writes a row each half second. What the rows say of
//! the client is `client_figures`' affair.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::clock::{Clock, elapsed_ms, unix_seconds};
use crate::error::{Error, Result};
use crate::schedule::Schedule;
use crate::trace::RowSender;
use crate::trace::record::ClientSampleRow;

/// Time between two ticks.
const TICK_NS: i64 = 10_000_000;

/// Time between two rows.
const SAMPLE: Duration = Duration::from_millis(500);

/// Lags kept for one row at most: ten minutes of a client that did not run at all.
const MOST_LAGS: usize = 60_000;

/// The watch of one replay.
#[derive(Debug)]
pub(super) struct Watch {
    ticker: tokio::task::AbortHandle,
    /// Dropped: the thread takes a last sample and ends.
    stop: Option<Sender<()>>,
    sampler: Option<std::thread::JoinHandle<Vec<ClientSampleRow>>>,
}

impl Watch {
    /// Starts ticking on the current tokio runtime. Rows go to `rows`; those of a capacity search's
    /// level are kept too.
    pub(super) fn start(clock: Clock, rows: RowSender, level: Option<u32>) -> Result<Self> {
        let lags: Lags = Arc::default();
        let ticker = tokio::spawn(tick(clock, Arc::clone(&lags))).abort_handle();
        let (stop, stopped) = channel();
        let sampler = Sampler { clock, rows, level, lags };
        let sampler = std::thread::Builder::new()
            .name("client-watch".into())
            .spawn(move || sampler.run(&stopped))
            .map_err(|error| {
                Error::Internal(format!("no thread for the client's watch: {error}"))
            })?;
        Ok(Self { ticker, stop: Some(stop), sampler: Some(sampler) })
    }

    /// Takes a last sample and stops; the rows of a level.
    pub(super) async fn stop(mut self) -> Result<Vec<ClientSampleRow>> {
        self.stop = None;
        let Some(sampler) = self.sampler.take() else { return Ok(Vec::new()) };
        tokio::task::spawn_blocking(move || sampler.join())
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
            .map_err(|_| Error::Internal("the thread of the client's watch panicked".into()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ticker.abort();
    }
}

type Lags = Arc<Mutex<Vec<f64>>>;

/// Notes by how much each tick was late.
async fn tick(clock: Clock, lags: Lags) {
    let start_ns = clock.now_ns();
    let mut next = 1;
    loop {
        tokio::time::sleep_until(clock.instant_at(start_ns + next * TICK_NS)).await;
        let now_ns = clock.now_ns();
        let mut lags = lags.lock().unwrap_or_else(PoisonError::into_inner);
        while start_ns + next * TICK_NS <= now_ns {
            if lags.len() < MOST_LAGS {
                lags.push(elapsed_ms(start_ns + next * TICK_NS, now_ns));
            }
            next += 1;
        }
    }
}

struct Sampler {
    clock: Clock,
    rows: RowSender,
    level: Option<u32>,
    lags: Lags,
}

impl Sampler {
    fn run(self, stopped: &Receiver<()>) -> Vec<ClientSampleRow> {
        let start_ns = self.clock.now_ns();
        let mut schedule = Schedule::new(start_ns, SAMPLE);
        let mut kept = Vec::new();
        let mut due_ns = start_ns;
        let mut last = false;
        loop {
            let row = self.sample(due_ns);
            if self.level.is_some() {
                kept.push(row.clone());
            }
            self.rows.send_blocking(row);
            if last {
                return kept;
            }
            let now_ns = self.clock.now_ns();
            due_ns = schedule.next(now_ns).due_ns;
            let rest = Duration::from_nanos((due_ns - now_ns).max(0) as u64);
            if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                (last, due_ns) = (true, self.clock.now_ns());
            }
        }
    }

    fn sample(&self, due_ns: i64) -> ClientSampleRow {
        let timer_lag_ms =
            std::mem::take(&mut *self.lags.lock().unwrap_or_else(PoisonError::into_inner));
        let files = open_files();
        ClientSampleRow {
            ts: unix_seconds(self.clock.now_ns()),
            due: unix_seconds(due_ns),
            cpu_s: Some(cpu_s()),
            cores: std::thread::available_parallelism().ok().map(|cores| cores.get() as u64),
            timer_lag_ms,
            open_sockets: files.map(|files| files.sockets),
            open_files: files.map(|files| files.all),
            open_files_limit: getrlimit(Resource::Nofile).current,
            level: self.level,
            worker: None,
        }
    }
}

/// CPU time of this process so far, all its threads together.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[derive(Debug, Clone, Copy)]
struct OpenFiles {
    all: u64,
    sockets: u64,
}

/// Open files of this process; none where the system does not tell.
fn open_files() -> Option<OpenFiles> {
    let mut files = OpenFiles { all: 0, sockets: 0 };
    for entry in std::fs::read_dir("/proc/self/fd").ok()?.flatten() {
        files.all += 1;
        // A file may be closed meanwhile.
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        files.sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
    }
    Some(files)
}

/// Whether whoever listens at a URL's port on this machine is this very process, so that its CPU holds
/// the engine's too. None where the system does not tell.
pub(super) fn listens_here(url: &str) -> Option<bool> {
    let url = reqwest::Url::parse(url).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']);
    let local = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if !local {
        return Some(false);
    }
    let port = url.port_or_known_default()?;
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let tables: Vec<String> =
        tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
    if tables.is_empty() {
        return None;
    }
    let inodes: Vec<&str> = tables.iter().flat_map(|table| listening_inodes(table, port)).collect();
    let own = std::fs::read_dir("/proc/self/fd").ok()?.flatten().any(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.contains(&inode))
    });
    Some(own)
}

/// Inodes of the sockets that listen on a port, from a table as in `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<&str> {
    const LISTEN: &str = "0A";
    let local_port = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let listens = *fields.get(3)? == LISTEN && fields.get(1)?.ends_with(&local_port);
            fields.get(9).copied().filter(|_| listens)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0
";

    #[test]
    fn who_listens_on_a_port_is_read_from_the_table() {
        assert_eq!(listening_inodes(TABLE, 8080), ["4711"]);
        assert_eq!(listening_inodes(TABLE, 80), ["99"]);
        assert_eq!(listening_inodes(TABLE, 9000), [""; 0]);
    }

    #[test]
    fn a_listener_of_this_process_is_told_from_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        assert_eq!(listens_here(&url), Some(true));
        drop(listener);
        assert_eq!(listens_here(&url), Some(false));
        assert_eq!(listens_here("http://engine.example:8000"), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn every_tick_counts_by_its_own_lateness() {
        let (clock, lags) = (Clock::start(), Lags::default());
        let ticker = tokio::spawn(tick(clock, Arc::clone(&lags)));
        tokio::time::sleep(Duration::from_millis(25)).await;
        let near = |lags: &[f64], expected: &[f64]| {
            let pairs = || lags.iter().zip(expected);
            lags.len() == expected.len() && pairs().all(|(seen, lag)| (seen - lag).abs() <= 2.0)
        };
        let seen = lags.lock().unwrap().clone();
        assert!(near(&seen, &[0.0, 0.0]), "{seen:?}");
        // The runtime stands still for 40 ms: the ticks of 30, 40, 50 and 60 ms all happen at 65.
        tokio::time::advance(Duration::from_millis(40)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        ticker.abort();
        let seen = lags.lock().unwrap().clone();
        assert!(near(&seen[2..], &[35.0, 25.0, 15.0, 5.0]), "{seen:?}");
    }

    #[test]
    fn cpu_time_and_open_files_are_read() {
        assert!(cpu_s() > 0.0);
        if let Some(files) = open_files() {
            assert!(files.all >= 3 && files.sockets <= files.all);
        }
    }
}
