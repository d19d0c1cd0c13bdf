//! Spans that overlap, put side by side: a track of a timeline holds only spans that lie in one another or
//! apart.
//!
//! Pure.

/// The lane of each span, in the order given: the lowest that is free when it begins.
pub(super) fn lanes(spans: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by(|a, b| spans[*a].0.total_cmp(&spans[*b].0));
    let mut free_from: Vec<f64> = Vec::new();
    let mut lanes = vec![0; spans.len()];
    for index in order {
        let (start, end) = spans[index];
        let lane = free_from.iter().position(|free| *free <= start).unwrap_or(free_from.len());
        if lane == free_from.len() {
            free_from.push(end);
        } else {
            free_from[lane] = end;
        }
        lanes[index] = lane;
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::lanes;

    #[test]
    fn spans_that_overlap_lie_side_by_side() {
        for (spans, expected) in [
            (vec![], vec![]),
            (vec![(0.0, 1.0), (1.0, 2.0)], vec![0, 0]),
            (vec![(0.0, 3.0), (1.0, 2.0), (2.0, 4.0)], vec![0, 1, 1]),
            (vec![(2.0, 4.0), (0.0, 3.0), (3.5, 5.0)], vec![1, 0, 0]),
        ] {
            assert_eq!(lanes(&spans), expected, "{spans:?}");
        }
    }
}
