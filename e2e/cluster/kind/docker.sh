# The Docker that runs the nodes: the one that is there, else one of our own, in a network namespace. Sourced by ./cluster.
# What must hold: our own Docker changes no packet filter but its namespace's, and all that it starts is in our cgroups.

is_own_docker() { [ -e "$state/own-docker" ]; }

# Whichever `up` has chosen.
find_docker() {
	[ -n "$(command -v docker)" ] || PATH=$PATH:$docker_cache/programs/usr/bin
	! is_own_docker || export DOCKER_HOST=unix://$state/docker.sock
}

docker_up() {
	find_docker
	if docker version >"$state/logs/docker-version.log" 2>&1; then return; fi
	[ "$(id -u)" = 0 ] || die "no Docker answers, and only root can start one: $(tail -1 "$state/logs/docker-version.log")"
	install_packages containerd runc iptables nftables iproute2 util-linux procps python3 libdevmapper1.02.1
	docker_programs
	touch "$state/own-docker"
	find_docker
	docker_network_up
	make_cgroup "$name/daemons"
	make_cgroup "$name/nodes"
	local data=$docker_cache/docker
	mkdir -p "$data"
	cat >"$state/containerd.toml" <<-END
	version = 2
	root = "$data/containerd"
	state = "$state/containerd"
	disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
	[grpc]
	  address = "$state/containerd.sock"
	END
	start containerd "$name/daemons" "$name" containerd --config "$state/containerd.toml"
	wait_for 30 'containerd' ctr -a "$state/containerd.sock" version
	start dockerd "$name/daemons" "$name" "$docker_cache/programs/usr/sbin/dockerd" --host "$DOCKER_HOST" --containerd "$state/containerd.sock" \
		--data-root "$data" --exec-root "$state/docker" --pidfile "$state/dockerd.pid" --cgroup-parent "/$name/nodes" \
		--add-runtime "bounded=$here/kind/runc-bounded" --default-runtime bounded \
		--default-address-pool "base=$docker_net.0.0/16,size=24" --userland-proxy=false
	wait_for 60 'dockerd' docker version
	# Docker drops what comes from outside to a container: let this host reach nodes.
	nsenter "--net=/run/netns/$name" iptables -w -I DOCKER-USER -i eth0 -j ACCEPT
}

# Unpacked and not installed: a package that is installed starts its daemon on the host.
docker_programs() {
	[ ! -x "$docker_cache/programs/usr/sbin/dockerd" ] || return 0
	local work=$docker_cache/programs.part
	rm -rf "$work"
	mkdir -p "$work"
	say 'fetching docker'
	(cd "$work" && { apt-get update && apt-get download docker.io && { apt-get download docker-cli || true; }; } >"$state/logs/apt.log" 2>&1) ||
		die "Docker cannot be fetched: see $state/logs/apt.log"
	for package in "$work"/*.deb; do dpkg -x "$package" "$work"; done
	rm -f "$work"/*.deb
	rm -rf "$docker_cache/programs"
	mv "$work" "$docker_cache/programs"
}

docker_network_up() {
	ip netns add "$name"
	ip link add "${name}0" type veth peer name eth0 netns "$name"
	ip addr add "$link_net.1/24" dev "${name}0"
	ip link set "${name}0" up
	ip -n "$name" addr add "$link_net.2/24" dev eth0
	ip -n "$name" link set lo up
	ip -n "$name" link set eth0 up
	ip route add "$docker_net.0.0/16" via "$link_net.2"
}

# A node needs more of them than a kernel gives to a user; only root can say so.
more_inotify() {
	local now
	now=$(sysctl -n fs.inotify.max_user_instances)
	[ "$now" -lt 1024 ] || return 0
	sysctl -qw fs.inotify.max_user_instances=1024 2>/dev/null || { say "fs.inotify.max_user_instances is $now: kubelets may not start"; return 0; }
	echo "fs.inotify.max_user_instances = $now" >"$state/sysctl"
}

docker_down() {
	[ ! -e "$state/sysctl" ] || sysctl -q -p "$state/sysctl" || true
	is_own_docker || return 0
	# In order, so that its images are whole the next time.
	if running dockerd; then
		kill "$(cut -d' ' -f1 "$state/pids/dockerd")"
		for _ in {1..100}; do
			running dockerd || break
			sleep 0.1
		done
	fi
	local shims=("$state"/containerd/io.containerd.runtime.v2.task/moby/*) id
	kill_cgroup "$name"
	for id in "${shims[@]}"; do
		rm -f "/run/containerd/s/$(printf %s "$state/containerd.sock/moby/${id##*/}" | sha256sum | cut -d' ' -f1)"
	done
	ip link del "${name}0" 2>/dev/null || true
	ip netns del "$name" 2>/dev/null || true
	unmount_under "$state"
	unmount_under "$docker_cache/docker"
	remove_cgroup "$name"
}
