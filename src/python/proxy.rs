//! `Proxy`: a capture that runs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio_util::sync::CancellationToken;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::settings::{AUTO, OneOrMore, PowerArguments, RecordingArguments, choice};
use super::{errors, host, stats};
use crate::capture::{CaptureStats, ConvertTo, Switches};
use crate::engine::poll::PollStats;
use crate::error::Result;
use crate::recording::{CaptureRecording, CaptureRecordingConfig, MetricsPage, RecordingConfig};
use crate::trace::RunKind;

/// The recording while it runs, its last figures afterwards.
enum Recording {
    Running(Box<CaptureRecording>),
    Ended(Box<Figures>),
}

/// Figures of one moment.
#[derive(Clone)]
struct Figures {
    capture: CaptureStats,
    polling: Vec<PollStats>,
    rows_dropped: u64,
}

/// A running capture as its handle sees it.
#[derive(Clone)]
struct View {
    local_addr: SocketAddr,
    recording: Arc<Mutex<Recording>>,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn figures(&self) -> Figures {
        match &*self.lock() {
            Recording::Running(recording) => Figures {
                capture: recording.stats(),
                polling: recording.poll_stats(),
                rows_dropped: recording.rows_dropped().0,
            },
            Recording::Ended(figures) => (**figures).clone(),
        }
    }

    /// Keeps the figures and closes the recording, the first time.
    async fn finish(&self) -> Result<()> {
        let last = self.figures();
        let recording =
            std::mem::replace(&mut *self.lock(), Recording::Ended(Box::new(last.clone())));
        if let Recording::Running(recording) = recording {
            let (manifest, capture) = recording.finish().await?;
            let rows_dropped = manifest.dropped.values().sum();
            let figures = Figures { capture, rows_dropped, ..last };
            *self.lock() = Recording::Ended(Box::new(figures));
        }
        Ok(())
    }
}

/// A proxy and a poller that fill one run directory.
#[pyclass(frozen, extends = PyHandle, name = "Proxy", module = "agentbench")]
pub(super) struct PyProxy {
    out: PathBuf,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyProxy {
    #[new]
    #[pyo3(signature = (
        upstream, *, out, listen = "127.0.0.1:0", routing = "session",
        metrics_url = Some(OneOrMore::One(AUTO.to_owned())),
        poll_interval_s = 0.1, power = AUTO.to_owned(), gpus = None, engine_pid = None,
        idle_baseline_s = None, pue = None, token = None, rerole_system = false,
        strip_billing_header = false,
        cap_max_tokens = None, model = None, answer_titles = false, convert = None, redact = false,
        argv = None, settings = None, kind = "capture", resume = false
    ))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keyword-only in Python
    fn new(
        py: Python<'_>,
        upstream: OneOrMore,
        out: PathBuf,
        listen: &str,
        routing: &str,
        metrics_url: Option<OneOrMore>,
        poll_interval_s: f64,
        power: String,
        gpus: Option<Vec<String>>,
        engine_pid: Option<u32>,
        idle_baseline_s: Option<f64>,
        pue: Option<f64>,
        token: Option<String>,
        rerole_system: bool,
        strip_billing_header: bool,
        cap_max_tokens: Option<u64>,
        model: Option<String>,
        answer_titles: bool,
        convert: Option<&str>,
        redact: bool,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
        kind: &str,
        resume: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let listen = listen.parse().map_err(|_| {
            errors::config(format!(
                "listen: {listen:?} is no address; write it like 127.0.0.1:8001"
            ))
        })?;
        let (metrics_url, pages) = match metrics_url {
            Some(OneOrMore::More(pages)) => (None, Some(pages)),
            Some(OneOrMore::One(page)) => (Some(page), None),
            None => (None, None),
        };
        let power = PowerArguments { power, gpus, engine_pid, idle_baseline_s, pue };
        let recording =
            RecordingArguments { out, metrics_url, poll_interval_s, power, argv, settings };
        let mut recording = RecordingConfig { resume, ..recording.config()? };
        if let Some(pages) = pages {
            recording.metrics = MetricsPage::At(pages);
        }
        let kind = match kind {
            "capture" => RunKind::Capture,
            "collect" => RunKind::Collect,
            other => {
                let text = format!("kind: {other:?} is neither capture nor collect");
                return Err(errors::config(text));
            }
        };
        let routing = choice("routing", routing)?;
        let upstreams = upstream.list();
        let switches = Switches {
            rerole_system,
            strip_billing_header,
            cap_max_tokens,
            model,
            answer_titles,
            convert: convert.map(convert_to).transpose()?,
        };
        switches.validate()?;
        let redact = redact.then(|| host::names(py)).transpose()?;
        let config = CaptureRecordingConfig {
            recording,
            listen,
            kind,
            upstreams,
            routing,
            token,
            switches,
            redact,
        };
        let out = config.recording.out.clone();
        let lifecycle = Lifecycle::new("proxy", move || start(config.clone()).boxed());
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { out, lifecycle }))
    }

    /// The base URL to point agents at.
    #[getter]
    fn url(&self) -> PyResult<String> {
        Ok(format!("http://{}", self.lifecycle.handle()?.local_addr))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// The figures of this moment; after the end, the final ones.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.lifecycle.handle()?.figures();
        stats::capturing(py, &figures.capture, figures.rows_dropped, &figures.polling)
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Proxy to {}>", self.out.display())
    }
}

fn convert_to(api: &str) -> PyResult<ConvertTo> {
    match api {
        "chat" => Ok(ConvertTo::Chat),
        other => Err(errors::config(format!("convert: {other:?} is not known; write chat"))),
    }
}

async fn start(config: CaptureRecordingConfig) -> Result<Started<View>> {
    let out = config.recording.out.clone();
    let recording = CaptureRecording::start(config).await?;
    let local_addr = recording.local_addr();
    let recording = Arc::new(Mutex::new(Recording::Running(Box::new(recording))));
    let handle = View { local_addr, recording };
    let (view, stop) = (handle.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let ending = async move {
        stopped.cancelled().await;
        view.finish().await?;
        Ok(Some(out))
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}
