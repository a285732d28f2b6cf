//! Values as people read them, and where an axis has its lines.

use anyhow::{Result, bail};

/// What a panel's values are of, by Grafana's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A bare number.
    None,
    /// A number that may be large.
    Short,
    /// Seconds.
    Seconds,
    /// Bytes, in powers of 1024.
    Bytes,
    /// Bytes a second, in powers of 1000.
    BytesASecond,
    /// Somethings a second.
    CountsASecond,
    /// From 0 to 1.
    Part,
}

impl Unit {
    pub(super) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "short" => Self::Short,
            "s" => Self::Seconds,
            "bytes" => Self::Bytes,
            "Bps" => Self::BytesASecond,
            "cps" | "reqps" => Self::CountsASecond,
            "percentunit" => Self::Part,
            other => bail!("unit {other} is none that can be drawn"),
        })
    }

    /// A value with its unit, in three digits or so.
    pub(super) fn text(self, value: f64) -> String {
        let scaled = |base: f64, names: &[&str]| {
            let (mut value, mut index) = (value, 0);
            while value.abs() >= base && index + 1 < names.len() {
                value /= base;
                index += 1;
            }
            format!("{}{}", digits(value), names[index])
        };
        match self {
            Self::None => digits(value),
            Self::Short => scaled(1000.0, &["", " k", " M", " G"]),
            Self::Seconds => seconds(value),
            Self::Bytes => scaled(1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
            Self::BytesASecond => scaled(1000.0, &[" B/s", " kB/s", " MB/s", " GB/s"]),
            Self::CountsASecond => scaled(1000.0, &[" /s", " k/s", " M/s"]),
            Self::Part => format!("{} %", digits(value * 100.0)),
        }
    }

    /// The distance between an axis' lines, so that there are some four of them up to `top`.
    pub(super) fn step(self, top: f64) -> f64 {
        let wanted = (top / 4.0).max(1e-9);
        if self == Self::Seconds
            && let Some(step) = MINUTES_AND_HOURS.into_iter().find(|step| wanted > 25.0 && *step >= wanted)
        {
            return step;
        }
        let magnitude = match self {
            Self::Bytes if wanted >= 1024.0 => {
                let power = 1024_f64.powf(wanted.log(1024.0).floor());
                power * 10_f64.powf((wanted / power).log10().floor())
            }
            _ => 10_f64.powf(wanted.log10().floor()),
        };
        let factors = [1.0, 2.0, 5.0, 10.0];
        let step = factors.iter().map(|factor| factor * magnitude).find(|step| *step >= wanted);
        step.unwrap_or(10.0 * magnitude)
    }
}

/// Steps of an axis of more than a minute or two, in seconds.
const MINUTES_AND_HOURS: [f64; 8] = [30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];

fn seconds(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0 s".to_owned()
    } else if size < 1e-3 {
        format!("{} µs", digits(value * 1e6))
    } else if size < 1.0 {
        format!("{} ms", digits(value * 1e3))
    } else if size < 120.0 {
        format!("{} s", digits(value))
    } else if size < 7200.0 {
        format!("{} min", digits(value / 60.0))
    } else {
        format!("{} h", digits(value / 3600.0))
    }
}

/// Three digits, without zeros that say nothing.
fn digits(value: f64) -> String {
    let size = value.abs();
    let text = if size >= 100.0 || value == value.round() {
        return format!("{value:.0}");
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 0.01 {
        format!("{value:.3}")
    } else {
        format!("{value:.4}")
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_at_a_glance() {
        for (unit, value, text) in [
            (Unit::None, 3.0, "3"),
            (Unit::None, 1.25, "1.25"),
            (Unit::Short, 12_345.0, "12.3 k"),
            (Unit::Seconds, 0.0, "0 s"),
            (Unit::Seconds, 0.000_25, "250 µs"),
            (Unit::Seconds, 0.0042, "4.2 ms"),
            (Unit::Seconds, 42.0, "42 s"),
            (Unit::Seconds, 300.0, "5 min"),
            (Unit::Bytes, 14.0 * 1024.0 * 1024.0, "14 MiB"),
            (Unit::BytesASecond, 2_500_000.0, "2.5 MB/s"),
            (Unit::CountsASecond, 1500.0, "1.5 k/s"),
            (Unit::Part, 0.256, "25.6 %"),
            (Unit::None, 0.015, "0.015"),
        ] {
            assert_eq!(unit.text(value), text);
        }
    }

    #[test]
    fn an_axis_has_some_four_lines_at_round_values() {
        for (unit, top, step) in [
            (Unit::None, 3.0, 1.0),
            (Unit::Short, 900.0, 500.0),
            (Unit::Seconds, 0.02, 0.005),
            (Unit::Seconds, 140.0, 60.0),
            (Unit::Seconds, 400.0, 120.0),
            (Unit::Bytes, 60.0 * 1024.0 * 1024.0, 20.0 * 1024.0 * 1024.0),
        ] {
            assert!((unit.step(top) - step).abs() < step * 1e-9, "{unit:?} {top}: {}", unit.step(top));
        }
    }
}
