# A node: containerd, kubelet and kube-proxy in a network namespace. Sourced by ../cluster.

node_config() { # NUMBER
	local i=$1 d=$state/node-$1 pki=$state/pki
	mkdir -p "$d/cni" "$d/kubelet" "$d/pod-logs" "$d/plugins" "$d/manifests"
	: >"$d/resolv.conf"
	cat >"$d/cni/10-$name.conflist" <<-END
	{"cniVersion": "1.0.0", "name": "$name", "plugins": [
	  {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "$d/ipam",
	   "ranges": [[{"subnet": "$pod_net.$i.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
	  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	END
	cat >"$d/containerd.toml" <<-END
	version = 2
	root = "$d/containerd/root"
	state = "$d/containerd/state"
	disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
	[grpc]
	  address = "$d/containerd.sock"
	[plugins."io.containerd.grpc.v1.cri"]
	  sandbox_image = "$pause_image"
	  netns_mounts_under_state_dir = true
	  restrict_oom_score_adj = true
	  enable_unprivileged_ports = true
	  enable_unprivileged_icmp = true
	  [plugins."io.containerd.grpc.v1.cri".cni]
	    bin_dir = "$cni_bin"
	    conf_dir = "$d/cni"
	  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
	    runtime_type = "io.containerd.runc.v2"
	    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
	      Root = "$d/containerd/runc"
	END
	cat >"$d/kubelet.yaml" <<-END
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication:
	  anonymous: {enabled: false}
	  webhook: {enabled: true}
	  x509: {clientCAFile: $pki/ca.crt}
	authorization: {mode: Webhook}
	tlsCertFile: $pki/kubelet-serving-node-$i.crt
	tlsPrivateKeyFile: $pki/kubelet-serving-node-$i.key
	containerRuntimeEndpoint: unix://$d/containerd.sock
	cgroupDriver: cgroupfs
	cgroupRoot: /$name/node-$i
	failCgroupV1: false
	failSwapOn: false
	clusterDomain: cluster.local
	clusterDNS: [$service_net.0.10]
	resolvConf: $d/resolv.conf
	podLogsDir: $d/pod-logs
	volumePluginDir: $d/plugins
	nodeStatusUpdateFrequency: 4s
	serializeImagePulls: false
	imageGCHighThresholdPercent: 100
	imageGCLowThresholdPercent: 99
	evictionHard: {memory.available: 100Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
	allowedUnsafeSysctls: ["net.*", "kernel.shm*", "kernel.msg*", "kernel.sem", "fs.mqueue.*"]
	END
	cat >"$d/kube-proxy.yaml" <<-END
	apiVersion: kubeproxy.config.k8s.io/v1alpha1
	kind: KubeProxyConfiguration
	clientConnection: {kubeconfig: $pki/proxy.kubeconfig}
	mode: ${CLUSTER_PROXY_MODE:-nftables}
	hostnameOverride: node-$i
	clusterCIDR: $pod_net.0.0/16
	detectLocalMode: ClusterCIDR
	conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	END
}

node_up() { # NUMBER
	local i=$1 d=$state/node-$1 ns=$name-node-$1 cg=$name/node-$1/daemons
	make_cgroup "$cg"
	node_network_up "$i"
	start "containerd-$i" "$cg" "$ns" containerd --config "$d/containerd.toml"
	wait_for 30 "containerd of node $i" ctr -a "$d/containerd.sock" version
	node_ctr "$i" images import "$bin/pause.tar" >/dev/null
	start "kubelet-$i" "$cg" "$ns" "$bin/kube" kubelet --config "$d/kubelet.yaml" --kubeconfig "$state/pki/kubelet-node-$i.kubeconfig" \
		--root-dir "$d/kubelet" --hostname-override "node-$i" --node-ip "$node_net.$((10 + i))" \
		--node-labels "topology.kubernetes.io/region=test,topology.kubernetes.io/zone=zone-$i"
	start "kube-proxy-$i" "$cg" "$ns" "$bin/kube" kube-proxy --config "$d/kube-proxy.yaml"
}

node_ctr() { # NUMBER ARGS...
	local i=$1
	shift
	ctr -a "$state/node-$i/containerd.sock" -n k8s.io "$@"
}

# All at once, as when the power goes.
node_down() { # NUMBER
	local d=$state/node-$1 id
	kill_cgroup "$name/node-$1"
	# What the runtime leaves elsewhere: a shim's socket is named by containerd's
	# address and the pod, and the network's results by the pod.
	for id in "$d"/containerd/state/io.containerd.runtime.v2.task/k8s.io/*; do
		id=${id##*/}
		rm -f "/run/containerd/s/$(printf %s "$d/containerd.sock/k8s.io/$id" | sha256sum | cut -d' ' -f1)" \
			"/var/lib/cni/results/$name-$id-eth0" "/var/lib/cni/results/cni-loopback-$id-lo"
	done
	rm -f "$state/pids/containerd-$1" "$state/pids/kubelet-$1" "$state/pids/kube-proxy-$1"
	node_network_down "$1"
	unmount_under "$d"
	remove_cgroup "$name/node-$1"
	rm -rf --one-file-system "$d/containerd/state" "$d/containerd/runc" "$d/ipam" "$d/containerd.sock" "$d/containerd.sock.ttrpc"
}

node_number() { # NAME
	local i=${1#node-}
	[ -d "$state/node-$i" ] || die "no node $1"
	echo "$i"
}

