//! Which API the requests of a recording go to.
//!
//! The engine is asked before the run what it offers and whether it pins output lengths there; the
//! decision itself is pure.

use std::collections::BTreeSet;

use super::settings::{ApiChoice, ApiRoute, LengthForcing};
use crate::api::Api;
use crate::engine::control::{self, Control};
use crate::error::{Error, Result};

/// Where requests recorded in one API go, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) recorded: Api,
    pub(super) sent: Api,
    pub(super) output_length: LengthForcing,
    pub(super) reason: String,
}

impl Route {
    /// The route as settings keep it.
    pub(super) fn as_setting(&self) -> ApiRoute {
        ApiRoute {
            recorded: self.recorded.as_str().to_owned(),
            sent: self.sent.as_str().to_owned(),
            output_length: self.output_length,
            reason: self.reason.clone(),
        }
    }

    /// What a reader of the figures must know of it.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.recorded != self.sent {
            notes.push(format!(
                "requests recorded in the {} API were converted and sent to {}: {}",
                self.recorded.as_str(),
                self.sent.as_str(),
                self.reason
            ));
        }
        if self.output_length != LengthForcing::Honoured {
            notes.push(format!(
                "pinning of output lengths on {} is {}: lengths are checked for each request",
                self.sent.as_str(),
                self.output_length.as_str()
            ));
        }
        notes
    }
}

/// What an engine does with one API; none where it does not offer it.
#[derive(Debug, Clone, Copy, Default)]
struct Offers {
    messages: Option<LengthForcing>,
    chat: Option<LengthForcing>,
}

impl Offers {
    fn of(self, api: Api) -> Option<LengthForcing> {
        match api {
            Api::Messages => self.messages,
            Api::Chat => self.chat,
        }
    }
}

/// Asks the engine and decides for each API in the recording.
pub(super) async fn choose_routes(
    control: &Control,
    model: &str,
    choice: ApiChoice,
    recorded: &BTreeSet<Api>,
) -> Result<Vec<Route>> {
    let offered = control.apis(model).await?;
    let mut offers = Offers::default();
    for (api, offer) in [(Api::Messages, &mut offers.messages), (Api::Chat, &mut offers.chat)] {
        if offered.offers(api) {
            *offer = Some(match control.probe_output_length(api, model).await? {
                control::LengthForcing::Honoured => LengthForcing::Honoured,
                control::LengthForcing::Ignored { .. } => LengthForcing::Ignored,
                control::LengthForcing::Refused(_) => LengthForcing::Refused,
                control::LengthForcing::Untold => LengthForcing::Unknown,
            });
        }
    }
    recorded
        .iter()
        .map(|api| {
            decide(choice, *api, offers).map_err(|message| Error::upstream(control.url(), message))
        })
        .collect()
}

fn decide(choice: ApiChoice, recorded: Api, offers: Offers) -> Result<Route, String> {
    let other = match recorded {
        Api::Messages => Api::Chat,
        Api::Chat => Api::Messages,
    };
    let route = |sent: Api, reason: String| match offers.of(sent) {
        Some(output_length) => Ok(Route { recorded, sent, output_length, reason }),
        None => Err(format!("the engine does not offer {}; choose another API", sent.path())),
    };
    let asked = match choice {
        ApiChoice::Recorded => Some(recorded),
        ApiChoice::Messages => Some(Api::Messages),
        ApiChoice::Chat => Some(Api::Chat),
        ApiChoice::Auto => None,
    };
    if let Some(asked) = asked {
        return route(asked, "asked for".to_owned());
    }
    match (offers.of(recorded), offers.of(other)) {
        (Some(LengthForcing::Honoured), _) => route(recorded, "as recorded".to_owned()),
        (Some(forcing), Some(LengthForcing::Honoured)) => route(
            other,
            format!(
                "pinning of output lengths is {} on {} and honoured on {}",
                forcing.as_str(),
                recorded.as_str(),
                other.as_str()
            ),
        ),
        (Some(_), _) => {
            route(recorded, "as recorded; output lengths are honoured by no API".to_owned())
        }
        (None, Some(_)) => route(other, format!("the engine does not offer {}", recorded.path())),
        (None, None) => Err(format!(
            "the engine offers neither {} nor {}; is this an inference engine?",
            Api::Messages.path(),
            Api::Chat.path()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HONOURED: Option<LengthForcing> = Some(LengthForcing::Honoured);
    const IGNORED: Option<LengthForcing> = Some(LengthForcing::Ignored);
    const UNKNOWN: Option<LengthForcing> = Some(LengthForcing::Unknown);

    #[track_caller]
    fn check(
        choice: ApiChoice,
        recorded: Api,
        (messages, chat): (Option<LengthForcing>, Option<LengthForcing>),
        expected: Result<(Api, &str), &str>,
    ) {
        let route = decide(choice, recorded, Offers { messages, chat });
        match (route, expected) {
            (Ok(route), Ok((sent, reason))) => {
                assert_eq!(route.sent, sent);
                assert!(route.reason.contains(reason), "{}", route.reason);
            }
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (route, expected) => panic!("{route:?} is not {expected:?}"),
        }
    }

    #[test]
    fn a_recording_goes_where_its_lengths_are_honoured() {
        use Api::{Chat, Messages};
        use ApiChoice::Auto;
        check(Auto, Messages, (HONOURED, HONOURED), Ok((Messages, "as recorded")));
        check(Auto, Messages, (IGNORED, HONOURED), Ok((Chat, "ignored on messages")));
        check(Auto, Messages, (UNKNOWN, HONOURED), Ok((Chat, "unknown on messages")));
        check(Auto, Messages, (IGNORED, IGNORED), Ok((Messages, "honoured by no API")));
        check(Auto, Chat, (HONOURED, IGNORED), Ok((Messages, "ignored on chat")));
        check(Auto, Messages, (None, IGNORED), Ok((Chat, "does not offer /v1/messages")));
        check(Auto, Messages, (None, None), Err("offers neither"));
    }

    #[test]
    fn an_api_that_was_asked_for_is_used_or_refused() {
        use Api::{Chat, Messages};
        check(ApiChoice::Recorded, Messages, (IGNORED, HONOURED), Ok((Messages, "asked for")));
        check(ApiChoice::Chat, Messages, (HONOURED, IGNORED), Ok((Chat, "asked for")));
        check(ApiChoice::Messages, Chat, (None, HONOURED), Err("does not offer /v1/messages"));
    }

    #[test]
    fn what_changes_the_figures_is_noted() {
        let offers = |messages| Offers { messages, chat: IGNORED };
        let notes = |choice, offers| decide(choice, Api::Messages, offers).unwrap().notes();
        assert_eq!(notes(ApiChoice::Auto, offers(HONOURED)), Vec::<String>::new());
        let converted = notes(ApiChoice::Chat, offers(HONOURED));
        assert!(converted[0].contains("converted and sent to chat"));
        assert!(converted[1].contains("on chat is ignored"));
    }
}
