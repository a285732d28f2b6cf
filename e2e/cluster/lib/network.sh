# The network of the host and of each node. Sourced by ../cluster.

# Docker, where it runs, drops forwarded frames: let those between nodes pass.
forward_rule() { iptables -w "$1" FORWARD -i "$bridge" -o "$bridge" -m comment --comment "$name" -j ACCEPT; }

network_up() {
	ip link add "$bridge" type bridge
	ip addr add "$host_ip/24" dev "$bridge"
	ip link set "$bridge" up
	forward_rule -I
}

network_down() {
	while forward_rule -D 2>/dev/null; do :; done
	ip link del "$bridge" 2>/dev/null || true
}

# A node is a network namespace with a leg in the bridge. Only the network is
# its own: mounts, processes and devices are the host's.
node_network_up() { # NUMBER
	local i=$1 ns=$name-node-$1 j
	ip netns add "$ns"
	ip link add "$name-n$i" type veth peer name eth0 netns "$ns"
	ip link set "$name-n$i" master "$bridge" up
	ip -n "$ns" addr add "$node_net.$((10 + i))/24" dev eth0
	ip -n "$ns" link set lo up
	ip -n "$ns" link set eth0 up
	ip -n "$ns" route add default via "$host_ip"
	nsenter --net="/run/netns/$ns" sysctl -qw net.ipv4.ip_forward=1
	for ((j = 1; j <= $(cat "$state/nodes"); j++)); do
		[ "$j" = "$i" ] || ip -n "$ns" route add "$pod_net.$j.0/24" via "$node_net.$((10 + j))"
	done
	ip route replace "$pod_net.$i.0/24" via "$node_net.$((10 + i))"
	# The host, and with it the API server, reaches services through node 1.
	[ "$i" != 1 ] || ip route replace "$service_net.0.0/16" via "$node_net.11"
}

node_network_down() { # NUMBER
	ip link del "$name-n$1" 2>/dev/null || true
	ip netns del "$name-node-$1" 2>/dev/null || true
}

