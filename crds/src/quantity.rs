//! Kubernetes quantities (`100Gi`, `500m`), read as the API server reads them.

/// A quantity in thousandths: exact for all that people write. `None` when it is none.
pub fn quantity(text: &str) -> Option<i128> {
    const SUFFIXES: [(&str, i128); 13] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
        ("", 1),
    ];
    if let Some(milli) = text.strip_suffix('m') {
        return milli.parse().ok();
    }
    let (number, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    if number.starts_with('+') || number.is_empty() {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok().filter(|value| *value >= 0)? };
    let whole = whole.checked_mul(factor)?.checked_mul(1000)?;
    Some(whole + fraction * factor * 1000 / 10_i128.pow(digits))
}

/// A quantity in whole units, rounded down.
pub fn quantity_units(text: &str) -> Option<i64> {
    quantity(text).and_then(|thousandths| i64::try_from(thousandths / 1000).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_value_however_they_are_written() {
        for (left, right) in
            [("1000m", "1"), ("1Gi", "1024Mi"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("500M", "500000k")]
        {
            assert!(quantity(left).is_some());
            assert_eq!(quantity(left), quantity(right), "{left} {right}");
        }
        assert!(quantity("1Ti") > quantity("1000G"));
        assert_eq!(quantity_units("256Mi"), Some(256 << 20));
    }

    #[test]
    fn what_is_no_quantity_has_none() {
        for text in ["ten", "10Gx", "", "Gi", "+1", "1.-5", "1..5", "99999999999999999999999999999Ei"] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }
}
