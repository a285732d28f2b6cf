//! The nearest name to one that does not exist, by edit distance: a typo gets an answer, nonsense gets none.

/// The candidate closest to `name`, if it is close enough to be what was meant.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).clamp(1, 8);
    candidates
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(d, _)| *d <= limit)
        .map(|(_, c)| c)
}

/// Levenshtein distance, one row at a time.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_the_name_that_was_meant() {
        let names = ["retention.ms", "retention.bytes", "segment.ms"];
        assert_eq!(nearest("retension.ms", names.into_iter()), Some("retention.ms"));
        assert_eq!(nearest("retention.byte", names.into_iter()), Some("retention.bytes"));
    }

    #[test]
    fn nonsense_finds_nothing() {
        assert_eq!(nearest("colour", ["retention.ms", "segment.ms"].into_iter()), None);
    }
}
