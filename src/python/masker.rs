//! `Masker`: the masks of `redact` for texts that leave the machine, with a key that outlives a run.

use pyo3::prelude::*;

use crate::redact::{Masker, Names};

/// Masks texts: e-mail addresses, keys, names of users and hosts, home paths.
#[pyclass(frozen, name = "Masker", module = "agentbench._core")]
pub(super) struct PyMasker {
    masker: Masker,
}

#[pymethods]
impl PyMasker {
    #[new]
    #[pyo3(signature = (key, *, users = Vec::new(), hosts = Vec::new()))]
    fn new(key: [u8; 16], users: Vec<String>, hosts: Vec<String>) -> Self {
        Self { masker: Masker::with_key(key, Names { users, hosts }) }
    }

    /// The text with its masks.
    fn text(&self, py: Python<'_>, text: &str) -> String {
        py.detach(|| self.masker.text(text))
    }

    /// What would be masked: kind and place in characters, in order.
    fn find(&self, text: &str) -> Vec<(&'static str, usize, usize)> {
        let (mut bytes, mut characters) = (0, 0);
        let mut place = |at: usize| {
            characters += text[bytes..at].chars().count();
            bytes = at;
            characters
        };
        let found = self.masker.find(text);
        found
            .into_iter()
            .map(|edit| (edit.kind.as_str(), place(edit.span.start), place(edit.span.end)))
            .collect()
    }
}
