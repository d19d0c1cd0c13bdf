//! Capture or replay, polling, power and the run directory composed into one recording.
//!
//! The parts know nothing of each other: this module starts them in the right order (writer, power,
//! poller, then traffic), stops them in the reverse one, and completes the manifest. What a row means is the
//! parts' own affair. What can be refused is refused before the run directory is made.

mod capacity;
mod capture;
mod capture_summary;
mod fleet;
mod power;
mod presets;
mod replay;
mod worker;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use capacity::{CapacityProgress, CapacityRecording, CapacityRecordingConfig, SearchConfig};
pub use capture::{CaptureRecording, CaptureRecordingConfig};
pub use capture_summary::{CaptureSummary, ToolFigures, summarize_capture};
pub use fleet::{Fleet, FleetConfig, FleetState, Step};
pub use power::{PowerRecording, energy_between};
pub use presets::{PRESETS, Preset};
pub use replay::{ReplayRecording, ReplayRecordingConfig};
pub use worker::{Worker, WorkerPlan, WorkerReport};

use crate::clock::{Clock, unix_seconds};
use crate::engine::control::Control;
use crate::engine::poll::{PollConfig, PollStats, Poller};
use crate::error::{Error, Result};
use crate::power::{PowerChoice, PowerConfig, PowerSampler, PowerSettings, PowerStats};
use crate::trace::{EngineInfo, HostInfo, Manifest, RowSender, RunKind, RunWriter};

/// Time between polls unless asked otherwise.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Where the engine's metrics page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsPage {
    /// `/metrics` of the engine's own address; when it is not there, nothing is polled and the run
    /// says so.
    Beside,
    /// At this address; when it is not there, the run does not start.
    At(String),
    /// Nothing is polled.
    Off,
}

/// What every recording is told by its caller; the core reads no environment itself.
#[derive(Debug, Clone)]
pub struct RecordingConfig {
    /// The run directory to make; must not exist, or be empty.
    pub out: PathBuf,
    /// Name of the run.
    pub run_id: String,
    /// The command line, secrets masked.
    pub argv: Vec<String>,
    /// The machine, as far as the caller knows it.
    pub host: HostInfo,
    /// The engine's metrics page.
    pub metrics: MetricsPage,
    /// Time between polls.
    pub poll_interval: Duration,
    /// Power of the devices.
    pub power: PowerConfig,
    /// Settings of the caller to keep in the manifest.
    pub settings: serde_json::Map<String, serde_json::Value>,
}

impl RecordingConfig {
    fn manifest(&self, kind: RunKind, clock: &Clock, engine: EngineInfo) -> Manifest {
        let mut settings = self.settings.clone();
        if self.metrics != MetricsPage::Off {
            // Turns are joined to engine rows by it.
            let interval_ms = self.poll_interval.as_secs_f64() * 1e3;
            settings.insert("poll_interval_ms".to_owned(), interval_ms.into());
        }
        Manifest {
            argv: self.argv.clone(),
            host: self.host.clone(),
            engine: Some(engine),
            settings,
            ..Manifest::new(kind, self.run_id.clone(), clock)
        }
    }
}

/// The writer, the power sampler and the poller of one recording.
#[derive(Debug)]
struct Ground {
    writer: RunWriter,
    power: PowerSampler,
    poller: Option<Poller>,
    poll_interval: Duration,
    clock: Clock,
}

impl Ground {
    /// Makes the run directory, takes the idle baseline and starts polling.
    async fn lay(
        config: &RecordingConfig,
        manifest: Manifest,
        control: &Control,
        clock: Clock,
    ) -> Result<Self> {
        let dir = config.out.clone();
        let writer = in_background(move || RunWriter::create(&dir, manifest)).await?;
        let (power, rows) = (of_this_machine(&config.power, control.url()), writer.sender());
        let sampling = in_background(move || PowerSampler::start(power, rows, clock)).await;
        let power = match sampling {
            Ok(power) => power,
            Err(error) => {
                writer.discard();
                return Err(error);
            }
        };
        let polling = start_poller(config, control, writer.sender(), clock).await;
        let (poller, note) = match polling {
            Ok(Polling::Runs(started)) => (Some(started), None),
            Ok(Polling::Not(note)) => (None, Some(note)),
            Err(error) => {
                drop(power);
                writer.discard();
                return Err(error);
            }
        };
        writer.update_manifest(|manifest| {
            keep_power(manifest, power.settings());
            manifest.notes.extend(note);
        })?;
        Ok(Self { writer, power, poller, poll_interval: config.poll_interval, clock })
    }

    /// Undoes `lay`: the run did not start.
    fn clear(self) {
        drop((self.poller, self.power));
        self.writer.discard();
    }

    fn poll_stats(&self) -> Option<PollStats> {
        self.poller.as_ref().map(Poller::stats)
    }

    /// Stops polling once the engine has had a tick's time to count the last completions, and closes
    /// the tables. `complete` adds what the traffic came to.
    async fn finish(
        self,
        complete: impl FnOnce(&mut Manifest) + Send + 'static,
    ) -> Result<Manifest> {
        let Self { writer, power, poller, poll_interval, clock } = self;
        if poller.is_some() {
            tokio::time::sleep(poll_interval).await;
        }
        in_background(move || {
            let polled = poller.map(Poller::stop);
            let sampled = power.settings().source.is_some().then(|| power.stop());
            writer.update_manifest(|manifest| {
                manifest.ended = Some(unix_seconds(clock.now_ns()));
                if let Some(polled) = &polled {
                    note_polling(manifest, polled);
                }
                if let Some(sampled) = &sampled {
                    note_power(manifest, sampled);
                }
                complete(manifest);
            })?;
            writer.finish()
        })
        .await
    }
}

/// Without a word about power, this machine's GPUs are taken for the engine's only where the engine's
/// address says that it is on this machine.
fn of_this_machine(power: &PowerConfig, engine_url: &str) -> PowerConfig {
    let told = power.gpus.list.is_some() || power.gpus.engine_pid.is_some();
    let mut power = power.clone();
    if power.choice == PowerChoice::Auto && !told && !on_loopback(engine_url) {
        power.choice = PowerChoice::Unknown {
            reason: "the engine's address is not this machine's own: name its power with \
                     --power dcgm:URL, or --power nvml where it does run here"
                .to_owned(),
        };
    }
    power
}

fn on_loopback(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

enum Polling {
    Runs(Poller),
    /// With the sentence for the manifest.
    Not(String),
}

async fn start_poller(
    config: &RecordingConfig,
    control: &Control,
    rows: RowSender,
    clock: Clock,
) -> Result<Polling> {
    let url = match &config.metrics {
        MetricsPage::Off => {
            return Ok(Polling::Not("engine metrics were not polled: switched off".to_owned()));
        }
        MetricsPage::Beside => control.metrics_url(),
        MetricsPage::At(url) => url.clone(),
    };
    let mut poll = PollConfig::new(url)?;
    poll.interval = config.poll_interval;
    let started = in_background(move || Poller::start(poll, rows, clock)).await;
    match started {
        Ok(poller) => Ok(Polling::Runs(poller)),
        Err(error @ Error::Upstream { .. }) if config.metrics == MetricsPage::Beside => {
            Ok(Polling::Not(format!("engine metrics were not polled: {error}")))
        }
        Err(error) => Err(error),
    }
}

fn note_polling(manifest: &mut Manifest, polled: &PollStats) {
    let counts = [
        ("polls", polled.ticks),
        ("polls_missed", polled.missed),
        ("polls_failed", polled.failed),
        ("engine_restarts", polled.resets),
    ];
    manifest.counts.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    if polled.resets > 0 {
        manifest.notes.push(format!(
            "the engine's counters went back {} time(s): it restarted during the run",
            polled.resets
        ));
    }
    manifest.notes.extend(polled.cache_warning.clone());
}

/// The settings under `power`; a missing source is a note too.
fn keep_power(manifest: &mut Manifest, settings: &PowerSettings) {
    if let Ok(value) = serde_json::to_value(settings) {
        manifest.settings.insert("power".to_owned(), value);
    }
    manifest.notes.extend(settings.reason.as_ref().map(|reason| format!("power: none ({reason})")));
}

/// The counts of power sampling.
fn note_power(manifest: &mut Manifest, sampled: &PowerStats) {
    let counts = [
        ("power_samples", sampled.ticks),
        ("power_samples_missed", sampled.missed),
        ("power_readings_failed", sampled.failed),
    ];
    manifest.counts.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    if let (true, Some(error)) = (sampled.failed > 0, &sampled.last_error) {
        manifest.notes.push(format!("{} power reading(s) failed: {error}", sampled.failed));
    }
}

/// Work that blocks, off the threads that move bytes.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::GpuChoice;

    #[test]
    fn the_gpus_here_are_no_remote_engines() {
        let auto = PowerConfig::new(PowerChoice::Auto);
        let named = PowerConfig {
            gpus: GpuChoice { list: Some(vec!["0".to_owned()]), engine_pid: None },
            ..auto.clone()
        };
        let nvml = PowerConfig::new(PowerChoice::Nvml { library: None });
        for (power, url, sampled) in [
            (&auto, "http://127.0.0.1:8000", true),
            (&auto, "http://localhost:8000/v1", true),
            (&auto, "http://[::1]:8000", true),
            (&auto, "http://10.0.0.7:8000", false),
            (&auto, "https://engine.example", false),
            (&named, "http://10.0.0.7:8000", true),
            (&nvml, "http://10.0.0.7:8000", true),
        ] {
            let choice = of_this_machine(power, url).choice;
            assert_eq!(choice == power.choice, sampled, "{url}: {choice:?}");
        }
    }
}
