//! Labels of a Cluster's children. No version: a label in a selector or claim template could never change.

use std::collections::BTreeMap;

use forebay_crds::CLUSTER_LABEL;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// On every child.
pub(crate) fn of(cluster: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "forebay-broker"),
        ("app.kubernetes.io/instance", cluster),
        ("app.kubernetes.io/component", "broker"),
        ("app.kubernetes.io/managed-by", "forebay-operator"),
        ("app.kubernetes.io/part-of", "forebay"),
        (CLUSTER_LABEL, cluster),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// What selects the brokers' pods.
pub(crate) fn selecting(cluster: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/component", "broker"), (CLUSTER_LABEL, cluster)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The same as a selector.
pub(crate) fn selector(cluster: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(selecting(cluster)), ..LabelSelector::default() }
}

/// The same as a query.
pub(crate) fn query(cluster: &str) -> String {
    selecting(cluster).iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}
