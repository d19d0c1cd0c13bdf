//! What is looked for, as a table of shapes, and one search for all of them. Pure.
//!
//! Shapes are those that providers document for their keys, so that text that only looks alike stays. Texts may
//! hold JSON or source code, in which a line break before a word is written as a backslash and an `n`: such a
//! letter is no part of the word.

use std::borrow::Cow;
use std::ops::Range;

use regex::Regex;

use super::{Kind, Names};

/// What must hold of a match beside its pattern.
type Check = fn(&str) -> bool;

/// One thing to look for. Its pattern has a group `(?<NAME>…)` where only a part of the match is masked.
struct Detector {
    name: &'static str,
    kind: Kind,
    pattern: &'static str,
    /// The match must not continue a word, nor go on in one.
    is_word: bool,
    check: Check,
}

fn any(_: &str) -> bool {
    true
}

/// Real keys hold digits; words joined by hyphens mostly do not.
fn has_digit(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_digit())
}

const fn key(name: &'static str, pattern: &'static str) -> Detector {
    Detector { name, kind: Kind::Key, pattern, is_word: true, check: any }
}

/// In the order in which one is preferred to another that begins at the same place.
const DETECTORS: &[Detector] = &[
    Detector {
        name: "pem",
        kind: Kind::Key,
        pattern: r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s\\:,.-]*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|(?:(?:\s|\\+[nr])*[A-Za-z0-9+/=]{16,})*)",
        is_word: false,
        check: any,
    },
    // Name and password before the host of a URL.
    Detector {
        name: "url",
        kind: Kind::Key,
        pattern: r#"[a-z][a-z0-9+.-]*://(?<url>[^\s/:@"'\\<>{}$]+:[^\s/@"'\\<>{}$]+)@"#,
        is_word: false,
        check: any,
    },
    Detector {
        name: "authorization",
        kind: Kind::Key,
        pattern: r#"(?i:bearer|authorization["']?\s*[:=]\s*["']?(?:basic|token|bearer))\s+(?<authorization>[A-Za-z0-9._~+/-]{16,}=*)"#,
        is_word: false,
        check: has_digit,
    },
    Detector {
        name: "aws_secret",
        kind: Kind::Key,
        pattern: r#"(?i:aws_?secret_?access_?key)\\*["']?\s*[:=]\s*\\*["']?(?<aws_secret>[A-Za-z0-9/+]{40})"#,
        is_word: false,
        check: any,
    },
    // Ids in the metadata of Claude Code's requests.
    Detector {
        name: "account_field",
        kind: Kind::Account,
        pattern: r#"(?:device_id|account_uuid|account_id|organization_uuid|organization_id)\\*"\s*:\s*\\*"(?<account_field>[0-9A-Fa-f-]{32,})"#,
        is_word: false,
        check: any,
    },
    Detector {
        name: "account_user",
        kind: Kind::Account,
        pattern: r"user_(?<account_user>[0-9a-f]{64})",
        is_word: false,
        check: any,
    },
    Detector {
        name: "account",
        kind: Kind::Account,
        pattern: r"account_(?<account>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
        is_word: false,
        check: any,
    },
    key("anthropic", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    key("openai", r"sk-(?:proj|svcacct|admin|None|or-v1|lf)-[A-Za-z0-9_-]{20,}"),
    Detector { check: has_digit, ..key("openai_old", r"sk-[A-Za-z0-9]{20,}") },
    key("github", r"gh[pousr]_[A-Za-z0-9]{36,}"),
    key("github_pat", r"github_pat_[A-Za-z0-9_]{22,}"),
    key("gitlab", r"gl(?:pat|dt|ptt|rt)-[A-Za-z0-9_-]{20,}"),
    key("aws", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    key("google", r"AIza[A-Za-z0-9_-]{35}"),
    Detector { check: has_digit, ..key("google_oauth", r"ya29\.[A-Za-z0-9_-]{20,}") },
    key("hugging_face", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    key("slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    key("slack_app", r"xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    key("stripe", r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}"),
    key("npm", r"npm_[A-Za-z0-9]{36}"),
    key("pypi", r"pypi-[A-Za-z0-9_-]{80,}"),
    key("sendgrid", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    key("groq", r"gsk_[A-Za-z0-9]{40,}"),
    key("nvidia", r"nvapi-[A-Za-z0-9_-]{40,}"),
    key("xai", r"xai-[A-Za-z0-9]{60,}"),
    key("perplexity", r"pplx-[A-Za-z0-9]{40,}"),
    key("jwt", r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    Detector {
        name: "email",
        kind: Kind::Email,
        pattern: r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}",
        is_word: true,
        check: is_email,
    },
    Detector {
        name: "home",
        kind: Kind::User,
        pattern: r#"(?:(?:[A-Za-z]:)?[/\\]+Users[/\\]+|/+home[/]+)(?<home>(?:[^\s/\\"'`:;,<>|*?$%(){}\[\]&#!]|\\+u[0-9A-Fa-f]{4})+)"#,
        is_word: false,
        check: is_home,
    },
];

/// Top-level domains that text about code is taken to mean; two letters are a country's.
const DOMAINS: [&str; 34] = [
    "com",
    "org",
    "net",
    "edu",
    "gov",
    "mil",
    "int",
    "info",
    "biz",
    "name",
    "pro",
    "app",
    "dev",
    "cloud",
    "tech",
    "xyz",
    "online",
    "site",
    "email",
    "agency",
    "company",
    "systems",
    "solutions",
    "software",
    "engineering",
    "local",
    "internal",
    "lan",
    "corp",
    "example",
    "test",
    "invalid",
    "academy",
    "network",
];

fn is_email(text: &str) -> bool {
    let Some((user, host)) = text.rsplit_once('@') else { return false };
    // A public service's own user, as in git@github.com:owner/repository.
    let domain = host.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    user != "git" && (domain.len() == 2 || DOMAINS.contains(&domain.as_str()))
}

fn is_home(name: &str) -> bool {
    !matches!(name, "Shared" | "Public" | "Default" | "." | "..") && !name.starts_with("redacted-")
}

/// All that is looked for, as one pattern.
#[derive(Debug)]
pub(super) struct Detectors {
    all: Regex,
    /// Names as they stand, and what they are.
    names: Vec<(String, Kind)>,
}

impl Detectors {
    pub(super) fn new(names: &Names) -> Self {
        let of_kind = |words: &[String], kind| -> Vec<(String, Kind)> {
            words.iter().map(|word| (word.clone(), kind)).collect()
        };
        let mut names =
            [of_kind(&names.users, Kind::User), of_kind(&names.hosts, Kind::Host)].concat();
        // Of a name that begins with another one the longer is meant.
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut parts: Vec<String> =
            DETECTORS.iter().map(|of| format!("(?<{}_>{})", of.name, of.pattern)).collect();
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|(name, _)| regex::escape(name)).collect();
            parts.push(format!("(?<names_>{})", names.join("|")));
        }
        let all = Regex::new(&parts.join("|"));
        // A test compiles the table; escaped names are patterns of themselves.
        let all = all.unwrap_or_else(|error| unreachable!("{error}"));
        Self { all, names }
    }

    /// What is found, in order and without overlaps.
    pub(super) fn find(&self, text: &str) -> Vec<(Kind, Range<usize>)> {
        let mut found: Vec<(Kind, Range<usize>)> = Vec::new();
        let mut position = 0;
        while let Some(whole) = self.all.find_at(text, position) {
            let hit = self.judge(text, whole.start());
            // What a match that does not hold covers may hold something else: a name in a path that is no home.
            let first = text[whole.start()..].chars().next().map_or(1, char::len_utf8);
            position = hit.as_ref().map_or(whole.start() + first, |(_, span)| span.end);
            found.extend(hit);
        }
        found
    }

    /// What begins at a place where the pattern matches, if it holds.
    fn judge(&self, text: &str, at: usize) -> Option<(Kind, Range<usize>)> {
        let groups = self.all.captures_at(text, at)?;
        let Some(detector) =
            DETECTORS.iter().find(|of| groups.name(&format!("{}_", of.name)).is_some())
        else {
            let name = groups.name("names_")?;
            let (_, kind) = self.names.iter().find(|(known, _)| known == name.as_str())?;
            return is_own_word(text, &name.range()).then(|| (*kind, name.range()));
        };
        let part = if detector.pattern.contains(&format!("(?<{}>", detector.name)) {
            groups.name(detector.name)
        } else {
            groups.get(0)
        };
        let mut span = part?.range();
        if detector.is_word {
            span.start = after_escape(text, span.start);
        }
        // The end of a sentence is no part of what stands there.
        let trimmed = match detector.kind {
            Kind::Key => &text[span.clone()],
            _ => text[span.clone()].trim_end_matches(['.', '-']),
        };
        span.end = span.start + trimmed.len();
        let holds = !trimmed.is_empty()
            && (detector.check)(trimmed)
            && (!detector.is_word || is_own_word(text, &span));
        let whole = groups.get(0)?.start();
        let is_path = detector.name != "home" || begins_path(text, whole);
        (holds && is_path).then_some((detector.kind, span))
    }
}

/// Where the word begins in whose place a match was found: behind the letter of an escape.
fn after_escape(text: &str, start: usize) -> usize {
    if !text[..start].ends_with('\\') {
        return start;
    }
    let rest = &text.as_bytes()[start..];
    match rest.first() {
        Some(b'n' | b't' | b'r' | b'b' | b'f') => start + 1,
        Some(b'u') if rest.len() > 5 && rest[1..5].iter().all(u8::is_ascii_hexdigit) => start + 5,
        _ => start,
    }
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Whether the character before a place is one of a word: not where it is the letter of an escape.
fn follows_word(text: &str, start: usize) -> bool {
    let before = &text[..start];
    let mut characters = before.chars().rev();
    let Some(last) = characters.next() else { return false };
    if !is_word_character(last) {
        return false;
    }
    let is_letter = matches!(last, 'n' | 't' | 'r' | 'b' | 'f') && characters.next() == Some('\\');
    let is_unicode = before.len() >= 6
        && before.is_char_boundary(before.len() - 6)
        && after_escape(text, before.len() - 5) == start;
    !(is_letter || is_unicode)
}

fn is_own_word(text: &str, span: &Range<usize>) -> bool {
    let goes_on = text[span.end..].chars().next().is_some_and(is_word_character);
    !goes_on && !follows_word(text, span.start)
}

/// A home path begins a path: `/srv/home/x` and `example.com/home/x` are none.
fn begins_path(text: &str, start: usize) -> bool {
    let last = text[..start].chars().next_back();
    !last.is_some_and(|last| matches!(last, '.' | '-' | '~' | '}' | ')') || is_word_character(last))
        || !follows_word(text, start) && last.is_some_and(is_word_character)
}

/// A name with its escapes by code point read.
pub(super) fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        read.push_str(&rest[..at]);
        let escaped = rest[at..].trim_start_matches('\\');
        let digits = escaped.strip_prefix('u').and_then(|digits| digits.get(..4));
        let character =
            digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).and_then(char::from_u32);
        if let Some(character) = character {
            read.push(character);
            rest = &escaped[5..];
        } else {
            read.push('\\');
            rest = &rest[at + 1..];
        }
    }
    read.push_str(rest);
    Cow::Owned(read)
}
