//! What a cluster of several brokers needs in every broker's configuration, the same for whoever starts it: who votes, the cluster's
//! id, and defaults under which nothing that was acknowledged is lost with one broker.

use crate::Settings;

/// Brokers that a cluster may not have, and why.
///
/// # Errors
/// The text says what would be right.
pub fn check_broker_count(brokers: i32) -> Result<(), String> {
    match brokers {
        1 | 3.. => Ok(()),
        2 => Err("2 brokers stand still when either is lost, as no majority is left: use 1, or 3 and more".to_owned()),
        _ => Err(format!("{brokers} brokers: use 1, or 3 and more")),
    }
}

/// How many of so many brokers vote on metadata, the first ones: 5 survive the loss of 2, and more would only slow each change.
#[must_use]
pub fn voter_count(brokers: i32) -> i32 {
    match brokers {
        ..=2 => 1,
        3 | 4 => 3,
        _ => 5,
    }
}

/// Adds what makes brokers one cluster. What `settings` say already about replicas stays.
///
/// `controller_address` gives the host and port of a broker's controller listener.
pub fn add_cluster_settings(
    settings: &mut Settings,
    voters: i32,
    cluster_id: &str,
    controller_address: impl Fn(i32) -> String,
) {
    let voter = |id| format!("{id}@{}", controller_address(id));
    let voters: Vec<String> = (0..voters).map(voter).collect();
    settings.insert("controller.quorum.voters".to_owned(), voters.join(","));
    settings.insert("forebay.cluster.id".to_owned(), cluster_id.to_owned());
    for (name, value) in [("default.replication.factor", "3"), ("min.insync.replicas", "2")] {
        settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BrokerConfig;

    #[test]
    fn the_first_three_or_five_vote_and_two_brokers_are_refused() {
        assert_eq!([1, 3, 4, 5, 9].map(voter_count), [1, 3, 3, 5, 5]);
        assert!([1, 3, 4, 100].iter().all(|n| check_broker_count(*n).is_ok()));
        assert!(check_broker_count(2).unwrap_err().contains("1, or 3 and more"));
        assert!(check_broker_count(0).is_err() && check_broker_count(-3).is_err());
    }

    #[test]
    fn what_is_added_can_be_read_and_what_was_said_stays() {
        let text = "node.id=3\nlisteners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093\n\
            advertised.listeners=PLAINTEXT://b3:9092,CONTROLLER://b3:9093\nlog.dirs=/a\ndefault.replication.factor=2\n";
        let mut settings = crate::parse_properties(text).unwrap();
        add_cluster_settings(&mut settings, 3, "Zm9yZWJheS1mb3JlYmF5LQ", |id| format!("b{id}:9093"));
        assert_eq!(settings["controller.quorum.voters"], "0@b0:9093,1@b1:9093,2@b2:9093");
        assert_eq!(
            (settings["default.replication.factor"].as_str(), settings["min.insync.replicas"].as_str()),
            ("2", "2")
        );
        assert_eq!(BrokerConfig::from_settings(settings).unwrap().quorum.unwrap().advertised.host, "b3");
    }
}
