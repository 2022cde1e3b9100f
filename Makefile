# xwarp: iWARP over AF_XDP. `make help` lists the targets. Every target works as root and as a user with sudo.

GO ?= go
# Neither the data path nor the tools use cgo.
export CGO_ENABLED ?= 0

# ARGS is passed to the demo and some tools, TESTFLAGS to go test: make demo ARGS="--loss 0.02", make test
# TESTFLAGS="-run TestX -v".
ARGS      ?=
TESTFLAGS ?=
PKGS      ?= ./...
FUZZTIME  ?= 10m
SEEDS     ?= 100000
SOAK      ?= 2h
HOSTILE   ?= 10000000
MAD       ?= 1000000
STRESS    ?= 500
COUNT     ?= 200
BYTES     ?= 5000000000
SEED      ?= 1
ROUNDS    ?= 5
# Packages with several threads. The peer's accesses to registered memory are not ordered with those of its owner, which
# the race detector would report. Tests therefore use memory outside Go's heap (Device.Alloc), which it ignores.
RACE      ?= ./ring/... ./engine/bytestream/... ./engine/internal/core ./engine/xdp ./engine/sockets ./engine/iwarp ./engine/stack ./engine/daemon/client ./engine/daemon/session ./engine/daemon \
	./engine/transfer
# Too slow under the detector: TestTransmitGSO fills no blocks, and the hundred busy queue pairs of TestKillClient starve
# other tests. Its memory exceeds the limit of TestProcessLimits.
RACE_SKIP ?= TransmitGSO|KillClient|ProcessLimits
# The part of RACE that takes two minutes: whole packages, and tests of engine and daemon in which threads interact.
RACE_SOME ?= ./ring/... ./engine/bytestream/... ./engine/iwarp ./engine/daemon/client ./engine/daemon/session ./engine/transfer
RACE_RUN  ?= Stress|WhileConnecting|OwnSession|Confirm|Stop|Snapshot|Unrung|Wrong|Quota|Export|Blocked|Closed|KernelTransfer|XDPTransfer|Queues

# Privileged parts run as root, but go itself runs as the user who calls make, so that caches keep their owner.
ifeq ($(shell id -u),0)
SUDO :=
PRIVILEGED :=
EXEC :=
else
SUDO := sudo
PRIVILEGED := sudo --preserve-env=PATH,HOME,TMPDIR,CI,LAB,GOARCH,EMULATOR
EXEC := -exec '$(PRIVILEGED)'
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the commands and the library of xwarp run, into build/
	$(GO) build -trimpath -o build/ ./cmd/...
	@log=$$(cmd/libxwarp-verbs/build.sh build/libxwarp-verbs.so 2>&1) || \
		echo "make: the library of xwarp run is not built: $$(printf '%s\n' "$$log" | head -n 1)" >&2

.PHONY: demo
demo: ## one transfer over AF_XDP between two network namespaces (ARGS="--loss 0.02")
	@$(GO) build -trimpath -o build/ ./cmd/xwarp
	$(SUDO) build/xwarp demo $(ARGS)

.PHONY: setup
setup: ## install the packages that the tests need (Debian, Ubuntu)
	@scripts/setup.sh test
	@[ -z "$(SUDO)" ] || sudo -v

# Two packages at a time: the TCPs on virtual links have real timers, which a loaded machine disturbs.
RUNTESTS = $(GO) run ./scripts/runtests $(EXEC) -p 2 -timeout 45m

.PHONY: test
test: setup ## go vet and the tests, ten minutes on two processors (TESTFLAGS, PKGS)
	@echo "make test: up to ten minutes on two processors; make test-all runs all tests"
	@$(RUNTESTS) -short $(TESTFLAGS) -- $(PKGS)

.PHONY: test-all
test-all: setup ## go vet and all tests, also those of scripts/LONG.md, twenty minutes (TESTFLAGS, PKGS)
	@echo "make test-all: up to twenty minutes on two processors"
	@$(RUNTESTS) $(TESTFLAGS) -- $(PKGS)

.PHONY: race
race: ## race detector on packages with several threads, ten minutes; needs gcc (RACE)
	@[ -z "$(SUDO)" ] || sudo -v
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m -skip '$(RACE_SKIP)' $(TESTFLAGS) $(RACE)

.PHONY: race-some
race-some: ## short version of race, two minutes (RACE_SOME, RACE_RUN)
	@[ -z "$(SUDO)" ] || sudo -v
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m -skip '$(RACE_SKIP)' $(TESTFLAGS) $(RACE_SOME)
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m $(TESTFLAGS) -run '$(RACE_RUN)' ./engine/internal/core ./engine/xdp ./engine/sockets \
		./engine/daemon

# Packages that must not depend on processor or byte order. Tests that need eBPF skip: emulation has none.
ARCH_PKGS ?= ./tcp/... ./mpa/... ./ddp/... ./ring/... ./engine/testkit/...

.PHONY: arch
arch: ## tests for s390x (big-endian) and arm64, emulated, half an hour; writes bench/results/arch.md (ARCH_PKGS)
	@scripts/setup.sh arch
	$(GO) run ./scripts/arch -exec '$(PRIVILEGED)' $(ARCH_PKGS)

.PHONY: arch-some
arch-some: ## short version of arch, half a minute: wire formats, placement, rings (s390x); assembly (arm64)
	@scripts/setup.sh arch
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short ./tcp/wire ./ddp ./ring
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short -run 'Vectors|PutFPDU|StartupFrames|RtrFrame' ./mpa ./mpa/startup
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short -run 'Drafts|OpenReturns' ./engine/esp
	GOARCH=arm64 $(GO) vet ./tcp/checksum ./tcp/wire
	GOARCH=arm64 $(GO) test -exec '$(PRIVILEGED) qemu-aarch64' -short ./tcp/checksum ./tcp/wire

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, layers, line width, wording, requirements
	@bad=$$(git ls-files -co --exclude-standard '*.go' | while read -r f; do [ ! -e "$$f" ] || gofmt -l "$$f"; done); \
	[ -z "$$bad" ] || { printf 'not formatted; run gofmt -w on\n%s\n' "$$bad" >&2; exit 1; }
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)
	$(GO) run ./scripts/lint
	$(GO) run ./scripts/reqs

.PHONY: reqs
reqs: ## rewrite the table of RFC requirements and their tests
	$(GO) run ./scripts/reqs -write

.PHONY: generate
generate: ## rebuild the eBPF objects; installs clang
	@scripts/setup.sh generate
	$(GO) generate ./bpf/...

.PHONY: fuzz
fuzz: ## every fuzzer in turn, first by coverage, then in bulk (FUZZTIME=10m for each, PKGS)
	scripts/fuzz.sh $(FUZZTIME) $(PKGS)

.PHONY: soak
soak: soak-daemon ## long runs: seeds, hostile frames, stress, kills (SEEDS=100000, SOAK=2h, HOSTILE, MAD, STRESS)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 24h -v -run '^Test(Wide|IPsec)?Soak$$' -seeds $(SEEDS)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 24h -v -run '^TestHostileFrames$$' -hostile $(HOSTILE)
	$(GO) test $(EXEC) ./engine/xdp ./engine/daemon -p 1 -count=1 -timeout 24h -v -run '^Test(Kernel|Queue|)Stress$$' -stress.rounds $(STRESS)
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 24h -v -run '^TestMadPrograms$$' -mad $(MAD)
	$(GO) test $(EXEC) ./engine/host/neigh -count=1 -timeout 2h -v -run '^Test(Flaps|ManyDestinations)$$' -flaps 1000 -addresses 1000000
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 1h -v -run '^TestTruncatedExports$$' -truncations 1000 -latency
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 1h -v -run '^TestKilledStores$$' -kills 1000
	$(GO) test $(EXEC) ./cmd/xwarp -count=1 -timeout 1h -v -run '^TestKilledCopies$$' -copies 200

.PHONY: soak-daemon
soak-daemon: ## xwarpd with programs of two users on a bad path; its resources must not grow (SOAK=2h)
	$(GO) test $(EXEC) ./cmd/xwarpd -count=1 -timeout 24h -v -run '^TestSoak$$' -soak $(SOAK)

.PHONY: mutate
mutate: ## mutation test of tcp, mpa and ddp, an hour: tests must notice each change (COUNT=200, SEED=1)
	$(GO) run ./scripts/mutate -count $(COUNT) -seed $(SEED)

.PHONY: reach
reach: ## functions of the core that no random scenario runs; fails if one lacks an explanation
	scripts/reach.sh

.PHONY: worlds
worlds: ## exhaustive small cases, an hour: every cut and order of a few FPDUs, every two segments in every TCP state
	$(GO) test ./mpa -count=1 -timeout 12h -v -run '^TestSmallWorlds$$' -mpa.worlds
	$(GO) test ./tcp -count=1 -timeout 12h -v -run '^TestSmallWorlds$$' -tcp.worlds

.PHONY: far
far: ## more than 2^32 bytes in each direction of one connection, in the simulator (BYTES)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 12h -v -run '^TestFarConnection$$' -bytes $(BYTES)

.PHONY: bench
bench: build ## the standard benchmark matrix with its baselines; writes bench/results
	$(SUDO) build/xwarp bench matrix --out bench/results

.PHONY: compare
compare: build ## benchmark this tree against another binary, in interleaved rounds (OLD=path, ARGS="--only ping-pong")
	$(SUDO) build/xwarp bench compare $(ARGS) "$(OLD)"

.PHONY: flood
flood: ## goodput and new connections during floods of SYNs and ACKs, engine and kernel (ROUNDS=5)
	$(GO) test $(EXEC) ./engine/xdp -count=1 -v -run '^TestFloodedListener$$' -flood.rounds $(ROUNDS)

.PHONY: layers
layers: ## cost of a segment in each layer; writes bench/results/layers.md
	$(GO) test -c -o build/layers.test ./bench/layers
	$(SUDO) env GOGC=off nice -n -20 taskset -c 0 build/layers.test -test.run '^$$' -test.bench . -test.cpu 1 -test.benchtime 200ms \
		-test.count 7 >build/layers.txt
	{ printf '# Cost of a segment in each layer\n\nWritten by `make layers`.\n\n```\n'; $(GO) tool benchstat -filter '-.unit:B/op' build/layers.txt; echo '```'; } \
		>bench/results/layers.md
	cat bench/results/layers.md

.PHONY: post-poll
post-poll: ## cost of ibv_post_send and ibv_poll_cq in the library of xwarp run, in ns
	mkdir -p build
	cmd/libxwarp-verbs/cost/build.sh build/postpoll
	build/postpoll

.PHONY: profile
profile: ## CPU profile of RDMA Writes over AF_XDP; writes build/cpu.prof
	mkdir -p build
	$(GO) test $(EXEC) ./engine/xdp -run '^$$' -bench 'Write/mtu=1500/markers=true' -benchtime 2000x -cpuprofile build/cpu.prof -o build/engine.test
	$(GO) tool pprof -top build/engine.test build/cpu.prof | head -40

.PHONY: pgo
pgo: build ## rewrite the compiler profiles (cmd/*/default.pgo) from benchmarks on this machine
	$(SUDO) scripts/pgo.sh build/xwarp cmd/xwarp/default.pgo cmd/xwarpd/default.pgo

.PHONY: lab
lab: ## tests against soft-iWARP, strongSwan and accurate ECN in virtual machines, and rdma-core of Debian sid
	$(SUDO) scripts/lab/build.sh
	$(SUDO) scripts/lab/drivers/build.sh
	$(SUDO) scripts/lab/sid/build.sh
	LAB=1 $(GO) test $(EXEC) -count=1 -timeout 60m -v ./scripts/lab/...

.PHONY: drivers
drivers: build ## xwarp on igb, virtio-net, … emulated, an hour; writes bench/results/drivers.md (ARGS="-only igb")
	$(SUDO) scripts/lab/drivers/build.sh
	$(GO) build -o build/drivers ./scripts/lab/drivers
	$(SUDO) build/drivers $(ARGS) build

.PHONY: kernels
kernels: build ## xwarp on Linux 6.1 to the newest, an hour; writes bench/results/kernels.md (ARGS="-only arm64")
	$(SUDO) scripts/lab/kernels/build.sh
	GOARCH=arm64 $(GO) build -trimpath -o build/arm64/ ./cmd/xwarp ./cmd/xwarpd
	for p in bpf ring; do $(GO) test -c -o build/$$p.test ./$$p && GOARCH=arm64 $(GO) test -c -o build/arm64/$$p.test ./$$p || exit; done
	$(GO) build -o build/kernels ./scripts/lab/kernels
	$(SUDO) build/kernels $(ARGS) build

.PHONY: package
package: ## build deb, rpm and a tarball, into build/
	scripts/package/build.sh

.PHONY: image
image: ## build an OCI image of the static binaries, into build/; needs buildah
	scripts/package/image.sh

.PHONY: clean
clean: ## remove build/
	rm -rf --one-file-system build || $(SUDO) rm -rf --one-file-system build
