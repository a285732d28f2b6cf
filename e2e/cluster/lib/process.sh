# Processes, cgroups and mounts. Sourced by ../cluster.
# What must hold: all that a cluster starts is in its own cgroups, so that stopping it kills that and nothing else.

cgroups=/sys/fs/cgroup
# Each hierarchy that is mounted, of version 1 and 2 alike.
hierarchies() {
	local h
	[ -e $cgroups/cgroup.procs ] && echo $cgroups
	for h in $cgroups/*/cgroup.procs; do
		h=${h%/cgroup.procs}
		mountpoint -q "$h" && echo "$h"
	done
}

make_cgroup() { # PATH
	local h p f
	hierarchies | while read -r h; do
		p=$h
		for f in ${1//\// }; do
			mkdir -p "$p/$f"
			# A new cpuset has no CPUs and no memory of its own.
			if [ -e "$p/cpuset.cpus" ] && [ -e "$p/$f/cpuset.mems" ]; then
				[ -n "$(cat "$p/$f/cpuset.cpus")" ] || cat "$p/cpuset.cpus" >"$p/$f/cpuset.cpus"
				[ -n "$(cat "$p/$f/cpuset.mems")" ] || cat "$p/cpuset.mems" >"$p/$f/cpuset.mems"
			fi
			p=$p/$f
		done
	done
}

cgroup_pids() { # PATH: every process in it and below it, in any hierarchy
	hierarchies | while read -r h; do
		[ -d "$h/$1" ] && find "$h/$1" -name cgroup.procs -exec cat {} + 2>/dev/null
	done | sort -un | grep -vx 0 || true
}

kill_cgroup() { # PATH: kill all that is in it, until nothing is
	local try pids
	for try in {1..100}; do
		pids=$(cgroup_pids "$1")
		[ -n "$pids" ] || return 0
		kill -KILL $pids 2>/dev/null || true
		sleep 0.1
	done
	die "processes stay in cgroup $1: $pids"
}

remove_cgroup() { # PATH
	local h try
	hierarchies | while read -r h; do
		[ -d "$h/$1" ] || continue
		for try in {1..50}; do
			find "$h/$1" -depth -type d -exec rmdir {} + 2>/dev/null && break
			sleep 0.1
		done
		[ ! -d "$h/$1" ] || say "cgroup $h/$1 stays"
	done
}

started_at() { # PID: when it started, so that a reused number is not mistaken
	[ -r "/proc/$1/stat" ] && sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

start() { # NAME CGROUP|- NETNS|- COMMAND...
	local id=$1 cgroup=$2 netns=$3 pid h
	shift 3
	[ "$netns" = - ] || set -- nsenter "--net=/run/netns/$netns" "$@"
	(
		# A lock that the caller holds would be held for as long as this runs.
		for fd in /proc/self/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		[ "$cgroup" = - ] || for h in $(hierarchies); do echo "$BASHPID" >"$h/$cgroup/cgroup.procs"; done
		exec setsid "$@" </dev/null >>"$state/logs/$id.log" 2>&1
	) &
	pid=$!
	echo "$pid $(started_at "$pid")" >"$state/pids/$id"
}

running() { # NAME
	local pid at
	[ -e "$state/pids/$1" ] || return 1
	read -r pid at <"$state/pids/$1"
	[ "$(started_at "$pid")" = "$at" ]
}

wait_for() { # SECONDS WHAT COMMAND...
	local end=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || die "$what does not come: see $state/logs"
		sleep 0.2
	done
}

unmount_under() { # DIR
	local m
	awk -v d="$1/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | while read -r m; do
		umount "$m" 2>/dev/null || umount -l "$m" || say "$m stays mounted"
	done
}

