//! What synthetic content is made of: asked of the engine, or of a `tokenizer.json`, before a run.
//!
//! Token ids where the engine takes them. Else text: words are found by texts that are tokenized, some
//! twenty in all, and what the engine counts around a text (a chat template, a mark of begin) is told by the
//! usage of two small requests in the API that is used. Where these differ by other than their words, the
//! words are not tokens of this model, and nothing is sent. What is asked for of the words is `words`'
//! affair.

use std::collections::BTreeSet;
use std::path::Path;

use super::content::{TextVocabulary, Vocabulary, text_body};
use super::routes::{Route, choose_routes};
use super::settings::{ApiChoice, SyntheticText};
use super::start::ReplayConfig;
use super::tokens::{IdRange, seed_of};
use super::words::{FEWEST_WORDS, Words, chunks, families, question, single_tokens};
use crate::api::{Api, ContentHash};
use crate::engine::control::{Answer, Control, TokenizeInput};
use crate::error::{Error, Result};

/// Where text of our own can be sent, by how close it stays to the tokens planned.
const TEXT_APIS: [Api; 4] = [Api::Completions, Api::Chat, Api::Responses, Api::Messages];

/// Words that may be left out because they become one token with another one.
const JOINED_AT_MOST: usize = 8;

/// Words of the two requests that tell what the engine counts around a text.
const TRIED_WORDS: [u64; 2] = [16, 144];

/// Who tells the tokens of a text.
enum Counter<'a> {
    File { tokenizer: Box<tokenizers::Tokenizer>, name: String },
    Engine { control: &'a Control, model: &'a str },
}

/// Where prompts of our own go and what they are made of.
pub(super) async fn synthetic_routes(
    control: &Control,
    model: &str,
    config: &ReplayConfig,
) -> Result<(Vec<Route>, Vocabulary)> {
    let planned = BTreeSet::from([Api::Completions]);
    let ids_may_go =
        matches!(config.api, ApiChoice::Auto | ApiChoice::Recorded | ApiChoice::Completions);
    if ids_may_go && config.tokenizer.is_none() && control.takes_token_ids(model).await? {
        let range = id_range(control, model).await?;
        let to_completions = |_| &TEXT_APIS[..1];
        let routes = choose_routes(control, model, config.api, &planned, to_completions).await?;
        return Ok((routes, Vocabulary::Ids(range)));
    }
    let counter = match &config.tokenizer {
        Some(path) => Counter::load(path).await?,
        None => Counter::Engine { control, model },
    };
    let words = counter.words(ids_may_go).await?;
    let routes = choose_routes(control, model, config.api, &planned, |_| &TEXT_APIS[..]).await?;
    let sent = routes.first().map_or(Api::Completions, |route| route.sent);
    let tokens_around = tokens_around(control, model, sent, &words, &counter).await?;
    let told = SyntheticText { told_by: counter.name(), words: words.len() as u64, tokens_around };
    Ok((routes, Vocabulary::Words(TextVocabulary { words, told })))
}

/// The widest range of token ids that the engine takes.
async fn id_range(control: &Control, model: &str) -> Result<IdRange> {
    for range in IdRange::ENDS.map(IdRange::below) {
        if control.takes_prompt(model, &[range.last()]).await? {
            return Ok(range);
        }
    }
    Err(Error::config(format!(
        "content synthetic: the engine at {} takes token ids at {}, but none up to {}; give the \
         model's tokenizer.json (tokenizer), so that text is sent",
        control.url(),
        Api::Completions.path(),
        IdRange::below(IdRange::ENDS[IdRange::ENDS.len() - 1]).last(),
    )))
}

impl Counter<'static> {
    async fn load(path: &Path) -> Result<Self> {
        let path = path.to_owned();
        let work = tokio::task::spawn_blocking(move || Self::read(&path));
        work.await.map_err(|error| Error::Internal(error.to_string()))?
    }

    fn read(path: &Path) -> Result<Self> {
        let unusable = |why: String| {
            let why = why.replace('\n', " ");
            Error::config(format!(
                "tokenizer {}: {why}; give the tokenizer.json of the model that the engine serves",
                path.display()
            ))
        };
        let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(&bytes)
            .map_err(|error| unusable(format!("not a usable tokenizer.json: {error}")))?;
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let hash = ContentHash::of(&bytes).hex();
        let name = format!("{} (content {})", file.unwrap_or_default(), &hash[..12]);
        Ok(Self::File { tokenizer: Box::new(tokenizer), name })
    }
}

impl Counter<'_> {
    fn name(&self) -> String {
        match self {
            Self::File { name, .. } => name.clone(),
            Self::Engine { .. } => "the engine's /tokenize".to_owned(),
        }
    }

    /// The token ids of a text; the reason, where the engine does not tell them.
    async fn ids(&self, text: &str) -> Result<std::result::Result<Vec<u32>, String>> {
        match self {
            Self::File { tokenizer, name } => match tokenizer.encode_fast(text, false) {
                Ok(encoding) => Ok(Ok(encoding.get_ids().to_vec())),
                Err(error) => Err(Error::config(format!("tokenizer {name}: {error}"))),
            },
            Self::Engine { control, model } => {
                Ok(match control.tokenize(model, TokenizeInput::Text(text)).await? {
                    Answer::Given(tokens) => Ok(tokens.ids),
                    Answer::Refused(refusal) => {
                        Err(format!("answers {} to /tokenize", refusal.status))
                    }
                })
            }
        }
    }

    /// Words that are a token each. `took_no_ids` tells why text is needed at all.
    async fn words(&self, took_no_ids: bool) -> Result<Words> {
        let mut most = 0;
        for family in families() {
            let mut words = Words::default();
            for candidates in chunks(&family) {
                let ids = self.ids(&question(candidates)).await?;
                let ids = ids.map_err(|why| self.no_tokens(&why, took_no_ids))?;
                words.extend(single_tokens(candidates, &ids));
            }
            most = most.max(words.len());
            if let Some(words) = self.without_joined(words).await? {
                return Ok(words);
            }
        }
        Err(Error::config(format!(
            "content synthetic: by {} only {most} of our words are a token each, in whatever order, and \
             {FEWEST_WORDS} are needed; choose recorded content, or an engine that takes token ids at {}",
            self.name(),
            Api::Completions.path()
        )))
    }

    /// The words less those that become one token with a neighbour; none where too few are left.
    async fn without_joined(&self, mut words: Words) -> Result<Option<Words>> {
        for _ in 0..=JOINED_AT_MOST {
            if words.len() < FEWEST_WORDS {
                return Ok(None);
            }
            match self.first_joined(&words).await? {
                None => return Ok(Some(words)),
                Some(word) => words.remove(word),
            }
        }
        Ok(None)
    }

    async fn first_joined(&self, words: &Words) -> Result<Option<usize>> {
        for row in words.pairs() {
            let ids = self.ids(&words.row_text(&row)).await?.unwrap_or_default();
            if let Some(word) = words.first_joined(&row, &ids) {
                return Ok(Some(word));
            }
        }
        Ok(None)
    }

    fn no_tokens(&self, why: &str, took_no_ids: bool) -> Error {
        let Self::Engine { control, .. } = self else { return Error::config(why.to_owned()) };
        let ids = if took_no_ids {
            format!("takes no token ids at {} and ", Api::Completions.path())
        } else {
            String::new()
        };
        Error::config(format!(
            "content synthetic: the engine at {} {ids}{why}, so text cannot be counted; give the \
             model's tokenizer.json (tokenizer)",
            control.url()
        ))
    }
}

/// Tokens that the engine counts around a text, whatever its length.
async fn tokens_around(
    control: &Control,
    model: &str,
    api: Api,
    words: &Words,
    counter: &Counter<'_>,
) -> Result<u64> {
    let mut around = Vec::new();
    for n in TRIED_WORDS {
        let text = words.text(std::iter::once((seed_of(&format!("trial of {n}")), n)), n);
        let mut body = text_body(api, &text);
        body["model"] = model.into();
        let prompt_tokens = match control.prompt_tokens(api, body).await? {
            Answer::Given(Some(tokens)) => tokens,
            Answer::Given(None) => {
                return Err(Error::upstream(
                    control.url(),
                    format!(
                        "content synthetic: answers at {} tell no prompt tokens, so text of our own \
                         cannot be made to measure; choose another API",
                        api.path()
                    ),
                ));
            }
            Answer::Refused(refusal) => {
                return Err(Error::upstream(
                    control.url(),
                    format!(
                        "content synthetic: a text of {n} words is refused at {} ({}: {})",
                        api.path(),
                        refusal.status,
                        refusal.message
                    ),
                ));
            }
        };
        around.push(prompt_tokens.checked_sub(n));
    }
    match around.as_slice() {
        [Some(few), Some(many)] if few == many => Ok(*few),
        _ => Err(Error::config(format!(
            "content synthetic: the engine at {} counts a text's words otherwise than {}; give the \
             tokenizer.json of the model that the engine serves",
            control.url(),
            counter.name()
        ))),
    }
}
