# lib.sh has the functions that the build scripts of the lab's machines share: for a Debian root, the initial file
# system with the agent, and unpacked packages. The scripts source it after they have set $repo.

suite=bookworm # the Debian suite of the root
lab=${LAB_DIR:-$repo/build/lab}
root=$lab/root
foreign_packages=iproute2,iputils-ping,ethtool,kmod,procps # packages of roots for other processors
packages=$foreign_packages,rdma-core,rdmacm-utils,ibverbs-utils,ibverbs-providers,perftest,fio
packages=$packages,strongswan-charon,strongswan-swanctl,libstrongswan-standard-plugins,tcpdump,xdp-tools

say() { printf 'lab: %s\n' "$*"; }
die() { printf 'lab: error: %s\n' "$*" >&2; exit 1; }
log=$lab/build.log

# quiet NAME COMMAND... runs a command with its output in the log. If it fails, quiet prints the end of the log and
# exits.
quiet() {
	what=$1; shift
	if ! "$@" >>"$log" 2>&1; then
		tail -n 20 "$log" >&2
		die "$what failed; the whole log is $log"
	fi
}

# fresh STAMP FILE... is true if the stamp exists and no FILE is newer.
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

# apt_repos prints a line "URI SUITE" for each Debian repository in the apt sources of this host.
apt_repos() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(RELEASE)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' '$1 == "Debian" {print $3, $4}' | sort -u
}

host_tools() {
	missing=
	for pair in qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap cpio:cpio xz:xz-utils depmod:kmod tcpdump:tcpdump tshark:tshark ethtool:ethtool ip:iproute2 ping:iputils-ping; do
		command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
	done
	command -v go >/dev/null || die "no go in PATH: the guest agent is a Go program"
	[ -n "$missing" ] || return 0
	[ "${LAB_INSTALL:-1}" != 0 ] || die "missing packages:$missing (LAB_INSTALL=0 forbids installing them)"
	command -v apt-get >/dev/null || die "missing tools, and no apt-get to install them:$missing"
	say "installing on this host:$missing"
	quiet "apt-get update" apt-get update
	quiet "apt-get install" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

mirror() {
	if [ -n "${LAB_MIRROR:-}" ]; then
		echo "$LAB_MIRROR"
		return
	fi
	command -v apt-get >/dev/null || die "cannot find a mirror: there is no apt-get; set LAB_MIRROR"
	found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}')
	[ -n "$found" ] || { apt-get update >>"$log" 2>&1 || true; found=$(apt_repos | awk '$2 !~ /security|updates|backports/ {print $1; exit}'); }
	[ -n "$found" ] || die "cannot find a Debian mirror in this host's apt sources; set LAB_MIRROR (the URI above dists/$suite)"
	echo "$found"
}

make_root() {
	fresh root "$repo/scripts/lab/lib.sh" && return 0
	uri=$(mirror)
	say "debootstrap $suite (minbase)"
	rm -rf "$root"
	quiet debootstrap debootstrap --variant=minbase --include="$packages" "$suite" "$root" "$uri"
	# The updates and security suites of this host's apt sources provide the current kernel of $suite.
	{
		echo "deb $uri $suite main"
		apt_repos | awk -v s="$suite" '$2 == s "-updates" || $2 == s "-security" {print "deb", $1, $2, "main"}'
	} >"$root/etc/apt/sources.list"
	# The kernel step must run again in the new root.
	rm -f "$lab/stamp/kernel"
	stamp root
}

# at_least VERSION FLOOR is true if VERSION is FLOOR or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# make_lists NAME ARCHITECTURE SUITE... prepares apt_of NAME: it will use these suites of Debian and no others.
make_lists() {
	list=$1 architecture=$2; shift 2
	uri=$(mirror)
	for s; do echo "deb $uri $s main"; done >"$root/etc/apt/$list.list"
	cat >"$root/etc/apt/$list.conf" <<-CONF
		APT::Architecture "$architecture";
		APT::Architectures "$architecture";
		Dir::Etc::sourcelist "/etc/apt/$list.list";
		Dir::Etc::sourceparts "-";
		Dir::State::lists "/var/lib/apt/$list";
		Dir::State::status "/dev/null";
		Dir::Cache "/var/cache/apt/$list";
		Acquire::Languages "none";
		Acquire::Check-Valid-Until "false"; // mirrors lag behind
		APT::Sandbox::User "root";
	CONF
	mkdir -p "$root/var/lib/apt/$list/partial" "$root/var/cache/apt/$list/archives/partial" "$root/debs"
	rm -f "$root"/debs/*.deb
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	quiet "apt-get update" apt_of "$list" apt-get update
}

# apt_of NAME TOOL ARG... runs an apt tool in the root, in its directory /debs, with the configuration of make_lists
# NAME.
apt_of() {
	list=$1; shift
	in_root sh -c 'cd /debs && APT_CONFIG=$0 exec "$@"' "/etc/apt/$list.conf" "$@"
}

# newest_version LIST PACKAGE prints the newest version of a package for apt_of LIST.
newest_version() { apt_of "$1" apt-cache madison "$2" | awk -F'|' '{gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1; }

# unpack DIRECTORY unpacks the downloaded packages into a directory and removes them. Symbolic links to directories stay
# links.
unpack() {
	for deb in "$root"/debs/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$1" --keep-directory-symlink || die "cannot unpack $deb"
	done
	rm -f "$root"/debs/*.deb
}

# unpack_kernel LIST VERSION ARCHITECTURE DIRECTORY SUFFIX unpacks a kernel and its modules into a root directory, and
# writes vmlinuz$SUFFIX and kernel-version$SUFFIX in $lab. The kernel is not installed, so that it needs no boot loader
# and no initramfs generator.
unpack_kernel() {
	image=$(apt_of "$1" apt-cache show "linux-image-$3=$2" | sed -n 's/^Depends: .*linux-image-\([^ ]*\) .*/\1/p')
	# Since 7.3 the package of the image only depends on packages of base, kernel and modules.
	parts=$(apt_of "$1" apt-cache show "linux-image-$image" | tr ', ' '\n\n' | grep -xE 'linux-(base|binary|modules)-.*' || true)
	say "kernel $image ($2)"
	quiet "downloading the kernel" apt_of "$1" apt-get download ${parts:-linux-image-$image}
	unpack "$4"
	for file in "$4/boot/vmlinuz-$image" "$4/usr/lib/modules/$image/vmlinuz"; do
		[ ! -e "$file" ] || cp "$file" "$lab/vmlinuz$5"
	done
	[ -e "$lab/vmlinuz$5" ] || die "no vmlinuz in the packages of $image"
	quiet depmod depmod -b "$4" "$image"
	echo "$image" >"$lab/kernel-version$5"
}

# unpack_qemu LIST SUITE PACKAGE PROGRAM DIRECTORY unpacks the emulator of a suite into a directory, without installing
# it.
unpack_qemu() {
	rm -rf "$5"; mkdir -p "$5"
	version=$(apt_of "$1" apt-cache madison "$3" | awk -F'|' '$3 ~ /'"$2"'/ {gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1)
	quiet "downloading qemu" apt_of "$1" apt-get download "$3=$version"
	unpack "$5"
	"$5/usr/bin/$4" --version >>"$log" 2>&1 || die "$3 $version does not run on this host: see $5"
}

# pack_initrd NAME VERSION DIRECTORY ARCHITECTURE FILE... makes the initial file system $lab/NAME. It has the agent as
# /init, the modules that the agent loads, from the kernel VERSION in DIRECTORY, and /modules with their order. It is
# made again if a FILE is newer.
pack_initrd() {
	name=$1 version=$2 from=$3 architecture=$4; shift 4
	fresh "$name" "$repo"/scripts/lab/agent/*.go "$repo"/scripts/lab/proto/*.go "$repo/scripts/lab/lib.sh" "$@" && return 0
	say "$name with the guest agent"
	rm -rf "$lab/initrd.d"; mkdir -p "$lab/initrd.d/lib"
	(cd "$repo" && CGO_ENABLED=0 GOOS=linux GOARCH="$architecture" go build -trimpath -ldflags '-s -w' -o "$lab/initrd.d/init" ./scripts/lab/agent) ||
		die "the guest agent does not compile"
	: >"$lab/initrd.d/modules"
	for m in virtio_pci 9pnet_virtio 9p overlay virtio_console; do
		modprobe -d "$from" -S "$version" --show-depends "$m" >"$lab/deps.all" 2>>"$log" || die "kernel $version has no module $m"
		awk '$1 == "insmod" {print $2}' "$lab/deps.all" >"$lab/deps"
		while read -r path; do
			file=$(basename "$path" .xz)
			[ -e "$lab/initrd.d/lib/$file" ] && continue
			# xz -f copies a file that is not compressed.
			xz -dcf "$path" >"$lab/initrd.d/lib/$file" || die "module $path is missing in the root"
			echo "/lib/$file" >>"$lab/initrd.d/modules"
		done <"$lab/deps"
	done
	(cd "$lab/initrd.d" && find . | cpio --quiet -o -H newc | gzip -1 >"$lab/$name.new") || die "cpio failed"
	mv "$lab/$name.new" "$lab/$name"
	rm -rf "$lab/initrd.d" "$lab/deps" "$lab/deps.all"
	stamp "$name"
}

# begin checks the host, makes $lab and takes the lock that all builds share.
begin() {
	[ "$(uname -m)" = x86_64 ] || die "the lab needs x86_64; this host is $(uname -m)"
	[ "$(id -u)" = 0 ] || die "must be root (debootstrap, chroot, network namespaces)"
	mkdir -p "$lab/stamp"
	# git and the go command must ignore the directory.
	echo '*' >"$lab/.gitignore"
	echo 'module lab-cache' >"$lab/go.mod"
	exec 9>"$lab/lock"
	flock -w 900 9 || die "another build holds $lab/lock"
}
