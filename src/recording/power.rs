//! Power sampling alone as one recording: a sampler, its run directory, and energy asked for at any time.

use std::path::PathBuf;

use super::{RecordingConfig, keep_power, note_power};
use crate::clock::{Clock, unix_seconds};
use crate::error::Result;
use crate::power::{PowerConfig, PowerSampler, PowerStats, PowerWatch};
use crate::replay::power_window::{WindowPower, window_power};
use crate::replay::window::Window;
use crate::trace::{Manifest, RunKind, RunWriter};

/// A sampler that fills one run directory.
#[derive(Debug)]
pub struct PowerRecording {
    writer: RunWriter,
    sampler: PowerSampler,
    clock: Clock,
}

impl PowerRecording {
    /// Makes the run directory, takes the idle baseline and goes on sampling; blocks until the baseline
    /// is over.
    ///
    /// # Errors
    ///
    /// A directory that is not empty, a GPU that is not there: then nothing is left behind. A source that
    /// is not there is none: the settings say why.
    pub fn start(config: RecordingConfig) -> Result<Self> {
        let clock = Clock::start();
        let manifest = Manifest {
            argv: config.argv,
            host: config.host,
            settings: config.settings,
            ..Manifest::new(RunKind::Capture, config.run_id, &clock)
        };
        let writer = RunWriter::create(&config.out, manifest)?;
        let power = PowerConfig { keep_readings: true, ..config.power };
        match PowerSampler::start(power, writer.sender(), clock) {
            Ok(sampler) => {
                writer.update_manifest(|manifest| keep_power(manifest, sampler.settings()))?;
                Ok(Self { writer, sampler, clock })
            }
            Err(error) => {
                writer.discard();
                Err(error)
            }
        }
    }

    /// The readings, also after the end.
    pub fn watch(&self) -> PowerWatch {
        self.sampler.watch()
    }

    /// How sampling goes.
    pub fn stats(&self) -> PowerStats {
        self.sampler.stats()
    }

    /// Samples once more and closes the table; the run directory and the last figures.
    pub fn finish(self) -> Result<(PathBuf, PowerStats)> {
        let Self { writer, sampler, clock } = self;
        let dir = writer.dir().to_path_buf();
        let sampled = sampler.stop();
        writer.update_manifest(|manifest| {
            manifest.ended = Some(unix_seconds(clock.now_ns()));
            note_power(manifest, &sampled);
        })?;
        writer.finish()?;
        Ok((dir, sampled))
    }
}

/// Energy and mean power of the watched devices between two times, seconds since the Unix epoch.
pub fn energy_between(watch: &PowerWatch, start: f64, end: f64) -> WindowPower {
    let window = Window {
        ramp_end_ms: None,
        steady_start_ms: Some(start * 1e3),
        steady_end_ms: Some(end * 1e3),
    };
    window_power(&watch.readings(), watch.settings(), &window, 0)
}
