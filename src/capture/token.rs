//! The token without which a proxy that other machines reach serves nobody.
//!
//! Callers send it where agents put keys, so that no agent needs to know of it: then it is taken off and
//! goes no further. An engine that wants a key of its own gets that beside a token in a header of its own.

use std::net::SocketAddr;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName};

use crate::api::ContentHash;
use crate::error::{Error, Result};

/// The header for callers that send the engine a key of its own.
const OWN_HEADER: HeaderName = HeaderName::from_static("x-agentbench-token");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// A token, as what it is compared by: how long a comparison takes tells nothing of it.
#[derive(Debug)]
pub(super) struct Token(ContentHash);

impl Token {
    pub(super) fn new(token: &str) -> Self {
        Self(ContentHash::of(token.as_bytes()))
    }

    /// Whether a request carries it. Wherever it stands it is taken off: it is not the engine's.
    pub(super) fn admits(&self, headers: &mut HeaderMap) -> bool {
        let mut is_admitted = false;
        for name in [OWN_HEADER, API_KEY, AUTHORIZATION] {
            let is_it = headers.get(&name).is_some_and(|value| self.is(value.as_bytes()));
            if is_it || name == OWN_HEADER {
                headers.remove(&name);
            }
            is_admitted |= is_it;
        }
        is_admitted
    }

    fn is(&self, value: &[u8]) -> bool {
        let is_bearer = value.len() > 7 && value[..7].eq_ignore_ascii_case(b"bearer ");
        let value = if is_bearer { &value[7..] } else { value };
        ContentHash::of(value.trim_ascii()) == self.0
    }
}

/// Refuses to be reached from other machines without a token, and a token that is none.
pub(super) fn check(listen: SocketAddr, token: Option<&str>) -> Result<()> {
    match token {
        None if !listen.ip().is_loopback() => Err(Error::config(format!(
            "listen: {listen} can be reached from other machines, and whoever connects would use the engine; \
             give a token, which callers send as their API key, or listen on 127.0.0.1"
        ))),
        Some(token) if token.trim() != token || token.is_empty() || !token.is_ascii() => Err(
            Error::config("token: it cannot be sent as a key; give ASCII without spaces around it"),
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_token_is_found_and_taken_off() {
        let token = Token::new("s3cret");
        for (sent, admitted, passed) in [
            (&[("x-api-key", "s3cret")][..], true, &[][..]),
            (&[("authorization", "Bearer s3cret")], true, &[]),
            (&[("authorization", "s3cret")], true, &[]),
            (
                &[("x-agentbench-token", "s3cret"), ("x-api-key", "engine")],
                true,
                &[("x-api-key", "engine")],
            ),
            (&[("x-agentbench-token", "wrong")], false, &[]),
            (&[("authorization", "Bearer s3cre")], false, &[("authorization", "Bearer s3cre")]),
            (&[], false, &[]),
        ] {
            let map = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
                let pair = |&(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                };
                pairs.iter().map(pair).collect()
            };
            let mut headers = map(sent);
            assert_eq!(token.admits(&mut headers), admitted, "{sent:?}");
            assert_eq!(headers, map(passed));
        }
    }

    #[test]
    fn an_open_address_needs_a_token() {
        for (listen, token, part) in [
            ("127.0.0.1:0", None, None),
            ("[::1]:0", None, None),
            ("0.0.0.0:0", Some("t"), None),
            ("127.0.0.1:0", Some("t"), None),
            ("0.0.0.0:0", None, Some("give a token")),
            ("[::]:8001", None, Some("other machines")),
            ("10.0.0.1:1", None, Some("127.0.0.1")),
            ("127.0.0.1:0", Some(""), Some("token:")),
            ("127.0.0.1:0", Some(" t"), Some("token:")),
        ] {
            let checked = check(listen.parse().unwrap(), token);
            match part {
                None => assert!(checked.is_ok(), "{listen}"),
                Some(part) => {
                    let error = checked.unwrap_err().to_string();
                    assert!(error.contains(part), "{error}");
                }
            }
        }
    }
}
