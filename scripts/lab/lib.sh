# lib.sh is what the builds of the lab's machines share: a Debian root, the initial file system with the agent, and helpers.
# Sourced with $repo set.

suite=bookworm # of the root
lab=${LAB_DIR:-$repo/build/lab}
root=$lab/root
packages=iproute2,iputils-ping,ethtool,kmod,procps,rdma-core,rdmacm-utils,ibverbs-utils,ibverbs-providers,perftest,fio

say() { printf 'lab: %s\n' "$*"; }
die() { printf 'lab: error: %s\n' "$*" >&2; exit 1; }
log=$lab/build.log

# quiet NAME COMMAND...: run it with its output in the log, and show the log's end when it fails.
quiet() {
	what=$1; shift
	if ! "$@" >>"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "$what failed; the whole log is $log"
	fi
}

# fresh STAMP FILE...: true when the stamp exists and no FILE is newer.
fresh() {
	stamp=$lab/stamp/$1; shift
	[ -e "$stamp" ] || return 1
	for f; do
		[ ! "$f" -nt "$stamp" ] || return 1
	done
}
stamp() { : >"$lab/stamp/$1"; }

in_root() {
	chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
		${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

# apt_repos: "URI SUITE-CODENAME" for each Debian repository of $suite that the host's apt knows.
apt_repos() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$1 == "Debian" {print $3, $4}' | sort -u
}

host_tools() {
	missing=
	for pair in qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap cpio:cpio xz:xz-utils tcpdump:tcpdump tshark:tshark ethtool:ethtool ip:iproute2 ping:iputils-ping; do
		command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
	done
	command -v go >/dev/null || die "no go in PATH: the guest agent is a Go program"
	[ -n "$missing" ] || return 0
	[ "${LAB_INSTALL:-1}" != 0 ] || die "these packages are missing:$missing (LAB_INSTALL=0 forbids installing them)"
	command -v apt-get >/dev/null || die "these tools are missing and there is no apt-get to get them:$missing"
	say "installing on this host:$missing"
	quiet "apt-get update" apt-get update
	quiet "apt-get install" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

mirror() {
	if [ -n "${LAB_MIRROR:-}" ]; then
		echo "$LAB_MIRROR"
		return
	fi
	command -v apt-get >/dev/null || die "no apt here to take a mirror from; set LAB_MIRROR"
	found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}')
	[ -n "$found" ] || { apt-get update >>"$log" 2>&1 || true; found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}'); }
	[ -n "$found" ] || die "this host's apt knows no Debian mirror; set LAB_MIRROR to one (the URI that has dists/$suite below it)"
	echo "$found"
}

make_root() {
	fresh root "$repo/scripts/lab/lib.sh" && return 0
	uri=$(mirror)
	say "debootstrap $suite (minbase)"
	rm -rf "$root"
	quiet debootstrap debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$uri"
	# The host's own suites (updates, security) keep the kernel current; never more than Debian's.
	{
		echo "deb $uri $suite main"
		apt_repos | awk -v s="$suite" '$2 == s "-updates" || $2 == s "-security" {print "deb", $1, $2, "main"}'
	} >"$root/etc/apt/sources.list"
	# A kernel step that was cut short must not find its own leavings.
	rm -f "$lab/stamp/kernel"
	stamp root
}

# pack_initrd NAME VERSION FILE...: the agent as /init, and the modules of that kernel that it loads, in the order of /modules. Made anew
# when a FILE is newer.
pack_initrd() {
	name=$1 version=$2; shift 2
	fresh "$name" "$repo"/scripts/lab/agent/*.go "$repo"/scripts/lab/proto/*.go "$repo/scripts/lab/lib.sh" "$@" && return 0
	say "$name with the guest agent"
	rm -rf "$lab/initrd.d"; mkdir -p "$lab/initrd.d/lib"
	(cd "$repo" && CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags '-s -w' -o "$lab/initrd.d/init" ./scripts/lab/agent) ||
		die "the guest agent does not compile"
	: >"$lab/initrd.d/modules"
	for m in virtio_pci 9pnet_virtio 9p overlay virtio_console; do
		in_root modprobe -S "$version" --show-depends "$m" >"$lab/deps.all" 2>>"$log" || die "kernel $version has no module $m"
		awk '$1 == "insmod" {print $2}' "$lab/deps.all" >"$lab/deps"
		while read -r path; do
			file=$(basename "$path" .xz)
			[ -e "$lab/initrd.d/lib/$file" ] && continue
			# xz passes on what is not compressed.
			xz -dcf "$root/$path" >"$lab/initrd.d/lib/$file" || die "module $path is missing in the root"
			echo "/lib/$file" >>"$lab/initrd.d/modules"
		done <"$lab/deps"
	done
	(cd "$lab/initrd.d" && find . | cpio --quiet -o -H newc | gzip -1 >"$lab/$name.new") || die "cpio failed"
	mv "$lab/$name.new" "$lab/$name"
	rm -rf "$lab/initrd.d" "$lab/deps" "$lab/deps.all"
	stamp "$name"
}

# begin checks the host and takes the lock of all builds.
begin() {
	[ "$(uname -m)" = x86_64 ] || die "the lab is built for x86_64 only, this is $(uname -m)"
	[ "$(id -u)" = 0 ] || die "must be root (debootstrap, chroot, network namespaces)"
	mkdir -p "$lab/stamp"
	# Neither git nor the go tool shall look in here.
	echo '*' >"$lab/.gitignore"
	echo 'module lab-cache' >"$lab/go.mod"
	exec 9>"$lab/lock"
	flock -w 900 9 || die "another build holds $lab/lock"
}
