//! domain examples as tables, and properties over all workloads.

use proptest::prelude::*;

use super::*;

fn request() -> Request {
    Request {
        group: "billing".to_owned(),
        family: ClientFamily::Java,
        protocol: GroupProtocol::Classic,
        preset: None,
        goals: Goals::default(),
        settings: BTreeMap::new(),
        subscription: Subscription { partitions: 4, brokers: 1, limits: BrokerLimits::default() },
    }
}

fn with(preset: Preset, settings: &[(&str, i64)]) -> Request {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    Request { preset: Some(preset), settings, ..request() }
}

fn of(solution: &Solution, rule: Rule) -> &RuleVerdict {
    solution.verdicts.iter().find(|verdict| verdict.rule == rule).unwrap()
}

fn check(solution: &Solution, rule: Rule, verdict: Verdict, words: &[&str]) {
    let found = of(solution, rule);
    assert_eq!(found.verdict, verdict, "{}", found.message);
    for word in words {
        assert!(found.message.contains(word), "{word:?} is not in {:?}", found.message);
    }
}

#[test]
fn sets_a_to_c_of_the_tuning_lab_are_accepted() {
    for (min_bytes, wait_ms, records) in [(1, 0, 100), (64 << 10, 50, 500), (1 << 20, 1000, 5000)] {
        let asked = [("fetch.min.bytes", min_bytes), ("fetch.max.wait.ms", wait_ms), ("max.poll.records", records)];
        let solution = solve(&with(Preset::Reconciliation, &asked));
        assert!(solution.is_accepted(), "{}", solution.summary());
    }
}

#[test]
fn set_d_is_refused_with_rule_numbers_and_the_largest_value_that_works() {
    let asked = [
        ("fetch.min.bytes", 8 << 20),
        ("fetch.max.wait.ms", 1000),
        ("max.poll.records", 5000),
        ("max.partition.fetch.bytes", 1 << 20),
    ];
    let solution = solve(&with(Preset::Reconciliation, &asked));
    assert_eq!(solution.verdict(), Verdict::Refused);
    check(
        &solution,
        Rule::FetchCeiling,
        Verdict::Refused,
        &[
            "8388608 (8 MiB)",
            "4 partitions",
            "1048576 (1 MiB)",
            "1000 ms",
            "largest fetch.min.bytes that works is 4194304 (4 MiB)",
        ],
    );
    assert_eq!(
        of(&solution, Rule::FetchCeiling).works,
        Some(rules::Works { setting: "fetch.min.bytes", value: 4 << 20 })
    );
    assert!(solution.summary().starts_with("fetch-ceiling: "), "{}", solution.summary());
}

#[test]
fn the_value_that_a_refusal_offers_is_accepted() {
    let solution = solve(&with(Preset::Reconciliation, &[("fetch.min.bytes", 4 << 20), ("fetch.max.wait.ms", 1000)]));
    assert!(solution.is_accepted(), "{}", solution.summary());
}

#[test]
fn more_members_and_brokers_lower_the_ceiling() {
    let mut request = with(Preset::Reconciliation, &[("fetch.min.bytes", 2 << 20), ("fetch.max.wait.ms", 1000)]);
    request.goals.members = Some(2);
    check(&solve(&request), Rule::FetchCeiling, Verdict::Ok, &["2 partitions"]);
    request.subscription.brokers = 3;
    check(&solve(&request), Rule::FetchCeiling, Verdict::Refused, &["1 partitions", "3 brokers", "1048576 (1 MiB)"]);
}

#[test]
fn the_brokers_own_fetch_limit_counts() {
    let mut request = with(Preset::Reconciliation, &[("fetch.min.bytes", 3 << 20), ("fetch.max.wait.ms", 1000)]);
    request.subscription.limits.fetch_max_bytes = 2 << 20;
    check(&solve(&request), Rule::FetchCeiling, Verdict::Refused, &["fetch.max.bytes allows 2097152 (2 MiB)"]);
}

#[test]
fn ten_megabytes_a_second_and_fifty_milliseconds_give_about_half_a_mebibyte() {
    let mut request = request();
    request.goals = Goals {
        latency_ms: Some(50.0),
        records_per_second: Some(50_000.0),
        record_bytes: Some(200),
        work_mean_ms: Some(0.001),
        work_worst_ms: Some(0.01),
        ..Goals::default()
    };
    let solution = solve(&request);
    assert!(solution.is_accepted(), "{}", solution.summary());
    assert!((384 << 10..=512 << 10).contains(&solution.settings.fetch_min_bytes), "{:?}", solution.settings);
    assert!(solution.settings.fetch_max_wait_ms <= 50, "{:?}", solution.settings);
}

#[test]
fn presets_land_on_their_scale() {
    let of = |preset| solve(&with(preset, &[])).settings;
    let (b, c) = (of(Preset::Projection), of(Preset::Reconciliation));
    assert!(
        (8 << 10..=128 << 10).contains(&b.fetch_min_bytes) && b.fetch_max_wait_ms <= 50 && b.max_poll_records == 500,
        "{b:?}"
    );
    assert!(c.fetch_min_bytes == 1 << 20 && c.max_poll_records == 5000, "{c:?}");
    assert!(c.fetch_max_wait_ms > 105 && c.fetch_max_wait_ms <= 1000, "1 MiB at 10 MB/s takes 105 ms: {c:?}");
    let (low, fast) = (of(Preset::LowTraffic), of(Preset::LatencyCritical));
    assert!(low.fetch_min_bytes == 1 && low.fetch_max_wait_ms <= 10, "{low:?}");
    assert!(fast.fetch_min_bytes == 1 && (10..=50).contains(&fast.fetch_max_wait_ms), "{fast:?}");
}

#[test]
fn low_traffic_is_judged_by_what_arrives() {
    let mut request = request();
    request.goals.records_per_second = Some(20.0);
    request.goals.record_bytes = Some(200);
    request.settings.insert("fetch.min.bytes".into(), (1_024_000).to_string());
    let solution = solve(&request);
    check(
        &solution,
        Rule::LowTraffic,
        Verdict::Warning,
        &["5.0 records/s per partition", "256 s", "fetch.min.bytes 1"],
    );
    request.settings.clear();
    assert_eq!(solve(&request).settings.fetch_min_bytes, 1);
}

fn slow(work_worst_ms: f64, settings: &[(&str, i64)]) -> Solution {
    let mut request = with(Preset::LowTraffic, settings);
    request.goals.records_per_second = Some(0.1);
    request.goals.latency_ms = Some(3_600_000.0);
    request.goals.work_worst_ms = Some(work_worst_ms);
    solve(&request)
}

#[test]
fn work_per_poll_table() {
    check(&slow(20.0, &[("max.poll.records", 500)]), Rule::PollWork, Verdict::Ok, &["500 records", "20 ms", "10 s"]);
    check(&slow(100.0, &[("max.poll.records", 500)]), Rule::PollInterval, Verdict::Ok, &["50 s"]);
    check(
        &slow(100.0, &[("max.poll.records", 500)]),
        Rule::PollWork,
        Verdict::Warning,
        &["50 s", "at most 100 records", "workers"],
    );
    assert_eq!(slow(100.0, &[]).settings.max_poll_records, 100);
    let knative = slow(1000.0, &[("max.poll.records", 500), ("session.timeout.ms", 600_000)]);
    check(&knative, Rule::PollInterval, Verdict::Ok, &["500 s"]);
    assert!(knative.settings.max_poll_interval_ms >= 1_500_000, "the interval is computed around the records");
    let knative = slow(
        1000.0,
        &[
            ("max.poll.records", 500),
            ("max.poll.interval.ms", 300_000),
            ("session.timeout.ms", 300_000),
            ("heartbeat.interval.ms", 3_000),
        ],
    );
    check(
        &knative,
        Rule::PollInterval,
        Verdict::Refused,
        &["500 s", "at most 100 records", "at least 1500000 ms", "session.timeout.ms does not help"],
    );
}

#[test]
fn members_that_can_not_keep_up_are_unsatisfiable_and_not_a_warning() {
    let mut request = with(Preset::Projection, &[]);
    request.goals.records_per_second = Some(20_000.0);
    request.goals.members = Some(3);
    let solution = solve(&request);
    assert_eq!(solution.verdict(), Verdict::Unsatisfiable);
    check(
        &solution,
        Rule::Capacity,
        Verdict::Unsatisfiable,
        &["10000 records/s", "20000", "at least 6 members", "as many partitions (there are 4)"],
    );
    assert_eq!(solution.predicted.latency_ms, None);
}

#[test]
fn idle_members_are_named() {
    let mut request = with(Preset::Projection, &[]);
    request.goals.members = Some(7);
    check(&solve(&request), Rule::Parallelism, Verdict::Warning, &["3 members have nothing to read"]);
}

#[test]
fn a_latency_below_one_records_work_is_unsatisfiable() {
    let mut request = request();
    request.goals =
        Goals { latency_ms: Some(5.0), records_per_second: Some(10.0), work_mean_ms: Some(20.0), ..Goals::default() };
    check(&solve(&request), Rule::Latency, Verdict::Unsatisfiable, &["20 ms of work"]);
}

#[test]
fn an_explicit_wait_beyond_a_stated_latency_is_refused_with_the_largest_that_works() {
    let mut request = with(Preset::Projection, &[("fetch.min.bytes", 64 << 10), ("fetch.max.wait.ms", 500)]);
    request.goals.latency_ms = Some(100.0);
    let solution = solve(&request);
    check(&solution, Rule::Latency, Verdict::Refused, &["100 ms wanted", "fetch.max.wait.ms to at most"]);
    let works = of(&solution, Rule::Latency).works.clone().unwrap();
    request.settings.insert(works.setting.to_owned(), works.value.to_string());
    let solution = solve(&request);
    assert!(solution.is_accepted(), "{}", solution.summary());
}

#[test]
fn memory_is_kept_by_every_family_or_refused_with_the_largest_that_fits() {
    for family in ClientFamily::ALL {
        let mut request = with(Preset::Projection, &[]);
        request.family = family;
        request.subscription.partitions = 100;
        request.goals.memory_limit_bytes = Some(32 << 20);
        let solution = solve(&request);
        assert!(solution.is_accepted() && solution.predicted.memory_bytes <= 32 << 20, "{solution:?}");
        request.settings.insert("fetch.max.bytes".into(), (50 << 20).to_string());
        let refused = solve(&request);
        check(&refused, Rule::Memory, Verdict::Refused, &["33554432 (32 MiB)"]);
        let works = of(&refused, Rule::Memory).works.clone().unwrap();
        request.settings.insert(works.setting.to_owned(), works.value.to_string());
        assert!(solve(&request).is_accepted(), "{}", solve(&request).summary());
    }
    let mut request = with(Preset::Projection, &[]);
    request.goals.memory_limit_bytes = Some(100_000);
    check(&solve(&request), Rule::Memory, Verdict::Unsatisfiable, &["max.message.bytes"]);
}

#[test]
fn the_new_protocol_leaves_session_and_heartbeat_to_the_broker() {
    let mut request = with(Preset::Projection, &[]);
    request.protocol = GroupProtocol::Consumer;
    let solution = solve(&request);
    assert!(solution.is_accepted());
    for family in ClientFamily::ALL {
        let text = render::render(family, &solution.settings);
        assert!(!text.contains("session") && !text.contains("heartbeat"), "{text}");
    }
    request.settings.insert("session.timeout.ms".into(), "45000".into());
    check(&solve(&request), Rule::Session, Verdict::Refused, &["session.timeout.ms can't be set"]);
}

#[test]
fn session_rules_give_the_values_that_work() {
    let solution = solve(&with(Preset::Projection, &[("session.timeout.ms", 5_000)]));
    check(&solution, Rule::Session, Verdict::Refused, &["6000 to 1800000"]);
    let solution =
        solve(&with(Preset::Projection, &[("session.timeout.ms", 30_000), ("heartbeat.interval.ms", 15_000)]));
    check(&solution, Rule::Session, Verdict::Refused, &["largest that works is 10000"]);
    let mut request = with(Preset::Projection, &[("session.timeout.ms", 60_000), ("max.poll.interval.ms", 30_000)]);
    check(&solve(&request), Rule::Session, Verdict::Warning, &["smallest that works is 60000"]);
    request.family = ClientFamily::Librdkafka;
    check(&solve(&request), Rule::Session, Verdict::Refused, &["smallest that works is 60000"]);
}

#[test]
fn unknown_names_and_values_are_refused_with_the_nearest() {
    let mut request = request();
    request.settings.insert("fetch.min.byte".into(), "1".into());
    check(&solve(&request), Rule::SettingKnown, Verdict::Refused, &["nearest is fetch.min.bytes"]);
    request.settings = [("fetch.max.wait.ms".to_owned(), "1s".to_owned())].into();
    check(&solve(&request), Rule::SettingKnown, Verdict::Refused, &["\"1s\"", "whole number"]);
    request.settings = [("queued.min.messages".to_owned(), "1".to_owned())].into();
    check(&solve(&request), Rule::SettingKnown, Verdict::Refused, &["librdkafka"]);
}

#[test]
fn other_rules_table() {
    let solution = solve(&with(Preset::Projection, &[("fetch.max.wait.ms", 30_000)]));
    check(&solution, Rule::FetchWait, Verdict::Refused, &["up to 15000"]);
    let solution = solve(&with(Preset::Projection, &[("fetch.min.bytes", 1 << 20), ("fetch.max.wait.ms", 50)]));
    check(&solution, Rule::FetchFill, Verdict::Warning, &["no effect", "2000 records/s × 200 B"]);
    let solution = solve(&with(Preset::Reconciliation, &[("max.poll.records", 10), ("fetch.min.bytes", 1 << 20)]));
    check(&solution, Rule::PollBytes, Verdict::Warning, &["many quick polls", "nothing changes on the network"]);
    let solution = solve(&with(Preset::Reconciliation, &[("fetch.max.bytes", 100_000), ("max.poll.records", 5000)]));
    check(&solution, Rule::PollBytes, Verdict::Warning, &["at most 500 records"]);
    let mut request = with(Preset::Projection, &[("max.partition.fetch.bytes", 1 << 20)]);
    request.subscription.limits.max_message_bytes = 5 << 20;
    check(&solve(&request), Rule::RecordCeiling, Verdict::Warning, &["smallest that holds it is 5242868"]);
    request.settings = [("enable.auto.commit".to_owned(), "true".to_owned())].into();
    check(&solve(&request), Rule::Commit, Verdict::Warning, &["commit once a batch"]);
    request.family = ClientFamily::FranzGo;
    request.settings = [("fetch.max.bytes".to_owned(), (200 << 20).to_string())].into();
    check(&solve(&request), Rule::ClientLimits, Verdict::Refused, &["100 MiB"]);
}

#[test]
fn each_dialect_uses_its_own_names() {
    let settings = solve(&with(Preset::Projection, &[])).settings;
    let java = render::render(ClientFamily::Java, &settings);
    assert!(java.contains("fetch.max.wait.ms=49\n") && java.contains("CooperativeStickyAssignor"), "{java}");
    let mut request = with(Preset::Projection, &[]);
    request.family = ClientFamily::Librdkafka;
    let librdkafka = render::render(ClientFamily::Librdkafka, &solve(&request).settings);
    assert!(librdkafka.contains("fetch.wait.max.ms=49\n") && librdkafka.contains("queued.max.messages.kbytes=65536\n"));
    assert!(librdkafka.contains("receive.message.max.bytes=52429312\n"), "{librdkafka}");
    assert!(!librdkafka.lines().any(|line| line.starts_with("max.poll.records") || line.starts_with("group.protocol")));
    let go: serde_json::Value = serde_json::from_str(&render::render(ClientFamily::FranzGo, &settings)).unwrap();
    assert_eq!((go["fetchMaxWaitMs"].as_i64(), go["pollRecords"].as_i64()), (Some(49), Some(500)));
}

fn any_request() -> impl Strategy<Value = Request> {
    let family = prop::sample::select(ClientFamily::ALL.to_vec());
    let protocol = prop::sample::select(vec![GroupProtocol::Classic, GroupProtocol::Consumer]);
    let preset = prop::option::of(prop::sample::select(vec![
        Preset::Projection,
        Preset::Reconciliation,
        Preset::LowTraffic,
        Preset::LatencyCritical,
    ]));
    let goals = (
        prop::option::of(1.0..100_000.0_f64),
        prop::option::of(0.0..1_000_000.0_f64),
        prop::option::of(1_i64..2_000_000),
        prop::option::of(0.0..1_000.0_f64),
        prop::option::of(0.0..400_000.0_f64),
        prop::option::of(1_i64..200),
        prop::option::of(100_000_i64..1 << 33),
    );
    let subscription = (1_i64..500, 1_i64..20, 1_000_i64..20_000_000);
    (family, protocol, preset, goals, subscription).prop_map(|(family, protocol, preset, goals, subscription)| {
        Request {
            family,
            protocol,
            preset,
            goals: Goals {
                latency_ms: goals.0,
                records_per_second: goals.1,
                record_bytes: goals.2,
                work_mean_ms: goals.3,
                work_worst_ms: goals.4,
                members: goals.5,
                memory_limit_bytes: goals.6,
            },
            subscription: Subscription {
                partitions: subscription.0,
                brokers: subscription.1,
                limits: BrokerLimits { max_message_bytes: subscription.2, ..BrokerLimits::default() },
            },
            ..request()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn computed_settings_break_no_rule(request in any_request()) {
        let solution = solve(&request);
        for verdict in &solution.verdicts {
            prop_assert!(verdict.verdict != Verdict::Refused, "{verdict:?} {:?}", solution.settings);
            let of_the_workload = matches!(verdict.rule, Rule::Capacity | Rule::Latency | Rule::Memory | Rule::Parallelism | Rule::PollWork);
            prop_assert!(verdict.verdict == Verdict::Ok || of_the_workload, "{verdict:?} {:?}", solution.settings);
        }
        if let (true, Some(limit)) = (solution.is_accepted(), request.goals.memory_limit_bytes) {
            prop_assert!(solution.predicted.memory_bytes <= limit);
        }
        if solution.is_accepted() {
            prop_assert!(solution.predicted.latency_ms.unwrap() <= solution.workload.latency_ms);
        }
    }

    #[test]
    fn settings_are_stable_and_renderable(request in any_request()) {
        let (first, second) = (solve(&request), solve(&request));
        prop_assert_eq!(&first, &second);
        for family in ClientFamily::ALL {
            prop_assert!(render::render(family, &first.settings).ends_with('\n'));
        }
    }

    #[test]
    fn the_ceiling_that_a_refusal_offers_is_accepted_by_the_rule(request in any_request(), asked in 1_i64..2_000_000_000) {
        let mut request = request;
        request.settings.insert("fetch.min.bytes".into(), asked.to_string());
        let solution = solve(&request);
        let ceiling = of(&solution, Rule::FetchCeiling);
        if let Some(works) = &ceiling.works {
            prop_assert!(works.value < asked);
            request.settings.insert("fetch.min.bytes".into(), works.value.to_string());
            prop_assert_eq!(of(&solve(&request), Rule::FetchCeiling).verdict, Verdict::Ok);
        }
    }
}
