//! When brokers that run may be restarted for a changed spec: weekly windows, in UTC. Pure. None: at any time.

use forebay_crds::cluster::MaintenanceWindow;
use k8s_openapi::jiff::Timestamp;

const DAY_MINUTES: i64 = 24 * 60;
const WEEK_MINUTES: i64 = 7 * DAY_MINUTES;
/// The epoch was a Thursday; weeks begin on Monday.
const EPOCH_MINUTES: i64 = 3 * DAY_MINUTES;

/// None while restarts may begin; else what is waited for. The text does not count down: it would change the status all
/// the time.
pub(crate) fn closed(windows: &[MaintenanceWindow], now: Timestamp) -> Option<String> {
    if windows.is_empty() {
        return None;
    }
    let now = (now.as_second().div_euclid(60) + EPOCH_MINUTES).rem_euclid(WEEK_MINUTES);
    let openings = windows.iter().flat_map(|window| openings(window).map(move |opening| (opening, window)));
    let mut next: Option<(i64, String)> = None;
    for ((minute, text), window) in openings {
        if (now - minute).rem_euclid(WEEK_MINUTES) < i64::from(window.minutes) {
            return None;
        }
        let wait = (minute - now).rem_euclid(WEEK_MINUTES);
        if next.as_ref().is_none_or(|(sooner, _)| wait < *sooner) {
            next = Some((wait, text));
        }
    }
    Some(match next {
        Some((_, opening)) => format!("restarts wait for the maintenance window that opens {opening} UTC"),
        None => "restarts wait for a maintenance window, and none says when it opens".to_owned(),
    })
}

/// Minutes of the week at which a window opens, with the same for people.
fn openings(window: &MaintenanceWindow) -> impl Iterator<Item = (i64, String)> + '_ {
    let (hours, minutes) = window.start.split_once(':').unwrap_or(("0", "0"));
    let number = |text: &str| text.parse::<i64>().unwrap_or(0);
    let of_day = number(hours) * 60 + number(minutes);
    window.effective_days().into_iter().map(move |day| {
        let minute = i64::from(day.number_from_monday()) * DAY_MINUTES + of_day;
        (minute, format!("{} {}", day.as_str(), window.start))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn windows(value: serde_json::Value) -> Vec<MaintenanceWindow> {
        serde_json::from_value(value).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn restarts_begin_within_a_window_and_wait_outside() {
        let windows = windows(json!([{"days": ["Saturday", "Sunday"], "start": "23:30", "minutes": 60}]));
        // 2026-11-28 is a Saturday.
        let opens = |day| Some(format!("restarts wait for the maintenance window that opens {day} 23:30 UTC"));
        assert_eq!(closed(&windows, at("2026-11-28T23:29:59Z")), opens("Saturday"));
        assert_eq!(closed(&windows, at("2026-11-28T23:30:00Z")), None);
        assert_eq!(closed(&windows, at("2026-11-29T00:29:59Z")), None, "over midnight");
        assert_eq!(closed(&windows, at("2026-11-29T00:30:00Z")), opens("Sunday"));
        assert_eq!(closed(&windows, at("2026-11-30T00:29:00Z")), None, "over the week's end");
        assert_eq!(closed(&windows, at("2026-11-30T00:30:00Z")), opens("Saturday"));
    }

    #[test]
    fn no_window_is_always_and_no_day_is_every_day() {
        assert_eq!(closed(&[], at("2026-11-28T12:00:00Z")), None);
        let windows = windows(json!([{"start": "02:00", "minutes": 120}]));
        assert_eq!(closed(&windows, at("2026-11-25T03:59:00Z")), None);
        assert!(closed(&windows, at("2026-11-25T04:00:00Z")).unwrap().contains("opens Thursday 02:00"));
    }
}
