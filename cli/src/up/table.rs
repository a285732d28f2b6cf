//! The one table that `up` prints when everything is up.

use std::path::Path;

use super::state::State;
use super::topics::Outcome;
use crate::output::table;

/// Bootstrap address, topics, profile verdicts, metrics addresses.
pub(super) fn render(state: &State, topics: &[Outcome], data: &Path) -> String {
    let mut t = table(["", "name", "state", "where"]);
    t.add_row(["cluster", &state.cluster, "up", &format!("bootstrap {}", state.bootstrap)]);
    for broker in &state.brokers {
        let metrics = format!("metrics http://{}/metrics", broker.http);
        // The last thing it said is why.
        let why = broker.failed.as_ref().and_then(|failed| failed.lines().last());
        let (state, place) = why.map_or(("serves", metrics.as_str()), |why| ("did not start", why));
        t.add_row(["broker", &broker.id.to_string(), state, place]);
    }
    for topic in topics {
        let said = if topic.failed { format!("refused: {}", topic.said) } else { topic.said.clone() };
        t.add_row(["topic", &topic.name, &said, &format!("{} partitions", topic.partitions)]);
    }
    for profile in &state.profiles {
        let place = match &profile.folder {
            Some(folder) => folder.display().to_string(),
            None => profile.summary.clone(),
        };
        t.add_row(["profile", &profile.name, &profile.verdict, &place]);
    }
    t.add_row(["data", "", "kept", &data.display().to_string()]);
    format!("{t}\nCtrl-C stops it.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::BrokerState;

    #[test]
    fn everything_a_user_needs_next_is_in_it() {
        let broker = BrokerState {
            id: 0,
            pid: Some(7),
            address: "127.0.0.1:9092".to_owned(),
            http: "127.0.0.1:9644".to_owned(),
            restarts: 0,
            failed: None,
        };
        let broken = BrokerState { id: 1, failed: Some("broker 1 died\nit is damaged".to_owned()), ..broker.clone() };
        let state = State {
            cluster: "demo".to_owned(),
            pid: 1,
            bootstrap: "127.0.0.1:9092".to_owned(),
            brokers: vec![broker, broken],
            profiles: vec![],
        };
        let topic = Outcome { name: "orders".to_owned(), partitions: 4, said: "no room".to_owned(), failed: true };
        let text = render(&state, &[topic], Path::new("/data"));
        for part in [
            "bootstrap 127.0.0.1:9092",
            "http://127.0.0.1:9644/metrics",
            "orders",
            "refused: no room",
            "it is damaged",
            "/data",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
