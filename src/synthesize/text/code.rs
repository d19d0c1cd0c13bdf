//! Code of the session's project: plain functions, files with line numbers, patches.

use crate::synthesize::text::Author;

impl Author {
    /// Functions of a module.
    pub(crate) fn code(&mut self, tokens: u32) -> String {
        let mut pending = Vec::new();
        self.lines(tokens, |author| author.code_line(&mut pending))
    }

    /// A file as a reading tool shows it: with line numbers.
    pub(crate) fn numbered_code(&mut self, tokens: u32) -> String {
        let mut pending = Vec::new();
        let mut number = self.number(400);
        self.lines(tokens, |author| {
            number += 1;
            format!("{number:>5}  {}", author.code_line(&mut pending))
        })
    }

    /// A patch.
    pub(crate) fn diff(&mut self, tokens: u32) -> String {
        let mut pending = Vec::new();
        self.lines(tokens, |author| match author.number(14) {
            0 => {
                let (at, length) = (author.number(500) + 1, author.number(9) + 3);
                format!("@@ -{at},{length} +{at},{length} @@ def {}(", author.function())
            }
            1..=3 => format!("-{}", author.code_line(&mut pending)),
            4..=7 => format!("+{}", author.code_line(&mut pending)),
            _ => format!(" {}", author.code_line(&mut pending)),
        })
    }

    /// The next line of a module; `pending` holds the rest of the function begun.
    fn code_line(&mut self, pending: &mut Vec<String>) -> String {
        if pending.is_empty() {
            *pending = self.function_lines();
            pending.reverse();
        }
        pending.pop().unwrap_or_default()
    }

    fn function_lines(&mut self) -> Vec<String> {
        let name = self.function();
        let helper = self.function();
        let (noun, other) = (self.noun(), self.noun());
        let limit = self.number(900) + 10;
        let mut lines = vec![
            format!("def {name}({noun}, {other}=None, limit={limit}):"),
            format!("    # The {other} decides how much of the {noun} is kept."),
        ];
        for _ in 0..=self.number(4) {
            let callee = self.function();
            let field = self.noun();
            match self.number(6) {
                0 => lines.push(format!("    if {noun}.{field} is None:\n        return {other}")),
                1 => lines.push(format!("    {field} = {callee}({noun}, limit=limit - 1)")),
                2 => lines
                    .push(format!("    for {field} in {noun}.all():\n        {callee}({field})")),
                3 => lines.push(format!("    assert len({noun}) <= limit, f\"{{len({noun})}}\"")),
                4 => lines.push(format!("    log.info(\"{callee}\", {field}={noun}.{field})")),
                _ => lines.push(format!("    {noun} = [x for x in {noun} if x.{field} > {limit}]")),
            }
        }
        lines.push(format!("    return {helper}({noun}, {other})"));
        lines.push(String::new());
        lines.iter().flat_map(|line| line.split('\n').map(str::to_owned)).collect()
    }
}
