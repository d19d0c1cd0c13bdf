//! The one door between Python and the core's futures: every call that blocks or awaits goes here.
//!
//! A blocking call leaves the interpreter, runs on the shared runtime and looks for signals every
//! 50 ms, so that Ctrl-C works at any moment; then the future is dropped, and what it waited for goes
//! on. A forked child has the runtime's memory but none of its threads: it gets an error, not a hang.

use std::process;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::shutdown::Shutdown;

/// Time between two looks for signals.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The process in which the runtime was started.
static OWNER: OnceLock<u32> = OnceLock::new();

/// Errors that the door can turn into an exception.
pub(super) trait IntoPyErr: Send + 'static {
    /// The exception.
    fn into_py_err(self) -> PyErr;
}

impl IntoPyErr for Error {
    fn into_py_err(self) -> PyErr {
        self.into()
    }
}

/// Of work that calls Python itself.
impl IntoPyErr for PyErr {
    fn into_py_err(self) -> PyErr {
        self
    }
}

impl IntoPyErr for std::sync::Arc<Error> {
    fn into_py_err(self) -> PyErr {
        super::errors::to_exception(&self)
    }
}

/// Refuses a process that was forked after the runtime had started.
fn check_process() -> PyResult<()> {
    if *OWNER.get_or_init(process::id) == process::id() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "agentbench was used before this process was forked, and its threads stayed behind; \
         start workers with multiprocessing's \"spawn\" or \"forkserver\" method",
    ))
}

/// Runs a future on the shared runtime and waits for it outside the interpreter.
pub(super) fn wait<T, E>(
    py: Python<'_>,
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> PyResult<T>
where
    T: Send + 'static,
    E: IntoPyErr,
{
    check_process()?;
    let runtime = pyo3_async_runtimes::tokio::get_runtime();
    let mut task = runtime.spawn(future);
    loop {
        let polled = py.detach(|| {
            runtime.block_on(async { tokio::time::timeout(SIGNAL_CHECK, &mut task).await })
        });
        match polled {
            Ok(Ok(result)) => return result.map_err(IntoPyErr::into_py_err),
            Ok(Err(join)) => return Err(task_failed(&join)),
            Err(_) => py.check_signals().inspect_err(|_| task.abort())?,
        }
    }
}

/// Runs work that blocks (files, hashing) outside the interpreter, on a thread kept for such work.
pub(super) fn wait_blocking<T, E>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> PyResult<T>
where
    T: Send + 'static,
    E: IntoPyErr + From<Error>,
{
    wait(py, off_thread(work))
}

/// An awaitable for a future.
pub(super) fn awaitable<'py, T, E>(
    py: Python<'py>,
    future: impl Future<Output = Result<T, E>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'any> IntoPyObject<'any> + Send + 'static,
    E: IntoPyErr,
{
    check_process()?;
    pyo3_async_runtimes::tokio::future_into_py(py, async move {
        future.await.map_err(IntoPyErr::into_py_err)
    })
}

/// An awaitable for work that blocks.
pub(super) fn awaitable_blocking<'py, T, E>(
    py: Python<'py>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'any> IntoPyObject<'any> + Send + 'static,
    E: IntoPyErr + From<Error>,
{
    awaitable(py, off_thread(work))
}

/// Work that blocks as a future.
pub(super) async fn off_thread<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + From<Error> + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(E::from(Error::Internal(error.to_string()))),
    }
}

/// A task of the core that panicked or was dropped by the runtime.
fn task_failed(error: &tokio::task::JoinError) -> PyErr {
    Error::Internal(error.to_string()).into()
}

/// Runs work that blocks and can be told to end early: an interrupted caller asks it to end and waits
/// for that, so that what it was writing is whole.
pub(super) fn wait_cancellable<T>(
    py: Python<'_>,
    work: impl FnOnce(&Shutdown) -> Result<T, Error> + Send + 'static,
) -> PyResult<T>
where
    T: Send + 'static,
{
    let (shutdown, told) = (Shutdown::new(Duration::ZERO), CancellationToken::new());
    let (worker, ended) = (shutdown.clone(), told.clone());
    let result = wait_blocking(py, move || {
        let _ended = ended.drop_guard();
        work(&worker)
    });
    if result.is_err() {
        shutdown.cancel();
        py.detach(|| pyo3_async_runtimes::tokio::get_runtime().block_on(told.cancelled()));
    }
    result
}

/// An awaitable for such work; a cancelled task asks it to end.
pub(super) fn awaitable_cancellable<'py, T>(
    py: Python<'py>,
    work: impl FnOnce(&Shutdown) -> Result<T, Error> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>>
where
    T: for<'any> IntoPyObject<'any> + Send + 'static,
{
    let shutdown = Shutdown::new(Duration::ZERO);
    let worker = shutdown.clone();
    awaitable(py, async move {
        let _cancelled = shutdown.token().clone().drop_guard();
        off_thread(move || work(&worker)).await
    })
}
