//! A capture as one recording: proxy, poller, run directory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{Ground, RecordingConfig};
use crate::capture::{Capture, CaptureConfig, CaptureHandle, CaptureStats, Routing, Switches};
use crate::clock::Clock;
use crate::engine::control::Control;
use crate::engine::poll::PollStats;
use crate::error::Result;
use crate::redact::{Masker, Names};
use crate::shutdown::Shutdown;
use crate::trace::{EngineInfo, Manifest, RunKind};

/// How long open requests may go on once the capture is asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// What a capture needs beside a recording.
#[derive(Debug, Clone)]
pub struct CaptureRecordingConfig {
    /// The recording.
    pub recording: RecordingConfig,
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// `Capture`, or `Collect` where this program gives the agents their tasks.
    pub kind: RunKind,
    /// The engines behind the proxy.
    pub upstreams: Vec<String>,
    /// How requests are spread over several of them.
    pub routing: Routing,
    /// What callers must send as their key.
    pub token: Option<String>,
    /// What is changed of requests on their way.
    pub switches: Switches,
    /// Texts are masked before they are written, with these names among them; none writes them as they are.
    pub redact: Option<Names>,
}

/// A proxy and a poller that fill one run directory.
#[derive(Debug)]
pub struct CaptureRecording {
    ground: Ground,
    capture: CaptureHandle,
    masker: Option<Arc<Masker>>,
}

impl CaptureRecording {
    /// Starts writer, poller and proxy.
    ///
    /// # Errors
    ///
    /// An engine that is not there, an address that is taken, a directory that is not empty: then
    /// nothing is left behind.
    pub async fn start(config: CaptureRecordingConfig) -> Result<Self> {
        let clock = Clock::start();
        let controls = config.upstreams.iter().map(|url| Control::new(url));
        let controls = controls.collect::<Result<Vec<_>>>()?;
        let masker = config.redact.clone().map(|names| Arc::new(Masker::new(names)));
        let mut manifest = manifest(&config, &controls, &clock).await?;
        if let Some(masker) = &masker {
            manifest.redacted = true;
            redact_manifest(&mut manifest, masker);
        }
        let label = |url: &str| masker.as_ref().map_or_else(|| url.to_owned(), |it| it.text(url));
        let labels = controls.iter().map(|control| label(control.url())).collect();
        let ground = Ground::lay_as(&config.recording, manifest, &controls, labels, clock).await?;
        let proxy = CaptureConfig {
            upstreams: config.upstreams,
            routing: config.routing,
            first_request: ground.writer.next_request(),
            token: config.token,
            switches: config.switches,
            redact: masker.clone(),
            ..CaptureConfig::new(config.listen, String::new(), config.recording.run_id.clone())
        };
        let rows = ground.writer.sender();
        match Capture::start(proxy, rows, clock, Shutdown::new(DRAIN)).await {
            Ok(capture) => Ok(Self { ground, capture, masker }),
            Err(error) => {
                ground.clear();
                Err(error)
            }
        }
    }

    /// Where the proxy listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.capture.local_addr()
    }

    /// The proxy's figures of this moment.
    pub fn stats(&self) -> CaptureStats {
        self.capture.stats()
    }

    /// How polling goes, engine by engine; of one that is not polled nothing.
    pub fn poll_stats(&self) -> Vec<PollStats> {
        self.ground.poll_stats()
    }

    /// Rows that the run directory did not take, and why the last of them.
    pub fn rows_dropped(&self) -> (u64, Option<String>) {
        let rows = self.ground.writer.sender();
        (rows.dropped(), rows.last_error())
    }

    /// Stops proxy and poller, closes the tables.
    pub async fn finish(self) -> Result<(Manifest, CaptureStats)> {
        let stats = self.capture.stop().await;
        let told = stats.clone();
        let complete = move |manifest: &mut Manifest| {
            note_capture(manifest, &told);
            if let Some(masker) = &self.masker {
                redact_manifest(manifest, masker);
            }
        };
        let manifest = self.ground.finish(complete).await?;
        Ok((manifest, stats))
    }
}

/// Agents bring their own keys and ask for what they need: an engine that tells this program nothing of
/// itself serves them all the same.
async fn manifest(
    config: &CaptureRecordingConfig,
    controls: &[Control],
    clock: &Clock,
) -> Result<Manifest> {
    let (mut engines, mut notes) = (Vec::new(), Vec::new());
    for control in controls {
        let (engine, untold) = control.info_as_told().await?;
        let name = match controls.len() {
            1 => "the engine's model and context".to_owned(),
            _ => format!("model and context of {}", control.url()),
        };
        notes.extend(untold.map(|why| format!("{name} are not known: {why}")));
        engines.push(engine);
    }
    let differ = |pair: &[EngineInfo]| pair[0].model != pair[1].model;
    if engines.windows(2).any(differ) {
        let models = EngineInfo::of_several(&engines).model.unwrap_or_default();
        notes.push(format!(
            "the engines serve different models ({models}): an agent that asks for one of them is refused where \
             another is served"
        ));
    }
    let mut manifest = config.recording.manifest_of_several(config.kind, clock, engines);
    if controls.len() > 1 {
        manifest.settings.insert("routing".to_owned(), serde_json::json!(config.routing));
    }
    manifest.notes.extend(notes);
    note_switches(&mut manifest, &config.switches);
    Ok(manifest)
}

/// Under `switches` in the settings, and in a sentence.
fn note_switches(manifest: &mut Manifest, switches: &Switches) {
    if !switches.are_off() {
        manifest.settings.insert("switches".to_owned(), switches.settings().into());
        manifest.notes.extend(switches.note());
    }
}

/// Masks what the manifest tells of this machine and its user.
fn redact_manifest(manifest: &mut Manifest, masker: &Masker) {
    let engines = manifest.engine.iter_mut().chain(&mut manifest.engines);
    let of_engines = engines.flat_map(|engine| {
        std::iter::once(&mut engine.url)
            .chain([&mut engine.model, &mut engine.version].into_iter().flatten())
    });
    for text in of_engines.chain(&mut manifest.argv).chain(&mut manifest.notes) {
        *text = masker.text(text);
    }
    // Strings of settings, whatever their shape.
    if let Ok(text) = serde_json::to_string(&manifest.settings) {
        manifest.settings = serde_json::from_str(&masker.json(&text)).unwrap_or_default();
    }
}

pub(super) fn note_capture(manifest: &mut Manifest, stats: &CaptureStats) {
    let counts = [
        ("requests", stats.requests),
        ("turns", stats.turns),
        ("sessions", stats.sessions),
        ("threads", stats.threads),
        ("side_requests", stats.side_requests),
        ("side_models", stats.side_models),
        ("side_count_tokens", stats.side_count_tokens),
        ("prompts_incomplete", stats.prompts_incomplete),
        ("upstream_errors", stats.upstream_errors),
        ("client_cancelled", stats.client_cancelled),
        ("bytes_up", stats.bytes_up),
        ("bytes_down", stats.bytes_down),
    ];
    manifest.counts.extend(counts.map(|(name, count)| (name.to_owned(), count)));
    let changed = stats.changed.iter().map(|(name, count)| (format!("changed_{name}"), *count));
    manifest.counts.extend(changed);
    if stats.engines.len() > 1 {
        for engine in &stats.engines {
            manifest.counts.insert(format!("requests to {}", engine.engine), engine.requests);
        }
        manifest.counts.insert("requests_moved".to_owned(), stats.requests_moved);
    }
    if manifest.redacted {
        for (kind, texts) in stats.redacted {
            manifest.counts.insert(format!("redacted_{kind}"), texts);
        }
        let note = "redacted: e-mail addresses, home paths, names of this machine and its user, account ids and \
                    keys of known shapes are masked in all texts; token counts are the engine's, of the texts as \
                    they were";
        manifest.notes.push(note.to_owned());
    }
    if stats.requests_moved > 0 {
        manifest.notes.push(format!(
            "{} request(s) went to another engine than their session's, to which nothing could be sent; \
             their sessions stayed there",
            stats.requests_moved
        ));
    }
    if stats.prompts_incomplete > 0 {
        manifest.notes.push(format!(
            "{} turn(s) go on from what the server keeps and was not seen here: their prompts are \
             not whole (server_history unknown), and a replay leaves them out",
            stats.prompts_incomplete
        ));
    }
    if stats.turns_dropped > 0 {
        *manifest.counts.entry("turns_dropped".to_owned()).or_default() += stats.turns_dropped;
        manifest.notes.push(format!(
            "{} turn(s) were passed on and not recorded: the recording could not keep up",
            stats.turns_dropped
        ));
    }
}
