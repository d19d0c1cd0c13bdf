//! Serde values as Python objects, by way of `json.loads`: what crosses here is small.

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Any serialisable value as dicts, lists and scalars.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    value: &impl Serialize,
) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| internal(&error))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// A Python object made of dicts, lists and scalars as a value.
pub(super) fn from_python<T: DeserializeOwned>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    let text: String = object.py().import("json")?.call_method1("dumps", (object,))?.extract()?;
    serde_json::from_str(&text).map_err(|error| super::errors::config(error.to_string()))
}

fn internal(error: &serde_json::Error) -> PyErr {
    Error::Internal(error.to_string()).into()
}
