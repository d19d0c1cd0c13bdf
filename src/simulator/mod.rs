//! The embedded engine: a small honest simulation of a vLLM server, for machines without one.
//!
//! It batches continuously with a token budget per step, computes long prompts in chunks, keeps a block
//! prefix cache and preempts when KV blocks run out, all by vLLM's rules; a step takes
//! `a + b·(prefill tokens) + c·(decode sequences) + d·(KV tokens read)`. What it can serve follows from
//! that cost model alone. The coefficients of the profiles are round figures of the model and **no
//! measurement of any hardware**. Its text is made up, and the same again under the same seed.
//!
//! In reading order: [`timing`] says what a step costs, [`kv_cache`] which tokens need no computing,
//! [`scheduler`] who computes when (all in virtual time), [`engine`] drives it in real time. [`prompt`]
//! renders conversations, [`tokens`] cuts them, [`text`], [`script`] and [`plan`] settle what is said.
//! [`request`] reads requests, [`reply`] and its forms write replies, [`metrics`] the Prometheus page,
//! [`server`] is the HTTP face.

pub mod engine;
pub mod kv_cache;
pub mod metrics;
pub mod plan;
pub mod prompt;
pub mod reply;
pub mod reply_chat;
pub mod reply_messages;
pub mod reply_responses;
pub mod request;
pub mod scheduler;
pub mod script;
pub mod server;
pub mod text;
pub mod timing;
pub mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::listen::listen;
use crate::shutdown::Shutdown;

use engine::{Engine, SharedMetrics, with_metrics};
use kv_cache::BLOCK_TOKENS;
use metrics::Metrics;
use request::Model;
use scheduler::{Scheduler, SchedulerConfig};
use script::Script;
use server::Server;
pub use timing::{Profile, Timing};
use tokens::Tokenizer;

/// Requests that may be on their way to the engine at once; more wait at their connection.
const COMMAND_ROOM: usize = 1_024;
/// Open connections get this long after a stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Settings of a simulated engine.
#[derive(Debug, Clone)]
pub struct SimulatorConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The model's name.
    pub model: String,
    /// Speed and size.
    pub profile: Profile,
    /// KV blocks of 16 tokens, instead of the profile's.
    pub kv_blocks: Option<u32>,
    /// Longest prompt plus output in tokens, instead of the profile's.
    pub max_model_len: Option<u32>,
    /// Most sequences in a step, instead of the profile's.
    pub max_num_seqs: Option<u32>,
    /// Most tokens in a step, instead of the profile's.
    pub max_num_batched_tokens: Option<u32>,
    /// Seed of all text.
    pub seed: u64,
    /// Scripted replies; see [`script`].
    pub script: Option<PathBuf>,
    /// A `tokenizer.json`; without one four bytes are a token.
    pub tokenizer: Option<PathBuf>,
}

impl SimulatorConfig {
    /// The name a model has when nobody chose one.
    pub const DEFAULT_MODEL: &str = "agentbench-sim";

    /// Settings with the sizes of the profile, no script, four-byte tokens and seed 0.
    pub fn new(listen: SocketAddr, profile: Profile) -> Self {
        Self {
            listen,
            model: Self::DEFAULT_MODEL.into(),
            profile,
            kv_blocks: None,
            max_model_len: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            seed: 0,
            script: None,
            tokenizer: None,
        }
    }

    /// The profile with this configuration's sizes in place of its own. A smaller cache shortens the
    /// longest sequence, unless that was set too.
    fn sizes(&self) -> Result<Profile> {
        let mut sizes = self.profile.clone();
        sizes.kv_blocks = self.kv_blocks.unwrap_or(sizes.kv_blocks);
        sizes.max_num_seqs = self.max_num_seqs.unwrap_or(sizes.max_num_seqs);
        sizes.max_num_batched_tokens =
            self.max_num_batched_tokens.unwrap_or(sizes.max_num_batched_tokens);
        let capacity = sizes.kv_blocks.saturating_mul(BLOCK_TOKENS as u32);
        sizes.max_model_len = self.max_model_len.unwrap_or(sizes.max_model_len.min(capacity));
        sizes.check()?;
        if sizes.max_model_len > capacity {
            return Err(Error::config(format!(
                "max_model_len is {}, but {} KV blocks hold {capacity} tokens; give more kv_blocks \
                 or a shorter max_model_len",
                sizes.max_model_len, sizes.kv_blocks
            )));
        }
        if self.model.is_empty() {
            return Err(Error::config("the simulated model needs a name"));
        }
        Ok(sizes)
    }
}

/// Figures of a simulated engine since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimulatorStats {
    /// Requests in execution.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Requests finished, aborted ones not included.
    pub finished: u64,
    /// Requests whose client went away.
    pub aborted: u64,
    /// Prompt tokens of requests that have had their first token.
    pub prompt_tokens: u64,
    /// Of them served from cache.
    pub cached_tokens: u64,
    /// Output tokens.
    pub generation_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Used share of the KV cache, 0 to 1.
    pub kv_cache_usage: f64,
}

/// A running simulated engine. Dropping it stops it; [`Simulator::stop`] also waits.
#[derive(Debug)]
pub struct Simulator {
    local_addr: SocketAddr,
    metrics: SharedMetrics,
    shutdown: Shutdown,
}

impl Simulator {
    /// Starts an engine on the current tokio runtime.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that no engine can run with, an unusable script or tokenizer
    /// file; [`Error::Io`] for a script that cannot be read; [`Error::Bind`] for an address that cannot
    /// be had.
    #[expect(clippy::unused_async, reason = "what it starts needs a runtime around its caller")]
    pub async fn start(config: SimulatorConfig) -> Result<Self> {
        let sizes = config.sizes()?;
        let script = config.script.as_deref().map(Script::load).transpose()?;
        let model = Model {
            name: config.model,
            max_model_len: sizes.max_model_len,
            tokenizer: Arc::new(Tokenizer::load(config.tokenizer.as_deref())?),
            script: script.map(Arc::new),
            seed: config.seed,
        };
        let bind_error = |source| Error::Bind { addr: config.listen, source };
        let listener = listen(config.listen).map_err(bind_error)?;
        let local_addr = listener.local_addr().map_err(bind_error)?;

        let shutdown = Shutdown::new(DRAIN);
        let clock = Clock::start();
        let metrics: SharedMetrics = Arc::new(Mutex::new(Metrics::new(sizes.max_model_len)));
        let scheduler = Scheduler::new(SchedulerConfig {
            timing: sizes.timing,
            kv_blocks: sizes.kv_blocks,
            max_num_seqs: sizes.max_num_seqs as usize,
            max_num_batched_tokens: sizes.max_num_batched_tokens as usize,
        });
        let (commands, orders) = mpsc::channel(COMMAND_ROOM);
        let engine = Engine::new(scheduler, Arc::clone(&metrics), clock, orders);
        shutdown.tracker().spawn(engine.run(shutdown.token().clone()));
        let server = Server {
            model,
            kv_blocks: sizes.kv_blocks,
            metrics: Arc::clone(&metrics),
            commands,
            clock,
            requests: AtomicU64::new(0),
            kept: reply_responses::KeptConversations::default(),
        };
        shutdown.tracker().spawn(server::serve(Arc::new(server), listener, shutdown.clone()));
        Ok(Self { local_addr, metrics, shutdown })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Its base URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.local_addr)
    }

    /// Its figures so far.
    pub fn stats(&self) -> SimulatorStats {
        with_metrics(&self.metrics, |metrics| SimulatorStats {
            running: metrics.running,
            waiting: metrics.waiting,
            finished: metrics.finished_stop + metrics.finished_length,
            aborted: metrics.finished_abort,
            prompt_tokens: metrics.prompt_tokens,
            cached_tokens: metrics.prompt_tokens_cached,
            generation_tokens: metrics.generation_tokens,
            preemptions: metrics.preemptions,
            kv_cache_usage: metrics.kv_usage,
        })
    }

    /// Stops it: open connections are closed, replies under way cut off.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.shutdown.drained().await;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
