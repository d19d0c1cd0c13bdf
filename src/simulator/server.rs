//! The HTTP face: routes, bodies, errors in each API's own form.
//!
//! What a request becomes is `request`'s to say, when its tokens are done `engine`'s.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

use super::engine::{Command, SharedMetrics, with_metrics};
use super::kv_cache::fold;
use super::plan::Plan;
use super::reply::{ReplyHead, ReplyStream, ReplyWriter};
use super::reply_chat::{ChatWriter, CompletionsWriter};
use super::reply_messages::MessagesWriter;
use super::reply_responses::{KeptConversations, ResponsesWriter};
use super::request::{Form, Generation, Model, Refusal};
use super::scheduler::NewRequest;
use crate::clock::Clock;
use crate::shutdown::Shutdown;

/// Largest request body; far above any context this engine serves.
const BODY_LIMIT_BYTES: usize = 256 << 20;

type Answer = Response<Either<Full<Bytes>, ReplyStream>>;

/// What every connection shares.
#[derive(Debug)]
pub struct Server {
    /// The model served.
    pub model: Model,
    /// KV blocks, for the metrics page.
    pub kv_blocks: u32,
    /// The engine's figures.
    pub metrics: SharedMetrics,
    /// The way to the engine.
    pub commands: mpsc::Sender<Command>,
    /// Arrival times.
    pub clock: Clock,
    /// Requests so far; gives each its id.
    pub requests: AtomicU64,
    /// Conversations that requests to `/v1/responses` may go on from.
    pub kept: KeptConversations,
}

/// Accepts connections until the shutdown.
pub async fn serve(server: Arc<Server>, listener: TcpListener, shutdown: Shutdown) {
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        // Out of file descriptors, say: the next accept may fare better, but not at once.
        let Ok((socket, _)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        // A token is a small packet: without this it waits for the one before to be acknowledged.
        let _ = socket.set_nodelay(true);
        let connection = connection(Arc::clone(&server), socket);
        let token = shutdown.token().clone();
        shutdown.tracker().spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = connection => {}
            }
        });
    }
}

async fn connection(server: Arc<Server>, socket: TcpStream) {
    let service = service_fn(move |request| {
        let server = Arc::clone(&server);
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    // An error here is a client that went away; the engine learns of it by the dropped body.
    let _ = auto::Builder::new(TokioExecutor::new())
        .http1_only()
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        let get = request.method() == Method::GET || request.method() == Method::HEAD;
        let post = request.method() == Method::POST;
        match path.as_str() {
            "/health" if get => whole(StatusCode::OK, "text/plain", Bytes::new()),
            "/metrics" if get => self.metrics_page(),
            "/version" if get => object(&json!({
                "version": env!("CARGO_PKG_VERSION"), "engine": "agentbench-simulated",
            })),
            "/v1/models" if get => self.models(),
            "/reset_prefix_cache" if post => self.reset_prefix_cache().await,
            "/v1/messages" if post => self.generate(Form::Messages, request).await,
            "/v1/chat/completions" if post => self.generate(Form::Chat, request).await,
            "/v1/completions" if post => self.generate(Form::Completions, request).await,
            "/v1/responses" if post => self.generate(Form::Responses, request).await,
            "/v1/messages/count_tokens" if post => self.count_tokens(request).await,
            "/tokenize" if post => self.tokenize(request).await,
            "/health"
            | "/metrics"
            | "/version"
            | "/v1/models"
            | "/reset_prefix_cache"
            | "/v1/messages"
            | "/v1/chat/completions"
            | "/v1/completions"
            | "/v1/responses"
            | "/v1/messages/count_tokens"
            | "/tokenize" => status_only(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"),
            _ => status_only(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    fn metrics_page(&self) -> Answer {
        // Copied under the lock, written out beside it: the engine does not wait for a page.
        let metrics = with_metrics(&self.metrics, |metrics| metrics.clone());
        let page = metrics.page(&self.model.name, self.kv_blocks);
        whole(StatusCode::OK, "text/plain; version=1.0.0; charset=utf-8", Bytes::from(page))
    }

    fn models(&self) -> Answer {
        let name = &self.model.name;
        object(&json!({"object": "list", "data": [{
            "id": name, "object": "model", "created": self.clock.anchor_ns() / 1_000_000_000,
            "owned_by": "agentbench-simulated", "root": name, "parent": null,
            "max_model_len": self.model.max_model_len,
        }]}))
    }

    async fn reset_prefix_cache(&self) -> Answer {
        let (answer, success) = oneshot::channel();
        let sent = self.commands.send(Command::ResetPrefixCache(answer)).await.is_ok();
        let success = sent && success.await.unwrap_or(false);
        object(&json!({"success": success}))
    }

    async fn count_tokens(&self, request: Request<Incoming>) -> Answer {
        let count = async {
            let body = self.model.read_body(&read(request).await?)?;
            self.model.prompt_ids(Form::Messages, &body)
        };
        match count.await {
            Ok(ids) => object(&json!({
                "input_tokens": ids.len(),
                "context_management": {"original_input_tokens": ids.len()},
            })),
            Err(refusal) => refuse(Form::Messages, &refusal),
        }
    }

    async fn tokenize(&self, request: Request<Incoming>) -> Answer {
        let ids = async {
            let body = self.model.read_body(&read(request).await?)?;
            self.model.prompt_ids(Form::Chat, &body)
        };
        match ids.await {
            Ok(ids) => object(&json!({
                "count": ids.len(), "max_model_len": self.model.max_model_len, "tokens": ids,
                "token_strs": null,
            })),
            Err(refusal) => refuse(Form::Chat, &refusal),
        }
    }

    async fn generate(&self, form: Form, request: Request<Incoming>) -> Answer {
        match self.start(form, request).await {
            Ok((stream, true)) => streamed(stream),
            Ok((stream, false)) => match stream.whole().await {
                Some(reply) => object(&reply),
                None => refuse(form, &stopped()),
            },
            Err(refusal) => refuse(form, &refusal),
        }
    }

    /// Hands a request to the engine; its reply to come, and whether to stream it.
    async fn start(
        &self,
        form: Form,
        request: Request<Incoming>,
    ) -> Result<(ReplyStream, bool), Refusal> {
        let mut body = self.model.read_body(&read(request).await?)?;
        if form == Form::Responses {
            self.follow(&mut body)?;
        }
        let generation = self.model.generation(form, &body)?;
        let Generation { stream, usage, prompt, returned_ids, plan, max_tokens } = generation;
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let head = self.head(form, id, prompt.len());
        let writer: Box<dyn ReplyWriter> = match form {
            Form::Messages => Box::new(MessagesWriter::new(head)),
            Form::Chat => Box::new(ChatWriter::new(head, usage)),
            Form::Completions => Box::new(CompletionsWriter::new(head, usage, returned_ids)),
            Form::Responses => {
                let writer = ResponsesWriter::new(head, calls_custom_tool(&body, &plan));
                self.keep(&mut body, &writer, &plan, id);
                Box::new(writer)
            }
        };
        drop(body);
        // Room for every token: the engine never waits for a slow client.
        let (sender, tokens) = mpsc::channel(plan.ids.len());
        let request = NewRequest {
            id,
            arrived_ns: self.clock.now_ns(),
            prompt,
            output: plan.ids.clone(),
            finish: plan.finish,
            max_tokens,
        };
        let submit = Command::Submit(Box::new(request), sender);
        self.commands.send(submit).await.map_err(|_| stopped())?;
        Ok((ReplyStream::new(plan, writer, tokens), stream))
    }

    /// Puts the conversation that a request goes on from before its input.
    fn follow(&self, body: &mut Value) -> Result<(), Refusal> {
        let Some(previous) = body.get("previous_response_id").and_then(Value::as_str) else {
            return Ok(());
        };
        let mut items = self.kept.get(previous).ok_or_else(|| Refusal {
            status: 404,
            kind: "invalid_request_error",
            message: format!("Response with id '{previous}' not found."),
            param: Some("response_id"),
        })?;
        items.extend(input_items(body["input"].take()));
        body["input"] = items.into();
        Ok(())
    }

    /// Keeps the conversation with this reply, unless it is not to be kept.
    fn keep(&self, body: &mut Value, writer: &ResponsesWriter, plan: &Plan, id: u64) {
        if body.get("store") != Some(&Value::Bool(false)) {
            let mut items = input_items(body["input"].take());
            items.extend(writer.items(plan));
            self.kept.keep(self.response_id(Form::Responses, id), items);
        }
    }

    fn response_id(&self, form: Form, id: u64) -> String {
        let kind = match form {
            Form::Messages | Form::Chat => "chatcmpl-",
            Form::Completions => "cmpl-",
            Form::Responses => "resp_",
        };
        format!("{kind}{:016x}", fold(self.model.seed, id))
    }

    fn head(&self, form: Form, id: u64, prompt_tokens: usize) -> ReplyHead {
        let unique = fold(self.model.seed, id);
        ReplyHead {
            id: self.response_id(form, id),
            call_id: format!("chatcmpl-tool-{unique:016x}"),
            created: self.clock.now_ns() / 1_000_000_000,
            model: self.model.name.clone(),
            prompt_tokens,
        }
    }
}

/// An input as the items that it stands for.
fn input_items(input: Value) -> Vec<Value> {
    match input {
        Value::Array(items) => items,
        Value::String(said) => vec![json!({"role": "user", "content": said})],
        _ => Vec::new(),
    }
}

/// Whether a reply calls a tool that takes plain text.
fn calls_custom_tool(body: &Value, plan: &Plan) -> bool {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    let called = plan.call.as_ref().map(|call| call.name.as_str());
    let mut custom = tools.filter(|tool| tool["type"] == "custom");
    called.is_some_and(|called| custom.any(|tool| tool["name"] == called))
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    match Limited::new(request.into_body(), BODY_LIMIT_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(Refusal::bad(format!("cannot read the body: {error}"), Some("body"))),
    }
}

fn stopped() -> Refusal {
    let message = "the engine stopped".into();
    Refusal { status: 500, kind: "InternalServerError", message, param: None }
}

fn refuse(form: Form, refusal: &Refusal) -> Answer {
    let Refusal { status, kind, message, param } = refusal;
    let body = match form {
        Form::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Form::Chat | Form::Completions | Form::Responses => json!({"error": {
            "message": message, "type": kind, "param": param, "code": status,
        }}),
    };
    let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    whole(status, "application/json", Bytes::from(body.to_string()))
}

fn status_only(status: StatusCode, detail: &str) -> Answer {
    whole(status, "application/json", Bytes::from(json!({"detail": detail}).to_string()))
}

fn object(body: &Value) -> Answer {
    whole(StatusCode::OK, "application/json", Bytes::from(body.to_string()))
}

fn whole(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    let content_type = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

fn streamed(stream: ReplyStream) -> Answer {
    let mut response = Response::new(Either::Right(stream));
    let content_type = header::HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
