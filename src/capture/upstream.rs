//! The engine behind the proxy: its URL, the path that a request gets there, and how it is reached.
//!
//! How requests travel is `connection`'s affair.

use std::sync::Arc;
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio_util::task::TaskTracker;

use super::connection::Connections;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::client;
use crate::http::headers::masked;
use crate::redact::Masker;

/// The engine's address.
#[derive(Debug, Clone)]
pub(super) struct Upstream {
    scheme: Scheme,
    authority: Authority,
    base_path: String,
    host: HeaderValue,
    shown: String,
    label: Arc<str>,
}

impl Upstream {
    /// Reads the URL of an engine, with an optional base path that is put before every path. A `/v1`
    /// at its end, which users of one API put there, is in every path that agents ask for as well:
    /// it counts once.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let shown = masked(url);
        let wrong = |why: &str| Error::config(format!("upstream `{shown}`: {why}"));
        let uri: Uri =
            url.parse().map_err(|_| wrong("not a URL; give one such as http://127.0.0.1:8000"))?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(wrong(
                "not a whole URL; give scheme and host, such as http://127.0.0.1:8000",
            ));
        };
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return Err(wrong("only http and https are supported"));
        }
        if authority.as_str().contains('@') {
            return Err(wrong("holds credentials; let the agent send them in its own headers"));
        }
        if authority.host().is_empty() {
            return Err(wrong("names no host"));
        }
        if uri.query().is_some() {
            return Err(wrong("holds a query; give only scheme, host and base path"));
        }
        let host = HeaderValue::from_str(authority.as_str())
            .map_err(|_| wrong("its host cannot be sent as a header"))?;
        let base_path = uri.path().trim_end_matches('/');
        let base_path = base_path.strip_suffix("/v1").unwrap_or(base_path).trim_end_matches('/');
        Ok(Self {
            scheme: scheme.clone(),
            authority: authority.clone(),
            base_path: base_path.to_owned(),
            host,
            label: client::mask(&client::base_of(url)?).into(),
            shown,
        })
    }

    /// What a request for `path` asks the engine for.
    pub(super) fn uri(&self, path: &PathAndQuery) -> Result<Uri, http::Error> {
        if self.base_path.is_empty() {
            Uri::builder().path_and_query(path.clone()).build()
        } else {
            Uri::builder().path_and_query(format!("{}{path}", self.base_path)).build()
        }
    }

    /// The `Host` header that the engine gets.
    pub(super) fn host(&self) -> &HeaderValue {
        &self.host
    }

    /// The URL as it may be shown.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// The engine's name in rows: its address without credentials and without `/v1`.
    pub(super) fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Masks the name in rows.
    pub(super) fn redact_label(&mut self, masker: &Masker) {
        self.label = masker.text(&self.label).into();
    }

    /// Connections to this engine; none is opened yet.
    pub(super) fn connections(
        &self,
        connect_timeout: Duration,
        tasks: &TaskTracker,
        clock: Clock,
    ) -> Result<Arc<Connections>> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_platform_verifier(provider)
            .map_err(|error| Error::upstream(&self.shown, format!("no TLS: {error}")))?;
        let connector = tls.https_or_http().enable_http1().wrap_connector(http);
        let origin = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query("/")
            .build()
            .map_err(|error| Error::config(format!("upstream `{}`: {error}", self.shown)))?;
        Ok(Connections::new(origin, connector, connect_timeout, tasks.clone(), clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_path_and_query_are_joined() {
        for (url, path, joined) in [
            ("http://h:1", "/v1/messages?beta=true", "/v1/messages?beta=true"),
            ("http://h:1/", "/v1/models", "/v1/models"),
            ("https://h/api/", "/v1/models", "/api/v1/models"),
            ("http://[::1]:9/a/b", "/", "/a/b/"),
            ("http://h:1/v1", "/v1/models", "/v1/models"),
            ("http://h:1/api/v1/", "/v1/models", "/api/v1/models"),
            ("http://v1", "/v1/models", "/v1/models"),
            ("http://h/a-v1", "/v1/models", "/a-v1/v1/models"),
            ("http://h", "//odd/%2F/../x?", "//odd/%2F/../x?"),
        ] {
            let upstream = Upstream::parse(url).unwrap();
            let path = path.parse().unwrap();
            assert_eq!(upstream.uri(&path).unwrap().to_string(), joined);
        }
    }

    #[test]
    fn a_wrong_url_is_told_with_the_remedy() {
        for (url, part) in [
            ("", "not a URL"),
            ("localhost:8000", "not a whole URL"),
            ("/v1", "not a whole URL"),
            ("http://", "not a URL"),
            ("ftp://h", "only http and https"),
            ("http://user:secret@h", "holds credentials"),
            ("http://h/?key=secret", "holds a query"),
        ] {
            let error = Upstream::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
