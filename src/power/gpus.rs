//! Which GPUs serve: by a list, else by `CUDA_VISIBLE_DEVICES` of the engine's process, else all.
//!
//! Pure but for the one file of the engine's process. Names are indexes, UUIDs or their beginnings, as
//! CUDA takes them.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// How GPUs are to be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GpuChoice {
    /// Indexes or UUIDs; none leaves the choice to the engine's process.
    pub list: Option<Vec<String>>,
    /// The engine's process on this machine, where it is known.
    pub engine_pid: Option<u32>,
}

/// The names to look for, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// None means all.
    pub(super) names: Option<Vec<String>>,
    pub(super) rule: String,
}

impl GpuChoice {
    pub(super) fn wanted(&self) -> Wanted {
        if let Some(list) = &self.list {
            return Wanted { names: Some(list.clone()), rule: "named by the caller".to_owned() };
        }
        let Some(pid) = self.engine_pid else {
            return Wanted {
                names: None,
                rule: "all, no process of the engine is known".to_owned(),
            };
        };
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Err(error) => Wanted {
                names: None,
                rule: format!("all, the environment of process {pid} cannot be read ({error})"),
            },
            Ok(environment) => match visible_devices(&environment) {
                None => Wanted {
                    names: None,
                    rule: format!("all, process {pid} has no CUDA_VISIBLE_DEVICES"),
                },
                Some(names) => Wanted {
                    names: Some(names),
                    rule: format!("CUDA_VISIBLE_DEVICES of process {pid}"),
                },
            },
        }
    }
}

/// The list in an environment block; CUDA heeds it up to the first entry that is none.
fn visible_devices(environment: &[u8]) -> Option<Vec<String>> {
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"CUDA_VISIBLE_DEVICES="))?;
    let value = String::from_utf8_lossy(value);
    let names =
        value.split(',').map(str::trim).take_while(|name| !name.is_empty() && *name != "-1");
    Some(names.map(str::to_owned).collect())
}

/// A GPU that is there: its index and its UUID.
pub(super) type Present = (u32, Option<String>);

/// The indexes of the wanted GPUs, each once, in order. `mig_parent` says whose instance a name is that
/// no GPU bears.
pub(super) fn choose(
    wanted: &Wanted,
    present: &[Present],
    mig_parent: impl Fn(&str) -> Option<u32>,
) -> Result<Vec<u32>> {
    let Some(names) = &wanted.names else {
        return Ok(present.iter().map(|(index, _)| *index).collect());
    };
    let mut chosen = BTreeSet::new();
    for name in names {
        let by_name = |(index, uuid): &&Present| {
            name.parse() == Ok(*index)
                || uuid
                    .as_ref()
                    .is_some_and(|uuid| !name.is_empty() && uuid.starts_with(name.as_str()))
        };
        let found = present.iter().find(by_name).map(|(index, _)| *index);
        let index = found.or_else(|| mig_parent(name)).ok_or_else(|| {
            let known: Vec<_> = present
                .iter()
                .map(|(index, uuid)| format!("{index} ({})", uuid.as_deref().unwrap_or("no UUID")))
                .collect();
            Error::Gpu(format!(
                "no GPU {name:?} ({}); there are: {}",
                wanted.rule,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
        })?;
        chosen.insert(index);
    }
    Ok(chosen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_name_devices_as_cuda_reads_them() {
        for (environment, expected) in [
            ("A=1\0CUDA_VISIBLE_DEVICES=0,2\0B=2\0", Some(vec!["0", "2"])),
            ("CUDA_VISIBLE_DEVICES=GPU-a, MIG-b", Some(vec!["GPU-a", "MIG-b"])),
            ("CUDA_VISIBLE_DEVICES=1,-1,0\0", Some(vec!["1"])),
            ("CUDA_VISIBLE_DEVICES=\0", Some(vec![])),
            ("XCUDA_VISIBLE_DEVICES=1\0", None),
        ] {
            let names = visible_devices(environment.as_bytes());
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(names, expected, "{environment:?}");
        }
    }

    #[test]
    fn names_choose_each_device_once() {
        let present = [(0, Some("GPU-aa".to_owned())), (1, Some("GPU-ab".to_owned())), (2, None)];
        let parent = |name: &str| name.starts_with("MIG-").then_some(1);
        let check = |names: Option<&[&str]>, expected: &[u32]| {
            let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let wanted = Wanted { names, rule: "a rule".to_owned() };
            assert_eq!(choose(&wanted, &present, parent).expect("chosen"), expected, "{wanted:?}");
        };
        check(None, &[0, 1, 2]);
        check(Some(&[]), &[]);
        check(Some(&["2", "GPU-aa"]), &[0, 2]);
        check(Some(&["GPU-ab", "1"]), &[1]);
        check(Some(&["MIG-x", "MIG-y"]), &[1]);
        let wanted = Wanted { names: Some(vec!["7".to_owned()]), rule: "a rule".to_owned() };
        let message = choose(&wanted, &present, parent).expect_err("absent").to_string();
        assert_eq!(
            message,
            "no GPU \"7\" (a rule); there are: 0 (GPU-aa), 1 (GPU-ab), 2 (no UUID)"
        );
    }
}
