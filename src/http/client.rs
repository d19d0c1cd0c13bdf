//! The HTTP client of pollers and of the engine's control: plain requests, nothing done behind the caller's back.
//!
//! No system proxy, no redirects, no retries and no decompression, since each would change what is
//! measured. Failures become one line without the URL, which may hold credentials. What is asked for
//! is the callers' affair.

use std::error::Error as _;
use std::time::Duration;

use reqwest::{Client, Response, Url};

use crate::error::{Error, Result};

/// No page of an engine comes near; what is longer is something else.
const PAGE_LIMIT_BYTES: usize = 32 << 20;

/// A client that waits at most `timeout` for a whole answer.
pub(crate) fn build(timeout: Duration) -> Result<Client> {
    // The TLS backend is compiled in without a default; an earlier installation is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .tcp_nodelay(true)
        .timeout(timeout)
        .user_agent(concat!("agentbench/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Error::Internal(format!("no HTTP client: {}", describe(error))))
}

/// Reads an address given by the user.
pub(crate) fn parse_url(text: &str) -> Result<Url> {
    let refuse = |why: &str| {
        Err(Error::config(format!(
            "not an address of an engine or a metrics page: {why}; give one such as http://127.0.0.1:8000"
        )))
    };
    // The text itself stays out of the message: what cannot be read cannot be masked.
    match Url::parse(text.trim()) {
        Err(error) => refuse(&error.to_string()),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            refuse(&format!("the scheme is '{}', not http or https", url.scheme()))
        }
        Ok(url) => Ok(url),
    }
}

/// The address of an engine less what users put behind it: `/v1`, a query, a fragment.
pub(crate) fn base_of(text: &str) -> Result<Url> {
    let mut base = parse_url(text)?;
    let path = base.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/').to_owned();
    base.set_path(&path);
    base.set_query(None);
    base.set_fragment(None);
    Ok(base)
}

/// The address without credentials, query and fragment.
pub(crate) fn mask(url: &Url) -> String {
    let mut masked = url.clone();
    // Both fail only for addresses without a host, which `parse_url` refuses.
    let _ = masked.set_username("");
    let _ = masked.set_password(None);
    masked.set_query(None);
    masked.set_fragment(None);
    masked.as_str().trim_end_matches('/').to_owned()
}

/// What went wrong with a request, in one line without its URL.
pub(crate) fn describe(error: reqwest::Error) -> String {
    let (timed_out, connecting) = (error.is_timeout(), error.is_connect());
    let error = error.without_url();
    let mut deepest = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        deepest = cause.to_string();
        source = cause.source();
    }
    match (timed_out, connecting) {
        (true, _) => "no answer in time".to_owned(),
        (false, true) => format!("cannot connect ({deepest})"),
        (false, false) => format!("the connection failed ({deepest})"),
    }
}

/// The whole body as text.
pub(crate) async fn text(mut response: Response) -> Result<String, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(describe)? {
        if body.len() + chunk.len() > PAGE_LIMIT_BYTES {
            return Err(format!("the answer is longer than {} MiB", PAGE_LIMIT_BYTES >> 20));
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body).map_err(|_| "the answer is not UTF-8 text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_masked() {
        for (url, expected) in [
            ("http://user:secret@host:8000/metrics?key=secret#x", "http://host:8000/metrics"),
            ("https://secret@host/", "https://host"),
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ] {
            assert_eq!(mask(&parse_url(url).expect(url)), expected);
        }
    }

    #[test]
    fn wrong_addresses_are_refused_without_repeating_them() {
        for (url, part) in [
            ("user:secret@host", "scheme is 'user'"),
            ("http://", "empty host"),
            ("secret", "relative URL"),
            ("ftp://secret@host", "scheme is 'ftp'"),
        ] {
            let message = parse_url(url).expect_err(url).to_string();
            assert!(message.contains(part) && !message.contains("secret"), "{url}: {message}");
        }
    }
}
