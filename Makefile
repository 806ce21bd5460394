# SPDX-License-Identifier: LGPL-2.1-or-later
#
# make [all|check|lint|fuzz|install|clean]
#
#   B=DIR      output directory (build)
#   SAN=1      with AddressSanitizer and UndefinedBehaviorSanitizer, in $(B)/san
#   FAULTS=1   with the fault points of the test suite (-DTP_FAULTS), in $(B)/faults
#   WERROR=1   warnings are errors
#   VALGRIND=1 `make check` runs the unit tests under valgrind
#   V=1        shows the commands
#   DESTDIR, PREFIX, LIBDIR, ... for `make install`
#
# Folders of src/ are layers; scripts/lint-layers holds what each may include,
# and the rules for unit tests below hold what each may link.

VERSION := 0.1.0
SOVERSION := 0

B ?= build
# One spelling, as the names in the .d files are those of the rules.
override B := $(patsubst $(CURDIR)/%,%,$(abspath $(B)))
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
AR ?= ar
OBJCOPY ?= objcopy
PKG_CONFIG ?= pkg-config
O := $(B)$(if $(SAN),/san)$(if $(FAULTS),/faults)

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
LIBEXECDIR ?= $(PREFIX)/libexec/torpor
DATADIR ?= $(PREFIX)/share
MANDIR ?= $(DATADIR)/man
UNITDIR ?= $(PREFIX)/lib/systemd/system

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-7s %s\n' '$(1)' '$(patsubst $(B)/%,%,$@)')

# ---------------------------------------------------------------- flags

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
	-Wwrite-strings -Wundef -Wimplicit-fallthrough -Wformat=2 -Werror=implicit-function-declaration
BASE_FLAGS := -std=c11 -g $(WARN) -fstack-protector-strong -fPIC -fvisibility=hidden -pthread
ifdef SAN
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
OPT := -O1 $(SAN_FLAGS)
else
OPT := -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
endif
CFLAGS ?=
TP_CPPFLAGS := -D_GNU_SOURCE -DTP_VERSION='"$(VERSION)"' -DTP_LIBEXECDIR='"$(LIBEXECDIR)"' \
	$(if $(FAULTS),-DTP_FAULTS) -Isrc
TP_CFLAGS := $(BASE_FLAGS) $(OPT) $(CFLAGS)
TP_LDFLAGS := $(SAN_FLAGS) -pthread -Wl,-z,relro,-z,now -Wl,--as-needed $(LDFLAGS)
EXE_LDFLAGS := -pie $(TP_LDFLAGS)
compile = $(CC) $(TP_CPPFLAGS) $(EXTRA_CPPFLAGS) $(CPPFLAGS) $(TP_CFLAGS) $(if $(WERROR),-Werror) \
	-MMD -MP -c -o $@ $<

HAVE_SYSTEMD := $(shell $(PKG_CONFIG) --exists libsystemd 2>/dev/null && echo 1)
SYSTEMD_CPPFLAGS := $(if $(HAVE_SYSTEMD),-DTP_HAVE_SYSTEMD $(shell $(PKG_CONFIG) --cflags libsystemd))
SYSTEMD_LIBS := $(if $(HAVE_SYSTEMD),$(shell $(PKG_CONFIG) --libs libsystemd))

# ---------------------------------------------------------------- sources

LAYERS := base qmp storage migration engine
objs = $(patsubst %.c,$(O)/obj/%.o,$(1))
layer_srcs = $(sort $(wildcard src/$(1)/*.c))
archives = $(patsubst %,$(O)/lib/%.a,$(1))
LAYER_OBJS := $(call objs,$(foreach l,$(LAYERS),$(call layer_srcs,$(l))))

# What the unit tests of a layer, or a program, may link: upper layers first.
LINK_base := base
LINK_qmp := qmp base
LINK_storage := storage base
LINK_migration := migration storage base
LINK_engine := engine qmp migration storage base
LINK_tools := tools engine qmp migration storage base
LINK_mover := migration storage base

LIBS_base := -ljansson
LIBS_qmp := -lev -lm -ljansson
LIBS_storage := -lzstd -lxxhash -ljansson
LIBS_migration := $(LIBS_storage)
LIBS_engine := -lev -lm $(LIBS_storage)
LIBS_tools := -lseccomp $(LIBS_engine) $(SYSTEMD_LIBS)
LIBS_mover := -lseccomp $(LIBS_storage)

# Programs whose main file is there; each takes the files with its prefixes.
TORPORD_SRCS := $(if $(wildcard tools/torpord.c),$(sort tools/torpord.c $(wildcard tools/torpord_*.c)))
TORPOR_SRCS := $(if $(wildcard tools/torpor.c),\
	$(sort tools/torpor.c $(wildcard tools/cmd_*.c tools/cli_*.c)))
MOVER_SRCS := $(if $(wildcard tools/torpor-mover.c),\
	$(sort tools/torpor-mover.c $(wildcard tools/mover_*.c)))
TOOL_PART_SRCS := $(sort $(wildcard tools/torpord_*.c tools/cmd_*.c tools/cli_*.c tools/mover_*.c))
FAKE_SRCS := $(sort $(wildcard tests/fake/*.c))

PROGRAMS := $(if $(TORPORD_SRCS),$(O)/torpord) $(if $(TORPOR_SRCS),$(O)/torpor) \
	$(if $(MOVER_SRCS),$(O)/torpor-mover)
SONAME := libtorpor.so.$(SOVERSION)
LIBRARIES := $(if $(LAYER_OBJS),$(O)/libtorpor.a $(O)/libtorpor.so) $(O)/torpor.pc

TEST_SRCS := $(sort $(wildcard tests/unit/*/test_*.c))
TESTS := $(patsubst tests/unit/%.c,$(O)/tests/%,$(TEST_SRCS))
# Small programs for the suites on real QEMU: one file each.
AUX_SRCS := $(sort $(wildcard tests/real/*.c tests/bench/*.c))
AUX := $(patsubst tests/%.c,$(O)/tests/%,$(AUX_SRCS))

.PHONY: all check test-programs lint lint-layers lint-size lint-tidy lint-cppcheck lint-analyzer \
	lint-shell fuzz install clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:

all: $(call archives,$(LAYERS)) $(LIBRARIES) $(PROGRAMS)

# ---------------------------------------------------------------- dependencies

# $(call probe,header,library,Debian package): names the package if a one-line program fails.
probe = printf '\#include <stdio.h>\n\#include <$(1)>\nint main(void) { return 0; }\n' | \
	$(CC) -w -x c - -o /dev/null -Wl,--no-as-needed -l$(2) 2>/dev/null || \
	{ echo "missing: <$(1)> and lib$(2); install the Debian package $(3)" >&2; missing=1; }

$(O)/.deps:
	@mkdir -p $(@D)
	@command -v $(CC) >/dev/null || \
		{ echo "missing: the compiler $(CC); install the Debian package gcc" >&2; exit 1; }
	@printf 'int main(void) { return 0; }\n' | $(CC) -x c - -o /dev/null 2>/dev/null || \
		{ echo "missing: the C library's headers; install the Debian package libc6-dev" >&2; exit 1; }
	@missing=; \
	$(call probe,jansson.h,jansson,libjansson-dev); \
	$(call probe,ev.h,ev,libev-dev); \
	$(call probe,zstd.h,zstd,libzstd-dev); \
	$(call probe,xxhash.h,xxhash,libxxhash-dev); \
	$(call probe,seccomp.h,seccomp,libseccomp-dev); \
	test -z "$$missing"
	@touch $@

$(O)/.deps-test: $(O)/.deps
	@printf '%s\n' '#include <stdarg.h>' '#include <stddef.h>' '#include <stdint.h>' \
		'#include <setjmp.h>' '#include <cmocka.h>' 'int main(void) { return 0; }' | \
		$(CC) -w -x c - -o /dev/null -lcmocka 2>/dev/null || \
		{ echo "missing: cmocka; install the Debian package libcmocka-dev" >&2; exit 1; }
	@touch $@

# ---------------------------------------------------------------- objects and archives

# $(call list,words): a file that is rewritten only when its words change, so that what depends on
# it is made again when flags change or a source file is removed.
list = @mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || \
	printf '%s\n' '$(subst ','\'',$(1))' >$@

$(O)/.flags: FORCE
	$(call list,$(CC) $(TP_CPPFLAGS) $(CPPFLAGS) $(TP_CFLAGS) $(SYSTEMD_CPPFLAGS))

$(O)/obj/%.o: %.c $(O)/.flags | $(O)/.deps
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(compile)

$(call objs,$(TORPORD_SRCS)): EXTRA_CPPFLAGS := $(SYSTEMD_CPPFLAGS)
$(O)/obj/tests/%.o: EXTRA_CPPFLAGS := -Itests -Itools

$(O)/lib/%.list: FORCE
	$(call list,$(ARCHIVE_OBJS_$*))

$(O)/lib/%.a: $(O)/lib/%.list
	$(call say,AR)
	$(Q)rm -f $@ && $(AR) rcs $@ $(ARCHIVE_OBJS_$*)

define archive_rule
ARCHIVE_OBJS_$(1) := $$(call objs,$(2))
$(O)/lib/$(1).a: $$(ARCHIVE_OBJS_$(1))
endef
$(foreach l,$(LAYERS),$(eval $(call archive_rule,$(l),$(call layer_srcs,$(l)))))
$(eval $(call archive_rule,tools,$(TOOL_PART_SRCS)))
$(eval $(call archive_rule,fake,$(FAKE_SRCS)))

# ---------------------------------------------------------------- libraries

$(O)/lib/libtorpor.list: FORCE
	$(call list,$(LAYER_OBJS))

# One object in which only torpor_* is visible: a host program can neither see nor
# collide with what is inside.
$(O)/libtorpor.a: $(LAYER_OBJS) $(O)/lib/libtorpor.list
	$(call say,LD)
	$(Q)$(LD) -r --force-group-allocation -o $(O)/lib/libtorpor.o $(LAYER_OBJS)
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='torpor_*' $(O)/lib/libtorpor.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(O)/lib/libtorpor.o

$(O)/$(SONAME): $(LAYER_OBJS) $(O)/lib/libtorpor.list src/libtorpor.map
	$(call say,LD)
	$(Q)$(CC) -shared $(TP_LDFLAGS) -Wl,-soname,$(SONAME) \
		-Wl,--version-script=src/libtorpor.map -o $@ $(LAYER_OBJS) $(LIBS_engine)

$(O)/libtorpor.so: $(O)/$(SONAME)
	$(Q)ln -sf $(SONAME) $@

define PC_TEXT
prefix=$(PREFIX)
libdir=$(LIBDIR)
includedir=$(INCLUDEDIR)

Name: torpor
Description: Hibernates and restores QEMU virtual machines
Version: $(VERSION)
Requires.private: libzstd libxxhash
Libs: -L$${libdir} -ltorpor -lev -ljansson
Libs.private: -lm -pthread
Cflags: -I$${includedir}
endef

# A recipe line ends at a newline, so the text goes through the environment.
export PC_TEXT
$(O)/torpor.pc: FORCE
	@mkdir -p $(@D); printf '%s\n' "$$PC_TEXT" | cmp -s - $@ || \
		printf '%s\n' "$$PC_TEXT" >$@

# ---------------------------------------------------------------- programs

link = $(CC) $(EXE_LDFLAGS) -o $@

$(O)/torpord: $(call objs,$(TORPORD_SRCS)) $(O)/libtorpor.a $(O)/lib/base.a
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_engine) $(SYSTEMD_LIBS)

# Of the layers above base, only the offline image commands use any.
$(O)/torpor: $(call objs,$(TORPOR_SRCS)) $(call archives,$(LINK_mover))
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_storage) -lev

$(O)/torpor-mover: $(call objs,$(MOVER_SRCS)) $(call archives,$(LINK_mover))
	$(call say,LD)
	$(Q)$(link) $^ $(LIBS_mover)

# ---------------------------------------------------------------- tests

$(call objs,$(TEST_SRCS)): | $(O)/.deps-test

# A test may ask for linker flags of its own by a comment line " * link: FLAGS".
link_flags = $(shell sed -n 's,^ \* link: ,,p' $(1))

define test_layer_rule
$(O)/tests/$(1)/test_%: $(O)/obj/tests/unit/$(1)/test_%.o $(O)/lib/fake.a \
		$(call archives,$(LINK_$(1)))
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(link) $$(call link_flags,tests/unit/$(1)/test_$$*.c) $$^ -lcmocka $$(LIBS_$(1))
endef
$(foreach l,$(LAYERS) tools,$(eval $(call test_layer_rule,$(l))))

define aux_rule
$(O)/tests/$(1)/%: $(O)/obj/tests/$(1)/%.o $(O)/lib/fake.a $(call archives,$(LINK_engine))
	@mkdir -p $$(@D)
	$$(call say,LD)
	$$(Q)$$(link) $$^ -lseccomp $$(LIBS_engine)
endef
$(foreach d,real bench,$(eval $(call aux_rule,$(d))))

test-programs: $(TESTS) $(AUX)

# Tests may run the programs, hence `all`. T='base/test_buf ...' runs some only.
T ?= $(patsubst $(O)/tests/%,%,$(TESTS))
check: all test-programs
	$(Q)VALGRIND=$(VALGRIND) TORPOR_BUILD=$(abspath $(O)) scripts/check-unit $(O)/tests $(T)

# ---------------------------------------------------------------- fuzzing (clang only)

FUZZ_CC ?= clang
FUZZ_FLAGS := -std=c11 -g -O1 $(WARN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined
FUZZ_SRCS := $(sort $(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SHARED := $(filter-out $(FUZZ_SRCS),$(sort $(wildcard tests/fuzz/*.c)))
# What parses bytes of others; the engine, half of all code, gets them parsed.
FUZZ_LAYERS := base qmp storage migration
FUZZ_OBJS := $(patsubst %.c,$(B)/fuzz/obj/%.o,$(FUZZ_SHARED) $(foreach l,$(FUZZ_LAYERS),$(call layer_srcs,$(l))))

# FUZZ="fuzz_a fuzz_b": only these.
FUZZ ?= $(patsubst tests/fuzz/%.c,%,$(FUZZ_SRCS))

fuzz: $(addprefix $(B)/fuzz/,$(FUZZ))

$(B)/fuzz/obj/%.o: %.c | $(O)/.deps
	@mkdir -p $(@D)
	@command -v $(FUZZ_CC) >/dev/null || \
		{ echo "missing: $(FUZZ_CC); install the Debian package clang" >&2; exit 1; }
	$(call say,FUZZCC)
	$(Q)$(FUZZ_CC) $(TP_CPPFLAGS) -Itests $(FUZZ_FLAGS) \
		-fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<

$(B)/fuzz/layers.a: $(FUZZ_OBJS)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(B)/fuzz/fuzz_%: $(B)/fuzz/obj/tests/fuzz/fuzz_%.o $(B)/fuzz/layers.a
	$(call say,FUZZLD)
	$(Q)$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -pthread -o $@ $^ $(LIBS_qmp) $(LIBS_storage)

# ---------------------------------------------------------------- lint

lint: lint-layers lint-size lint-shell lint-cppcheck lint-tidy lint-analyzer

lint-layers: all
	$(Q)scripts/lint-layers $(O)
lint-size:
	$(Q)scripts/lint-size
lint-tidy:
	$(Q)scripts/lint-tidy
lint-cppcheck:
	$(Q)scripts/lint-cppcheck
lint-analyzer:
	$(Q)scripts/lint-analyzer
lint-shell:
	$(Q)scripts/lint-shell

# ---------------------------------------------------------------- install

inst = install -D -m $(1) $(2) $(DESTDIR)$(3)
MAN_PAGES := $(sort $(wildcard docs/man/*.[1-8]))
UNITS := $(sort $(wildcard dist/systemd/*.service dist/systemd/*.socket))

install: all
	$(Q)test -z '$(TORPORD_SRCS)' || $(call inst,755,$(O)/torpord,$(BINDIR)/torpord)
	$(Q)test -z '$(TORPOR_SRCS)' || $(call inst,755,$(O)/torpor,$(BINDIR)/torpor)
	$(Q)test -z '$(MOVER_SRCS)' || $(call inst,755,$(O)/torpor-mover,$(LIBEXECDIR)/torpor-mover)
	$(Q)$(call inst,644,$(O)/libtorpor.a,$(LIBDIR)/libtorpor.a)
	$(Q)$(call inst,755,$(O)/$(SONAME),$(LIBDIR)/libtorpor.so.$(VERSION))
	$(Q)ln -sf libtorpor.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$(SONAME)
	$(Q)ln -sf $(SONAME) $(DESTDIR)$(LIBDIR)/libtorpor.so
	$(Q)test ! -e src/torpor.h || $(call inst,644,src/torpor.h,$(INCLUDEDIR)/torpor.h)
	$(Q)$(call inst,644,$(O)/torpor.pc,$(LIBDIR)/pkgconfig/torpor.pc)
	$(Q)$(foreach m,$(MAN_PAGES),$(call inst,644,$(m),$(MANDIR)/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) &&) :
	$(Q)test ! -e dist/completion/torpor.bash || $(call inst,644,dist/completion/torpor.bash,$(DATADIR)/bash-completion/completions/torpor)
	$(Q)test ! -e dist/completion/_torpor || $(call inst,644,dist/completion/_torpor,$(DATADIR)/zsh/site-functions/_torpor)
	$(Q)test ! -e dist/completion/torpor.fish || $(call inst,644,dist/completion/torpor.fish,$(DATADIR)/fish/vendor_completions.d/torpor.fish)
	$(Q)$(foreach u,$(UNITS),$(call inst,644,$(u),$(UNITDIR)/$(notdir $(u))) &&) :

clean:
	$(Q)rm -rf $(O)

-include $(shell test ! -d $(O)/obj || find $(O)/obj $(B)/fuzz/obj -name '*.d' 2>/dev/null)
