# The commands of the README. `make help` lists them.
CARGO ?= cargo
GUEST_TARGET = x86_64-unknown-linux-gnu
# What runs in guests has a target directory of its own, as in host/build.rs.
GUEST_ARGS = --target $(GUEST_TARGET) --target-dir target/guest
GUEST = target/guest/$(GUEST_TARGET)/guest
KERNEL_RUSTFLAGS = -C relocation-model=static -C code-model=kernel -C force-frame-pointers=yes --cfg chacha20_backend=\"sse2\"
KERNEL_CARGO = RUSTFLAGS="$(KERNEL_RUSTFLAGS)" $(CARGO)
KERNEL_ARGS = -p ebb-kernel --features machine $(GUEST_ARGS)
# What is measured: the commit when make began, which its blocks in the documents name.
export MEASURED := $(shell scripts/section --commit)
# A static program runs in every guest: on Ebb, on a stock kernel with nothing but an initramfs.
STATIC_CARGO = RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" $(CARGO)
WORKLOADS = $(GUEST)/ebb-workloads
# A kernel that exists already is not built again for checks that do not run it.
NO_KERNEL = EBB_SKIP_KERNEL=1 CARGO_TARGET_DIR=target/check

.PHONY: help
help: ## list these commands
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

.PHONY: deps
deps: ## install what Debian has and this machine lacks: QEMU, busybox-static, gcc
	@scripts/deps

.PHONY: build demo
build: ## build the command: target/release/ebb
	@MAKE="$(MAKE)" CARGO="$(CARGO)" scripts/build
demo: deps build workloads ## a program takes 1 GiB and frees it; watch the host get it back
	$(DEMO)

# What DESTDIR and PREFIX mean is as for any package.
PREFIX ?= /usr/local
EBB ?= target/release/ebb
SHARE = $(DESTDIR)$(PREFIX)/share
# Without the pages that only the book has.
DOCS = $(filter-out $(addprefix docs/,SUMMARY.md architecture.md allocator.md block-back-end.md security.md),$(wildcard docs/*.md))
.PHONY: install uninstall deb
install: ## install the command built before, its manual pages and completions: PREFIX=/usr/local, DESTDIR=
	@[ -x $(EBB) ] || { echo "there is no $(EBB): run \`make build\` first" >&2; exit 1; }
	install -D -m 755 $(EBB) $(DESTDIR)$(PREFIX)/bin/ebb
	$(EBB) pages $(SHARE)
	gzip -9nf $(SHARE)/man/man1/ebb.1 $(SHARE)/man/man1/ebb-*.1
	install -d $(addprefix $(SHARE)/doc/ebb/,schemas measured/plots)
	install -m 644 README.md CHANGELOG.md $(DOCS) $(SHARE)/doc/ebb
	install -m 644 docs/schemas/*.json $(SHARE)/doc/ebb/schemas
	install -m 644 docs/measured/*.md $(SHARE)/doc/ebb/measured
	install -m 644 docs/measured/plots/*.svg $(SHARE)/doc/ebb/measured/plots
uninstall: ## remove what install has installed
	rm -f $(DESTDIR)$(PREFIX)/bin/ebb $(SHARE)/man/man1/ebb.1.gz $(SHARE)/man/man1/ebb-*.1.gz $(SHARE)/bash-completion/completions/ebb \
	    $(SHARE)/fish/vendor_completions.d/ebb.fish $(SHARE)/zsh/vendor-completions/_ebb
	rm -rf $(SHARE)/doc/ebb
.PHONY: reference
reference: build ## write the pages about options, metrics and JSON again, after a change of any
	$(EBB) pages --book docs
	EBB_WRITE_REFERENCE=yes $(CARGO) test --release -p ebb-host --lib -- pages::json
BOOK_CARGO = CARGO_TARGET_DIR=target/book-tools $(CARGO)
BOOK_ARGS = --manifest-path book/Cargo.toml
.PHONY: book
book: ## build the documentation as a book, in target/book, and look up its links
	$(BOOK_CARGO) run --release $(BOOK_ARGS)
deb: build ## make a Debian package, in target/deb
	@scripts/deb

.PHONY: kernel kernel-dev kernel-check workloads init parts
parts: kernel workloads # what the command holds for its guests
	$(STATIC_CARGO) build -p ebb-init $(GUEST_ARGS) --profile guest
kernel: ## build the guest kernel as it is shipped
	$(KERNEL_CARGO) build $(KERNEL_ARGS) --profile kernel
kernel-dev: ## build the guest kernel quickly, with its assertions
	$(KERNEL_CARGO) build $(KERNEL_ARGS) --profile kernel-dev
kernel-check:
	$(KERNEL_CARGO) check $(KERNEL_ARGS) --profile kernel-dev
init: ## build the first process of guests with stock Linux, for an ebb without it
	$(STATIC_CARGO) build -p ebb-init $(GUEST_ARGS) --profile guest
	mkdir -p target/release && cp $(GUEST)/ebb-init target/release/ebb-init
workloads: ## build the experiments as one static Linux program
	$(STATIC_CARGO) build -p ebb-workloads $(GUEST_ARGS) --profile guest

.PHONY: swap-test
swap-test: build workloads ## what swap a host needs with each way to give memory back (root)
	@scripts/swap-test

.PHONY: share-test
share-test: build workloads ## ten guests on the memory of three (root)
	@scripts/share-test

.PHONY: messaging-modes
messaging-modes: build workloads ## what each way to give memory back costs processes that write to each other, counted; 15 minutes
	@scripts/messaging-modes

.PHONY: pause-test
pause-test: ## six guests free 400 MiB and are paused at once, in each mode: what they hold a second later
	$(CARGO) test --release -p ebb --test linux paused::six_guests -- --ignored --nocapture
.PHONY: stdio-test
stdio-test: build ## how fast stdin and stdout are on both kernels, with one CPU and two
	@scripts/stdio-test

.PHONY: host-pages
host-pages: build workloads ## what giving memory back costs programs that soon use it again, in huge and base pages of the host
	@EBB=target/release/ebb WORKLOADS=$(WORKLOADS) scripts/host-pages-test
.PHONY: runtimes-test
runtimes-test: build ## what Python, Node, Java, Go and malloc give back of what they no longer need, on both kernels
	@scripts/runtimes-test

.PHONY: root-test
root-test: build ## what it costs a guest to see the host's files
	@scripts/root-test

.PHONY: programs-test
programs-test: build ## git, gcc, Python, Node, Java, PostgreSQL, tmux and others in a guest: do they print what they print here?
	@scripts/programs-test

.PHONY: python-test
python-test: build ## Python's own tests in guests of both kernels: 30 minutes
	@scripts/python-test

.PHONY: cost-test translations-test kvm-cost
cost-test: build ## what QEMU costs beside a guest's memory, for 1 guest and for 20
	@scripts/cost-test
translations-test: build ## what QEMU's buffer of translations costs and saves on TCG, by its size
	@scripts/translations-test
kvm-cost: deps build workloads ## the same on the laboratory's KVM, for 1 guest and for 4
	@EBB=target/release/ebb WORKLOADS=$(WORKLOADS) host/lab/cost target/kvm-lab 1 4

LIBRARIES = -p ebb-mm -p ebb-mm-models -p ebb-balloon -p ebb-blk -p ebb-wire -p ebb-layers -p ebb-kernel -p ebb-kernel-logic -p ebb-kernel-machine
.PHONY: test test-rest test-all lint test-units test-models test-crates test-command test-linux test-guests test-long
# A comma joins steps that run one after the other; the others run beside them.
TEST_STEPS = test-units,test-linux lint,fuzz,test-command
test: deps ## what every change passes: less than 20 minutes in a fresh clone on two cores, each step with its time
	@+MAKE="$(MAKE)" scripts/steps $(TEST_STEPS)
REST_STEPS = test-long-linux test-models,test-crates,test-long-others,xen-lab,kvm-lab
test-rest: deps ## what takes longer and still runs before a change lands: all models, long guest tests, laboratories
	@+MAKE="$(MAKE)" scripts/steps $(REST_STEPS)
test-all: test test-rest ## and what takes longer: long storms, programs, Python's own tests, the Debian package
	@+MAKE="$(MAKE)" scripts/steps deb,test-pages,stress,stress-blk,stress-vm,pause-test,programs-test,qemu-migration,python-test
.PHONY: test-cases
test-cases: ## list every test case by its target; `make test` leaves out those that are `long`
	@LIBRARIES="$(LIBRARIES)" CARGO="$(CARGO)" scripts/test-cases
lint: ## formatting, lints, and phrases that are hard to read
	$(CARGO) fmt --all --check
	scripts/voice
	$(NO_KERNEL) $(CARGO) clippy --workspace --all-targets --features ebb-mm/x86_64 -- -D warnings
	$(KERNEL_CARGO) clippy $(KERNEL_ARGS) --profile kernel-dev -- -D warnings
test-units: ## the libraries, the kernel's pure parts, the order of the rooms, the models that are quick
	$(CARGO) test --release $(LIBRARIES) --features ebb-mm/x86_64
	# Alone: with others its dependencies would have more features than in the command, and be built again.
	$(CARGO) test --release -p ebb-host
	$(CARGO) test --release -p ebb-init -p ebb-workloads
test-models: ## every interleaving of the lock-free parts, in small
	$(CARGO) test --release -p ebb-mm-models -- --include-ignored
	$(CARGO) test --release -p ebb-kernel-logic-models -p ebb-blk-models model
test-crates: ## package the libraries as crates.io would get them, and use them in a project of their own
	CARGO="$(CARGO)" scripts/crates
# The report has plots of memory, of ratios and of percentiles.
.PHONY: test-pages
test-pages: build workloads ## the book and a report of `ebb compare` in Chromium: on narrow screens, in dark colors, on paper
	scripts/deps chromium
	$(CARGO) fmt $(BOOK_ARGS) --check
	$(BOOK_CARGO) clippy --release $(BOOK_ARGS) --all-targets -- -D warnings
	mkdir -p target/pages
	target/release/ebb compare memhog page-fault/thp-once huge-latency --icount --rounds 1 --html target/pages/report.html >/dev/null
	EBB_REPORTS=$(CURDIR)/target/pages $(BOOK_CARGO) test --release $(BOOK_ARGS)
.PHONY: fuzz
fuzz: ## the request parsing of both doors against input that coverage leads; SECONDS=300 each, else a fixed count
	CARGO="$(CARGO)" scripts/fuzz $(SECONDS)
.PHONY: stress
stress: ## more than 10^8 operations of two threads on the allocator, the owner of each frame checked
	$(CARGO) test --release -p ebb-mm --test all stress:: -- --ignored --nocapture
.PHONY: stress-blk
stress-blk: ## storms over 200 disks: pressure, kills of the back-end, front-ends that misbehave; some minutes
	STORM=20 $(CARGO) test --release -p ebb-blk --test storm -- --nocapture
.PHONY: stress-vm
stress-vm: ## storms over virtual memory in guests of 1, 2 and 4 CPUs, with and without a disk, seeds at random: ten minutes
	$(CARGO) test --release -p ebb --test linux memory_storm::long -- --ignored --nocapture
COMMAND_TESTS = $(filter-out linux,$(basename $(notdir $(wildcard host/tests/*.rs))) $(notdir $(patsubst %/main.rs,%,$(wildcard host/tests/*/main.rs))))
test-command: workloads ## the command, with guests of both kernels
	$(CARGO) test --release -p ebb $(COMMAND_TESTS:%=--test %)
test-linux: workloads ## what programs see in guests, compared with Linux
	# Four at once: guests wait more than they work.
	RUST_TEST_THREADS=4 $(CARGO) test --release -p ebb --test linux
test-guests: test-command test-linux ## all tests with real guests
RUNS = 20
BUSY = 4
.PHONY: test-busy
test-busy: workloads ## the same, RUNS=20 times beside BUSY=4 processes that never sleep: finds tests that depend on time; hours
	@CARGO="$(CARGO)" COMMAND_TESTS="$(COMMAND_TESTS)" scripts/test-busy $(RUNS) $(BUSY)
LONG = --ignored --skip memory_storm::long --skip paused::six_guests --skip elasticity
.PHONY: test-long-linux test-long-others
test-long: test-long-linux test-long-others ## the guest tests that take longest
test-long-linux: workloads # what programs see in guests
	$(CARGO) test --release -p ebb --test linux -- $(LONG)
test-long-others: workloads # stock kernels, comparisons, disks
	$(CARGO) test --release -p ebb --test stock --test compare --test disks -- $(LONG)

.PHONY: qemu-migration
qemu-migration: deps ## count the writes that QEMU itself loses of guests without a disk that it migrates; 4 minutes
	$(CARGO) test --release -p ebb --test migration -- --ignored --nocapture

.PHONY: kvm-lab kvm-exits kvm-cpus
kvm-lab: deps build workloads ## boot a real KVM, which QEMU emulates, and run guests on it
	EBB=target/release/ebb WORKLOADS=$(WORKLOADS) host/lab/smoke target/kvm-lab
kvm-cpus: deps build workloads ## what faults cost guests with more CPUs than the host, both kernels; 10 minutes
	@EBB=target/release/ebb WORKLOADS=$(WORKLOADS) host/lab/cpus target/kvm-lab
kvm-exits: deps build workloads ## count the VM exits of both kernels on it; 3 minutes
	EBB=target/release/ebb WORKLOADS=$(WORKLOADS) host/lab/exits target/kvm-lab > target/kvm-exits.md
	$(call INTO,vm-exits,VM exits) < target/kvm-exits.md

.PHONY: xen-lab xen-experiments
xen-lab: deps build ## boot a real Xen and verify what its guest's disks hold
	$(CARGO) build --release -p ebb-blk --example xen-front
	EBB=target/release/ebb FRONT=target/release/examples/xen-front blk/lab/smoke target/xen-lab
xen-experiments: deps build ## swap traffic and I/O cost of squeezed pools, holds and persistent grants on a real Xen: 75 minutes
	EBB=target/release/ebb blk/lab/experiments target/xen-experiments
	$(CARGO) build --release -p ebb-blk --example xen-report
	target/release/examples/xen-report target/xen-experiments/*.log > target/xen-experiments/report.md
	$(call INTO,xen,xen experiments) < target/xen-experiments/report.md

# Everything in docs/measured/ and README.md that a command has measured is between markers, and is written again by
# the command that its first line names. Nothing else may run on the machine meanwhile.
.PHONY: bench measure measure-again measure-all measure-allocator measure-blk measure-picture measure-readme
bench: ## time the allocator against itself and others
	$(CARGO) bench -p ebb-mm-benches
# A run that fails is part of the report; only when there is no report make stops.
COMPARE = target/release/ebb compare
SOME_FAILED = || [ $$? = 1 ]
# $(call INTO,PAGE,BLOCK) fills a block of a page in docs/measured/; the block has the name of the page unless it is given.
INTO = scripts/section docs/measured/$(1).md "$(or $(2),$(1))" "make $@"
measure: deps build ## write docs/measured/compare.md again: faults, freed memory, messages, starts and boots; 70 minutes
	mkdir -p target/measure
	$(COMPARE) page-fault memhog messaging --json target/measure/times.json >/dev/null $(SOME_FAILED)
	$(COMPARE) idle --give-back reporting --json target/measure/idle.json >/dev/null $(SOME_FAILED)
	$(COMPARE) page-fault memhog messaging --icount --json target/measure/counted.json >/dev/null $(SOME_FAILED)
	$(COMPARE) boots --linux none --give-back reporting --json target/measure/boots.json >/dev/null $(SOME_FAILED)
	$(COMPARE) $(foreach part,times idle counted boots,--from target/measure/$(part).json) --markdown target/measure/report.md --html target/measure/report.html $(SOME_FAILED)
	$(call INTO,compare,ebb compare) < target/measure/report.md
	mkdir -p docs/measured/plots && cp target/measure/plots/*.svg docs/measured/plots/
measure-again: deps build ## write how far a second run of the same agrees with what `make measure` found: 35 minutes
	$(COMPARE) page-fault memhog messaging --give-back reporting --json target/measure/times-again.json >/dev/null $(SOME_FAILED)
	$(COMPARE) page-fault memhog messaging --icount --give-back reporting --json target/measure/counted-again.json >/dev/null $(SOME_FAILED)
	$(COMPARE) $(foreach part,times counted,--from target/measure/$(part).json --against target/measure/$(part)-again.json) --against-markdown target/measure/agreement.md $(SOME_FAILED)
	$(call INTO,compare,another comparison) < target/measure/agreement.md
# Parts that are comparisons: what `ebb compare` gets.
measure-rates: OF = stream huge-latency heap pin hugetlb --give-back reporting
measure-pool: OF = hugetlb pin hugetlb-10240 hugetlb-32g --icount --give-back reporting
measure-compaction: OF = huge-latency heap compact stalls unmovable --icount --give-back off
measure-latency: OF = latency --icount --give-back off
measure-growth: OF = scale --icount --give-back off
measure-programs: OF = programs --icount --give-back reporting
measure-give-back: OF = give-back --rounds 1
measure-parallel: OF = parallel --give-back off
measure-elasticity: OF = elasticity --rounds 1
COMPARISONS = $(addprefix measure-,rates pool compaction latency growth programs give-back parallel elasticity)
.PHONY: $(COMPARISONS)
$(COMPARISONS): deps build # its page of docs/measured/ again
	mkdir -p target/measure
	$(COMPARE) $(OF) --markdown target/measure/$@.md >/dev/null $(SOME_FAILED)
	scripts/tables < target/measure/$@.md | $(call INTO,$(@:measure-%=%))
.PHONY: measure-faults
# Counted figures hardly differ from round to round: one, of 12 experiments at 2 to 3 minutes. Timed ones differ, so they have two rounds,
# of the 8 experiments that the series timed (no threads), at 2 minutes.
FAULTS_TIMED = $(foreach order,faults faults-shuffled,$(addprefix $(order)/,thp thp-16 file file-16))
measure-faults: deps build ## write docs/measured/faults.md again: faults of 16 tasks, counted (30 minutes) and timed (30 minutes)
	mkdir -p target/measure
	$(COMPARE) faults faults-shuffled --icount --rounds 1 --json target/measure/faults-counted.json >/dev/null $(SOME_FAILED)
	$(COMPARE) $(FAULTS_TIMED) --json target/measure/faults-times.json >/dev/null $(SOME_FAILED)
	$(COMPARE) $(foreach part,counted times,--from target/measure/faults-$(part).json) --markdown target/measure/faults.md >/dev/null $(SOME_FAILED)
	scripts/tables --costs < target/measure/faults.md | $(call INTO,faults)
# Parts that other commands print.
TABLES = messaging-modes swap-test share-test stdio-test root-test runtimes-test cost-test host-pages
.PHONY: $(TABLES:%=measure-%)
$(TABLES:%=measure-%): measure-%: build workloads # its page of docs/measured/ again
	mkdir -p target/measure
	$(MAKE) -s --no-print-directory $* > target/measure/$*.md
	$(call INTO,$*) < target/measure/$*.md
measure-allocator: ## write docs/measured/allocator.md again
	mkdir -p target/measure
	$(CARGO) bench -p ebb-mm-benches --bench peers > target/measure/allocator.txt
	$(call INTO,allocator) < target/measure/allocator.txt
measure-blk: deps build ## write docs/measured/disks.md again: 10 minutes
	mkdir -p target/measure
	$(CARGO) run --release -p ebb-blk --example drive > target/measure/blk.md
	$(CARGO) run --release -p ebb-blk --example pressure >> target/measure/blk.md
	$(CARGO) run --release -p ebb-blk --example selective >> target/measure/blk.md
	$(call INTO,disks,ebb blk) < target/measure/blk.md
DEMO = target/release/ebb run -m 2G -c 2 --summary -- $(WORKLOADS) memhog 1G 2 5
measure-picture: build workloads ## write README's picture again
	mkdir -p target/measure
	(echo '```'; $(DEMO) 2>&1; echo '```') > target/measure/picture.md
	scripts/section README.md picture "make demo" < target/measure/picture.md
	EBB=target/release/ebb WORKLOADS=$(WORKLOADS) scripts/pause-picture > target/measure/pause.md
	scripts/section README.md pause "make $@" < target/measure/pause.md
measure-readme: ## write README's table again, from docs/measured/, and look for each commit that is named
	scripts/figures | scripts/section README.md figures "scripts/figures"
	$(CARGO) test --release -p ebb-layers --test measured_blocks -- --ignored every_commit
measure-all: measure measure-again measure-picture $(COMPARISONS) measure-faults $(TABLES:%=measure-%) measure-allocator measure-blk kvm-exits xen-experiments ## all figures: eight hours
	$(MAKE) measure-readme
