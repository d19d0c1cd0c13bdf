//! What all running things share: started once, ended once, waited for by any number of callers.
//!
//! The end runs as a task of its own. A caller that stops waiting (Ctrl-C, a cancelled asyncio task)
//! does not keep the end from being reached, and can wait for it again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::shutdown::Shutdown;

/// The run directory that an end leaves behind, where there is one.
pub(super) type Ended = Option<PathBuf>;
/// What an end comes to; shared by all who wait for it.
pub(super) type Outcome = Result<Ended, Arc<Error>>;
type Ending = Shared<BoxFuture<'static, Outcome>>;
/// A start in progress.
pub(super) type Starting<H> = BoxFuture<'static, Result<Started<H>>>;

/// A thing that has just been started.
pub(super) struct Started<H> {
    /// What its numbers are read from, while it runs and after.
    pub(super) handle: H,
    /// Cancelled to ask it to end.
    pub(super) stop: CancellationToken,
    /// Runs until it has ended, by itself or because it was asked to.
    pub(super) ending: BoxFuture<'static, Result<Ended>>,
}

/// Returns once all that runs under `shutdown` has ended: by itself, or because it was told to stop.
pub(super) async fn done_or_stopped(shutdown: &Shutdown, stopped: &CancellationToken) {
    shutdown.tracker().close();
    tokio::select! {
        () = shutdown.tracker().wait() => {}
        () = stopped.cancelled() => {
            shutdown.cancel();
            shutdown.drained().await;
        }
    }
}

enum Stage<H> {
    New,
    Starting,
    Running { handle: H, stop: CancellationToken, ending: Ending },
}

/// One thing and how it is started.
pub(super) struct Lifecycle<H> {
    noun: &'static str,
    make: Box<dyn Fn() -> Starting<H> + Send + Sync>,
    stage: Mutex<Stage<H>>,
}

/// A lifecycle as seen by `Handle`, which does not care what numbers there are.
pub(super) trait Life: Send + Sync {
    /// Starts it; once.
    fn start(self: Arc<Self>) -> BoxFuture<'static, Result<()>>;
    /// Waits for the end, however it comes.
    fn wait(self: Arc<Self>) -> BoxFuture<'static, Outcome>;
    /// Asks it to end and waits for that.
    fn stop(self: Arc<Self>) -> BoxFuture<'static, Outcome>;
    /// Whether it was started.
    fn is_started(&self) -> bool;
    /// Whether it has ended.
    fn is_done(&self) -> bool;
}

impl<H: Clone + Send + 'static> Lifecycle<H> {
    /// A thing that is not started yet; `noun` names it in errors.
    pub(super) fn new(
        noun: &'static str,
        make: impl Fn() -> Starting<H> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { noun, make: Box::new(make), stage: Mutex::new(Stage::New) })
    }

    /// What its numbers are read from.
    pub(super) fn handle(&self) -> Result<H> {
        match &*self.lock() {
            Stage::Running { handle, .. } => Ok(handle.clone()),
            _ => Err(self.not_started()),
        }
    }

    fn not_started(&self) -> Error {
        Error::config(format!("this {} is not started; call start() first", self.noun))
    }

    fn lock(&self) -> MutexGuard<'_, Stage<H>> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the right to start it.
    fn claim(&self) -> Result<()> {
        let mut stage = self.lock();
        if !matches!(*stage, Stage::New) {
            let noun = self.noun;
            return Err(Error::config(format!("this {noun} was started before; make another one")));
        }
        *stage = Stage::Starting;
        Ok(())
    }

    fn ending(&self) -> Result<Ending> {
        match &*self.lock() {
            Stage::Running { ending, .. } => Ok(ending.clone()),
            _ => Err(self.not_started()),
        }
    }
}

impl<H: Clone + Send + 'static> Life for Lifecycle<H> {
    fn start(self: Arc<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            self.claim()?;
            let mut claim = Claim { lifecycle: &self, kept: false };
            let Started { handle, stop, ending } = (self.make)().await?;
            let task = tokio::spawn(ending);
            let ending = async move {
                match task.await {
                    Ok(result) => result.map_err(Arc::new),
                    Err(error) => Err(Arc::new(Error::Internal(error.to_string()))),
                }
            };
            *self.lock() = Stage::Running { handle, stop, ending: ending.boxed().shared() };
            claim.kept = true;
            Ok(())
        }
        .boxed()
    }

    fn wait(self: Arc<Self>) -> BoxFuture<'static, Outcome> {
        async move { self.ending().map_err(Arc::new)?.await }.boxed()
    }

    fn stop(self: Arc<Self>) -> BoxFuture<'static, Outcome> {
        if let Stage::Running { stop, .. } = &*self.lock() {
            stop.cancel();
        }
        self.wait()
    }

    fn is_started(&self) -> bool {
        !matches!(&*self.lock(), Stage::New)
    }

    fn is_done(&self) -> bool {
        matches!(&*self.lock(), Stage::Running { ending, .. } if ending.clone().now_or_never().is_some())
    }
}

/// A handle that nobody holds any more ends what it started; the end goes on by itself.
impl<H> Drop for Lifecycle<H> {
    fn drop(&mut self) {
        if let Stage::Running { stop, .. } =
            self.stage.get_mut().unwrap_or_else(PoisonError::into_inner)
        {
            stop.cancel();
        }
    }
}

/// The right to start; given back when the start fails or is given up.
struct Claim<'a, H: Clone + Send + 'static> {
    lifecycle: &'a Lifecycle<H>,
    kept: bool,
}

impl<H: Clone + Send + 'static> Drop for Claim<'_, H> {
    fn drop(&mut self) {
        if !self.kept {
            *self.lifecycle.lock() = Stage::New;
        }
    }
}
