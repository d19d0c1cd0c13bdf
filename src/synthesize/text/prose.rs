//! What users ask, what models say, what system prompts and tool definitions demand.

use crate::synthesize::text::Author;

impl Author {
    /// What a model says about its work.
    pub(crate) fn prose(&mut self, tokens: u32) -> String {
        self.lines(tokens, |author| {
            let sentences = 1 + author.number(3);
            (0..sentences).map(|_| author.sentence()).collect::<Vec<_>>().join(" ")
        })
    }

    fn sentence(&mut self) -> String {
        let (noun, other) = (self.noun(), self.noun());
        let (function, caller) = (self.function(), self.function());
        let path = self.path();
        let number = self.number(240) + 2;
        match self.number(12) {
            0 => format!("The {noun} is read in {function}, so I look at {path} first."),
            1 => format!("{function} drops the {noun} when the {other} is empty."),
            2 => format!("Next I run the tests of {path} to see what breaks."),
            3 => format!("Line {number} passes the {noun} on before it is checked."),
            4 => format!("I keep {caller} as it is and change only {function}."),
            5 => {
                format!("There are {number} callers of {function}; most of them ignore the {noun}.")
            }
            6 => format!(
                "The failing case has a {noun} without a {other}, which {function} never expects."
            ),
            7 => format!("Both {function} and {caller} count the {noun} twice."),
            8 => format!("That explains the wrong {other}: the {noun} is stale by then."),
            9 => format!("I will move the check from {caller} into {function} and add a test."),
            10 => format!("{path} still uses the old name of the {noun}."),
            _ => format!("With this change all {number} tests of the {other} pass."),
        }
    }

    /// What a user asks for.
    pub(crate) fn request(&mut self, tokens: u32) -> String {
        let (noun, other) = (self.noun(), self.noun());
        let function = self.function();
        let path = self.path();
        let opening = match self.number(6) {
            0 => format!("Please fix {function}: it loses the {noun} when the {other} changes."),
            1 => format!("Add a test for {function} in {path}, then make it pass."),
            2 => format!("Why does the {noun} come out twice? Find the reason and mend it."),
            3 => format!("Rename the {noun} to {other} everywhere and keep the tests green."),
            4 => format!("The nightly job fails in {function}. Look into it."),
            _ => format!("Make {function} faster for a large {noun}."),
        };
        let mut first = Some(opening);
        self.lines(tokens, |author| first.take().unwrap_or_else(|| author.sentence()))
    }

    /// Rules for an agent or for a tool, in the manner of system prompts.
    pub(crate) fn rules(&mut self, subject: &str, tokens: u32) -> String {
        let mut first = Some(subject.to_owned());
        self.lines(tokens, |author| first.take().unwrap_or_else(|| author.rule()))
    }

    fn rule(&mut self) -> String {
        let verb = self.verb();
        let (noun, other) = (self.noun(), self.noun());
        let number = self.number(60) + 2;
        match self.number(12) {
            0 => format!("- Before you {verb} a {noun}, read the file that defines it."),
            1 => format!("- Never {verb} more than {number} files in one step."),
            2 => format!("- When a {noun} is missing, say so; do not make one up."),
            3 => format!("- Prefer the smallest change that makes the {noun} right."),
            4 => format!(
                "- Paths are absolute. A {noun} outside the project is not yours to change."
            ),
            5 => format!("- After a change run the tests that touch the {noun} and the {other}."),
            6 => format!(
                "- Output longer than {number} hundred lines is cut; ask for the part you need."
            ),
            7 => format!("- Do not {verb} the {noun} and the {other} in the same call."),
            8 => format!(
                "- Calls that do not depend on each other may be made in one reply, up to {number}."
            ),
            9 => {
                format!("- Keep the style of the code around the {noun}: names, spacing, comments.")
            }
            10 => format!("- A command may run for {number} minutes; longer ones are ended."),
            _ => format!("- Tell the user in one line what you {verb} and why."),
        }
    }
}
