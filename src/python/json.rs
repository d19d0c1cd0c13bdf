//! Serde values as Python objects, by way of `json.loads`: what crosses here is small.

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::runtime;
use crate::error::{Error, Result};

/// A value that becomes dicts, lists and scalars once the interpreter is there.
struct Json(String);

impl Json {
    fn of(value: &impl Serialize) -> Result<Self> {
        serde_json::to_string(value).map(Self).map_err(|error| Error::Internal(error.to_string()))
    }
}

impl<'py> IntoPyObject<'py> for Json {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("json")?.call_method1("loads", (self.0,))
    }
}

/// Any serialisable value as dicts, lists and scalars.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    Json::of(value)?.into_pyobject(py)
}

/// An awaitable whose result is a serialisable value.
pub(super) fn awaitable<T: Serialize>(
    py: Python<'_>,
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> PyResult<Bound<'_, PyAny>> {
    runtime::awaitable(py, async move { Json::of(&future.await?) })
}

/// A Python object made of dicts, lists and scalars as a value.
pub(super) fn from_python<T: DeserializeOwned>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let text: String = object.py().import("json")?.call_method1("dumps", (object,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| super::errors::config(error.to_string()))
}
