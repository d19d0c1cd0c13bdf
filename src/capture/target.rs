//! Where a request wants to go: the path that the engine gets, and the session that stands before it.

use http::Uri;
use http::uri::PathAndQuery;

/// Where a request wants to go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) session: Option<String>,
    pub(super) path: PathAndQuery,
}

impl Target {
    /// Takes the prefix `/s/<session>` off a path; nothing else of it is changed.
    pub(super) fn of(uri: &Uri) -> Self {
        let received = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let whole = Self { session: None, path: received.clone() };
        let Some(rest) = received.as_str().strip_prefix("/s/") else { return whole };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (session, path) = rest.split_at(end);
        if session.is_empty() {
            return whole;
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        match PathAndQuery::try_from(path) {
            Ok(path) => Self { session: Some(session.to_owned()), path },
            Err(_) => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_prefix_is_taken_off() {
        for (uri, session, path) in [
            ("/v1/messages?beta=true", None, "/v1/messages?beta=true"),
            ("/s/one/v1/messages?beta=true", Some("one"), "/v1/messages?beta=true"),
            ("/s/one", Some("one"), "/"),
            ("/s/one?x=1", Some("one"), "/?x=1"),
            ("/s/a%20b//v1", Some("a%20b"), "//v1"),
            ("/s//v1", None, "/s//v1"),
            ("/s/", None, "/s/"),
            ("/sx/one/v1", None, "/sx/one/v1"),
            ("http://proxy/s/one/v1", Some("one"), "/v1"),
            ("*", None, "*"),
        ] {
            let target = Target::of(&uri.parse().unwrap());
            let session = session.map(str::to_owned);
            assert_eq!(target, Target { session, path: path.parse().unwrap() }, "{uri}");
        }
    }
}
