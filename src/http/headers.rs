//! Headers on their way through a proxy: which are for one connection only, and which are secrets.
//!
//! Order, repetition and values of all that is passed on stay as received; the case of names is
//! hyper's to keep. What the headers mean to a recording is `capture`'s affair.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE,
};

/// What stands in place of a secret.
pub const MASK: &str = "***";

/// The headers to pass on: hop-by-hop ones (RFC 9110, 7.6.1) removed, those that `Connection` names
/// included. `host` takes the place of the received `Host`.
///
/// `Transfer-Encoding: chunked` stays where it was, because the body is framed so again on the next
/// connection; so does `TE: trailers`, without which trailers would be lost.
pub fn forwarded(received: &HeaderMap, host: Option<&HeaderValue>) -> HeaderMap {
    let named = named_by_connection(received);
    let chunked = received.get_all(TRANSFER_ENCODING).iter().any(is_chunked);
    // A map is rebuilt because removing from one moves its last entry into the gap.
    let mut passed = HeaderMap::with_capacity(received.len() + 1);
    if let Some(host) = host
        && !received.contains_key(HOST)
    {
        passed.insert(HOST, host.clone());
    }
    for (name, value) in received {
        let stays = match name {
            name if *name == TRANSFER_ENCODING => is_chunked(value),
            name if *name == TE => value.as_bytes().eq_ignore_ascii_case(b"trailers"),
            name if *name == CONTENT_LENGTH => !chunked,
            name => !is_hop_by_hop(name) && !named.contains(name),
        };
        match host {
            Some(host) if *name == HOST => {
                passed.insert(HOST, host.clone());
            }
            _ if stays => {
                passed.append(name, value.clone());
            }
            _ => {}
        }
    }
    passed
}

/// The headers without those that carry secrets.
pub fn without_secrets(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| !is_secret(name)) {
        kept.append(name, value.clone());
    }
    kept
}

/// Whether a header's value is a secret that must not reach the disk.
pub fn is_secret(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, PROXY_AUTHENTICATE, COOKIE, SET_COOKIE].contains(name)
        || ["x-api-key", "api-key", "x-goog-api-key", "x-amz-security-token"]
            .contains(&name.as_str())
}

/// A path with its query, or a whole URL, with credentials and keys masked.
pub fn masked(url: &str) -> String {
    let (front, query) = url.split_once('?').map_or((url, None), |(a, b)| (a, Some(b)));
    let front = without_credentials(front);
    let Some(query) = query else { return front };
    let masked: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_parameter(name) => format!("{name}={MASK}"),
            _ => pair.to_owned(),
        })
        .collect();
    format!("{front}?{}", masked.join("&"))
}

fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{MASK}@{host}{path}"),
        None => url.to_owned(),
    }
}

/// By the words in a parameter's name, so that `apikey`, `api_key`, `X-Amz-Signature` and
/// `subscription-key` are all caught. A name masked in vain costs nothing.
fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "signature", "password", "passwd", "credential", "auth"]
        .iter()
        .any(|word| name.contains(word))
        || ["sig", "code", "pwd"].contains(&name.as_str())
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect()
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, UPGRADE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION].contains(name)
        || ["keep-alive", "proxy-connection"].contains(&name.as_str())
}

fn is_chunked(value: &HeaderValue) -> bool {
    value.as_bytes().eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        headers
    }

    fn check_forwarded(received: &[(&str, &str)], host: Option<&str>, passed: &[(&str, &str)]) {
        let host = host.map(|host| HeaderValue::from_str(host).unwrap());
        let headers = forwarded(&map(received), host.as_ref());
        let found: Vec<_> =
            headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        assert_eq!(found, passed);
    }

    #[test]
    fn only_hop_by_hop_headers_are_removed() {
        check_forwarded(
            &[("a", "1"), ("b", "2"), ("a", "3")],
            None,
            &[("a", "1"), ("a", "3"), ("b", "2")],
        );
        check_forwarded(
            &[("connection", "close, X-One"), ("x-one", "1"), ("x-two", "2"), ("keep-alive", "5")],
            None,
            &[("x-two", "2")],
        );
        check_forwarded(
            &[("te", "trailers"), ("te", "gzip"), ("upgrade", "h2c"), ("connection", "te")],
            None,
            &[("te", "trailers")],
        );
        check_forwarded(
            &[("proxy-authorization", "Basic x"), ("authorization", "Bearer y")],
            None,
            &[("authorization", "Bearer y")],
        );
    }

    #[test]
    fn framing_stays_in_its_place() {
        check_forwarded(
            &[("a", "1"), ("transfer-encoding", "chunked"), ("content-length", "5"), ("b", "2")],
            None,
            &[("a", "1"), ("transfer-encoding", "chunked"), ("b", "2")],
        );
        check_forwarded(
            &[("transfer-encoding", "gzip"), ("content-length", "5")],
            None,
            &[("content-length", "5")],
        );
    }

    #[test]
    fn host_takes_the_place_of_the_received_one() {
        check_forwarded(
            &[("a", "1"), ("host", "proxy:1"), ("b", "2")],
            Some("engine:2"),
            &[("a", "1"), ("host", "engine:2"), ("b", "2")],
        );
        check_forwarded(&[("a", "1")], Some("engine:2"), &[("host", "engine:2"), ("a", "1")]);
    }

    #[test]
    fn secrets_are_masked() {
        for (url, shown) in [
            ("/v1/messages?beta=true", "/v1/messages?beta=true"),
            ("/v1?api_key=abc&beta=true", "/v1?api_key=***&beta=true"),
            (
                "/v1?X-Amz-Signature=abc&sig=b&access_token=c",
                "/v1?X-Amz-Signature=***&sig=***&access_token=***",
            ),
            ("/v1?flag&key=a=b", "/v1?flag&key=***"),
            ("http://user:pw@host:1/v1?token=t", "http://***@host:1/v1?token=***"),
            ("http://host/a@b", "http://host/a@b"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(masked(url), shown);
        }
    }

    #[test]
    fn secret_headers_are_left_out() {
        let kept = without_secrets(&map(&[
            ("authorization", "Bearer s"),
            ("x-api-key", "s"),
            ("user-agent", "claude-cli/2"),
            ("cookie", "s"),
            ("api-key", "s"),
        ]));
        let names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["user-agent"]);
    }
}
