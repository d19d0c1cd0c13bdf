//! Arguments that several classes take, checked and converted.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use super::{errors, host, json};
use crate::power::{GpuChoice, PowerChoice, PowerConfig};
use crate::recording::{MetricsPage, RecordingConfig};

/// The metrics page beside the engine, where there is one.
pub(super) const AUTO: &str = "auto";

/// How power is to be sampled.
pub(super) struct PowerArguments {
    pub(super) power: String,
    pub(super) gpus: Option<Vec<String>>,
    pub(super) engine_pid: Option<u32>,
    pub(super) idle_baseline_s: Option<f64>,
    pub(super) pue: Option<f64>,
}

impl PowerArguments {
    /// No sampling.
    pub(super) fn off() -> Self {
        Self {
            power: "none".to_owned(),
            gpus: None,
            engine_pid: None,
            idle_baseline_s: None,
            pue: None,
        }
    }

    /// The core's configuration.
    fn config(self) -> PyResult<PowerConfig> {
        let baseline = self.idle_baseline_s.map(|seconds| duration("idle_baseline_s", seconds));
        let config = PowerConfig {
            gpus: GpuChoice { list: self.gpus, engine_pid: self.engine_pid },
            idle_baseline: baseline.transpose()?,
            pue: self.pue,
            ..PowerConfig::new(self.power.parse::<PowerChoice>()?)
        };
        config.validate()?;
        Ok(config)
    }
}

/// The arguments of everything that writes a run directory.
pub(super) struct RecordingArguments<'py> {
    pub(super) out: PathBuf,
    pub(super) metrics_url: Option<String>,
    pub(super) poll_interval_s: f64,
    pub(super) power: PowerArguments,
    pub(super) argv: Option<Vec<String>>,
    pub(super) settings: Option<Bound<'py, PyAny>>,
}

impl RecordingArguments<'_> {
    /// The core's configuration; the run is named after its directory.
    pub(super) fn config(self) -> PyResult<RecordingConfig> {
        let name = self.out.file_name().ok_or_else(|| {
            errors::config(format!("out: {} names no directory", self.out.display()))
        })?;
        Ok(RecordingConfig {
            run_id: name.to_string_lossy().into_owned(),
            argv: self.argv.unwrap_or_default(),
            host: host::describe(),
            metrics: metrics_page(self.metrics_url),
            poll_interval: duration("poll_interval_s", self.poll_interval_s)?,
            power: self.power.config()?,
            settings: self
                .settings
                .map(|settings| json::from_python(&settings))
                .transpose()?
                .unwrap_or_default(),
            out: self.out,
            resume: false,
        })
    }
}

/// `"auto"`, an address, or None for no polling.
fn metrics_page(metrics_url: Option<String>) -> MetricsPage {
    match metrics_url {
        None => MetricsPage::Off,
        Some(word) if word == AUTO => MetricsPage::Beside,
        Some(url) => MetricsPage::At(vec![url]),
    }
}

/// One value, or several.
#[derive(FromPyObject)]
pub(super) enum OneOrMore {
    /// One.
    One(String),
    /// Several.
    More(Vec<String>),
}

impl OneOrMore {
    /// As a list.
    pub(super) fn list(self) -> Vec<String> {
        match self {
            Self::One(value) => vec![value],
            Self::More(values) => values,
        }
    }
}

/// Seconds above zero as a duration.
pub(super) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(errors::config(format!("{name}: {seconds} is not a time above 0 s"))),
    }
}

/// A word that a type reads by itself.
pub(super) fn parsed<T: std::str::FromStr<Err = String>>(name: &str, word: &str) -> PyResult<T> {
    word.parse().map_err(|error| errors::config(format!("{name}: {error}")))
}

/// A word that stands for one of a type's variants.
pub(super) fn choice<T: DeserializeOwned>(name: &str, word: &str) -> PyResult<T> {
    let value = serde_json::Value::String(word.replace('-', "_"));
    serde_json::from_value(value).map_err(|error| errors::config(format!("{name}: {error}")))
}
