//! What exports must know of a run's units beside their text: how long they are, and what they are.

use std::collections::HashMap;

use crate::error::Result;
use crate::trace::Run;
use crate::trace::record::UnitRow;

/// What a unit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Role {
    /// A tool definition.
    Tool,
    /// System text.
    System,
    /// What the model said.
    Assistant,
    /// A tool's result, where the API has a role for it.
    ToolResult,
    /// All else.
    #[default]
    User,
}

/// The units of a run by the number that their hash is.
#[derive(Debug, Default)]
pub(super) struct Units {
    known: HashMap<u128, (u64, Role)>,
}

impl Units {
    /// Reads lengths and roles, no text.
    pub(super) fn of(run: &Run) -> Result<Self> {
        let mut known = HashMap::new();
        for unit in run.rows_of_columns::<UnitRow>(&["hash", "kind", "role", "n_bytes"])? {
            let unit = unit?;
            if let Ok(hash) = u128::from_str_radix(&unit.hash, 16) {
                known.insert(hash, (unit.n_bytes, role(&unit)));
            }
        }
        Ok(Self { known })
    }

    /// Units of these lengths, for tests.
    #[cfg(test)]
    pub(super) fn from_lengths(lengths: &[(u128, u64)]) -> Self {
        let known = lengths.iter().map(|(hash, bytes)| (*hash, (*bytes, Role::User))).collect();
        Self { known }
    }

    /// Length of a unit's text; 0 where its row was lost.
    pub(super) fn bytes(&self, hash: u128) -> u64 {
        self.known.get(&hash).map_or(0, |(bytes, _)| *bytes)
    }

    /// What a unit is for.
    pub(super) fn role(&self, hash: u128) -> Role {
        self.known.get(&hash).map_or(Role::default(), |(_, role)| *role)
    }
}

fn role(unit: &UnitRow) -> Role {
    match (unit.kind.as_str(), unit.role.as_str()) {
        ("tool", _) => Role::Tool,
        ("system", _) | (_, "system" | "developer") => Role::System,
        (_, "assistant") => Role::Assistant,
        (_, "tool") => Role::ToolResult,
        _ => Role::User,
    }
}
