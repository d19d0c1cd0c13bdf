//! Scripted replies: tool calls one after another, so that a real agent runs a loop.
//!
//! A script is a JSON list of steps. A step calls a tool, with words before it if it likes, or says a
//! text and so ends the loop:
//!
//! ```json
//! [
//!   {"tool": "Bash", "arguments": {"command": "ls -la", "description": "List files"}},
//!   {"text": "I will read it.", "tool": "Bash", "arguments": {"command": "cat app.py"}},
//!   {"text": "All done."}
//! ]
//! ```
//!
//! Which step is due follows from the request alone: the number of assistant turns since the last
//! human message. So nothing is remembered between requests, and any number of agents may run through
//! the script at once.

use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};

/// A list of steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    text: Option<String>,
    tool: Option<String>,
    arguments: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scripted {
    /// Text, before the call if there is one.
    pub text: String,
    /// The tool to call and its arguments as JSON text.
    pub call: Option<(String, String)>,
}

impl Script {
    /// Reads a script file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
        Self::parse(&text).map_err(|message| {
            Error::config(format!("{}: not a script: {message}", path.display()))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let steps: Vec<Step> = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if steps.is_empty() {
            return Err("it has no step; give at least one".into());
        }
        for (index, step) in steps.iter().enumerate() {
            if step.tool.is_none() && (step.text.is_none() || step.arguments.is_some()) {
                return Err(format!(
                    "step {} needs \"tool\" (with \"arguments\") or \"text\"",
                    index + 1
                ));
            }
        }
        Ok(Self { steps })
    }

    /// The answer to a request that stands at `position` in the loop and offers `tools`. After the
    /// last step the loop is over, whatever the last step was.
    pub fn answer(&self, position: usize, tools: &[&str]) -> Scripted {
        let say = |text: String| Scripted { text, call: None };
        let Some(step) = self.steps.get(position) else {
            return say("The script has no further step.".into());
        };
        let text = step.text.clone().unwrap_or_default();
        let Some(tool) = &step.tool else { return say(text) };
        if !tools.contains(&tool.as_str()) {
            return say(format!("The script asks for the tool {tool}, which is not offered."));
        }
        let arguments = step.arguments.clone().unwrap_or_default();
        let arguments = serde_json::Value::Object(arguments).to_string();
        Scripted { text, call: Some((tool.clone(), arguments)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_chooses_the_step() {
        let script = Script::parse(
            r#"[{"tool": "Bash", "arguments": {"command": "ls", "a": 1}},
                {"text": "Then.", "tool": "Read"}, {"text": "Done."}]"#,
        )
        .unwrap();
        let check = |position, tools: &[&str], text: &str, call: Option<(&str, &str)>| {
            let call = call.map(|(tool, arguments)| (tool.to_owned(), arguments.to_owned()));
            let answer = Scripted { text: text.into(), call };
            assert_eq!(script.answer(position, tools), answer, "{position} {tools:?}");
        };
        check(0, &["Bash"], "", Some(("Bash", r#"{"command":"ls","a":1}"#)));
        check(1, &["Bash", "Read"], "Then.", Some(("Read", "{}")));
        check(1, &["Bash"], "The script asks for the tool Read, which is not offered.", None);
        check(0, &[], "The script asks for the tool Bash, which is not offered.", None);
        check(2, &["Bash"], "Done.", None);
        check(9, &["Bash"], "The script has no further step.", None);
    }

    #[test]
    fn a_bad_script_is_refused_with_the_reason() {
        let check = |text: &str, message: &str| {
            let error = Script::parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        };
        check("[]", "it has no step");
        check("{", "expected a sequence");
        check(r#"[{"text": "a"}, {}]"#, "step 2 needs");
        check(r#"[{"text": "a", "arguments": {}}]"#, "step 1 needs");
        check(r#"[{"tool": "a", "argument": {}}]"#, "unknown field `argument`");
        let error = Script::load(Path::new("/no/such/script.json")).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/script.json: "), "{error}");
    }
}
