# xwarp: iWARP over AF_XDP. `make help` says what there is. Every target works as root and as a user with sudo.

GO ?= go
# The data path has no cgo, and neither have the tools.
export CGO_ENABLED ?= 0

# ARGS goes to the demo, TESTFLAGS to go test: make demo ARGS="--loss 0.02", make test TESTFLAGS="-run TestX -v".
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
BYTES    ?= 5000000000
SEED      ?= 1
ROUNDS    ?= 5
# What runs on several threads. Registered memory shares no rules that the race detector could follow, for the peer's reads and writes
# are not ordered with those of its owner: tests take it from outside Go's heap (Device.Alloc), where the detector does not look.
RACE      ?= ./ring/... ./engine/bytestream/... ./engine/internal/core ./engine/xdp ./engine/sockets ./engine/iwarp ./engine/stack ./engine/daemon/client ./engine/daemon \
	./engine/transfer
# At the detector's speed TestStalledGetHoldsUpNobody takes longer than its half second, TestTransmitGSO fills no blocks and the
# hundred busy queue pairs of TestKillClient leave nothing for what runs beside them; its memory is above TestProcessLimits' limit.
RACE_SKIP ?= StalledGetHoldsUpNobody|TransmitGSO|KillClient|ProcessLimits
# The part of it that takes two minutes: packages whole, and those tests of engine and daemon that have several threads meet.
RACE_SOME ?= ./ring/... ./engine/bytestream/... ./engine/iwarp ./engine/daemon/client ./engine/transfer
RACE_RUN  ?= Stress|WhileConnecting|OwnSession|Confirm|Stop|Snapshot|Unrung|Wrong|Quota|Export|Blocked|Closed|KernelTransfer|XDPTransfer|Queues

# Privileged parts run as root, but go itself runs as whoever calls make, so that caches keep their owner.
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
help: ## what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the commands, into build/
	$(GO) build -trimpath -o build/ ./cmd/...
	@log=$$(cmd/libxwarp-verbs/build.sh build/libxwarp-verbs.so 2>&1) || \
		echo "make: no library for xwarp run: $$(printf '%s\n' "$$log" | head -n 1)" >&2

.PHONY: demo
demo: ## one transfer between two hosts made for it, over AF_XDP (ARGS="--loss 0.02")
	@$(GO) build -trimpath -o build/ ./cmd/xwarp
	$(SUDO) build/xwarp demo $(ARGS)

.PHONY: setup
setup: ## install what the tests need beyond Go (Debian, Ubuntu)
	@scripts/setup.sh test
	@[ -z "$(SUDO)" ] || sudo -v

# One package at a time: tests on virtual links measure nothing, but their TCPs have real timers.
.PHONY: test
test: setup ## go vet and all tests (TESTFLAGS, PKGS)
	$(GO) vet $(PKGS)
	$(GO) test $(EXEC) -p 1 -timeout 45m $(TESTFLAGS) $(PKGS)

.PHONY: race
race: ## what runs on several threads under the race detector, ten minutes; needs gcc (RACE)
	@[ -z "$(SUDO)" ] || sudo -v
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m -skip '$(RACE_SKIP)' $(TESTFLAGS) $(RACE)

.PHONY: race-some
race-some: ## the part of race that takes two minutes (RACE_SOME, RACE_RUN)
	@[ -z "$(SUDO)" ] || sudo -v
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m -skip '$(RACE_SKIP)' $(TESTFLAGS) $(RACE_SOME)
	CGO_ENABLED=1 $(GO) test $(EXEC) -race -p 1 -timeout 15m $(TESTFLAGS) -run '$(RACE_RUN)' ./engine/internal/core ./engine/xdp ./engine/sockets \
		./engine/daemon

# What depends on neither processor nor byte order by intention; tests that need eBPF skip, for emulation has none.
ARCH_PKGS ?= ./tcp/... ./mpa/... ./ddp/... ./ring/... ./engine/testkit/...

.PHONY: arch
arch: ## tests as programs for s390x (big-endian) and arm64, emulated, half an hour; into bench/results/arch.md (ARCH_PKGS)
	@scripts/setup.sh arch
	$(GO) run ./scripts/arch -exec '$(PRIVILEGED)' $(ARCH_PKGS)

.PHONY: arch-some
arch-some: ## the part of arch that takes half a minute: wire formats, placement and rings, big-endian; assembly, arm64
	@scripts/setup.sh arch
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short ./tcp/wire ./ddp ./ring
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short -run 'Vectors|Header|Startup' ./mpa
	GOARCH=s390x $(GO) test -exec '$(PRIVILEGED) qemu-s390x' -short -run 'Vectors|Draft|OpenReturns' ./engine/esp
	GOARCH=arm64 $(GO) vet ./tcp/checksum ./tcp/wire ./engine/esp
	GOARCH=arm64 $(GO) test -exec '$(PRIVILEGED) qemu-aarch64' -short ./tcp/checksum ./tcp/wire

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, imports between layers, width, words
	@bad=$$(git ls-files -co --exclude-standard '*.go' | while read -r f; do [ ! -e "$$f" ] || gofmt -l "$$f"; done); \
	[ -z "$$bad" ] || { printf 'not formatted, run gofmt -w on\n%s\n' "$$bad" >&2; exit 1; }
	$(GO) vet $(PKGS)
	$(GO) tool staticcheck $(PKGS)
	$(GO) run ./scripts/lint
	$(GO) run ./scripts/reqs

.PHONY: reqs
reqs: ## write the table of requirements and their tests anew
	$(GO) run ./scripts/reqs -write

.PHONY: generate
generate: ## build the eBPF objects again; installs clang
	@scripts/setup.sh generate
	$(GO) generate ./bpf

.PHONY: fuzz
fuzz: ## every fuzzer in turn, by coverage and then in bulk; how many executions (FUZZTIME=10m for each of both, PKGS)
	scripts/fuzz.sh $(FUZZTIME) $(PKGS)

.PHONY: soak
soak: soak-daemon ## the simulator over many seeds, and what else shows with time (SEEDS=100000, SOAK=2h, HOSTILE, MAD, STRESS)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 24h -v -run '^Test(Wide|IPsec)?Soak$$' -seeds $(SEEDS)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 24h -v -run '^TestHostileFrames$$' -hostile $(HOSTILE)
	$(GO) test $(EXEC) ./engine/xdp ./engine/daemon -p 1 -count=1 -timeout 24h -v -run '^Test(Kernel|Queue|)Stress$$' -stress.rounds $(STRESS)
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 24h -v -run '^TestMadPrograms$$' -mad $(MAD)
	$(GO) test $(EXEC) ./engine/host/neigh -count=1 -timeout 2h -v -run '^Test(Flaps|ManyDestinations)$$' -flaps 1000 -addresses 1000000
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 1h -v -run '^TestTruncatedExports$$' -truncations 1000 -latency
	$(GO) test $(EXEC) ./engine/daemon -count=1 -timeout 1h -v -run '^TestKilledPuts$$' -kills 1000
	$(GO) test $(EXEC) ./cmd/xwarp -count=1 -timeout 1h -v -run '^TestKilledCopies$$' -copies 200

.PHONY: soak-daemon
soak-daemon: ## xwarpd with programs of two users on a bad path; memory, descriptors, threads stay flat (SOAK=2h)
	$(GO) test $(EXEC) ./cmd/xwarpd -count=1 -timeout 24h -v -run '^TestSoak$$' -soak $(SOAK)

.PHONY: mutate
mutate: ## changed conditions and constants of tcp, mpa and ddp, which tests must notice, an hour (COUNT=200, SEED=1)
	$(GO) run ./scripts/mutate -count $(COUNT) -seed $(SEED)

.PHONY: reach
reach: ## which functions of the core no random scenario runs, and whether that is explained
	scripts/reach.sh

.PHONY: worlds
worlds: ## small worlds whole: every cut and order of a few FPDUs, every two segments in every state of TCP, an hour
	$(GO) test ./mpa -count=1 -timeout 12h -v -run '^TestSmallWorlds$$' -mpa.worlds
	$(GO) test ./tcp -count=1 -timeout 12h -v -run '^TestSmallWorlds$$' -tcp.worlds

.PHONY: far
far: ## more than 2^32 bytes in each direction of one connection, in the simulator (BYTES)
	$(GO) test ./engine/testkit/sim -count=1 -timeout 12h -v -run '^TestFarConnection$$' -bytes $(BYTES)

.PHONY: bench
bench: build ## the standard matrix with its baselines, into bench/results
	$(SUDO) build/xwarp bench matrix --out bench/results

.PHONY: compare
compare: build ## this tree against another binary, in rounds that take turns (OLD=path, ARGS="--only ping-pong")
	$(SUDO) build/xwarp bench compare $(ARGS) "$(OLD)"

.PHONY: flood
flood: ## goodput beside a flood of SYNs, then of ACKs, at the engine's port and at the kernel's, and honest connections (ROUNDS=5)
	$(GO) test $(EXEC) ./engine/xdp -count=1 -v -run '^TestFloodedListener$$' -flood.rounds $(ROUNDS)

.PHONY: layers
layers: build ## what a segment costs in each layer, into bench/results/layers.md
	$(SUDO) build/xwarp bench layers > bench/results/layers.md
	cat bench/results/layers.md

.PHONY: post-poll
post-poll: ## what ibv_post_send and ibv_poll_cq cost in the library of xwarp run, in ns
	mkdir -p build
	cmd/libxwarp-verbs/cost/build.sh build/postpoll
	build/postpoll

.PHONY: profile
profile: ## CPU profile of the demo's path, into build/
	mkdir -p build
	$(GO) test $(EXEC) ./engine/xdp -run '^$$' -bench 'Write/mtu=1500/markers=true' -benchtime 2000x -cpuprofile build/cpu.prof -o build/engine.test
	$(GO) tool pprof -top build/engine.test build/cpu.prof | head -40

.PHONY: pgo
pgo: build ## the profiles that the compiler optimises by (default.pgo), from benchmarks on this machine
	$(SUDO) scripts/pgo.sh build/xwarp cmd/xwarp/default.pgo cmd/xwarpd/default.pgo

.PHONY: lab
lab: ## virtual machines with Linux's soft-iWARP and accurate ECN, and tests against them
	$(SUDO) scripts/lab/build.sh
	$(SUDO) scripts/lab/drivers/build.sh
	LAB=1 $(GO) test $(EXEC) -count=1 -timeout 60m -v ./scripts/lab/...

.PHONY: drivers
drivers: build ## xwarp on igb, virtio-net, … in virtual machines, an hour; into bench/results/drivers.md (ARGS="-only igb")
	$(SUDO) scripts/lab/drivers/build.sh
	$(GO) build -o build/drivers ./scripts/lab/drivers
	$(SUDO) build/drivers $(ARGS) build

.PHONY: kernels
kernels: build ## xwarp on Linux 6.1 to the newest, amd64 and arm64, in virtual machines, an hour; into bench/results/kernels.md (ARGS="-only arm64")
	$(SUDO) scripts/lab/kernels/build.sh
	GOARCH=arm64 $(GO) build -trimpath -o build/arm64/ ./cmd/xwarp ./cmd/xwarpd
	for p in bpf ring; do $(GO) test -c -o build/$$p.test ./$$p && GOARCH=arm64 $(GO) test -c -o build/arm64/$$p.test ./$$p || exit; done
	$(GO) build -o build/kernels ./scripts/lab/kernels
	$(SUDO) build/kernels $(ARGS) build

.PHONY: package
package: ## deb and rpm, into build/
	scripts/package/build.sh

.PHONY: image
image: ## OCI image of the static binaries, into build/; needs buildah
	scripts/package/image.sh

.PHONY: clean
clean: ## remove build/
	rm -rf --one-file-system build || $(SUDO) rm -rf --one-file-system build
