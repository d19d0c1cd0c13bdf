//! Energy counters of the CPU packages, as Linux shows them under powercap.
//!
//! Only whole packages are read: cores and memory controllers inside are part of them. A counter is
//! unwrapped by its range, so that what stands in the table never goes back on that account. No GPU is
//! in these figures.

use std::path::{Path, PathBuf};

use super::source::{Boundary, DeviceReading, PowerSource};
use crate::clock::Clock;

/// Where Linux keeps them.
pub(super) const POWERCAP: &str = "/sys/class/powercap";

/// The packages of one machine.
#[derive(Debug)]
pub(super) struct Rapl {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    name: String,
    counter: PathBuf,
    range_uj: u64,
    last_uj: Option<u64>,
    /// Energy before the last wrap.
    wrapped_uj: u64,
}

impl Rapl {
    /// The packages under a powercap directory, or why there are none.
    pub(super) fn open(root: &Path) -> Result<Self, String> {
        let entries = std::fs::read_dir(root)
            .map_err(|error| format!("no RAPL counters ({}: {error})", root.display()))?;
        let mut packages: Vec<Package> =
            entries.flatten().filter_map(|entry| Package::at(&entry.path())).collect();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        let Some(first) = packages.first() else {
            return Err(format!("no RAPL counters (no package in {})", root.display()));
        };
        if let Err(error) = read_number(&first.counter) {
            return Err(format!("{error}; let this user read it, or run as root"));
        }
        Ok(Self { packages })
    }
}

impl Package {
    fn at(directory: &Path) -> Option<Self> {
        let name = std::fs::read_to_string(directory.join("name")).ok()?.trim().to_owned();
        name.starts_with("package").then(|| Self {
            name,
            counter: directory.join("energy_uj"),
            range_uj: read_number(&directory.join("max_energy_range_uj")).unwrap_or(0),
            last_uj: None,
            wrapped_uj: 0,
        })
    }

    fn read(&mut self) -> Result<f64, String> {
        let now_uj = read_number(&self.counter)?;
        if self.last_uj.is_some_and(|last_uj| now_uj < last_uj) {
            self.wrapped_uj += self.range_uj;
        }
        self.last_uj = Some(now_uj);
        Ok((self.wrapped_uj + now_uj) as f64 / 1e6)
    }
}

fn read_number(path: &Path) -> Result<u64, String> {
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{place}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{place}: no number in it"))
}

impl PowerSource for Rapl {
    fn name(&self) -> &'static str {
        "rapl"
    }

    fn boundary(&self) -> Boundary {
        Boundary::Host
    }

    fn devices(&self) -> Vec<String> {
        self.packages.iter().map(|package| package.name.clone()).collect()
    }

    fn rule(&self) -> String {
        "all CPU packages; no GPU is in these figures".to_owned()
    }

    fn sample(&mut self, clock: &Clock) -> Vec<DeviceReading> {
        let read = |package: &mut Package| {
            let energy = package.read();
            let read_ns = clock.now_ns();
            match energy {
                Ok(energy_j) => DeviceReading {
                    read_ns,
                    device: package.name.clone(),
                    energy_j: Some(energy_j),
                    ..DeviceReading::default()
                },
                Err(error) => DeviceReading::failed(&package.name, read_ns, error),
            }
        };
        self.packages.iter_mut().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(root: &Path, name: &str, domain: &str, energy_uj: u64) -> PathBuf {
        let directory = root.join(name);
        std::fs::create_dir_all(&directory).expect("a folder");
        for (file, text) in [
            ("name", domain.to_owned()),
            ("max_energy_range_uj", "1000000000".to_owned()),
            ("energy_uj", energy_uj.to_string()),
        ] {
            std::fs::write(directory.join(file), text + "\n").expect("a file");
        }
        directory.join("energy_uj")
    }

    #[test]
    fn packages_are_read_and_unwrapped() {
        let root = tempfile::tempdir().expect("a folder");
        let counter = domain(root.path(), "intel-rapl:0", "package-0", 999_000_000);
        domain(root.path(), "intel-rapl:1", "package-1", 5_000_000);
        domain(root.path(), "intel-rapl:0:0", "core", 7);
        domain(root.path(), "intel-rapl:2", "psys", 8);
        let clock = Clock::start();
        let mut rapl = Rapl::open(root.path()).expect("packages");
        assert_eq!(rapl.devices(), ["package-0", "package-1"]);
        let energies = |rapl: &mut Rapl| -> Vec<Option<f64>> {
            rapl.sample(&clock).into_iter().map(|reading| reading.energy_j).collect()
        };
        assert_eq!(energies(&mut rapl), [Some(999.0), Some(5.0)]);
        std::fs::write(&counter, "4000000\n").expect("a file");
        assert_eq!(energies(&mut rapl), [Some(1004.0), Some(5.0)]);
        std::fs::remove_file(&counter).expect("removed");
        let readings = rapl.sample(&clock);
        assert_eq!(readings[0].energy_j, None);
        assert!(readings[0].error.as_ref().is_some_and(|error| error.contains("energy_uj")));
    }

    #[test]
    fn machines_without_it_give_the_reason() {
        let root = tempfile::tempdir().expect("a folder");
        for (path, part) in [
            (root.path().to_path_buf(), "no package in"),
            (root.path().join("absent"), "No such file"),
        ] {
            let reason = Rapl::open(&path).expect_err("nothing there");
            assert!(reason.contains(part), "{reason}");
        }
    }
}
