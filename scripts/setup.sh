#!/bin/sh
# setup.sh installs the missing packages that a make target needs in addition to Go, on Debian and Ubuntu.
#
#   scripts/setup.sh test       tshark: independent decoder of the capture tests; strace: order of writes to the disk,
#                               system calls of workers; promtool: alert rules; headless Chromium: tests of the status
#                               page; systemd: runs the installed unit in a namespace; gcc and rdma-core headers:
#                               library of xwarp run; RDMA programs to run over it; OpenSSH and sudo: nic-check; ethtool
#   scripts/setup.sh arch       qemu-user: runs programs for other processors
#   scripts/setup.sh generate   clang and llvm: the eBPF compiler
#
# It prints the packages and their size, and its progress twice a minute. It never prompts. Without root it uses sudo.
set -eu

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

root=$(cd "$(dirname "$0")/.." && pwd)

check_go() {
	command -v go >/dev/null || die "go is not in PATH: install Go from https://go.dev/dl/"
	# go version fails in the repository if go is older than go.mod requires and may not download a newer toolchain.
	(cd "$root" && go version >/dev/null) || die "this Go is older than go.mod asks for: see https://go.dev/dl/"
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "root is needed for: $* (there is no sudo here; run make as root)"
	fi
}

# need COMMAND PACKAGE adds the package to $missing if the command is missing.
missing=
need() {
	command -v "$1" >/dev/null || missing="$missing $2"
}

# need_verbs adds missing packages that the library for unmodified RDMA programs needs for its build and its tests.
need_verbs() {
	need gcc gcc
	need g++ g++
	need valgrind valgrind
	for pair in ibv_devinfo:ibverbs-utils ibstat:infiniband-diags prometheus-node-exporter:prometheus-node-exporter rping:rdmacm-utils ib_write_bw:perftest fio:fio qperf:qperf fi_pingpong:libfabric-bin ucx_info:ucx-utils \
		qemu-io:qemu-utils qemu-system-x86_64:qemu-system-x86 curl:curl mpirun:openmpi-bin mpicc:libopenmpi-dev; do
		need "${pair%:*}" "${pair#*:}"
	done
	[ -e /usr/lib/python3/dist-packages/pyverbs ] || missing="$missing python3-pyverbs"
	[ -e /usr/sbin/tgtd ] || missing="$missing tgt"
	ls /usr/lib/*/qemu/block-iscsi.so >/dev/null 2>&1 || missing="$missing qemu-block-extra"
	[ -e /usr/include/gloo/transport/ibverbs/device.h ] || missing="$missing libgloo-dev"
	[ -e /usr/include/infiniband/verbs.h ] || missing="$missing libibverbs-dev"
	[ -e /usr/include/rdma/rdma_cma.h ] || missing="$missing librdmacm-dev libc6-dev"
}

# need_browser adds a package of headless Chromium, unless some Chromium is installed. If the distribution has no such
# package (Ubuntu has a snap), it prints that the status page will not be tested.
need_browser() {
	for b in chromium-headless-shell chromium chromium-browser google-chrome; do
		! command -v "$b" >/dev/null || return 0
	done
	if ! apt-cache show chromium-headless-shell >/dev/null 2>&1; then
		as_root apt-get update -q >/dev/null 2>&1 || true
	fi
	if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
		missing="$missing chromium-headless-shell"
	else
		say "there is no package of Chromium here: the status page is not tested in a browser"
	fi
}

# keep_down COMMAND... runs a command that installs packages, and prevents that their services start (by Debian's
# policy-rc.d).
keep_down() {
	policy=/usr/sbin/policy-rc.d
	if [ -e $policy ]; then # the administrator has a policy, which is kept
		"$@"
		return
	fi
	printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null && as_root chmod 755 $policy
	status=0
	"$@" || status=$?
	as_root rm -f $policy
	return $status
}

install_missing() {
	if [ -z "$missing" ]; then
		say "nothing to install"
		return 0
	fi
	command -v apt-get >/dev/null || die "missing:$missing; there is no apt-get here, install them by hand"
	say "installing$missing"
	get="apt-get install -q --no-install-recommends $missing"
	log=$(mktemp)
	as_root apt-get update -q >"$log" 2>&1 || cat "$log" >&2 # package lists may be old or missing
	say "this takes half a minute to five minutes. $(as_root env LC_ALL=C $get --assume-no 2>/dev/null | grep archives || :)"
	while sleep 30 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do say "$(tail -n 1 "$log")"; done &
	# tshark asks whether unprivileged users may capture; noninteractive answers no.
	keep_down as_root env DEBIAN_FRONTEND=noninteractive $get -y >"$log" 2>&1 </dev/null ||
		{ cat "$log" >&2; kill $!; die "apt-get could not install$missing"; }
	kill $!
	rm -f "$log"
	for package in $missing; do
		case $package in # the tests start these services themselves, so they must not start at the next boot
		tgt | prometheus | prometheus-node-exporter) as_root systemctl disable --now "$package" >/dev/null 2>&1 || true ;;
		openssh-server) as_root systemctl disable --now ssh.socket ssh.service >/dev/null 2>&1 || true ;;
		esac
	done
}

for what in "${@:-none}"; do
	case $what in
	test)
		need strace strace
		need tshark tshark
		need promtool prometheus
		need systemd-analyze systemd
		need ssh openssh-client
		need sudo sudo
		[ -e /usr/sbin/ethtool ] || missing="$missing ethtool"
		[ -e /usr/sbin/sshd ] || missing="$missing openssh-server"
		need_verbs
		need_browser
		;;
	arch)
		need qemu-s390x qemu-user
		need qemu-aarch64 qemu-user
		;;
	generate)
		need clang clang
		need llvm-strip llvm
		;;
	none) die "say what for: test, arch or generate" ;;
	*) die "nothing is known about '$what'" ;;
	esac
done
check_go
install_missing
