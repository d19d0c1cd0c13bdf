//! A table of a run as an Arrow stream that any library reads without a copy.
//!
//! The class speaks the Arrow `PyCapsule` protocol and depends on no Arrow library of Python's. Every
//! export opens its own reader, so a table can be read any number of times.

use std::sync::Arc;

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use super::runtime;
use crate::trace::{Run, Table};

/// One table of a run, read as an Arrow stream.
#[pyclass(frozen, name = "Table", module = "agentbench")]
pub(super) struct PyTable {
    run: Arc<Run>,
    table: Table,
}

impl PyTable {
    pub(super) fn new(run: &Arc<Run>, table: Table) -> Self {
        Self { run: Arc::clone(run), table }
    }

    fn open(&self, py: Python<'_>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
        let (run, table) = (Arc::clone(&self.run), self.table);
        runtime::wait_blocking(py, move || run.batches(table))
    }
}

#[pymethods]
impl PyTable {
    /// The table's name: the stem of its file.
    #[getter]
    fn name(&self) -> &'static str {
        self.table.stem()
    }

    /// Column names with their Arrow types.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for field in self.open(py)?.schema().fields() {
            columns.set_item(field.name(), field.data_type().to_string())?;
        }
        Ok(columns)
    }

    /// The number of rows.
    fn __len__(&self) -> usize {
        self.run.row_count(self.table) as usize
    }

    /// Exports the table by the Arrow `PyCapsule` protocol. A requested schema is not honoured, as the
    /// protocol allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let stream = FFI_ArrowArrayStream::new(self.open(py)?);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The table as a pandas data frame.
    fn to_pandas(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        slf.py().import("agentbench._frames")?.call_method1("to_pandas", (slf,))
    }

    /// The table as a polars data frame.
    fn to_polars(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        slf.py().import("agentbench._frames")?.call_method1("to_polars", (slf,))
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Table {}: {} rows>", self.table.stem(), self.__len__())
    }
}
