//! Capture, replay or live agents, polling, power and the run directory composed into one recording.
//!
//! The parts know nothing of each other: this module starts them in the right order (writer, power,
//! poller, then traffic), stops them in the reverse one, and completes the manifest. What a row means is the
//! parts' own affair. What can be refused is refused before the run directory is made.

mod agent;
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

pub use agent::{AgentRecording, AgentRecordingConfig, AgentSender};
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
use crate::replay::ReplayProgress;
use crate::replay::progress::Outside;
use crate::trace::{EngineInfo, HostInfo, Manifest, RowSender, RunKind, RunWriter};

/// Time between polls unless asked otherwise.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Where the engine's metrics page is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsPage {
    /// `/metrics` of the engine's own address; when it is not there, nothing is polled and the run
    /// says so.
    Beside,
    /// At these addresses, one for each engine; when one is not there, the run does not start.
    At(Vec<String>),
    /// Nothing is polled.
    Off,
}

/// What every recording is told by its caller; the core reads no environment itself.
#[derive(Debug, Clone)]
pub struct RecordingConfig {
    /// The run directory to make; must not exist, or be empty, unless it is gone on with.
    pub out: PathBuf,
    /// Whether `out` holds an earlier part of this run, whose tables are gone on with.
    pub resume: bool,
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
        self.manifest_of_several(kind, clock, vec![engine])
    }

    fn manifest_of_several(
        &self,
        kind: RunKind,
        clock: &Clock,
        engines: Vec<EngineInfo>,
    ) -> Manifest {
        let mut settings = self.settings.clone();
        if self.metrics != MetricsPage::Off {
            // Turns are joined to engine rows by it.
            let interval_ms = self.poll_interval.as_secs_f64() * 1e3;
            settings.insert("poll_interval_ms".to_owned(), interval_ms.into());
        }
        Manifest {
            argv: self.argv.clone(),
            host: self.host.clone(),
            engine: Some(EngineInfo::of_several(&engines)),
            engines: if engines.len() > 1 { engines } else { Vec::new() },
            settings,
            ..Manifest::new(kind, self.run_id.clone(), clock)
        }
    }
}

/// The writer, the power sampler and the pollers of one recording.
#[derive(Debug)]
struct Ground {
    writer: RunWriter,
    power: PowerSampler,
    /// One for each engine whose page is there.
    pollers: Vec<Poller>,
    poll_interval: Duration,
    clock: Clock,
}

impl Ground {
    /// Makes the run directory, takes the idle baseline and starts polling.
    async fn lay(
        config: &RecordingConfig,
        manifest: Manifest,
        engines: &[Control],
        clock: Clock,
    ) -> Result<Self> {
        let labels = engines.iter().map(|engine| engine.url().to_owned()).collect();
        Self::lay_as(config, manifest, engines, labels, clock).await
    }

    /// The same with other names of the engines in their rows.
    async fn lay_as(
        config: &RecordingConfig,
        manifest: Manifest,
        engines: &[Control],
        labels: Vec<String>,
        clock: Clock,
    ) -> Result<Self> {
        let urls: Vec<&str> = engines.iter().map(Control::url).collect();
        let pages = metrics_pages(&config.metrics, engines)?;
        let (dir, resume) = (config.out.clone(), config.resume);
        let open = if resume { RunWriter::resume } else { RunWriter::create };
        let writer = in_background(move || open(&dir, manifest)).await?;
        let (power, rows) = (of_this_machine(&config.power, &urls), writer.sender());
        let sampling = in_background(move || PowerSampler::start(power, rows, clock)).await;
        let power = match sampling {
            Ok(power) => power,
            Err(error) => {
                writer.discard();
                return Err(error);
            }
        };
        let (mut pollers, mut notes) = (Vec::new(), Vec::new());
        if config.metrics == MetricsPage::Off {
            notes.push("engine metrics were not polled: switched off".to_owned());
        }
        for (page, label) in pages.into_iter().zip(labels) {
            match start_poller(config, page, label, writer.sender(), clock).await {
                Ok(Polling::Runs(started)) => pollers.push(started),
                Ok(Polling::Not(note)) => notes.push(note),
                Err(error) => {
                    drop((pollers, power));
                    writer.discard();
                    return Err(error);
                }
            }
        }
        writer.update_manifest(|manifest| {
            keep_power(manifest, power.settings());
            manifest.notes.extend(notes);
        })?;
        Ok(Self { writer, power, pollers, poll_interval: config.poll_interval, clock })
    }

    /// Undoes `lay`: the run did not start.
    fn clear(self) {
        drop((self.pollers, self.power));
        self.writer.discard();
    }

    /// A run's progress with what is seen of its engine and of power.
    fn seen(&self, progress: ReplayProgress) -> ReplayProgress {
        let gauges = self.pollers.last().and_then(Poller::gauges);
        let outside = Outside {
            engine_running: gauges.and_then(|gauges| gauges.running),
            engine_waiting: gauges.and_then(|gauges| gauges.waiting),
            engine_kv_cache_usage_pct: gauges.and_then(|gauges| gauges.kv_cache_usage_pct),
            power_w: self.power.power_w(),
        };
        ReplayProgress { outside, ..progress }
    }

    /// How polling goes, engine by engine; of one that is not polled nothing.
    fn poll_stats(&self) -> Vec<PollStats> {
        self.pollers.iter().map(Poller::stats).collect()
    }

    /// Stops polling once the engine has had a tick's time to count the last completions, and closes
    /// the tables. `complete` adds what the traffic came to.
    async fn finish(
        self,
        complete: impl FnOnce(&mut Manifest) + Send + 'static,
    ) -> Result<Manifest> {
        let Self { writer, power, pollers, poll_interval, clock } = self;
        if !pollers.is_empty() {
            tokio::time::sleep(poll_interval).await;
        }
        in_background(move || {
            let polled: Vec<PollStats> = pollers.into_iter().map(Poller::stop).collect();
            let sampled = power.settings().source.is_some().then(|| power.stop());
            writer.update_manifest(|manifest| {
                manifest.ended = Some(unix_seconds(clock.now_ns()));
                note_polling(manifest, &polled);
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
fn of_this_machine(power: &PowerConfig, engine_urls: &[&str]) -> PowerConfig {
    let told = power.gpus.list.is_some() || power.gpus.engine_pid.is_some();
    let mut power = power.clone();
    if power.choice == PowerChoice::Auto && !told && !engine_urls.iter().all(|url| on_loopback(url))
    {
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

/// The page of each engine; none where nothing is polled.
fn metrics_pages(metrics: &MetricsPage, engines: &[Control]) -> Result<Vec<String>> {
    match metrics {
        MetricsPage::Off => Ok(Vec::new()),
        MetricsPage::Beside => Ok(engines.iter().map(Control::metrics_url).collect()),
        MetricsPage::At(pages) if pages.len() == engines.len() => Ok(pages.clone()),
        MetricsPage::At(pages) => Err(Error::config(format!(
            "{} metrics page(s) for {} engine(s); name one for each, in the same order",
            pages.len(),
            engines.len()
        ))),
    }
}

async fn start_poller(
    config: &RecordingConfig,
    page: String,
    engine: String,
    rows: RowSender,
    clock: Clock,
) -> Result<Polling> {
    let mut poll = PollConfig::new(page)?;
    // Turns and their engine's rows bear one name.
    poll.engine = engine;
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

/// Counts of all engines together; what is to be said of one names it.
fn note_polling(manifest: &mut Manifest, engines: &[PollStats]) {
    let is_several = !manifest.engines.is_empty();
    for polled in engines {
        let counts = [
            ("polls", polled.ticks),
            ("polls_missed", polled.missed),
            ("polls_failed", polled.failed),
            ("engine_restarts", polled.resets),
        ];
        for (name, count) in counts {
            *manifest.counts.entry(name.to_owned()).or_default() += count;
        }
        let the_engine =
            if is_several { format!("engine {}", polled.engine) } else { "the engine".to_owned() };
        if polled.resets > 0 {
            manifest.notes.push(format!(
                "{the_engine}'s counters went back {} time(s): it restarted during the run",
                polled.resets
            ));
        }
        let warning = polled.cache_warning.clone();
        manifest.notes.extend(
            warning.map(
                |warning| {
                    if is_several { format!("{the_engine}: {warning}") } else { warning }
                },
            ),
        );
    }
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
            let choice = of_this_machine(power, &["http://localhost:1", url]).choice;
            assert_eq!(choice == power.choice, sampled, "{url}: {choice:?}");
        }
    }
}
