//! What people get wrong in manifests, and what they are told.

use super::{Manifests, parse};

const CLUSTER: &str = "apiVersion: forebay.dev/v1alpha1\nkind: Cluster\nmetadata: {name: demo}\nspec: {replicas: 1, disks: [{name: data, size: 1Gi}]}\n";

fn topic(spec: &str) -> String {
    format!("{CLUSTER}---\napiVersion: forebay.dev/v1alpha1\nkind: Topic\nmetadata: {{name: orders}}\nspec: {spec}\n")
}

fn read(text: &str) -> Result<Manifests, String> {
    parse(&[("demo.yaml".to_owned(), text.to_owned())]).map_err(|errors| errors.to_string())
}

#[test]
fn the_quickstart_is_read_whole() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/quickstart.yaml")).unwrap();
    let manifests = read(&text).unwrap();
    assert_eq!(manifests.cluster.metadata.name.as_deref(), Some("quickstart"));
    assert_eq!((manifests.topics.len(), manifests.profiles.len()), (1, 1));
}

#[test]
fn a_mistyped_field_is_named_with_its_document_and_the_nearest_field() {
    let error = read(&topic("{clusterRef: {name: demo}, partitons: 4}")).unwrap_err();
    assert_eq!(
        error,
        "demo.yaml, document 2 (Topic orders): spec.partitons: unknown field; did you mean \"partitions\"?\n\
         demo.yaml, document 2 (Topic orders): spec.partitions: is missing"
    );
}

#[test]
fn wrong_types_and_ranges_are_told_with_the_value() {
    let error = read(&topic("{clusterRef: {name: demo}, partitions: four}")).unwrap_err();
    assert!(error.ends_with("spec.partitions: \"four\" must be an integer"), "{error}");
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 0}")).unwrap_err();
    assert!(error.ends_with("spec.partitions: 0 is too small, the least is 1"), "{error}");
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 1, topicName: 'a b'}")).unwrap_err();
    assert!(error.contains("spec.topicName: \"a b\" does not match"), "{error}");
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 1, reclaimPolicy: Keep}")).unwrap_err();
    assert!(error.contains("\"Keep\" is not one of Delete, Retain"), "{error}");
}

#[test]
fn a_number_that_is_none_does_not_count_as_left_out() {
    for number in [".nan", ".inf", "-.inf"] {
        let error = read(&topic(&format!("{{clusterRef: {{name: demo}}, partitions: {number}}}"))).unwrap_err();
        assert!(error.contains("is no number to go by"), "{number}: {error}");
    }
}

#[test]
fn an_unknown_setting_gets_the_nearest_one() {
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 1, config: {retention.m: 5}}")).unwrap_err();
    assert!(error.contains("spec.config.retention.m: unknown topic setting 'retention.m'; did you mean"), "{error}");
}

#[test]
fn an_unknown_kind_gets_the_nearest_one() {
    let error = read(&topic("{}").replace("kind: Topic", "kind: Topics")).unwrap_err();
    assert!(
        error.contains("\"Topics\" is not one of Cluster, Topic, ConsumerProfile; did you mean \"Topic\"?"),
        "{error}"
    );
}

#[test]
fn numbers_of_brokers_that_make_no_sense_are_refused_by_field() {
    let with = |replicas: &str| read(&CLUSTER.replace("replicas: 1", &format!("replicas: {replicas}")));
    assert!(with("3").is_ok() && with("9").is_ok());
    let error = with("2").unwrap_err();
    assert!(error.contains("demo.yaml, document 1 (Cluster demo): spec.replicas: 2 brokers stand still"), "{error}");
    assert!(with("10").unwrap_err().contains("10 brokers on one machine; at most 9"));
}

#[test]
fn a_page_cache_that_leaves_a_broker_nothing_is_refused_by_field() {
    let more = "replicas: 1, pageCache: {reserve: 1Gi}, resources: {limits: {memory: 1Gi}}";
    let error = read(&CLUSTER.replace("replicas: 1", more)).unwrap_err();
    assert!(
        error.contains("spec.pageCache.reserve: pageCache.reserve is 1Gi and resources.limits.memory is"),
        "{error}"
    );
    assert!(read(&CLUSTER.replace("replicas: 1", &more.replace("memory: 1Gi", "memory: 2Gi"))).is_ok());
}

#[test]
fn a_topic_of_another_cluster_is_refused() {
    let error = read(&topic("{clusterRef: {name: dem}, partitions: 1}")).unwrap_err();
    assert!(
        error.contains("spec.clusterRef.name: \"dem\" is not the Cluster of these manifests, \"demo\"; did you mean"),
        "{error}"
    );
}

#[test]
fn two_topics_of_one_name_are_refused_with_both_places() {
    let second = topic("{clusterRef: {name: demo}, partitions: 1}");
    let third = second
        .split_once("---")
        .unwrap()
        .1
        .replace("name: orders", "name: other")
        .replace("partitions", "topicName: orders, partitions");
    let error = read(&format!("{second}---{third}")).unwrap_err();
    assert!(
        error.contains(
            "document 3 (Topic other): spec.topicName: \"orders\" is already declared in demo.yaml, document 2"
        ),
        "{error}"
    );
}

#[test]
fn what_is_set_elsewhere_says_where() {
    let error = read(&CLUSTER.replace("replicas: 1,", "replicas: 1, config: {log.dirs: /x},")).unwrap_err();
    assert!(error.contains("spec.config.log.dirs: is not set here: use spec.disks"), "{error}");
}

#[test]
fn no_cluster_or_two_are_refused_and_broken_yaml_names_its_line() {
    let alone = topic("{clusterRef: {name: demo}, partitions: 1}");
    let error = read(alone.split_once("---\n").unwrap().1).unwrap_err();
    assert!(error.contains("no Cluster in the manifests"), "{error}");
    let error = read(&format!("{CLUSTER}---\n{CLUSTER}")).unwrap_err();
    assert!(error.contains("document 2 (Cluster demo): kind: a second Cluster"), "{error}");
    let error = read("kind: [\n").unwrap_err();
    assert!(error.contains("demo.yaml, document 1: can't be read") && error.contains("line 2"), "{error}");
}

#[test]
fn a_cluster_with_a_mistake_is_not_called_missing_too() {
    let error = read(&CLUSTER.replace("replicas: 1,", "replicaz: 1,")).unwrap_err();
    assert!(error.contains("replicaz") && !error.contains("no Cluster"), "{error}");
}

#[test]
fn empty_documents_are_passed_over() {
    assert!(read(&format!("---\n# only a comment\n---\n{CLUSTER}---\n")).is_ok());
}

#[test]
fn a_disk_size_that_is_no_quantity_is_refused_by_field() {
    for size in ["10Gx", "0Gi", "-1Gi"] {
        let error = read(&CLUSTER.replace("1Gi", size)).unwrap_err();
        let expected =
            format!("spec.disks[0].size: \"{size}\" is no size: must be a positive quantity, for example 100Gi");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_key_that_comes_twice_is_told() {
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 1, partitions: 2}")).unwrap_err();
    assert!(error.contains("the key \"partitions\" is there twice"), "{error}");
}

#[test]
fn a_name_that_kubernetes_would_not_take_is_told() {
    for name in ["Orders_X", "-a", "a.", "ü"] {
        let error = read(&topic("{clusterRef: {name: demo}, partitions: 1}").replace("orders", name)).unwrap_err();
        assert!(error.contains("metadata.name") && error.contains("is no name in Kubernetes"), "{name}: {error}");
    }
    read(&topic("{clusterRef: {name: demo}, partitions: 1}").replace("orders", "a.b-c")).unwrap();
}

#[test]
fn amounts_that_are_none_are_told() {
    for (limits, at) in [("{memory: lots}", "limits.memory"), ("{cpu: -1}", "limits.cpu")] {
        let error = read(&CLUSTER.replace("replicas: 1", &format!("replicas: 1, resources: {{limits: {limits}}}")))
            .unwrap_err();
        assert!(error.contains(at) && error.contains("is no amount"), "{error}");
    }
}

#[test]
fn a_list_and_a_number_that_is_too_large_are_told_as_what_they_are() {
    let error = read(&topic("{clusterRef: {name: demo}, partitions: 1, config: {cleanup.policy: [compact, delete]}}"))
        .unwrap_err();
    assert!(error.contains("write a list as one string, with commas between"), "{error}");
    let error =
        read(&topic("{clusterRef: {name: demo}, partitions: 1, config: {retention.ms: 99999999999999999999999}}"))
            .unwrap_err();
    assert!(error.contains("99999999999999999999999") && !error.contains("not YAML"), "{error}");
}

#[test]
fn settings_that_no_broker_can_run_with_are_told() {
    for (setting, wanted) in [
        ("offsets.topic.num.partitions: 2000000000", "10000"),
        ("background.threads: 2000000000", "1024"),
        ("num.recovery.threads.per.data.dir: 2000000000", "1024"),
        ("max.connections: 0", "1"),
    ] {
        let error = read(&CLUSTER.replace("replicas: 1", &format!("replicas: 1, config: {{{setting}}}"))).unwrap_err();
        assert!(error.contains("spec.config.") && error.contains(wanted), "{error}");
    }
}
