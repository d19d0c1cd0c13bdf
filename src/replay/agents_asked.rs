//! What live agents ask of an engine before they begin: whether it is ready, its model, and the API that
//! requests go to. Sending them is `agents`' affair.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::asked::{Ready, ready};
use super::attempts::{RequestKey, Retries, Timeouts};
use super::client::Client;
use super::settings::{ApiChoice, ApiRoute, OutputLengthRule, ReplaySettings};
use super::watch::listens_here;
use crate::api::Api;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::trace::EngineInfo;

/// The APIs that know tools, in the order in which an engine is asked for them.
const APIS: [Api; 3] = [Api::Chat, Api::Messages, Api::Responses];

/// How live agents reach their engine.
#[derive(Debug, Clone)]
pub struct AgentLoadConfig {
    /// The engine's base URL, with or without `/v1`.
    pub url: String,
    /// Its API key.
    pub api_key: Option<String>,
    /// The model; none: the one that the engine names.
    pub model: Option<String>,
    /// The API; `Auto` takes the first of Chat, Messages and Responses that answers.
    pub api: ApiChoice,
    /// How long a request may take.
    pub timeouts: Timeouts,
    /// Agents at work at once.
    pub agents: u32,
    /// Tasks that they work through.
    pub tasks: u64,
}

/// An engine that has been asked what agents need to know of it.
#[derive(Debug)]
pub struct PreparedAgents {
    pub(super) client: Client,
    pub(super) engine: EngineInfo,
    pub(super) api: Api,
    pub(super) continuous_usage: bool,
    pub(super) settings: ReplaySettings,
    pub(super) clock: Clock,
}

impl PreparedAgents {
    /// Asks for readiness, model and API.
    ///
    /// # Errors
    ///
    /// An engine that is not there, does not serve the model, or answers in none of the APIs.
    pub async fn ask(config: AgentLoadConfig, clock: Clock) -> Result<Self> {
        let Ready { control, info: engine, model } =
            ready(&config.url, config.api_key.as_ref(), config.model.as_ref()).await?;
        config.timeouts.check()?;
        // A request that failed is a figure of a live run; it is not sent again.
        let key = config.api_key.as_deref();
        let client = Client::new(&config.url, key, Retries::default(), config.timeouts, clock)?;
        let (api, reason) = choose_api(&client, control.url(), &model, config.api).await?;
        let continuous_usage = client.takes_continuous_usage(api, &model).await;
        let settings = settings(&config, &engine, model, (api, reason), clock);
        Ok(Self { client, engine, api, continuous_usage, settings, clock })
    }

    /// The engine as it told.
    pub fn engine(&self) -> &EngineInfo {
        &self.engine
    }

    /// How the run is made.
    pub fn settings(&self) -> &ReplaySettings {
        &self.settings
    }
}

/// The API that requests go to, and why.
async fn choose_api(
    client: &Client,
    url: &str,
    model: &str,
    asked: ApiChoice,
) -> Result<(Api, String)> {
    let given = |api| Ok((api, "asked for".to_owned()));
    match asked {
        ApiChoice::Chat => return given(Api::Chat),
        ApiChoice::Messages => return given(Api::Messages),
        ApiChoice::Responses => return given(Api::Responses),
        ApiChoice::Auto => {}
        ApiChoice::Recorded | ApiChoice::Completions => {
            return Err(Error::config(
                "api: live agents need tools; give auto, chat, messages or responses",
            ));
        }
    }
    let mut refusals = Vec::new();
    for api in APIS {
        let body = shortest_request(api, model).to_string();
        let never = CancellationToken::new();
        let answer = client.send(api, body.into(), RequestKey::default(), &never).await;
        match answer.failure {
            None => return Ok((api, format!("the first that answers: {}", api.as_str()))),
            Some(failure) => refusals.push(format!("{}: {}", api.as_str(), failure.text)),
        }
    }
    Err(Error::upstream(url, format!("no API for agents answers: {}", refusals.join("; "))))
}

fn shortest_request(api: Api, model: &str) -> serde_json::Value {
    let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
    match api {
        // Below 16 tokens some engines refuse a response.
        Api::Responses => serde_json::json!({
            "model": model, "max_output_tokens": 16, "stream": true, "input": messages}),
        _ => serde_json::json!({
            "model": model, "max_tokens": 1, "stream": true, "messages": messages}),
    }
}

fn settings(
    config: &AgentLoadConfig,
    engine: &EngineInfo,
    model: String,
    (api, reason): (Api, String),
    clock: Clock,
) -> ReplaySettings {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    ReplaySettings {
        url: engine.url.clone(),
        model,
        simulated: engine.simulated,
        live_agents: true,
        agents: config.agents,
        trajectories: Some(config.tasks),
        connect_timeout_s: config.timeouts.connect.as_secs_f64(),
        first_byte_timeout_s: seconds(config.timeouts.first_byte),
        idle_timeout_s: seconds(config.timeouts.idle),
        request_timeout_s: seconds(config.timeouts.request),
        output_length: OutputLengthRule::Natural,
        api: config.api,
        routes: vec![ApiRoute {
            recorded: api.as_str().to_owned(),
            sent: api.as_str().to_owned(),
            reason,
            ..ApiRoute::default()
        }],
        engine_in_process: listens_here(&engine.url),
        clock_anchor_ns: clock.anchor_ns(),
        ..ReplaySettings::default()
    }
}
