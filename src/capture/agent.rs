//! What an agent's headers tell about itself: its name, session, subagent, and its tools' own times.

use std::collections::VecDeque;

use http::{HeaderMap, header};

/// Headers by which agents name their session, the more specific first.
const SESSION_HEADERS: [&str; 5] =
    ["x-claude-code-session-id", "x-session-id", "session-id", "session_id", "x-opencode-session"];
/// A longer name is not a name.
const MAX_NAME_CHARS: usize = 200;

/// What the headers of one request tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AgentHints {
    /// The agent, by its `User-Agent`.
    pub(super) agent: Option<String>,
    pub(super) session: Option<String>,
    /// Claude Code's or Codex' name for a subagent; `OpenCode`'s is the session that it gives each of them.
    pub(super) agent_id: Option<String>,
    /// The agent, or the session, that started this subagent.
    pub(super) parent: Option<String>,
    pub(super) says_subagent: bool,
    pub(super) says_auxiliary: bool,
    durations: Option<String>,
}

impl AgentHints {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let class = named(headers, "x-claude-code-request-class");
        let class = class.as_deref().unwrap_or_default();
        let own_session = SESSION_HEADERS.iter().find_map(|name| named(headers, name));
        // `OpenCode` gives a subagent a session of its own and names the one that it belongs to.
        let parent_session =
            named(headers, "x-parent-session-id").filter(|_| own_session.is_some());
        let child_session = own_session.clone().filter(|_| parent_session.is_some());
        // Codex names session and thread; the main thread has the session's own name.
        let codex_thread = named(headers, "thread-id")
            .filter(|thread| named(headers, "session-id").is_some_and(|it| it != *thread));
        Self {
            agent: headers
                .get(header::USER_AGENT)
                .and_then(|value| value.to_str().ok())
                .and_then(agent_name),
            session: parent_session.clone().or(own_session),
            agent_id: named(headers, "x-claude-code-agent-id").or(codex_thread).or(child_session),
            parent: named(headers, "x-claude-code-parent-agent-id").or(parent_session),
            says_subagent: ["subagent", "workflow"].contains(&class),
            says_auxiliary: ["auxiliary", "side_reply"].contains(&class),
            durations: named(headers, "x-claude-code-prev-tool-durations"),
        }
    }

    /// Tools and their own times in milliseconds, in the order of their calls: `Bash=510;Read=21`.
    pub(super) fn tool_durations(&self) -> VecDeque<(String, f64)> {
        let pair = |text: &str| {
            let (name, ms) = text.trim().rsplit_once('=')?;
            Some((name.to_owned(), ms.parse().ok().filter(|ms: &f64| ms.is_finite())?))
        };
        self.durations.iter().flat_map(|text| text.split(';')).filter_map(pair).collect()
    }
}

fn named(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty() && value.len() <= MAX_NAME_CHARS).then(|| value.to_owned())
}

/// The agent's name in this project; what is not known is called by its own product name.
fn agent_name(user_agent: &str) -> Option<String> {
    let lower = user_agent.to_ascii_lowercase();
    for (part, name) in [
        ("claude-cli", "claude-code"),
        ("claude-code", "claude-code"),
        ("codex", "codex"),
        ("opencode", "opencode"),
        ("mini-swe-agent", "mini-swe-agent"),
        ("litellm", "litellm"),
    ] {
        if lower.contains(part) {
            return Some(name.to_owned());
        }
    }
    let product = lower.split(['/', ' ']).next().unwrap_or_default();
    (!product.is_empty()).then(|| product.chars().take(MAX_NAME_CHARS).collect())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn hints(pairs: &[(&str, &str)]) -> AgentHints {
        let headers = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        });
        AgentHints::of(&headers.collect())
    }

    #[test]
    fn agents_are_known_by_their_user_agent() {
        for (user_agent, name) in [
            ("claude-cli/2.1.332 (external, sdk-cli)", Some("claude-code")),
            ("codex_exec/0.171.0 (Debian 12; x86_64)", Some("codex")),
            ("opencode/1.18.33 ai-sdk/provider-utils/4", Some("opencode")),
            ("ai-sdk/openai-compatible/1.0 opencode/1", Some("opencode")),
            ("litellm/1.80.0", Some("litellm")),
            ("OpenAI/Python 2.8.0", Some("openai")),
            ("curl/8", Some("curl")),
            ("", None),
        ] {
            assert_eq!(hints(&[("user-agent", user_agent)]).agent.as_deref(), name);
        }
        assert_eq!(hints(&[]), AgentHints::default());
    }

    #[test]
    fn names_and_classes_are_read() {
        let found = hints(&[
            ("session-id", "other"),
            ("x-claude-code-session-id", "abc"),
            ("x-claude-code-agent-id", "a1"),
            ("x-claude-code-request-class", "auxiliary"),
        ]);
        assert_eq!(found.session.as_deref(), Some("abc"));
        assert_eq!(found.agent_id.as_deref(), Some("a1"));
        assert!(found.says_auxiliary && !found.says_subagent);
        for (thread, agent) in [("other", None), ("t2", Some("t2"))] {
            let found = hints(&[("session-id", "other"), ("thread-id", thread)]);
            assert_eq!(
                (found.session.as_deref(), found.agent_id.as_deref()),
                (Some("other"), agent)
            );
        }
        assert_eq!(hints(&[("thread-id", "t2")]).agent_id, None);
        let long = "x".repeat(201);
        assert_eq!(hints(&[("x-session-id", &long), ("session-id", " ")]).session, None);
    }

    #[test]
    fn a_subagent_names_who_started_it() {
        let nested = hints(&[
            ("x-claude-code-session-id", "abc"),
            ("x-claude-code-agent-id", "a2"),
            ("x-claude-code-parent-agent-id", "a1"),
            ("x-claude-code-request-class", "workflow"),
        ]);
        assert_eq!(
            (nested.session.as_deref(), nested.parent.as_deref()),
            (Some("abc"), Some("a1"))
        );
        assert!(nested.says_subagent);
        let child = hints(&[("x-session-id", "child"), ("x-parent-session-id", "root")]);
        assert_eq!(child.session.as_deref(), Some("root"));
        assert_eq!(child.agent_id.as_deref(), Some("child"));
        assert_eq!(child.parent.as_deref(), Some("root"));
        assert_eq!(hints(&[("x-parent-session-id", "root")]), AgentHints::default());
    }

    #[test]
    fn durations_are_read_in_order() {
        let found =
            hints(&[("x-claude-code-prev-tool-durations", "Bash=510; mcp=x=2.5;odd;Bash=n")]);
        let durations = VecDeque::from([("Bash".to_owned(), 510.0), ("mcp=x".to_owned(), 2.5)]);
        assert_eq!(found.tool_durations(), durations);
        assert!(hints(&[]).tool_durations().is_empty());
    }
}
