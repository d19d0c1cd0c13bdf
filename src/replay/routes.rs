//! Which API the requests of a recording go to.
//!
//! The engine is asked before the run what it offers and whether it pins output lengths there; the
//! decision itself is pure.

use std::collections::{BTreeMap, BTreeSet};

use super::settings::{ApiChoice, ApiRoute, ContentMode, LengthForcing};
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
    pub(super) fn as_setting(&self, content: ContentMode) -> ApiRoute {
        let recorded = match content {
            ContentMode::Synthetic => "synthetic",
            ContentMode::Recorded | ContentMode::Live => self.recorded.as_str(),
        };
        ApiRoute {
            recorded: recorded.to_owned(),
            sent: self.sent.as_str().to_owned(),
            output_length: self.output_length,
            reason: self.reason.clone(),
        }
    }

    /// What a reader of the figures must know of it.
    pub(super) fn notes(&self, content: ContentMode) -> Vec<String> {
        let mut notes = Vec::new();
        if self.recorded != self.sent && content != ContentMode::Synthetic {
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

/// What an engine does with the APIs that it offers.
type Offers = BTreeMap<Api, LengthForcing>;

/// Asks the engine and decides for each API in the recording.
pub(super) async fn choose_routes(
    control: &Control,
    model: &str,
    choice: ApiChoice,
    recorded: &BTreeSet<Api>,
    sendable_as: impl Fn(Api) -> &'static [Api],
) -> Result<Vec<Route>> {
    let offered = control.apis(model).await?;
    let mut offers = Offers::new();
    let sendable: BTreeSet<Api> =
        recorded.iter().flat_map(|api| sendable_as(*api)).copied().collect();
    for api in sendable.into_iter().filter(|api| offered.offers(*api)) {
        let forcing = match control.probe_output_length(api, model).await? {
            control::LengthForcing::Honoured => LengthForcing::Honoured,
            control::LengthForcing::Ignored { .. } => LengthForcing::Ignored,
            control::LengthForcing::Refused(_) => LengthForcing::Refused,
            control::LengthForcing::Untold => LengthForcing::Unknown,
        };
        offers.insert(api, forcing);
    }
    recorded
        .iter()
        .map(|api| {
            let sendable = sendable_as(*api);
            decide(choice, *api, sendable, &offers)
                .map_err(|message| Error::upstream(control.url(), message))
        })
        .collect()
}

fn decide(
    choice: ApiChoice,
    recorded: Api,
    sendable: &[Api],
    offers: &Offers,
) -> Result<Route, String> {
    let route = |sent: Api, reason: String| match offers.get(&sent) {
        _ if !sendable.contains(&sent) => Err(format!(
            "a request recorded in {} cannot be sent as {}: {}; choose another API",
            recorded.as_str(),
            sent.as_str(),
            why_not(recorded, sent)
        )),
        Some(output_length) => Ok(Route { recorded, sent, output_length: *output_length, reason }),
        None => Err(format!("the engine does not offer {}; choose another API", sent.path())),
    };
    let asked = match choice {
        ApiChoice::Recorded => Some(recorded),
        ApiChoice::Messages => Some(Api::Messages),
        ApiChoice::Chat => Some(Api::Chat),
        ApiChoice::Completions => Some(Api::Completions),
        ApiChoice::Responses => Some(Api::Responses),
        ApiChoice::Auto => None,
    };
    if let Some(asked) = asked {
        return route(asked, "asked for".to_owned());
    }
    let honours = |api: &&Api| offers.get(*api) == Some(&LengthForcing::Honoured);
    let honouring = sendable.iter().find(honours).copied();
    let is_offered = |api: &&Api| offers.contains_key(*api);
    let offered = sendable.iter().find(is_offered).copied();
    match (offers.get(&recorded), honouring, offered) {
        (Some(LengthForcing::Honoured), ..) => route(recorded, "as recorded".to_owned()),
        (Some(forcing), Some(other), _) => route(
            other,
            format!(
                "pinning of output lengths is {} on {} and honoured on {}",
                forcing.as_str(),
                recorded.as_str(),
                other.as_str()
            ),
        ),
        (Some(_), None, _) => {
            route(recorded, "as recorded; output lengths are honoured by no API".to_owned())
        }
        (None, Some(other), _) | (None, None, Some(other)) => {
            route(other, format!("the engine does not offer {}", recorded.path()))
        }
        (None, None, None) => Err(offers_none(sendable)),
    }
}

/// Why there is no conversion from one API to another.
fn why_not(recorded: Api, sent: Api) -> &'static str {
    match (recorded, sent) {
        (Api::Completions, _) => "a raw prompt does not tell who said what",
        (_, Api::Completions) => "what a chat template makes of it only the engine knows",
        _ => "there is no conversion",
    }
}

fn offers_none(sendable: &[Api]) -> String {
    let paths: Vec<&str> = sendable.iter().map(|api| api.path()).collect();
    let paths = match paths.as_slice() {
        [only] => format!("does not offer {only}"),
        paths => format!("offers neither {}", paths.join(" nor ")),
    };
    format!("the engine {paths}; is this an inference engine?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::convert::sendable_as;

    const HONOURED: Option<LengthForcing> = Some(LengthForcing::Honoured);
    const IGNORED: Option<LengthForcing> = Some(LengthForcing::Ignored);
    const UNKNOWN: Option<LengthForcing> = Some(LengthForcing::Unknown);

    fn offers(messages: Option<LengthForcing>, chat: Option<LengthForcing>) -> Offers {
        let offers = [(Api::Messages, messages), (Api::Chat, chat)];
        offers.into_iter().filter_map(|(api, forcing)| Some((api, forcing?))).collect()
    }

    #[track_caller]
    fn check(
        choice: ApiChoice,
        recorded: Api,
        (messages, chat): (Option<LengthForcing>, Option<LengthForcing>),
        expected: Result<(Api, &str), &str>,
    ) {
        let route = decide(choice, recorded, sendable_as(recorded), &offers(messages, chat));
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
    fn a_raw_prompt_goes_to_completions_or_nowhere() {
        use Api::Completions;
        check(ApiChoice::Auto, Completions, (HONOURED, HONOURED), Err("not offer /v1/completions"));
        check(ApiChoice::Chat, Completions, (HONOURED, HONOURED), Err("cannot be sent as chat"));
        let offers = Offers::from([(Completions, LengthForcing::Ignored)]);
        let route =
            decide(ApiChoice::Auto, Completions, sendable_as(Completions), &offers).unwrap();
        assert_eq!((route.sent, route.output_length), (Completions, LengthForcing::Ignored));
    }

    #[test]
    fn what_no_conversion_leads_to_is_refused_with_its_reason() {
        use Api::{Chat, Completions, Messages, Responses};
        let offers: Offers = [Messages, Chat, Completions, Responses]
            .map(|api| (api, LengthForcing::Honoured))
            .into();
        let decided = |choice, recorded| decide(choice, recorded, sendable_as(recorded), &offers);
        for (choice, recorded, reason) in [
            (
                ApiChoice::Completions,
                Messages,
                "what a chat template makes of it only the engine knows",
            ),
            (ApiChoice::Responses, Chat, "there is no conversion"),
            (ApiChoice::Responses, Completions, "a raw prompt does not tell who said what"),
        ] {
            let refused = decided(choice, recorded).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        for (choice, recorded) in
            [(ApiChoice::Completions, Completions), (ApiChoice::Responses, Responses)]
        {
            assert_eq!(decided(choice, recorded).unwrap().sent, recorded);
        }
    }

    #[test]
    fn what_changes_the_figures_is_noted() {
        let notes = |choice, content| {
            let sendable = sendable_as(Api::Messages);
            let offers = offers(HONOURED, IGNORED);
            decide(choice, Api::Messages, sendable, &offers).unwrap().notes(content)
        };
        assert_eq!(notes(ApiChoice::Auto, ContentMode::Recorded), Vec::<String>::new());
        // Prompts of our own were recorded in no API.
        assert_eq!(notes(ApiChoice::Chat, ContentMode::Synthetic).len(), 1);
        let converted = notes(ApiChoice::Chat, ContentMode::Live);
        assert!(converted[0].contains("converted and sent to chat"));
        assert!(converted[1].contains("on chat is ignored"));
    }
}
