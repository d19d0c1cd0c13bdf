//! Asking an engine what it is, what it offers and what it honours.
//!
//! An engine that cannot be reached is an `Error`; one that answers "no" gives a value that says so.
//! Nothing here is on the path of measured requests. What has to be tried out is in `probe`.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::catalog::EngineKind;
use super::snapshot;
use crate::error::{Error, Result};
use crate::http::client;
use crate::trace::EngineInfo;

mod probe;

pub use probe::{LengthForcing, OfferedApis};

/// The name by which the embedded engine makes itself known.
pub const SIMULATED_ENGINE: &str = "agentbench-simulated";

/// A question that an engine may refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<T> {
    /// It answered.
    Given(T),
    /// It refused.
    Refused(Refusal),
}

/// How an engine refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The engine's own words, shortened to one line.
    pub message: String,
}

/// What the engine says of its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Ready,
    /// It is there but does not serve yet, or no longer.
    NotReady {
        /// HTTP status.
        status: u16,
    },
    /// It has no health page.
    Untold,
}

/// A model that the engine serves.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ServedModel {
    /// The name to ask for.
    pub id: String,
    /// Longest context, where the engine tells.
    #[serde(default)]
    pub max_model_len: Option<u64>,
    /// Mostly the engine's name.
    #[serde(default)]
    pub owned_by: Option<String>,
}

/// What `/version` says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct EngineVersion {
    /// The version.
    pub version: String,
    /// The engine's name; only the embedded one tells it here.
    #[serde(default)]
    pub engine: Option<String>,
}

/// A text or a conversation whose tokens are to be counted.
#[derive(Debug, Clone, Copy)]
pub enum TokenizeInput<'body> {
    /// Plain text.
    Text(&'body str),
    /// Messages and tools in the form of the chat API, the model's template applied.
    Chat {
        /// The messages.
        messages: &'body Value,
        /// The tools offered.
        tools: Option<&'body Value>,
    },
}

/// Tokens as the engine counts them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tokens {
    /// How many.
    pub count: u64,
    /// Their ids.
    #[serde(rename = "tokens", default)]
    pub ids: Vec<u32>,
}

/// The control endpoints of one engine.
#[derive(Debug, Clone)]
pub struct Control {
    client: Client,
    base: Url,
    masked: String,
    key: Option<String>,
}

impl Control {
    /// The engine at `base_url`, with or without `/v1` at its end. Answers may take 30 s.
    pub fn new(base_url: &str) -> Result<Self> {
        let base = client::base_of(base_url)?;
        let masked = client::mask(&base);
        Ok(Self { client: client::build(Duration::from_secs(30))?, base, masked, key: None })
    }

    /// Sends `key` as bearer token.
    #[must_use]
    pub fn with_key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Waits at most `timeout` for an answer.
    pub fn with_timeout(self, timeout: Duration) -> Result<Self> {
        Ok(Self { client: client::build(timeout)?, ..self })
    }

    /// The engine's address without credentials and without `/v1`.
    pub fn url(&self) -> &str {
        &self.masked
    }

    /// Where vLLM and the embedded engine serve their metrics, credentials of the base included.
    pub fn metrics_url(&self) -> String {
        self.at("/metrics").to_string()
    }

    /// Whether the engine serves.
    pub async fn health(&self) -> Result<Health> {
        let (status, _) = self.get("/health").await?;
        Ok(match status {
            status if status.is_success() => Health::Ready,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Health::Untold,
            status => Health::NotReady { status: status.as_u16() },
        })
    }

    /// The models served.
    pub async fn models(&self) -> Result<Vec<ServedModel>> {
        self.listed().await?.map_err(|why| self.error(why))
    }

    /// The models served, or why the engine does not list them.
    async fn listed(&self) -> Result<Result<Vec<ServedModel>, String>> {
        #[derive(Deserialize)]
        struct List {
            data: Vec<ServedModel>,
        }
        let (status, body) = self.get("/v1/models").await?;
        if !status.is_success() {
            let remedy = match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "give its API key",
                StatusCode::NOT_FOUND => "give the address before /v1",
                _ => "look into the engine's log",
            };
            return Ok(Err(format!("/v1/models answered {status}; {remedy}")));
        }
        Ok(serde_json::from_str(&body).map(|list: List| list.data).map_err(|_| {
            "/v1/models is no list of models; is this an inference engine?".to_owned()
        }))
    }

    /// Refuses a model that the engine does not serve, with those that it does.
    pub async fn require_model(&self, name: &str) -> Result<()> {
        let models = self.models().await?;
        if models.iter().any(|model| model.id == name) {
            return Ok(());
        }
        let served: Vec<&str> = models.iter().map(|model| model.id.as_str()).collect();
        Err(self.error(match served.as_slice() {
            [] => format!("the engine does not serve the model `{name}`; it lists none"),
            _ => format!(
                "the engine does not serve the model `{name}`; it serves {}",
                served.join(", ")
            ),
        }))
    }

    /// What `/version` says; none where there is no such page.
    pub async fn version(&self) -> Result<Option<EngineVersion>> {
        let (status, body) = self.get("/version").await?;
        Ok(if status.is_success() { serde_json::from_str(&body).ok() } else { None })
    }

    /// The metrics page as text; none where there is no such page.
    pub async fn metrics_page(&self) -> Result<Option<String>> {
        let (status, body) = self.get("/metrics").await?;
        Ok(status.is_success().then_some(body))
    }

    /// What the engine is, for the manifest.
    pub async fn info(&self) -> Result<EngineInfo> {
        let models = self.models().await?;
        self.introduced(models).await
    }

    /// What the engine tells of itself unasked for a key: one that answers but lists no models (it
    /// wants a key, or has no such page) is there all the same. With the reason why nothing is known
    /// of its models.
    pub async fn info_as_told(&self) -> Result<(EngineInfo, Option<String>)> {
        let (models, why) = match self.listed().await? {
            Ok(models) => (models, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Ok((self.introduced(models).await?, why))
    }

    async fn introduced(&self, models: Vec<ServedModel>) -> Result<EngineInfo> {
        let version = self.version().await?;
        let first = models.first();
        let owner = first.and_then(|model| model.owned_by.clone());
        let told = version.as_ref().and_then(|version| version.engine.clone());
        let simulated =
            [&told, &owner].into_iter().any(|name| name.as_deref() == Some(SIMULATED_ENGINE));
        let name = match told {
            _ if simulated => Some(SIMULATED_ENGINE.to_owned()),
            Some(told) => Some(told),
            None => self.kind().await?.map(|kind| kind.as_str().to_owned()).or(owner),
        };
        Ok(EngineInfo {
            url: self.masked.clone(),
            name,
            version: version.map(|version| version.version),
            model: first.map(|model| model.id.clone()),
            max_model_len: first.and_then(|model| model.max_model_len),
            simulated,
        })
    }

    /// The engine by its metrics page.
    async fn kind(&self) -> Result<Option<EngineKind>> {
        let page = self.metrics_page().await?;
        Ok(page.and_then(|page| snapshot::detect(&page).ok()))
    }

    /// Tokens of a text or a conversation.
    pub async fn tokenize(&self, model: &str, input: TokenizeInput<'_>) -> Result<Answer<Tokens>> {
        let body = match input {
            TokenizeInput::Text(text) => json!({"model": model, "prompt": text}),
            TokenizeInput::Chat { messages, tools } => {
                let mut body = json!({"model": model, "messages": messages});
                if let Some(tools) = tools {
                    body["tools"] = tools.clone();
                }
                body
            }
        };
        let (status, body) = self.post("/tokenize", &body).await?;
        self.answer(status, &body)
    }

    /// Empties the prefix cache. vLLM allows it only when started with `VLLM_SERVER_DEV_MODE=1`.
    pub async fn reset_prefix_cache(&self) -> Result<Answer<()>> {
        let (status, body) = self.send(self.request(Method::POST, "/reset_prefix_cache")).await?;
        if !status.is_success() {
            return Ok(Answer::Refused(Refusal::new(status, &body)));
        }
        // Newer versions say whether it worked: blocks in use cannot be dropped.
        let said: Value = serde_json::from_str(&body).unwrap_or_default();
        Ok(match said["success"].as_bool() {
            Some(false) => Answer::Refused(Refusal::new(status, &body)),
            _ => Answer::Given(()),
        })
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.at(path));
        match &self.key {
            // Anthropic's API takes the key in a header of its own.
            Some(key) => request.bearer_auth(key).header("x-api-key", key),
            None => request,
        }
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, String)> {
        self.send(self.request(Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<(StatusCode, String)> {
        let request = self.request(Method::POST, path).header("anthropic-version", "2023-06-01");
        self.send(request.json(body)).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<(StatusCode, String)> {
        let remedy = "start the engine or correct the address";
        let response = request
            .send()
            .await
            .map_err(|error| self.error(format!("{}; {remedy}", client::describe(error))))?;
        let status = response.status();
        let body = client::text(response)
            .await
            .map_err(|message| self.error(format!("{message}; {remedy}")))?;
        Ok((status, body))
    }

    fn answer<T: serde::de::DeserializeOwned>(
        &self,
        status: StatusCode,
        body: &str,
    ) -> Result<Answer<T>> {
        if !status.is_success() {
            return Ok(Answer::Refused(Refusal::new(status, body)));
        }
        let given = serde_json::from_str(body).map_err(|error| {
            self.error(format!("an answer of unknown form ({error}); is this an inference engine?"))
        })?;
        Ok(Answer::Given(given))
    }

    fn error(&self, message: String) -> Error {
        Error::upstream(self.masked.clone(), message)
    }
}

impl Refusal {
    /// The message inside the JSON that engines answer with, else the text itself.
    fn new(status: StatusCode, body: &str) -> Self {
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let told = [&json["error"]["message"], &json["message"], &json["detail"], &json["error"]]
            .into_iter()
            .find_map(Value::as_str);
        let line = told.unwrap_or(body).split_whitespace().collect::<Vec<_>>().join(" ");
        Self { status: status.as_u16(), message: line.chars().take(300).collect() }
    }
}
