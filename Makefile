# levee: the commands of this repository. `make` alone lists them.
#
# Nothing here asks for more than Go and make: what a target needs beyond that is installed by its
# Debian package name (scripts/deps), which is why `demo` and `test` want root.

# sudo replaces PATH, and Go is rarely in what it puts there. bin/go is that of `make toolchain`.
GO := $(or $(wildcard $(CURDIR)/bin/go/bin/go),$(shell command -v go),$(wildcard /usr/local/go/bin/go),$(wildcard /snap/bin/go))
ifeq ($(GO)$(filter toolchain,$(MAKECMDGOALS)),)
$(error no Go found: `make toolchain` gets it, or install it from https://go.dev/dl/ into /usr/local/go, or say where: make GO=/path/to/go $(MAKECMDGOALS))
endif

# Static binaries without a C compiler; and what was built and checked in one directory need not be
# in another.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false -trimpath $(filter-out -buildvcs=% -trimpath,$(GOFLAGS))

# The binary names its commit, where git is there and trusts the owner of this directory.
VCS := $(if $(shell git rev-parse HEAD 2>/dev/null),true,false)

.PHONY: help toolchain build demo generate test generated-lint tests lint bench bench-scale state-bench proof-bench state-proof state-attack state-random \
	agent-proof profiles-proof wrap-test soak gen-proof probe-proof kernels drivers kernels-long packages packages-test boot-test life-test tutorial-test release \
	release-files release-key release-test dashboard-proof diff-proof stream-proof

help:
	@echo 'make build       bin/levee and bin/levee-lab, static binaries (needs only Go)'
	@echo 'make toolchain   the Go that this needs, into bin/go, where the system has none or an older one'
	@echo 'make demo        a service under flood, without and with levee (root; a minute once built)'
	@echo 'make test        everything CI checks: generated files, lint, all tests (root)'
	@echo 'make lint        gofmt, go vet, staticcheck'
	@echo 'make generate    rebuild the BPF objects and generated Go, format (clang-19)'
	@echo 'make soak        the long comparisons with published data, writes docs/explanation/soak.md: make soak DATA=DIR (root)'
	@echo 'make kernels     boot Debian kernels in qemu and check each, writes docs/reference/kernels.md; ARGS="-kernels 6.1" for some'
	@echo 'make mpegts-proof  what levee monitor mpegts promises: 27 hours of streams with faults and without, a thousand streams on a core (root; ten minutes)'
	@echo 'make drivers     a policy on cards that qemu emulates, with their drivers of Debian kernels'
	@echo 'make kernels-long  also all tests of code generation and of the data plane on each (hours)'
	@echo 'make packages    deb and rpm for amd64 and arm64, bill of materials and sums, in bin/packages'
	@echo 'make packages-test  lintian, the same bytes twice, install to purge in Debian 12 and 13, rpm (root; four minutes)'
	@echo 'make wrap-test   wraps services in Debian 12 and 13 under systemd in qemu: no packet past a policy (root; ten minutes)'
	@echo 'make life-test   install to purge in Debian 12 and 13 under systemd in qemu, in three orders (root; fifteen minutes)'
	@echo 'make release KEY=FINGERPRINT  all three, then packages, image and apt repository, signed, in bin/release (root)'
	@echo 'make release-files KEY=FINGERPRINT  the same without the tests; make release-test tries it with a key of its own'
	@echo 'make tutorial-test  types docs/tutorial/web-server.md in Debian 12 in qemu (root; four minutes)'
	@echo 'make boot-test   boot Debian 13 twice with systemd in qemu: no gap, and entries kept (root; five minutes)'
	@echo 'make bench-scale all of bench rules and bench sets, into docs/explanation/plots: idle machine, two hours (root)'
	@echo 'make dashboard-proof  times that the page of the agent keeps in Chromium, on an idle machine'
	@echo 'make diff-proof  what levee diff promises, on 200 pairs of policies with 1,000,000 packets (minutes)'
	@echo 'make probe-proof  levee probe, nmap and masscan on a network of 254 addresses with 200 services, NAT and loss (root; two minutes)'
	@echo 'make gen-proof   what the packet generator promises, at length (root; about five minutes)'
	@echo 'make state-bench what limits, connections, fragments and cookies cost a packet, three times (root)'
	@echo 'make proof-bench what proofs, names, DNS cookies and searches cost, for an idle machine (root; three minutes)'
	@echo 'make state-proof limits, connections and cookies against floods, at length (root; about a quarter of an hour)'
	@echo 'make state-attack 5 million forged packets of each of 145 kinds, beside sessions, at four hooks (root; an hour)'
	@echo 'make state-random 30,000 random sequences of packets both ways, by the oracle, at four hooks (root; twenty minutes)'
	@echo 'make stream-proof  streams searched in pieces, and parsers of what strangers send, fuzzed for an hour each (root; five hours)'
	@echo 'make profiles-proof real servers and clients through the profiles, quiet and flooded (root; three minutes)'
	@echo 'make agent-proof what the agent promises, at length; floods apart (root; five minutes)'
	@echo 'make bench       Go benchmarks, ns a packet of the demo policy, packets/s against other tools (root)'

toolchain:
	scripts/toolchain

build:
	$(GO) build -buildvcs=$(VCS) -ldflags '-s -w' -o bin/ ./cmd/levee ./cmd/levee-lab
	@[ -z "$$SUDO_UID" ] || chown -R "$$SUDO_UID:$$SUDO_GID" bin # built for who asked

demo:
	@scripts/deps demo
	@$(MAKE) --no-print-directory build
	bin/levee lab demo

generate:
	@scripts/deps generate
	$(GO) generate ./...
	$(GO) fmt ./...

test:
	@scripts/deps generate test
	@$(MAKE) --no-print-directory -j 2 generated-lint tests

# Beside the first tests, which wait more than they compute.
generated-lint:
	GO=$(GO) scripts/check-generated
	@$(MAKE) --no-print-directory lint

# Tests that load programs wait for the kernel more than they compute, so several packages run beside
# each other, and the tests of some in processes of their own. The stories that measure come last.
# No cached results: they depend on the kernel.
tests:
	GO=$(GO) $(GO) run ./scripts/gotest -p 2 -workers 3 \
		-spread ./cmd/levee,./internal/dataplane,./internal/filter/difftest,./internal/filter/codegen \
		-alone ./cmd/levee:Measure ./...

lint:
	GO=$(GO) scripts/check-format
	GOGC=400 $(GO) vet ./...
	GOGC=400 $(GO) tool staticcheck ./...

bench-scale:
	@scripts/deps bench
	@$(MAKE) --no-print-directory build
	scripts/bench-scale docs/explanation/plots

soak:
	@scripts/deps test
	GO=$(GO) scripts/soak docs/explanation/soak.md

# Kernels that levee supports, and one that it refuses, each in a machine of its own. With ARGS nothing is written. DATA is as for soak.
kernels:
	@scripts/deps kernels
	GO=$(GO) $(GO) run ./scripts/kernels $(if $(DATA),-data $(DATA)) $(or $(ARGS),-page docs/reference/kernels.md)

drivers:
	@scripts/deps kernels
	GO=$(GO) $(GO) run ./scripts/kernels -drivers $(ARGS)

kernels-long:
	@scripts/deps kernels
	GO=$(GO) $(GO) run ./scripts/kernels -long $(if $(DATA),-data $(DATA)) $(ARGS)

# The tools are in a list of their own: nothing of them is near the binary.
packages:
	GO=$(GO) scripts/packages
	@[ -z "$$SUDO_UID" ] || chown -R "$$SUDO_UID:$$SUDO_GID" bin # built for who asked

packages-test:
	@scripts/deps packages
	GO=$(GO) ARCHS=amd64 scripts/packages >/dev/null
	cp bin/packages/SHA256SUMS bin/first.sums
	GO=$(GO) ARCHS=amd64 scripts/packages >/dev/null
	cmp bin/first.sums bin/packages/SHA256SUMS
	lintian --allow-root --fail-on error,warning,info bin/packages/*.deb
	scripts/packages-test

boot-test:
	@scripts/deps packages boot
	GO=$(GO) ARCHS=amd64 scripts/packages >/dev/null
	scripts/boot-test

wrap-test:
	@scripts/deps packages boot
	scripts/wrap-test

life-test:
	@scripts/deps packages boot
	GO=$(GO) ARCHS=amd64 scripts/packages >/dev/null
	scripts/life-test

# The order of life-test that types the tutorial.
tutorial-test:
	RELEASES=bookworm ORDERS=4 $(MAKE) --no-print-directory life-test

# What is offered is what was tested. APT names a repository that was made before, whose packages stay.
release: release-key packages-test boot-test life-test
	@$(MAKE) --no-print-directory release-files

release-key:
	@scripts/deps release
	@KEY="$(KEY)" scripts/release --key

release-files:
	@scripts/deps release
	GO=$(GO) KEY="$(KEY)" APT="$(APT)" scripts/release
	@[ -z "$$SUDO_UID" ] || chown -R "$$SUDO_UID:$$SUDO_GID" bin # built for who asked

release-test:
	@scripts/deps packages release
	GO=$(GO) scripts/release-test

# What levee diff promises: PAIRS names a folder with NAME/old.levee and NAME/new.levee.
diff-proof:
	@scripts/deps diff
	LEVEE_PAIRS="$(PAIRS)" $(GO) test -tags proof -count 1 -timeout 60m -v -run Proof \
		./internal/filter/region

# levee probe against what is so, on a network that hides services in all ways, and its peers on the same.
probe-proof:
	@scripts/deps probe
	@$(MAKE) --no-print-directory build
	$(GO) run ./scripts/probe -bin bin

# What the monitor of streams promises, at length; TSDuck too, where it is installed.
.PHONY: mpegts-proof
mpegts-proof:
	@scripts/deps test
	$(GO) test -count 1 -v ./internal/monitor/mpegts/oracle
	$(GO) test -tags proof -count 1 -timeout 30m -v -run Proof ./internal/monitor/mpegts/live

# What the packet generator promises, at length: exact counts, permuted sources, replayed times, prompt ends.
gen-proof:
	@scripts/deps test
	$(GO) vet -tags proof ./internal/bench/generators
	$(GO) test -tags proof -count 1 -timeout 30m -v -run Proof ./internal/bench/generators

# Real servers and clients through the profiles that levee comes with: quiet, and beside a flood of first packets.
profiles-proof:
	GO="$(GO)" scripts/profiles-proof

# What the agent's page promises: a year within a second, 100,000 points at 30 frames a second.
dashboard-proof:
	@scripts/deps test
	$(GO) test -count 1 -v -run ThePage ./internal/agent/dashboard -strict

# What the agent promises, at length, but for floods (levee bench detect): events of sensors, leases through kills,
# decisions of CrowdSec, ten weeks of normal traffic, the trap, the API, its page.
agent-proof:
	@scripts/deps test
	$(GO) test -timeout 30m -count 1 -v ./internal/agent -run 'EventsASecond|NoEventIsLost|ARestartEnforces|TheAPIDoes|OfNewAddresses' \
		-events 1000000 -rotations 100 -leases 1000000 -addresses 1000000 -api.fuzz 60s
	$(GO) test -timeout 30m -count 1 -v ./cmd/levee -run 'LeasesOfFiveOrigins|DecisionsAreApplied|ARealLocalAPI' \
		-mass-leases 1000000 -mass-decisions 100000
	$(GO) test -timeout 60m -count 1 -v ./internal/agent/detect -run 'TenWeeks|Seasons' -season-days 70
	$(GO) test -count 1 -v ./internal/agent/episode -schedules 10000
	$(GO) test -timeout 60m -count 1 -v ./internal/agent/defend -run AnySchedule -shell-schedules 10000
	$(GO) test -timeout 30m -count 1 ./internal/agent -run ADayOfTrouble -day 24h -days 5
	$(GO) test -count 1 -v ./internal/agent/trap
	@$(MAKE) --no-print-directory dashboard-proof

# What limits, connections, fragments and answers to SYNs cost a packet above an empty program, three times.
state-bench:
	@scripts/deps bench
	$(GO) test -timeout 30m -run '^$$' -bench 'Limit|RatesByPrefix|Connection|Fragments|Answer|Proven' -count 3 ./internal/dataplane

# What proofs by echo, names of DNS, cookies for queries and searches in payloads cost, once.
proof-bench:
	@scripts/deps bench
	$(GO) test -run '^$$' -bench 'Echo/IPv4|Names/^million|Strangers|Contains' -benchtime 6x ./internal/dataplane
	$(GO) test -run '^$$' -bench 'Cookie/^query' -benchtime 1x ./internal/bench/flood
	$(GO) test -run '^$$' -bench BytesInPairs -benchtime 6x ./internal/filter/codegen

# What limits, connections and cookies promise against floods, at length: no honest packet lost beside ten million
# forged sources, no connection ended by 5 million new ones a second, listeners reached that saw nobody for three
# minutes, SYNs answered by one core, budgets paid as rates and bursts say while policies change.
state-proof: build
	@scripts/deps bench
	$(GO) test -timeout 30m -count 1 -v ./internal/dataplane -run LimitIsExactBelowItsBound -many-sources
	$(GO) test -timeout 30m -count 1 -v ./internal/dataplane -run ConnectionsAtLength -flows 1000000 -new-flows 15000000 \
		-new-rate 5000000
	$(GO) test -timeout 30m -count 1 -v ./internal/dataplane -run TestCookieClients -idle 3m
	$(GO) test -timeout 30m -count 1 -v ./internal/dataplane -run Guessed -guesses 4194304
	$(GO) test -timeout 30m -count 1 -v ./internal/dataplane -run StrangersPass -strangers 4194304
	$(GO) test -timeout 30m -run '^$$' -bench BenchmarkCookie -benchtime 1x ./internal/bench/flood
	$(GO) run ./scripts/attack -replaces -hooks xdp-native,tcx

# Streams and datagrams, at length: 1,000 streams for each expression and way to cut them, searched by
# the program, the oracle and package regexp; and what reads bytes of strangers, fuzzed for FUZZTIME each.
FUZZTIME := 1h
stream-proof:
	@scripts/deps test
	$(GO) test -timeout 60m -count 1 -v ./internal/filter/difftest -run AStreamIsAnswered -streams 1000
	for of in agent/stream:FuzzStreams agent/stream:FuzzDatagrams packet/a2s:FuzzRead packet/dns:FuzzRead \
		lang/dnsname:FuzzParse lang/pattern:FuzzCompile; do \
		$(GO) test -timeout 0 ./internal/$${of%:*} -run '^$$' -fuzz "^$${of#*:}$$" \
			-fuzztime $(FUZZTIME) || exit 1; done

# Forged packets of 145 kinds against what policies remember, beside sessions that have to live. It knows levee by its
# commands alone. With ARGS: -count, -hooks, -only, -replaces.
state-attack: build
	@scripts/deps test
	$(GO) run ./scripts/attack $(ARGS)

# Random sequences of packets that come and go by two interfaces: all counters after each are those of the oracle, and what
# passes arrives, whichever way.
# With ARGS: -random-seed, -random-sequences.
state-random:
	@scripts/deps test
	$(GO) test -timeout 60m -count 1 -v ./internal/dataplane -run TestRandomSequencesAgreeWithTheOracle -random-all \
		-random-sequences 1900 $(ARGS)

bench:
	@scripts/deps bench
	@$(MAKE) --no-print-directory build
	bin/levee cost examples/demo.levee
	bin/levee bench ladder
	$(GO) test -p 1 -timeout 30m -run '^$$' -bench . -benchmem ./...
