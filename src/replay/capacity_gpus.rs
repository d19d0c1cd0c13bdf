//! How many GPUs serve: what figures per GPU are divided by.
//!
//! Pure. A number that was given counts; else the GPUs whose power was sampled; else the names that were
//! given for them. A number is never guessed: where the answer is not clear there is a reason instead.

use std::collections::BTreeSet;

use super::capacity_summary::CapacitySettings;
use crate::power::PowerSettings;

/// Sources whose devices are GPUs.
const GPU_SOURCES: [&str; 2] = ["nvml", "dcgm"];

/// The number of GPUs that serve, or why it is not known.
pub fn gpu_count(
    settings: &CapacitySettings,
    power: &PowerSettings,
    simulated: bool,
) -> Result<u32, String> {
    if let Some(count) = settings.gpu_count {
        return Ok(count);
    }
    if let Some(sampled) = sampled_gpus(power).filter(|_| !simulated) {
        return Ok(sampled);
    }
    let Some(names) = &settings.gpu_names else {
        return Err("the number of GPUs that serve is not known (--gpu-count N)".to_owned());
    };
    match names.as_slice() {
        // Nothing was there to check the name by, and it may have been meant as a number of GPUs.
        [name] if name.parse::<u32>().is_ok_and(|index| index > 1) => Err(format!(
            "--gpus {name} names one GPU by its index; where {name} GPUs serve, give --gpu-count {name}"
        )),
        names => Ok(names.iter().collect::<BTreeSet<_>>().len() as u32),
    }
}

/// What is wrong with a number of GPUs beside those whose power is sampled.
pub fn contradiction(settings: &CapacitySettings, power: &PowerSettings) -> Option<String> {
    let (count, sampled) = (settings.gpu_count?, sampled_gpus(power)?);
    (count != sampled).then(|| {
        format!(
            "--gpu-count {count} contradicts the {sampled} GPUs whose power is sampled ({}): name \
             those that serve with --gpus 0,1 or by UUID",
            power.rule.as_deref().unwrap_or("no rule")
        )
    })
}

fn sampled_gpus(power: &PowerSettings) -> Option<u32> {
    let of_gpus = power.source.as_deref().is_some_and(|source| GPU_SOURCES.contains(&source));
    of_gpus.then_some(power.devices.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(count: Option<u32>, names: Option<&[&str]>) -> CapacitySettings {
        CapacitySettings {
            gpu_count: count,
            gpu_names: names.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            ..CapacitySettings::default()
        }
    }

    fn power(source: &str, devices: &[&str]) -> PowerSettings {
        PowerSettings {
            source: (!source.is_empty()).then(|| source.to_owned()),
            devices: devices.iter().map(|name| (*name).to_owned()).collect(),
            rule: Some("all".to_owned()),
            ..PowerSettings::default()
        }
    }

    #[test]
    fn gpus_are_counted_by_what_is_known_of_them() {
        let (none, two) = (power("", &[]), power("nvml", &["GPU-a", "GPU-b"]));
        let constant = power("constant", &["constant"]);
        for (given, power, simulated, expected) in [
            (settings(Some(3), None), &none, false, Ok(3)),
            (settings(None, None), &two, false, Ok(2)),
            (settings(None, Some(&["1"])), &power("dcgm", &["GPU-b"]), false, Ok(1)),
            (settings(None, Some(&["0", "1", "1"])), &constant, false, Ok(2)),
            (settings(None, Some(&["1"])), &none, false, Ok(1)),
            (settings(None, Some(&["4"])), &none, false, Err("--gpu-count 4")),
            (settings(None, None), &constant, false, Err("--gpu-count N")),
            // The GPUs of this machine are not the simulated engine's.
            (settings(None, None), &two, true, Err("--gpu-count N")),
        ] {
            match (gpu_count(&given, power, simulated), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{given:?}"),
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{reason}"),
                other => panic!("{other:?} for {given:?}"),
            }
        }
    }

    #[test]
    fn a_number_beside_other_gpus_is_a_contradiction() {
        let two = power("nvml", &["GPU-a", "GPU-b"]);
        assert_eq!(contradiction(&settings(Some(2), None), &two), None);
        assert_eq!(contradiction(&settings(Some(8), None), &power("constant", &["c"])), None);
        assert_eq!(contradiction(&settings(None, None), &two), None);
        let problem = contradiction(&settings(Some(1), None), &two).expect("a contradiction");
        assert!(problem.contains("2 GPUs whose power is sampled (all)"), "{problem}");
    }
}
