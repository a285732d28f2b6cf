//! A broker's pod: one container, restricted pod security, disks at their declared paths, configuration from the
//! ConfigMap, with the checksum of what is read at the start only as an annotation, so that a change of that gives a new
//! revision.

use std::collections::BTreeMap;

use forebay_broker_config::{Settings, render_properties};
use forebay_crds::Cluster;
use forebay_crds::cluster::PodTemplate;
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapProjection, ConfigMapVolumeSource, Container, ContainerPort,
    DownwardAPIProjection, DownwardAPIVolumeFile, EnvVar, EnvVarSource, HTTPGetAction, Lifecycle, LifecycleHandler,
    ObjectFieldSelector, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ProjectedVolumeSource, SeccompProfile, SecurityContext, SleepAction, TopologySpreadConstraint, Volume, VolumeMount,
    VolumeProjection, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::{
    CONTROLLER_PORT, Defaults, HTTP_PORT, KAFKA_PORT, broker_host, config_map, config_map_name, is_replicated, labels,
};
use crate::cluster::dynamic;
use crate::cluster::settled::Settled;
use crate::kube::compare;

const CONFIG_VOLUME: &str = "config";
const CONFIG_PATH: &str = "/etc/forebay";
/// On a pod: checksum of the settings that its broker has read.
pub(crate) const CHECKSUM_ANNOTATION: &str = "forebay.dev/config-checksum";
/// On a pod: the restart of all brokers that it was made for.
pub(crate) const RESTARTED_FOR_ANNOTATION: &str = "forebay.dev/restarted-for";
/// On a pod: why its broker has no rack. The broker waits for its rack until it is told one or this.
pub(crate) const NO_RACK_ANNOTATION: &str = "forebay.dev/no-rack";
/// The user and group of the image.
const USER: i64 = 65532;
/// A broker that is to stop serves on for so long: until nodes have heard that Services lead to it no more.
const SERVES_ON_SECONDS: i64 = 2;
/// Then it may take so long to hand over what it leads and to close its logs.
const STOPS_WITHIN_SECONDS: i64 = 60;

pub(super) fn template(
    cluster: &Cluster,
    defaults: &Defaults,
    settled: &Settled,
    settings: &Settings,
) -> PodTemplateSpec {
    let name = cluster.name_any();
    let wanted = cluster.spec.pod.clone().unwrap_or_default();
    let mut pod_labels = wanted.labels.clone();
    pod_labels.extend(labels::of(&name));
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(pod_labels),
            annotations: Some(annotations(cluster, &wanted, settled, settings)),
            ..ObjectMeta::default()
        }),
        spec: Some(spec(cluster, defaults, wanted)),
    }
}

fn annotations(
    cluster: &Cluster,
    wanted: &PodTemplate,
    settled: &Settled,
    settings: &Settings,
) -> BTreeMap<String, String> {
    let mut annotations = wanted.annotations.clone();
    let mut set = |name: &str, value: String| annotations.insert(name.to_owned(), value);
    // Not of what brokers take while they run: that restarts nobody.
    let read_at_start = render_properties(&dynamic::read_at_start(settings));
    set(CHECKSUM_ANNOTATION, compare::hash(&read_at_start.into()));
    if let Some(restart) = settled.restart(cluster) {
        set(RESTARTED_FOR_ANNOTATION, restart);
    }
    set("kubectl.kubernetes.io/default-container", "broker".to_owned());
    if cluster.spec.metrics.as_ref().and_then(|metrics| metrics.scrape_annotations).unwrap_or(true) {
        set("prometheus.io/scrape", "true".to_owned());
        set("prometheus.io/port", HTTP_PORT.to_string());
        set("prometheus.io/path", "/metrics".to_owned());
    }
    annotations
}

fn some<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

fn spec(cluster: &Cluster, defaults: &Defaults, wanted: PodTemplate) -> PodSpec {
    let name = cluster.name_any();
    PodSpec {
        affinity: Some(wanted.affinity.unwrap_or_else(|| different_nodes(&name))),
        automount_service_account_token: Some(false),
        containers: vec![container(cluster, defaults)],
        enable_service_links: Some(false),
        image_pull_secrets: some(wanted.image_pull_secrets),
        node_selector: some(wanted.node_selector),
        priority_class_name: wanted.priority_class_name,
        runtime_class_name: wanted.runtime_class_name,
        security_context: Some(PodSecurityContext {
            fs_group: Some(USER),
            // Walking a large data directory to change groups would push hot data out of the page cache.
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            run_as_group: Some(USER),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(SERVES_ON_SECONDS + STOPS_WITHIN_SECONDS),
        tolerations: some(wanted.tolerations),
        topology_spread_constraints: Some(match wanted.topology_spread_constraints.is_empty() {
            true => vec![over_zones(cluster)],
            false => wanted.topology_spread_constraints,
        }),
        volumes: Some(vec![config_volume(cluster)]),
        ..PodSpec::default()
    }
}

/// The brokers' file; with racks also what the broker is told of its own. A file, since an environment variable has what the pod was
/// when it came to its node, and the rack comes later.
fn config_volume(cluster: &Cluster) -> Volume {
    let (name, config_map) = (CONFIG_VOLUME.to_owned(), config_map_name(&cluster.name_any()));
    let Some(rack) = &cluster.spec.rack else {
        let config_map = ConfigMapVolumeSource { name: config_map, ..ConfigMapVolumeSource::default() };
        return Volume { name, config_map: Some(config_map), ..Volume::default() };
    };
    let file = |path: &str, field_path: String| DownwardAPIVolumeFile {
        path: path.to_owned(),
        field_ref: Some(ObjectFieldSelector { field_path, ..ObjectFieldSelector::default() }),
        ..DownwardAPIVolumeFile::default()
    };
    let told = DownwardAPIProjection {
        items: Some(vec![
            file("rack", format!("metadata.labels['{}']", rack.node_label)),
            file("no-rack", format!("metadata.annotations['{NO_RACK_ANNOTATION}']")),
        ]),
    };
    let config_map = ConfigMapProjection { name: config_map, ..ConfigMapProjection::default() };
    let sources = vec![
        VolumeProjection { config_map: Some(config_map), ..VolumeProjection::default() },
        VolumeProjection { downward_api: Some(told), ..VolumeProjection::default() },
    ];
    let projected = ProjectedVolumeSource { sources: Some(sources), ..ProjectedVolumeSource::default() };
    Volume { name, projected: Some(projected), ..Volume::default() }
}

fn container(cluster: &Cluster, defaults: &Defaults) -> Container {
    let host = broker_host(cluster, defaults, "$(POD_NAME)");
    let mut args = vec![
        "--config".to_owned(),
        format!("{CONFIG_PATH}/{}", config_map::FILE),
        "--broker-id-from".to_owned(),
        "$(POD_NAME)".to_owned(),
        "--set".to_owned(),
        format!("advertised.listeners={}", config_map::advertised(cluster, &host)),
    ];
    if cluster.spec.rack.is_some() {
        // Newer Kubernetes copies a node's zone to its pods; the operator does so for any label.
        args.extend(["--rack-from".to_owned(), CONFIG_PATH.to_owned()]);
    }
    let sleep = SleepAction { seconds: SERVES_ON_SECONDS };
    Container {
        name: "broker".to_owned(),
        image: Some(cluster.spec.image.clone().unwrap_or_else(|| defaults.broker_image.clone())),
        image_pull_policy: cluster.spec.image_pull_policy.map(|policy| policy.as_str().to_owned()),
        command: Some(vec!["/forebay-broker".to_owned()]),
        args: Some(args),
        env: Some(vec![from_pod("POD_NAME", "metadata.name")]),
        lifecycle: Some(Lifecycle {
            pre_stop: Some(LifecycleHandler { sleep: Some(sleep), ..LifecycleHandler::default() }),
            ..Lifecycle::default()
        }),
        ports: Some(ports(cluster)),
        // Recovering is alive but not ready: a broker that reads its logs must not be killed for it.
        liveness_probe: Some(probe("/livez", 10, 6)),
        readiness_probe: Some(probe("/readyz", 2, 2)),
        resources: cluster.spec.resources.clone(),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            read_only_root_filesystem: Some(true),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(mounts(cluster)),
        ..Container::default()
    }
}

fn mounts(cluster: &Cluster) -> Vec<VolumeMount> {
    let config = VolumeMount {
        name: CONFIG_VOLUME.to_owned(),
        mount_path: CONFIG_PATH.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let disks = cluster.spec.disks.iter().map(|disk| VolumeMount {
        name: disk.name.clone(),
        mount_path: disk.effective_mount_path(),
        ..VolumeMount::default()
    });
    std::iter::once(config).chain(disks).collect()
}

/// An environment variable from a field of the pod.
fn from_pod(name: &str, field_path: &str) -> EnvVar {
    let field_ref = ObjectFieldSelector { field_path: field_path.to_owned(), ..ObjectFieldSelector::default() };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field_ref), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

fn ports(cluster: &Cluster) -> Vec<ContainerPort> {
    let controller = is_replicated(cluster).then(|| port("controller", CONTROLLER_PORT));
    let more = cluster.spec.listeners.iter().map(|listener| port(&listener.name, listener.port));
    [port("kafka", KAFKA_PORT), port("http", HTTP_PORT)].into_iter().chain(controller).chain(more).collect()
}

fn port(name: &str, port: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn probe(path: &str, period_seconds: i32, failure_threshold: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(2),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    }
}

/// Wished for and not required: nodes without zones are normal too.
fn over_zones(cluster: &Cluster) -> TopologySpreadConstraint {
    let zone = "topology.kubernetes.io/zone".to_owned();
    TopologySpreadConstraint {
        label_selector: Some(labels::selector(&cluster.name_any())),
        max_skew: 1,
        topology_key: cluster.spec.rack.as_ref().map_or(zone, |rack| rack.node_label.clone()),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    }
}

/// Preferred and not required: a cluster on one node is a normal first step.
fn different_nodes(cluster: &str) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(labels::selector(cluster)),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}
