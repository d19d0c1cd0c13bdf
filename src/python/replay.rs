//! `Replay`: a recording that is sent again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pyo3::prelude::*;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::run::PyRun;
use super::runtime::off_thread;
use super::settings::{RecordingArguments, choice, duration};
use super::json;
use crate::error::Result;
use crate::recording::{RecordingConfig, ReplayRecording, ReplayRecordingConfig};
use crate::replay::ReplayConfig;
use crate::trace::Run;

/// The recording to send: open already, or a directory.
#[derive(FromPyObject)]
enum Trace<'py> {
    Open(PyRef<'py, PyRun>),
    Directory(PathBuf),
}

/// The same, independent of Python.
#[derive(Clone)]
enum Source {
    Open(Arc<Run>),
    Directory(PathBuf),
}

impl From<Trace<'_>> for Source {
    fn from(trace: Trace<'_>) -> Self {
        match trace {
            Trace::Open(run) => Self::Open(Arc::clone(&run.run)),
            Trace::Directory(path) => Self::Directory(path),
        }
    }
}

impl Source {
    async fn open(self) -> Result<Arc<Run>> {
        match self {
            Self::Open(run) => Ok(run),
            Self::Directory(path) => off_thread(move || Run::open(&path)).await.map(Arc::new),
        }
    }
}
