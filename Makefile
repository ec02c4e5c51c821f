# Two commands matter: `make demo` shows what linewise does, `make test` runs all that CI checks.

PREFIX ?= /usr/local
DEMO_REPORT ?= demo-report.html
CARGO ?= cargo
LINEWISE := target/release/linewise
# The exact source's plugin, which linewise looks for in ../lib/linewise.
TRACER := target/release/liblinewise_tracer.so
# The heap recorder, which linewise looks for there, too.
PRELOAD := target/release/liblinewise_preload.so
PRELOAD_CXX := target/release/liblinewise_preload_cxx.so
# The delegation runtime for C and C++.
DELEGATE := target/release/liblinewise_delegate_c
# The runtime of fibres, for them too.
FIBRES := target/release/liblinewise_fibres_c
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

.PHONY: demo test conformance build install needs-demo needs-test needs-conformance

demo: needs-demo build
	$(MAKE) -C fixtures/programs demo
	$(LINEWISE) run --html $(DEMO_REPORT) -- fixtures/build/demo
	@echo
	@echo "The report is in $(DEMO_REPORT): open it in a browser."

test: needs-test
	scripts/test.sh

# Programs whose output and exit code must be the same under linewise as without it: all of them.
conformance: needs-conformance build
	PATH="$(CURDIR)/target/venv/bin:$$PATH" $(CARGO) xtask conformance

build:
	$(CARGO) build --release --locked --package linewise --package linewise-tracer --package linewise-delegate-c --package linewise-fibres-c
	$(CARGO) build --profile preload --locked --package linewise-preload --package linewise-preload-cxx --features linewise-preload/bare,linewise-preload-cxx/bare
	cp target/preload/liblinewise_preload.so target/preload/liblinewise_preload_cxx.so target/release/

# Does not build: under sudo there is often no cargo.
install:
	@test -x $(LINEWISE) -a -e $(TRACER) -a -e $(PRELOAD) -a -e $(PRELOAD_CXX) -a -e $(DELEGATE).a -a -e $(FIBRES).a || { echo "nothing to install yet: run make build first" >&2; exit 1; }
	install -D -m 755 $(LINEWISE) $(DESTDIR)$(PREFIX)/bin/linewise
	install -D -m 755 $(TRACER) $(DESTDIR)$(PREFIX)/lib/linewise/liblinewise_tracer.so
	install -D -m 755 $(PRELOAD) $(DESTDIR)$(PREFIX)/lib/linewise/liblinewise_preload.so
	install -D -m 755 $(PRELOAD_CXX) $(DESTDIR)$(PREFIX)/lib/linewise/liblinewise_preload_cxx.so
	install -D -m 644 $(DELEGATE).a $(DESTDIR)$(PREFIX)/lib/liblinewise_delegate.a
	install -D -m 755 $(DELEGATE).so $(DESTDIR)$(PREFIX)/lib/liblinewise_delegate.so.$(VERSION)
	ln -sf liblinewise_delegate.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/liblinewise_delegate.so.0
	ln -sf liblinewise_delegate.so.0 $(DESTDIR)$(PREFIX)/lib/liblinewise_delegate.so
	install -D -m 644 crates/delegate-c/include/linewise_delegate.h $(DESTDIR)$(PREFIX)/include/linewise_delegate.h
	install -D -m 644 $(FIBRES).a $(DESTDIR)$(PREFIX)/lib/liblinewise_fibres.a
	install -D -m 755 $(FIBRES).so $(DESTDIR)$(PREFIX)/lib/liblinewise_fibres.so.$(VERSION)
	ln -sf liblinewise_fibres.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/liblinewise_fibres.so.0
	ln -sf liblinewise_fibres.so.0 $(DESTDIR)$(PREFIX)/lib/liblinewise_fibres.so
	install -D -m 644 crates/fibres-c/include/linewise_fibres.h $(DESTDIR)$(PREFIX)/include/linewise_fibres.h
	install -D -m 644 crates/preload/include/linewise.h $(DESTDIR)$(PREFIX)/include/linewise.h
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/delegate-c/linewise-delegate.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/linewise-delegate.pc
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' crates/fibres-c/linewise-fibres.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/linewise-fibres.pc
	$(LINEWISE) man --into $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(LINEWISE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/linewise
	$(LINEWISE) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_linewise
	$(LINEWISE) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/linewise.fish

needs-demo:
	scripts/install-needs.sh demo

needs-test:
	scripts/install-needs.sh test

needs-conformance:
	scripts/install-needs.sh conformance
