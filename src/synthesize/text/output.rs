//! What commands print: test runs, service logs, listings, search results.

use crate::synthesize::text::Author;

impl Author {
    /// What a command prints; one of several kinds.
    pub(crate) fn command_output(&mut self, tokens: u32) -> String {
        match self.number(5) {
            0 => self.service_log(tokens),
            1 => self.listing(tokens),
            2 => self.diff(tokens),
            3 => self.matches(tokens),
            _ => self.test_log(tokens),
        }
    }

    /// A test run.
    pub(crate) fn test_log(&mut self, tokens: u32) -> String {
        let mut done = 0;
        self.lines(tokens, |author| {
            let name = author.function();
            let path = author.path();
            done = (done + 1 + author.number(3)).min(100);
            match author.number(9) {
                0 => {
                    let (noun, number) = (author.noun(), author.number(500));
                    format!(
                        "E   AssertionError: {noun} has {number} entries, expected {}",
                        number + 1
                    )
                }
                1 => format!("{path}:{}: in {name}", author.number(600) + 1),
                _ => format!("{path}::test_{name} PASSED [{done:>3}%]"),
            }
        })
    }

    /// A service's log.
    pub(crate) fn service_log(&mut self, tokens: u32) -> String {
        let mut millis = u64::from(self.number(80_000_000));
        self.lines(tokens, |author| {
            millis += u64::from(author.number(4_000));
            let (hour, minute) = (millis / 3_600_000 % 24, millis / 60_000 % 60);
            let (second, rest) = (millis / 1000 % 60, millis % 1000);
            let level = author.pick(&["INFO ", "INFO ", "INFO ", "DEBUG", "WARN "]);
            let (verb, noun) = (author.verb(), author.noun());
            let (took, id) = (author.number(900), author.number(90_000));
            format!(
                "{hour:02}:{minute:02}:{second:02}.{rest:03} {level} {verb} {noun} id={id} took={took}ms"
            )
        })
    }

    /// The files of a folder.
    pub(crate) fn listing(&mut self, tokens: u32) -> String {
        self.lines(tokens, |author| {
            let (size, day) = (author.number(48_000) + 90, author.number(28) + 1);
            let path = author.path();
            format!("-rw-r--r-- 1 dev dev {size:>6} Mar {day:>2} {path}")
        })
    }

    /// What a search found.
    pub(crate) fn matches(&mut self, tokens: u32) -> String {
        self.lines(tokens, |author| {
            let path = author.path();
            let (line, name) = (author.number(700) + 1, author.function());
            let (noun, other) = (author.noun(), author.noun());
            format!("{path}:{line}:    {noun} = {name}({other})")
        })
    }

    /// Paths, a line each.
    pub(crate) fn paths(&mut self, tokens: u32) -> String {
        self.lines(tokens, Self::path)
    }

    /// An error as a tool tells it.
    pub(crate) fn failure(&mut self, tokens: u32) -> String {
        let path = self.path();
        let mut first = Some(format!("Error: {path}: no such file or no match in it"));
        self.lines(tokens, |author| {
            first.take().unwrap_or_else(|| format!("  at {}", author.path()))
        })
    }
}
