//! What is asked of an engine before a replay: whether it is ready, its model, where requests go and
//! whether it honours what they ask for. Which API each recording goes to is `routes`' affair.

use std::collections::BTreeSet;

use super::asked_words::synthetic_routes;
use super::client::Client;
use super::content::{Vocabulary, has_history};
use super::plan::Plan;
use super::routes::{Route, choose_routes};
use super::settings::{ContentMode, LengthForcing, OutputLengthRule};
use super::start::ReplayConfig;
use crate::api::{Api, convert::sendable_as};
use crate::clock::Clock;
use crate::engine::control::{Control, Health};
use crate::error::{Error, Result};
use crate::trace::EngineInfo;

/// What was learnt of the engine before the run.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) info: EngineInfo,
    pub(super) model: String,
    pub(super) routes: Vec<Route>,
    pub(super) continuous_usage: Vec<Api>,
    /// What prompts of our own are made of; only asked for with synthetic content.
    pub(super) vocabulary: Option<Vocabulary>,
    pub(super) client: Client,
}

/// An engine that answers, and the model that requests name.
pub(super) struct Ready {
    pub(super) control: Control,
    pub(super) info: EngineInfo,
    pub(super) model: String,
}

/// Asks an engine whether it is ready and serves the model; without one, which it serves.
pub(super) async fn ready(
    url: &str,
    api_key: Option<&String>,
    model: Option<&String>,
) -> Result<Ready> {
    let mut control = Control::new(url)?;
    if let Some(key) = api_key {
        control = control.with_key(key.clone());
    }
    if let Health::NotReady { status } = control.health().await? {
        return Err(Error::upstream(
            control.url(),
            format!("the engine is not ready (/health answers {status}); wait until it is"),
        ));
    }
    let info = control.info().await?;
    if let Some(name) = model {
        control.require_model(name).await?;
    }
    let model = model.or(info.model.as_ref()).cloned().ok_or_else(|| {
        Error::upstream(control.url(), "the engine names no model; give the model's name")
    })?;
    Ok(Ready { control, info, model })
}

impl Engine {
    pub(super) async fn ask(config: &ReplayConfig, plan: &Plan, clock: Clock) -> Result<Self> {
        let Ready { control, info, model } =
            ready(&config.url, config.api_key.as_ref(), config.model.as_ref()).await?;
        let recorded: BTreeSet<Api> = plan
            .sessions
            .iter()
            .flat_map(|session| &session.requests)
            .map(|request| request.api)
            .collect();
        let (routes, vocabulary) = match config.content {
            ContentMode::Synthetic => {
                let (routes, vocabulary) = synthetic_routes(&control, &model, config).await?;
                (routes, Some(vocabulary))
            }
            ContentMode::Recorded | ContentMode::Live => {
                let routes = choose_routes(&control, &model, config.api, &recorded, sendable_as);
                (routes.await?, None)
            }
        };
        if config.strict && config.output_length != OutputLengthRule::Natural {
            check_lengths_pinned(&routes)?;
        }
        if config.content == ContentMode::Live {
            check_histories(&routes)?;
        }
        let key = config.api_key.as_deref();
        let client = Client::new(&config.url, key, config.retries, config.timeouts, clock)?;
        let mut continuous_usage = Vec::new();
        for api in routes.iter().map(|route| route.sent).collect::<BTreeSet<Api>>() {
            if client.takes_continuous_usage(api, &model).await {
                continuous_usage.push(api);
            }
        }
        Ok(Self { info, model, routes, continuous_usage, vocabulary, client })
    }
}

/// Refuses an engine that is not known to pin output lengths.
fn check_lengths_pinned(routes: &[Route]) -> Result<()> {
    match routes.iter().find(|route| route.output_length != LengthForcing::Honoured) {
        None => Ok(()),
        Some(route) => Err(Error::config(format!(
            "strict: pinning of output lengths on {} is {}; choose another API, natural output \
             lengths, or run without strict",
            route.sent.as_str(),
            route.output_length.as_str()
        ))),
    }
}

/// Refuses live content where requests go to an API in which the engine's answers have no place.
fn check_histories(routes: &[Route]) -> Result<()> {
    match routes.iter().find(|route| !has_history(route.sent)) {
        None => Ok(()),
        Some(route) => Err(Error::config(format!(
            "content live: requests to {} hold no messages that answers could stand in; choose \
             another API or recorded content",
            route.sent.as_str()
        ))),
    }
}
