//! What an agent is told where no engine answers, and whose fault an error is.

use std::error::Error as StdError;
use std::io;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{Either, Full};

use super::forward::ResponseBody;
use crate::api::{Api, convert};

pub(super) fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    caused_by(error, |io: &io::Error| io.kind() == io::ErrorKind::TimedOut)
}

/// The request's own body failed: the agent went away within its upload.
pub(super) fn is_client_broken(error: &(dyn StdError + 'static)) -> bool {
    caused_by(error, hyper::Error::is_user)
}

/// Whether an error or one of its sources is of a kind.
fn caused_by<E: StdError + 'static>(
    error: &(dyn StdError + 'static),
    is_it: impl Fn(&E) -> bool,
) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if error.downcast_ref::<E>().is_some_and(&is_it) {
            return true;
        }
        current = error.source();
    }
    false
}

/// The proxy's own answer, in the form in which the API tells errors.
pub(super) fn answer(api: Api, status: StatusCode, message: &str) -> Response<ResponseBody> {
    let message = format!("agentbench proxy: {message}");
    let body = convert::error_body(api, status.as_u16(), &message);
    let mut response = Response::new(Either::Right(Full::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
