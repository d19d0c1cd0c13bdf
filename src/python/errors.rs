//! The exceptions that Python sees, and which one an error of the core becomes.

use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

use crate::error::Error;

pyo3::create_exception!(
    agentbench,
    AgentbenchError,
    PyException,
    "Base of agentbench's own exceptions."
);
pyo3::create_exception!(
    agentbench,
    ConfigError,
    AgentbenchError,
    "A setting is wrong; the text names it and the remedy."
);
pyo3::create_exception!(
    agentbench,
    UpstreamError,
    AgentbenchError,
    "The engine cannot be used; the text names its URL."
);
pyo3::create_exception!(
    agentbench,
    TraceError,
    AgentbenchError,
    "A run directory cannot be read; the text names the path."
);
pyo3::create_exception!(
    agentbench,
    GpuError,
    AgentbenchError,
    "A GPU or power source cannot be read."
);

/// The exception for an error of the core. The source chain is in the text, once.
pub(super) fn to_exception(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Config(_) => ConfigError::new_err(text),
        Error::Bind { source, .. } | Error::Io { source, .. } => os_error(source, text),
        Error::Upstream { .. } => UpstreamError::new_err(text),
        Error::Trace { .. } => TraceError::new_err(text),
        Error::Gpu(_) => GpuError::new_err(text),
        _ => AgentbenchError::new_err(text),
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        to_exception(&error)
    }
}

/// `OSError` picks its subclass (`FileNotFoundError`, …) by the error number; `strerror` is our text.
fn os_error(source: &std::io::Error, text: String) -> PyErr {
    match source.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text)),
        None => PyOSError::new_err(text),
    }
}

/// A wrong argument.
pub(super) fn config(message: impl Into<String>) -> PyErr {
    Error::config(message).into()
}
