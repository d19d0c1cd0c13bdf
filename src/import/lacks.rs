//! What an import lacks, for which analysis or replay: said in sentences, from counts.
//!
//! Pure.

use super::rows::Seen;

/// A sentence for each thing that no row, or not every row, has.
pub(super) fn lacks(seen: &Seen) -> Vec<String> {
    let turns = seen.turns;
    let mut found = Vec::new();
    let mut say = |have: u64, of: u64, what: &str, of_what: &str, consequence: &str| {
        if of > 0 && have < of {
            let share = match have {
                0 => "no".to_owned(),
                _ => format!("{} of {}", grouped(of - have), grouped(of)),
            };
            let without = if have == 0 { "has" } else { "lack" };
            found.push(match have {
                0 => format!("{share} {of_what} {without} {what}: {consequence}"),
                _ => format!("{share} {of_what}s {without} {what}: {consequence}"),
            });
        }
    };
    let bodies = seen.with_text + seen.with_blocks;
    say(seen.with_text, turns, "text", "turn", "replay needs --content synthetic there");
    say(
        bodies,
        turns,
        "text or block hashes",
        "turn",
        "what prompts share is known by counts alone, and not across sessions",
    );
    say(
        seen.with_times,
        turns,
        "a time",
        "turn",
        "no latency, wait or throughput, no --arrivals recorded",
    );
    say(
        seen.with_first_output,
        turns,
        "the time of its first token",
        "turn",
        "no TTFT and no decode speed",
    );
    say(seen.with_isl, turns, "prompt tokens", "turn", "no ISL");
    say(seen.with_cached, turns, "cached tokens", "turn", "no hit rate and no ISL_new from usage");
    say(
        seen.with_osl,
        turns,
        "output tokens",
        "turn",
        "no OSL; a replay cannot pin output lengths there",
    );
    say(
        seen.with_waits,
        seen.later_turns,
        "the wait before it",
        "later turn",
        "a replay goes on without a tool wait there",
    );
    say(
        seen.calls_with_times,
        seen.calls,
        "call and result times",
        "tool call",
        "no latency by the wire",
    );
    say(
        seen.calls_with_own_time,
        seen.calls,
        "the tool's own time",
        "tool call",
        "own_ms is null there",
    );
    if seen.calls == 0 && turns > 0 {
        found.push("no tool call is told: questions about tools have no answer".to_owned());
    }
    if seen.with_parent == 0 && turns > 0 {
        found.push(
            "no turn has a parent thread: there were no subagents, or their links are not told"
                .to_owned(),
        );
    }
    if seen.times_went_back > 0 {
        found.push(format!(
            "{} turns begin before the turn before them ended: their wait is null",
            grouped(seen.times_went_back)
        ));
    }
    if seen.named_again > 0 {
        found.push(format!(
            "{} turns have the id of another turn: theirs end in ~2, ~3 and so on",
            grouped(seen.named_again)
        ));
    }
    found
}

/// A number as people read it: a comma after every three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_told_and_what_is_missing_is() {
        let whole = Seen {
            turns: 4,
            calls: 2,
            with_text: 4,
            with_times: 4,
            with_first_output: 4,
            with_isl: 4,
            with_cached: 4,
            with_osl: 4,
            with_waits: 3,
            later_turns: 3,
            with_parent: 1,
            calls_with_times: 2,
            calls_with_own_time: 2,
            ..Seen::default()
        };
        assert_eq!(lacks(&whole), Vec::<String>::new());
        for (n, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        let partly = Seen { with_cached: 1, with_first_output: 0, ..whole };
        assert_eq!(
            lacks(&partly),
            [
                "no turn has the time of its first token: no TTFT and no decode speed",
                "3 of 4 turns lack cached tokens: no hit rate and no ISL_new from usage",
            ]
        );
    }
}
