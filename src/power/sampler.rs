//! Sampling a power source on a fixed schedule, from a thread of its own.
//!
//! Samples are due at start + k · interval, whatever reading takes; one that has passed before its turn
//! came is skipped and counted. Every device gives a row at every sample, without values where it gave
//! none. The idle baseline is the first stretch of the same samples, before the caller goes on.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::energy::{Reading, energy};
use super::gpus::GpuChoice;
use super::readings::Readings;
use super::source::{Boundary, DeviceReading, Opened, PowerChoice, PowerSource, open};
use crate::clock::{Clock, unix_seconds};
use crate::error::{Error, Result};
use crate::schedule::{LagHistogram, Schedule};
use crate::trace::RowSender;
use crate::trace::record::PowerRow;

/// What to sample, and how.
#[derive(Debug, Clone)]
pub struct PowerConfig {
    /// The source.
    pub choice: PowerChoice,
    /// Which GPUs.
    pub gpus: GpuChoice,
    /// Time between two samples.
    pub interval: Duration,
    /// How long to sample before the start returns; none for no baseline.
    pub idle_baseline: Option<Duration>,
    /// Power usage effectiveness of the building; none leaves figures as measured.
    pub pue: Option<f64>,
    /// Keeps the readings in memory too, for a [`PowerWatch`] that asks while the run goes.
    pub keep_readings: bool,
}

impl PowerConfig {
    /// Every 100 ms, all GPUs, no baseline.
    pub fn new(choice: PowerChoice) -> Self {
        Self {
            choice,
            gpus: GpuChoice::default(),
            interval: Duration::from_millis(100),
            idle_baseline: None,
            pue: None,
            keep_readings: false,
        }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// `Error::Config` for an interval below 1 ms or an effectiveness below 1.
    pub fn validate(&self) -> Result<()> {
        if self.interval < Duration::from_millis(1) {
            return Err(Error::config("the time between power samples must be at least 1 ms"));
        }
        match self.pue {
            Some(pue) if !pue.is_finite() || pue < 1.0 => Err(Error::config(format!(
                "pue: {pue} is no power usage effectiveness; it is at least 1"
            ))),
            _ => Ok(()),
        }
    }
}

/// Power of each device before the run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleBaseline {
    /// Its start, seconds since the Unix epoch.
    pub start: f64,
    /// Its end.
    pub end: f64,
    /// Mean power of each device; null where its samples give no valid figure.
    pub mean_power_w: BTreeMap<String, Option<f64>>,
}

/// How power was sampled, for the manifest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerSettings {
    /// `nvml`, `dcgm`, `rapl` or `constant`; null without a source.
    pub source: Option<String>,
    /// Why there is none.
    pub reason: Option<String>,
    /// What its figures include.
    pub boundary: Option<Boundary>,
    /// Devices that every sample reads.
    pub devices: Vec<String>,
    /// Which rule chose them.
    pub rule: Option<String>,
    /// Time between samples.
    pub interval_ms: f64,
    /// Power usage effectiveness.
    pub pue: Option<f64>,
    /// Power before the run.
    pub idle: Option<IdleBaseline>,
}

/// How sampling goes.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PowerStats {
    /// Samples made, each of all devices.
    pub ticks: u64,
    /// Samples skipped because they had passed before their turn came.
    pub missed: u64,
    /// Device readings that gave neither power nor energy.
    pub failed: u64,
    /// Rows that found the recording's queue full.
    pub rows_dropped: u64,
    /// 99th percentile of the time from due to read.
    pub lag_p99_ms: Option<f64>,
    /// Its maximum.
    pub lag_max_ms: Option<f64>,
    /// Instant power of all devices as last read; null where one does not tell.
    pub power_w: Option<f64>,
    /// Why the last reading without values failed.
    pub last_error: Option<String>,
}

/// A running sampler; ends when stopped or dropped. Without a source it says why and does nothing.
#[derive(Debug)]
pub struct PowerSampler {
    settings: Arc<PowerSettings>,
    shared: Arc<Mutex<Shared>>,
    worker: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

#[derive(Debug, Default)]
struct Shared {
    stats: PowerStats,
    lag: LagHistogram,
    kept: Readings,
    /// When the earliest device of the last sample was read, seconds.
    sampled_until: f64,
}

/// The readings that a running sampler keeps; outlives it.
#[derive(Debug, Clone)]
pub struct PowerWatch {
    settings: Arc<PowerSettings>,
    shared: Arc<Mutex<Shared>>,
}

impl PowerWatch {
    /// How power is sampled, or why not.
    pub fn settings(&self) -> &PowerSettings {
        &self.settings
    }

    /// Every device was asked at or after `ts` (seconds since the Unix epoch).
    pub fn covers(&self, ts: f64) -> bool {
        self.lock().sampled_until >= ts
    }

    /// The readings kept, which are those of the rows written.
    pub fn readings(&self) -> Readings {
        self.lock().kept.clone()
    }

    /// Drops the readings that no window from `ts` on needs.
    pub fn forget_before(&self, ts: f64) {
        self.lock().kept.forget_before(ts);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PowerSampler {
    /// Opens the source and starts sampling. Returns once the first sample is there, and the baseline is
    /// over; blocks until then.
    ///
    /// # Errors
    /// `Error::Config` for a wrong setting, `Error::Gpu` for a named GPU that is not there. A source that
    /// is not there is no error.
    pub fn start(config: PowerConfig, rows: RowSender, clock: Clock) -> Result<Self> {
        config.validate()?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (ready, started) = mpsc::sync_channel(1);
        let (stop, stopping) = mpsc::channel();
        let worker_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("power-sampler".to_owned())
            .spawn(move || {
                let opened = open_source(&config);
                let (source, settings) = match opened {
                    Ok((Some(source), settings)) => (source, settings),
                    Ok((None, settings)) => {
                        let _ = ready.send(Ok(settings));
                        return;
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return;
                    }
                };
                let worker = Worker { source, config, rows, clock, shared: worker_shared };
                worker.run(settings, &ready, &stopping);
            })
            .map_err(|error| Error::Internal(format!("no thread for power: {error}")))?;
        let settings = started
            .recv()
            .map_err(|_| Error::Internal("the power thread ended early".to_owned()))??;
        Ok(Self { settings: Arc::new(settings), shared, worker: Some((stop, thread)) })
    }

    /// How power is sampled, or why not.
    pub fn settings(&self) -> &PowerSettings {
        &self.settings
    }

    /// What it keeps, where it was told to keep readings.
    pub fn watch(&self) -> PowerWatch {
        PowerWatch { settings: Arc::clone(&self.settings), shared: Arc::clone(&self.shared) }
    }

    /// Power of all devices now, times the power usage effectiveness where one was given; none where a
    /// device does not tell.
    pub fn power_w(&self) -> Option<f64> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.stats.power_w.map(|power_w| power_w * self.settings.pue.unwrap_or(1.0))
    }

    /// How sampling goes.
    pub fn stats(&self) -> PowerStats {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        PowerStats {
            lag_p99_ms: shared.lag.quantile_ms(0.99),
            lag_max_ms: shared.lag.max_ms(),
            ..shared.stats.clone()
        }
    }

    /// Samples once more, so that the run's end is covered, and ends the thread.
    pub fn stop(mut self) -> PowerStats {
        self.join();
        self.stats()
    }

    fn join(&mut self) {
        if let Some((stop, thread)) = self.worker.take() {
            // A thread that has ended hears nothing and need not.
            let _ = stop.send(());
            if thread.join().is_err() {
                tracing::error!("the power thread panicked");
            }
        }
    }
}

impl Drop for PowerSampler {
    fn drop(&mut self) {
        self.join();
    }
}

fn open_source(config: &PowerConfig) -> Result<(Option<Box<dyn PowerSource>>, PowerSettings)> {
    let common = PowerSettings {
        interval_ms: config.interval.as_secs_f64() * 1e3,
        pue: config.pue,
        ..PowerSettings::default()
    };
    Ok(match open(&config.choice, &config.gpus)? {
        Opened::None(reason) => (None, PowerSettings { reason: Some(reason), ..common }),
        Opened::Source(source) => {
            let settings = PowerSettings {
                source: Some(source.name().to_owned()),
                boundary: Some(source.boundary()),
                devices: source.devices(),
                rule: Some(source.rule()),
                ..common
            };
            (Some(source), settings)
        }
    })
}

/// What the sampling thread owns.
struct Worker {
    source: Box<dyn PowerSource>,
    config: PowerConfig,
    rows: RowSender,
    clock: Clock,
    shared: Arc<Mutex<Shared>>,
}

impl Worker {
    fn run(
        mut self,
        mut settings: PowerSettings,
        ready: &mpsc::SyncSender<Result<PowerSettings>>,
        stop: &mpsc::Receiver<()>,
    ) {
        let start_ns = self.clock.now_ns();
        let mut schedule = Schedule::new(start_ns, self.config.interval);
        let mut seen = self.sample(start_ns);
        if let Some(length) = self.config.idle_baseline {
            let end_ns = start_ns + length.as_nanos() as i64;
            // One sample past the end, for the edge.
            while self.clock.now_ns() < end_ns + self.config.interval.as_nanos() as i64 {
                let Some(readings) = self.tick(&mut schedule, stop) else { return };
                seen.extend(readings);
            }
            settings.idle = Some(self.baseline(&settings.devices, &seen, start_ns, end_ns));
        }
        if ready.send(Ok(settings)).is_err() {
            return;
        }
        while self.tick(&mut schedule, stop).is_some() {}
        let _ = self.sample(self.clock.now_ns());
    }

    /// Waits for the next sample and takes it; none when told to stop.
    fn tick(
        &mut self,
        schedule: &mut Schedule,
        stop: &mpsc::Receiver<()>,
    ) -> Option<Vec<DeviceReading>> {
        let now_ns = self.clock.now_ns();
        let tick = schedule.next(now_ns);
        self.change(|shared| shared.stats.missed += tick.skipped);
        let wait = Duration::from_nanos((tick.due_ns - now_ns).max(0) as u64);
        match stop.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => Some(self.sample(tick.due_ns)),
            // Stopped during the baseline: whoever started it is gone.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn baseline(
        &self,
        devices: &[String],
        seen: &[DeviceReading],
        start_ns: i64,
        end_ns: i64,
    ) -> IdleBaseline {
        let (start, end) = (unix_seconds(start_ns), unix_seconds(end_ns));
        let mean = |device: &String| {
            let readings: Vec<Reading> =
                seen.iter().filter(|seen| seen.device == *device).filter_map(reading).collect();
            let used = energy(&readings, start, end, self.config.interval.as_secs_f64());
            (device.clone(), used.ok().map(|used| used.mean_power_w))
        };
        IdleBaseline { start, end, mean_power_w: devices.iter().map(mean).collect() }
    }

    fn sample(&mut self, due_ns: i64) -> Vec<DeviceReading> {
        let started_ns = self.clock.now_ns();
        let readings = self.source.sample(&self.clock);
        let source = self.source.name();
        let (mut dropped, mut kept) = (0, Vec::new());
        for reading in &readings {
            let row = row(source, due_ns, reading);
            if self.config.keep_readings {
                kept.push(row.clone());
            }
            if !self.rows.send(row) {
                dropped += 1;
                // What is not in the table must not be in a figure either.
                kept.pop();
            }
        }
        let errors: Vec<&String> =
            readings.iter().filter_map(|reading| reading.error.as_ref()).collect();
        let mut went_down = false;
        self.change(|shared| {
            for row in &kept {
                shared.kept.add(row);
            }
            let first_ns = readings.iter().map(|reading| reading.read_ns).min();
            shared.sampled_until = first_ns.map_or(shared.sampled_until, unix_seconds);
            shared.lag.record_ns(started_ns - due_ns);
            let stats = &mut shared.stats;
            went_down = stats.failed == 0 && !errors.is_empty();
            stats.ticks += 1;
            stats.rows_dropped += dropped;
            stats.failed += errors.len() as u64;
            stats.power_w = readings.iter().map(|reading| reading.power_w).sum();
            if let Some(error) = errors.last() {
                stats.last_error = Some((*error).clone());
            }
        });
        if let (true, Some(error)) = (went_down, errors.last()) {
            tracing::warn!("{source}: no power reading: {error}");
        }
        readings
    }

    fn change(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn row(source: &str, due_ns: i64, reading: &DeviceReading) -> PowerRow {
    PowerRow {
        ts: unix_seconds(reading.read_ns),
        due: unix_seconds(due_ns),
        device_ts: reading.device_ts,
        source: source.to_owned(),
        device: reading.device.clone(),
        power_w: reading.power_w,
        power_avg_w: reading.power_avg_w,
        energy_j: reading.energy_j,
        utilization_pct: reading.utilization_pct,
        memory_used_bytes: reading.memory_used_bytes,
        sm_clock_mhz: reading.sm_clock_mhz,
    }
}

/// What an energy figure is made of; none where the device gave nothing.
fn reading(reading: &DeviceReading) -> Option<Reading> {
    let told = reading.power_w.is_some() || reading.energy_j.is_some();
    told.then(|| Reading {
        ts: unix_seconds(reading.read_ns),
        power_w: reading.power_w,
        energy_j: reading.energy_j,
    })
}
