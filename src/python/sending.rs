//! How requests are made and sent: the arguments that a replay and a capacity search share.

use std::path::PathBuf;

use pyo3::prelude::*;

use super::settings::{choice, duration, parsed};
use crate::replay::{ReplayConfig, Retries, Timeouts};

/// The arguments, as Python gave them.
pub(super) struct SendingArguments<'a> {
    pub(super) url: String,
    pub(super) api: &'a str,
    pub(super) model: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) ramp_s: Option<f64>,
    pub(super) seed: Option<u64>,
    pub(super) on_error: &'a str,
    pub(super) max_error_rate_pct: Option<f64>,
    pub(super) max_retries: u32,
    pub(super) retry_backoff_s: f64,
    pub(super) retry_backoff_max_s: f64,
    pub(super) connect_timeout_s: f64,
    pub(super) first_byte_timeout_s: Option<f64>,
    pub(super) idle_timeout_s: Option<f64>,
    pub(super) request_timeout_s: Option<f64>,
    pub(super) include_utility: bool,
    pub(super) content: &'a str,
    pub(super) tokenizer: Option<PathBuf>,
    pub(super) tool_time: &'a str,
    pub(super) human_time: &'a str,
    pub(super) output_length: &'a str,
    pub(super) cache_sharing: &'a str,
    pub(super) salt: Option<String>,
    pub(super) strict: bool,
}

impl SendingArguments<'_> {
    /// The core's configuration of one agent without an end; both are the caller's to say.
    pub(super) fn config(self) -> PyResult<ReplayConfig> {
        let maybe =
            |name, seconds: Option<f64>| seconds.map(|seconds| duration(name, seconds)).transpose();
        let retries = Retries {
            max: self.max_retries,
            backoff: duration("retry_backoff_s", self.retry_backoff_s)?,
            backoff_max: duration("retry_backoff_max_s", self.retry_backoff_max_s)?,
            seed: self.seed.unwrap_or_default(),
        };
        let timeouts = Timeouts {
            connect: duration("connect_timeout_s", self.connect_timeout_s)?,
            first_byte: maybe("first_byte_timeout_s", self.first_byte_timeout_s)?,
            idle: maybe("idle_timeout_s", self.idle_timeout_s)?,
            request: maybe("request_timeout_s", self.request_timeout_s)?,
        };
        Ok(ReplayConfig {
            url: self.url,
            api_key: self.api_key,
            model: self.model,
            agents: 1,
            open_loop: None,
            seed: self.seed,
            duration: None,
            trajectories: None,
            ramp: maybe("ramp_s", self.ramp_s)?,
            on_error: choice("on_error", self.on_error)?,
            max_error_rate_pct: self.max_error_rate_pct,
            retries,
            timeouts,
            include_utility: self.include_utility,
            api: choice("api", self.api)?,
            content: choice("content", self.content)?,
            tokenizer: self.tokenizer,
            tool_time: parsed("tool_time", self.tool_time)?,
            human_time: parsed("human_time", self.human_time)?,
            output_length: parsed("output_length", self.output_length)?,
            cache_sharing: choice("cache_sharing", self.cache_sharing)?,
            salt: self.salt,
            strict: self.strict,
        })
    }
}
