# etcd, API server, controllers, scheduler, volumes and DNS, as processes of the host. Sourced by ../cluster.

# etcd and the API server are all that `api-up` starts; in a whole cluster they are in the control plane's cgroup.
api_server_up() { # CGROUP|- BIND ADVERTISE [FLAGS...]
	local pki=$state/pki cg=$1 bind=$2 advertise=$3
	shift 3
	start etcd "$cg" - "$bin/kube" etcd --name etcd --data-dir "$state/etcd" \
		--listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
		--listen-peer-urls "http://127.0.0.1:$((etcd_port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((etcd_port + 1))" \
		--initial-cluster "etcd=http://127.0.0.1:$((etcd_port + 1))" --unsafe-no-fsync --log-level warn
	start kube-apiserver "$cg" - "$bin/kube" kube-apiserver \
		--etcd-servers "http://127.0.0.1:$etcd_port" \
		--bind-address "$bind" --advertise-address "$advertise" --secure-port "$port" \
		--service-cluster-ip-range "$service_net.0.0/16" \
		--allow-privileged --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
		--client-ca-file "$pki/ca.crt" --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
		--service-account-issuer https://kubernetes.default.svc.cluster.local \
		--service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" "$@"
	wait_for 60 'the API server' "$bin/kube" kubectl --kubeconfig "$pki/admin.kubeconfig" get --raw /readyz
}

controllers_up() { # CGROUP|- [FLAGS...]
	local pki=$state/pki cg=$1
	shift
	start kube-controller-manager "$cg" - "$bin/kube" kube-controller-manager \
		--kubeconfig "$pki/controller-manager.kubeconfig" --authentication-kubeconfig "$pki/controller-manager.kubeconfig" --authorization-kubeconfig "$pki/controller-manager.kubeconfig" \
		--bind-address 127.0.0.1 --leader-elect=false --use-service-account-credentials \
		--root-ca-file "$pki/ca.crt" --service-account-private-key-file "$pki/sa.key" \
		--flex-volume-plugin-dir "$state/plugins" "$@"
}

control_plane_up() {
	local pki=$state/pki cg=$name/control
	make_cgroup "$cg"
	api_server_up "$cg" 0.0.0.0 "$host_ip" \
		--kubelet-client-certificate "$pki/apiserver-kubelet-client.crt" --kubelet-client-key "$pki/apiserver-kubelet-client.key" \
		--kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP \
		--requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
		--requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-group-headers X-Remote-Group --requestheader-username-headers X-Remote-User \
		--proxy-client-cert-file "$pki/front-proxy-client.crt" --proxy-client-key-file "$pki/front-proxy-client.key" \
		--enable-aggregator-routing \
		--default-not-ready-toleration-seconds "${CLUSTER_EVICT_SECONDS:-30}" --default-unreachable-toleration-seconds "${CLUSTER_EVICT_SECONDS:-30}"
	controllers_up "$cg" --node-monitor-grace-period "${CLUSTER_NODE_GRACE:-20s}" \
		--cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key"
	start kube-scheduler "$cg" - "$bin/kube" kube-scheduler \
		--kubeconfig "$pki/scheduler.kubeconfig" --authentication-kubeconfig "$pki/scheduler.kubeconfig" --authorization-kubeconfig "$pki/scheduler.kubeconfig" \
		--bind-address 127.0.0.1 --leader-elect=false
	start local-provisioner "$cg" - "$provisioner" --kubeconfig "$pki/provisioner.kubeconfig" --dir "$state/volumes"
	dns_up
}

dns_up() {
	local pki=$state/pki
	# Names of the cluster come from the API; there is nothing to ask for others.
	cat >"$state/Corefile" <<-END
	cluster.local:53 in-addr.arpa:53 {
		bind $host_ip
		errors
		kubernetes cluster.local in-addr.arpa {
			kubeconfig $pki/dns.kubeconfig
			ttl 5
		}
	}
	.:53 {
		bind $host_ip
		errors
		template ANY ANY {
			rcode NXDOMAIN
		}
	}
	END
	start coredns "$name/control" - "$bin/coredns" -conf "$state/Corefile"
	kubectl apply -f "$here/lib/storage-class.yaml" >/dev/null
	kubectl apply -f - >/dev/null <<-END
	apiVersion: v1
	kind: Service
	metadata: {name: kube-dns, namespace: kube-system}
	spec:
	  clusterIP: $service_net.0.10
	  ports:
	  - {name: dns, port: 53, protocol: UDP}
	  - {name: dns-tcp, port: 53, protocol: TCP}
	---
	apiVersion: discovery.k8s.io/v1
	kind: EndpointSlice
	metadata:
	  name: kube-dns-host
	  namespace: kube-system
	  labels: {kubernetes.io/service-name: kube-dns}
	addressType: IPv4
	ports:
	- {name: dns, port: 53, protocol: UDP}
	- {name: dns-tcp, port: 53, protocol: TCP}
	endpoints:
	- addresses: [$host_ip]
	  conditions: {ready: true}
	END
}

