# Building the binaries and installing the distribution's packages. Sourced by ../cluster.
# What must hold: a binary in the cache is named by the content that it was built from, and is whole.

packages=(containerd runc containernetworking-plugins nftables iptables iproute2 util-linux procps)

# The key of the cache: the same sources and the same Go give the same binaries.
source_key() {
	{ go env GOVERSION; cd "$here"; cat go.mod go.sum ./*.go pause/*.go dns/go.mod dns/go.sum dns/*.go; } | sha256sum | cut -c1-16
}

go_build() { # DIR OUTPUT PACKAGE [LDFLAGS]
	local begin=$SECONDS
	say "building ${2##*/}"
	(cd "$here/$1" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w ${4:-}" -o "$2.part" "$3")
	mv "$2.part" "$2"
	say "built ${2##*/} in $((SECONDS - begin)) s"
}

# One build at a time, so that a second caller finds what the first one made.
build() {
	command -v go >/dev/null || die "Go 1.25 or newer is needed to build Kubernetes"
	mkdir -p "$cache"
	bin=$cache/$(source_key)
	local lock
	exec {lock}>"$cache/lock"
	flock "$lock"
	[ -e "$bin/done" ] || build_all
	touch "$bin/done"
	exec {lock}>&-
	find "$cache" -mindepth 2 -maxdepth 2 -name done -mtime +14 -printf '%h\0' | xargs -0r rm -rf
}

build_all() {
	local version minor v=k8s.io/component-base/version c=k8s.io/client-go/pkg/version
	version=$(cd "$here" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
	minor=${version#v1.}; minor=${minor%%.*}
	mkdir -p "$bin/pause.root"
	go_build . "$bin/kube" . "-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean -X $c.gitVersion=$version"
	go_build dns "$bin/coredns" .
	go_build . "$bin/pause.root/pause" ./pause
	"$bin/kube" mkimage -t "$pause_image" -o "$bin/pause.tar" -u 65535:65535 "$bin/pause.root" /pause
}

# Apart from the rest, for a cluster that brings its own Kubernetes.
provisioner_binary() {
	cached provisioner "$({ go env GOVERSION; cd "$here"; cat go.mod go.sum provisioner/*.go; } | sha256sum | cut -c1-16)" . ./provisioner
	provisioner=$binary
}

helm_binary() {
	cached helm "$(cat "$here/helm/go.mod" "$here/helm/go.sum" | sha256sum | cut -c1-16)" helm helm.sh/helm/v3/cmd/helm
	helm=$binary
}

kind_binary() {
	cached kind "$(cat "$here/kind/go.mod" "$here/kind/go.sum" | sha256sum | cut -c1-16)" kind sigs.k8s.io/kind
	kind=$binary
	# The published node image that goes with it, by digest.
	[ -s "$kind.image" ] || (
		cd "$here/kind"
		go mod download sigs.k8s.io/kind
		sed -n 's/^const Image = "\(.*\)"$/\1/p' "$(go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/pkg/apis/config/defaults/image.go" >"$kind.image.part"
		mv "$kind.image.part" "$kind.image"
	)
	published_image=$(cat "$kind.image")
}

# One program of a module of ours, built once for each content: its path is left in $binary.
cached() { # NAME KEY DIR PACKAGE
	mkdir -p "$cache"
	binary=$cache/$1-$2
	local lock
	exec {lock}>"$cache/lock.$1"
	flock "$lock"
	[ -x "$binary" ] || go_build "$3" "$binary" "$4"
	exec {lock}>&-
}

install_packages() { # PACKAGE...
	local missing=() p
	for p; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
	done
	[ ${#missing[@]} = 0 ] && return
	say "installing ${missing[*]}"
	{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "${missing[@]}"; } >"$state/logs/apt.log" 2>&1 ||
		die "packages cannot be installed: see $state/logs/apt.log"
}
