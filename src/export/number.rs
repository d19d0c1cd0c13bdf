//! Numbers as the formats write them: whole ones without a point.

use serde::{Serialize, Serializer};

/// A number; whole ones are written as integers, as the tools that read them do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plain(pub(super) f64);

/// Up to here every whole number has a place of its own in an `f64`.
const WHOLE_BELOW: f64 = 9_007_199_254_740_992.0;

impl Serialize for Plain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.fract() == 0.0 && self.0.abs() < WHOLE_BELOW {
            serializer.serialize_i64(self.0 as i64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

/// For a field that is read as a plain number.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's form
pub(super) fn plain<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Plain(*number).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn whole_numbers_have_no_point() {
        for (number, text) in [(860.0, "860"), (0.25, "0.25"), (-3.0, "-3"), (0.0, "0")] {
            assert_eq!(serde_json::to_string(&Plain(number)).unwrap(), text);
        }
    }
}
