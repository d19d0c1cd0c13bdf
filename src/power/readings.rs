//! Readings of each device in order of time: what the energy of any window is made of.
//!
//! Pure. They come from the rows of `power`, or from a sampler that keeps what it writes; whether a
//! window of them gives a figure is `energy`'s affair.

use std::collections::BTreeMap;

use super::energy::Reading;
use crate::trace::record::PowerRow;

/// Readings by device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings(BTreeMap<String, Vec<Reading>>);

impl Readings {
    /// Those of a table, in whatever order its rows stand.
    pub fn of_rows(rows: &[PowerRow]) -> Self {
        let mut readings = Self::default();
        for row in rows {
            readings.add(row);
        }
        for of_device in readings.0.values_mut() {
            of_device.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        }
        readings
    }

    /// Adds a row's reading; a row without values is none.
    pub fn add(&mut self, row: &PowerRow) {
        if row.power_w.is_none() && row.energy_j.is_none() {
            return;
        }
        let reading = Reading { ts: row.ts, power_w: row.power_w, energy_j: row.energy_j };
        match self.0.get_mut(&row.device) {
            Some(of_device) => of_device.push(reading),
            None => drop(self.0.insert(row.device.clone(), vec![reading])),
        }
    }

    /// Those of one device.
    pub fn of(&self, device: &str) -> &[Reading] {
        self.0.get(device).map_or(&[], Vec::as_slice)
    }

    /// Drops what a window from `ts` (seconds) on does not need: all but the last reading before it.
    pub fn forget_before(&mut self, ts: f64) {
        for of_device in self.0.values_mut() {
            let needed = of_device.partition_point(|reading| reading.ts <= ts).saturating_sub(1);
            of_device.drain(..needed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(device: &str, ts: f64, power_w: Option<f64>) -> PowerRow {
        PowerRow { device: device.to_owned(), ts, power_w, ..PowerRow::default() }
    }

    #[test]
    fn rows_are_sorted_by_device_and_time() {
        let rows = [
            row("a", 2.0, Some(20.0)),
            row("b", 1.5, Some(5.0)),
            row("a", 1.0, Some(10.0)),
            row("a", 1.2, None),
        ];
        let readings = Readings::of_rows(&rows);
        let times = |device| readings.of(device).iter().map(|reading| reading.ts).collect();
        let (a, b, absent): (Vec<f64>, Vec<f64>, Vec<f64>) = (times("a"), times("b"), times("c"));
        assert_eq!((a, b, absent), (vec![1.0, 2.0], vec![1.5], vec![]));
    }

    #[test]
    fn a_window_keeps_the_reading_before_it_for_its_edge() {
        let rows: Vec<_> = (0..10).map(|k| row("a", f64::from(k), Some(1.0))).collect();
        let first_after = |ts: f64| {
            let mut readings = Readings::of_rows(&rows);
            readings.forget_before(ts);
            (readings.of("a")[0].ts, readings.of("a").len())
        };
        assert_eq!(first_after(4.5), (4.0, 6));
        assert_eq!(first_after(4.0), (4.0, 6));
        assert_eq!(first_after(-1.0), (0.0, 10));
        assert_eq!(first_after(99.0), (9.0, 1));
    }
}
