//! How requests are made and sent: the arguments that a replay and a capacity search share.

use pyo3::prelude::*;

use super::settings::{choice, duration, parsed};
use crate::replay::ReplayConfig;

/// The arguments, as Python gave them.
pub(super) struct SendingArguments<'a> {
    pub(super) url: String,
    pub(super) api: &'a str,
    pub(super) model: Option<String>,
    pub(super) api_key: Option<String>,
    pub(super) ramp_s: Option<f64>,
    pub(super) seed: Option<u64>,
    pub(super) on_error: &'a str,
    pub(super) include_utility: bool,
    pub(super) content: &'a str,
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
        Ok(ReplayConfig {
            url: self.url,
            api_key: self.api_key,
            model: self.model,
            agents: 1,
            open_loop: None,
            seed: self.seed,
            duration: None,
            trajectories: None,
            ramp: self.ramp_s.map(|seconds| duration("ramp_s", seconds)).transpose()?,
            on_error: choice("on_error", self.on_error)?,
            include_utility: self.include_utility,
            api: choice("api", self.api)?,
            content: choice("content", self.content)?,
            tool_time: parsed("tool_time", self.tool_time)?,
            human_time: parsed("human_time", self.human_time)?,
            output_length: parsed("output_length", self.output_length)?,
            cache_sharing: choice("cache_sharing", self.cache_sharing)?,
            salt: self.salt,
            strict: self.strict,
        })
    }
}
