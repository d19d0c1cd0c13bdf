//! A request body into units and a template, and back, byte for byte.

use super::{Api, ParsedRequest, Unit};

/// Why a body could not be read as a request of its API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {api} request: {message}")]
pub struct ParseError {
    /// The API that the path names.
    pub api: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Reads a (decoded) body.
pub fn parse_request(api: Api, body: &[u8]) -> Result<ParsedRequest, ParseError> {
    let _ = body;
    Err(ParseError { api: api.as_str(), message: "being built".into() })
}

/// Cuts nothing: the whole body as one raw unit with its template, for bodies that do not parse.
pub fn raw_request(body: &[u8]) -> (Unit, String) {
    let _ = body;
    (
        Unit {
            kind: super::UnitKind::Raw,
            role: String::new(),
            text: String::new(),
            hash: super::ContentHash(0),
            blocks: Vec::new(),
        },
        String::new(),
    )
}

/// The exact bytes of a body, from its template and the texts of its units in prompt order.
pub fn rebuild_body(template: &str, units: &[&str]) -> Result<Vec<u8>, String> {
    let _ = (template, units);
    Err("being built".into())
}

/// A body with top-level members replaced (`Some`), added, or removed (`None`); all other bytes stay
/// as they are.
pub fn edit_top_level(
    body: &[u8],
    edits: &[(&str, Option<serde_json::Value>)],
) -> Result<Vec<u8>, String> {
    let _ = (body, edits);
    Err("being built".into())
}
