# Two commands matter: `make demo` shows what linewise does, `make test` runs all that CI checks.

PREFIX ?= /usr/local
DEMO_REPORT ?= demo-report.html
CARGO ?= cargo
LINEWISE := target/release/linewise
# The exact source's plugin, which linewise looks for in ../lib/linewise.
TRACER := target/release/liblinewise_tracer.so

.PHONY: demo test build install needs-demo needs-test

demo: needs-demo build
	$(MAKE) -C fixtures/programs demo
	$(LINEWISE) run --html $(DEMO_REPORT) -- fixtures/build/demo
	@echo
	@echo "The report is in $(DEMO_REPORT): open it in a browser."

test: needs-test
	scripts/test.sh

build:
	$(CARGO) build --release --locked --package linewise --package linewise-tracer

# Does not build: under sudo there is often no cargo.
install:
	@test -x $(LINEWISE) -a -e $(TRACER) || { echo "nothing to install yet: run make build first" >&2; exit 1; }
	install -D -m 755 $(LINEWISE) $(DESTDIR)$(PREFIX)/bin/linewise
	install -D -m 755 $(TRACER) $(DESTDIR)$(PREFIX)/lib/linewise/liblinewise_tracer.so

needs-demo:
	scripts/install-needs.sh demo

needs-test:
	scripts/install-needs.sh test
