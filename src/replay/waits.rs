//! How long agents wait before their turns: the recorded times, changed as asked for.
//!
//! Pure. A wait is a human's where the turn's new units hold a user message with text and none of them
//! brings a tool result that the turn before had not, or where a thread that no other thread started follows an earlier request.
//! Every other wait is tool time. Offsets of threads that start beside one another, which follow
//! nothing, are the recording's structure and stay as they are.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What becomes of the waits for tools.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ToolTime {
    /// As recorded.
    #[default]
    Recorded,
    /// No wait.
    None,
    /// The same wait before every turn.
    Fixed(Duration),
    /// The recorded wait times this.
    Scale(f64),
    /// The recorded wait, but no longer than this.
    Cap(Duration),
}

/// What becomes of the waits for a human.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HumanTime {
    /// No wait.
    #[default]
    None,
    /// As recorded.
    Recorded,
    /// The recorded wait, but no longer than this.
    Cap(Duration),
}

/// Whom a turn waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// Nothing: the start of a thread that follows no request.
    Nothing,
    /// Tools, or other threads.
    Tools,
    /// A human.
    Human,
}

impl ToolTime {
    fn apply(self, wait_ms: f64) -> f64 {
        match self {
            Self::Recorded => wait_ms,
            Self::None => 0.0,
            Self::Fixed(fixed) => milliseconds(fixed),
            Self::Scale(factor) => wait_ms * factor,
            Self::Cap(cap) => wait_ms.min(milliseconds(cap)),
        }
    }
}

impl HumanTime {
    fn apply(self, wait_ms: f64) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Recorded => wait_ms,
            Self::Cap(cap) => wait_ms.min(milliseconds(cap)),
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The waits of one kind in one pass over a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitTotal {
    /// Turns that wait so.
    pub n: u64,
    /// Recorded, summed.
    pub recorded_s: f64,
    /// As replayed, summed.
    pub replayed_s: f64,
}

impl WaitTotal {
    fn add(&mut self, recorded_ms: f64, replayed_ms: f64) {
        self.n += 1;
        self.recorded_s += recorded_ms / 1e3;
        self.replayed_s += replayed_ms / 1e3;
    }

    fn note(&self, who: &str, setting: &str) -> Option<String> {
        ((self.recorded_s - self.replayed_s).abs() > 1e-9).then(|| {
            format!(
                "waits for {who} are not as recorded ({setting}): {:.1} s in place of {:.1} s, {} \
                 waits in one pass over the recording",
                self.replayed_s, self.recorded_s, self.n
            )
        })
    }
}

/// The rules for both kinds of waits, and what they came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Waits {
    /// For tools.
    pub tool_time: ToolTime,
    /// For humans.
    pub human_time: HumanTime,
    /// What the rule for tools came to.
    pub tools: WaitTotal,
    /// What the rule for humans came to.
    pub humans: WaitTotal,
}

impl Waits {
    /// The wait to replay for a recorded one; counts it.
    pub fn replayed_ms(&mut self, waits_for: WaitFor, recorded_ms: f64) -> f64 {
        let (total, replayed_ms) = match waits_for {
            WaitFor::Nothing => return recorded_ms,
            WaitFor::Tools => (&mut self.tools, self.tool_time.apply(recorded_ms)),
            WaitFor::Human => (&mut self.humans, self.human_time.apply(recorded_ms)),
        };
        total.add(recorded_ms, replayed_ms);
        replayed_ms
    }

    /// What a reader of the figures must know.
    pub fn notes(&self) -> Vec<String> {
        let tools =
            self.tools.note("tools", &format!("tool time {}", String::from(self.tool_time)));
        let humans =
            self.humans.note("humans", &format!("human time {}", String::from(self.human_time)));
        tools.into_iter().chain(humans).collect()
    }
}

/// What a unit says of the wait before the turn that brings it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Brings {
    /// A user message with text.
    HumanText,
    /// A tool's result alone.
    ToolResult,
    /// A tool's result beside text.
    ResultAndText,
    /// Neither.
    #[default]
    Other,
}

/// The role that a unit's JSON names; empty where it names none, as system blocks and tools do, and
/// where it is no object. Only the role is read, so that most units cost no tree.
pub fn role_of(unit_json: &str) -> String {
    #[derive(Deserialize)]
    struct Role {
        #[serde(default)]
        role: String,
    }
    serde_json::from_str::<Role>(unit_json).map(|unit| unit.role).unwrap_or_default()
}

impl Brings {
    /// Of a unit with this role.
    pub fn of(role: &str, unit_json: &str) -> Self {
        match role {
            "tool" => Self::ToolResult,
            "user" => serde_json::from_str(unit_json).map_or(Self::Other, |unit| user(&unit)),
            _ => Self::Other,
        }
    }

    /// What the unit adds to the one that stood in its place in the prompt before. Claude Code's `/compact` puts its
    /// text beside results that the model has been given already: a human waited there, and no tool.
    #[must_use]
    pub fn beside(self, before: Option<Self>) -> Self {
        let had_results = matches!(before, Some(Self::ToolResult | Self::ResultAndText));
        match self {
            Self::ResultAndText if had_results => Self::HumanText,
            Self::ToolResult if had_results => Self::Other,
            _ => self,
        }
    }
}

fn user(unit: &Value) -> Brings {
    let Some(parts) = unit["content"].as_array() else { return Brings::HumanText };
    let has = |kind: &str| parts.iter().any(|part| part["type"] == kind);
    match (has("tool_result"), has("text")) {
        (true, true) => Brings::ResultAndText,
        (true, false) => Brings::ToolResult,
        (false, true) => Brings::HumanText,
        (false, false) => Brings::Other,
    }
}

/// Whom a turn waited for that brings these units beside those of the turn before.
pub fn waits_for(new_units: impl Iterator<Item = Brings>) -> WaitFor {
    let mut human = false;
    for brings in new_units {
        match brings {
            Brings::ToolResult | Brings::ResultAndText => return WaitFor::Tools,
            Brings::HumanText => human = true,
            Brings::Other => {}
        }
    }
    if human { WaitFor::Human } else { WaitFor::Tools }
}

impl FromStr for ToolTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "recorded" => Ok(Self::Recorded),
            None if text == "none" => Ok(Self::None),
            None => seconds(text).map(Self::Fixed),
            Some(("cap", cap)) => seconds(cap).map(Self::Cap),
            Some(("scale", factor)) => match factor.parse::<f64>() {
                Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(Self::Scale(factor)),
                _ => Err(format!("{factor:?} is no factor; give one such as scale:0.5")),
            },
            Some(_) => Err(format!("{text:?} is none of recorded, none, 500ms, scale:0.5, cap:5s")),
        }
    }
}

impl FromStr for HumanTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "recorded" => Ok(Self::Recorded),
            None if text == "none" => Ok(Self::None),
            Some(("cap", cap)) => seconds(cap).map(Self::Cap),
            _ => Err(format!("{text:?} is none of none, recorded, cap:30s")),
        }
    }
}

/// `500ms`, `5s`, `2m`, `1h`, or plain seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    units
        .iter()
        .find_map(|(unit, factor)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is no time; give one such as 500ms or 5s"))
}

impl From<ToolTime> for String {
    fn from(time: ToolTime) -> Self {
        match time {
            ToolTime::Recorded => "recorded".to_owned(),
            ToolTime::None => "none".to_owned(),
            ToolTime::Fixed(fixed) => format!("{}s", fixed.as_secs_f64()),
            ToolTime::Scale(factor) => format!("scale:{factor}"),
            ToolTime::Cap(cap) => format!("cap:{}s", cap.as_secs_f64()),
        }
    }
}

impl From<HumanTime> for String {
    fn from(time: HumanTime) -> Self {
        match time {
            HumanTime::None => "none".to_owned(),
            HumanTime::Recorded => "recorded".to_owned(),
            HumanTime::Cap(cap) => format!("cap:{}s", cap.as_secs_f64()),
        }
    }
}

impl TryFrom<String> for ToolTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for HumanTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    // Values are exact by construction.
    #![allow(clippy::float_cmp)]

    use super::*;

    #[track_caller]
    fn check(tool_time: &str, human_time: &str, expected_ms: [f64; 3], n_notes: usize) {
        let mut waits = Waits {
            tool_time: tool_time.parse().unwrap(),
            human_time: human_time.parse().unwrap(),
            ..Waits::default()
        };
        let kinds = [WaitFor::Tools, WaitFor::Human, WaitFor::Nothing];
        assert_eq!(kinds.map(|kind| waits.replayed_ms(kind, 4000.0)), expected_ms);
        assert_eq!(waits.notes().len(), n_notes);
        assert_eq!((waits.tools.n, waits.tools.recorded_s), (1, 4.0));
        assert_eq!(waits.tools.replayed_s, expected_ms[0] / 1e3);
        assert_eq!(String::from(waits.tool_time).parse(), Ok(waits.tool_time));
        assert_eq!(String::from(waits.human_time).parse(), Ok(waits.human_time));
    }

    #[test]
    fn each_kind_of_wait_has_its_rule() {
        check("recorded", "recorded", [4000.0, 4000.0, 4000.0], 0);
        check("recorded", "none", [4000.0, 0.0, 4000.0], 1);
        check("none", "cap:1500ms", [0.0, 1500.0, 4000.0], 2);
        check("250ms", "cap:1m", [250.0, 4000.0, 4000.0], 1);
        check("scale:0.5", "recorded", [2000.0, 4000.0, 4000.0], 1);
        check("cap:3s", "recorded", [3000.0, 4000.0, 4000.0], 1);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["", "scale:-1", "scale:x", "cap:", "cap:-2s", "often", "half:2", "-1s"] {
            assert!(text.parse::<ToolTime>().is_err(), "{text}");
            assert!(text.parse::<HumanTime>().is_err(), "{text}");
        }
        assert!("5s".parse::<HumanTime>().is_err());
    }

    #[track_caller]
    fn check_units(units: &[&str], expected: WaitFor) {
        assert_eq!(waits_for(units.iter().map(|unit| Brings::of(&role_of(unit), unit))), expected);
    }

    #[test]
    fn a_human_waited_where_there_is_text_and_no_tool_result() {
        let answer = r#"{"role":"assistant","content":"done"}"#;
        let text = r#"{"role":"user","content":"go on"}"#;
        check_units(&[answer, text], WaitFor::Human);
        check_units(&[r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#], WaitFor::Human);
        let result = r#"{"role":"user","content":[{"type":"tool_result","content":"x"},
            {"type":"text","text":"reminder"}]}"#;
        check_units(&[answer, result], WaitFor::Tools);
        check_units(&[r#"{"role":"tool","content":"x"}"#, text], WaitFor::Tools);
        check_units(&[answer], WaitFor::Tools);
        check_units(&["no JSON"], WaitFor::Tools);
    }

    #[test]
    fn results_that_the_model_had_been_given_are_not_brought_again() {
        let result = r#"{"type":"tool_result","content":"x"}"#;
        let text = r#"{"type":"text","text":"summarize"}"#;
        let message = |parts: &str| format!(r#"{{"role":"user","content":[{parts}]}}"#);
        let brings = |parts: &str| Brings::of("user", &message(parts));
        let (alone, both) = (brings(result), brings(&format!("{result},{text}")));
        assert_eq!((alone, both), (Brings::ToolResult, Brings::ResultAndText));
        for (now, before, expected) in [
            (both, Some(alone), Brings::HumanText),
            (both, Some(both), Brings::HumanText),
            (alone, Some(both), Brings::Other),
            (both, Some(Brings::HumanText), both),
            (both, None, both),
            (alone, None, alone),
            (brings(text), Some(alone), Brings::HumanText),
        ] {
            assert_eq!(now.beside(before), expected, "{now:?} beside {before:?}");
        }
    }
}
