# Builds a part of a real library, what zstd's two halves have in common, from the sources that cargo fetched for linewise itself:
#   make -s -j2 -f zstd.mk LIBRARY=FOLDER
# Compilers, assemblers and archivers run two at a time; what they made is told when all is done.

parts := debug entropy_common error_private fse_decompress pool threading zstd_common
VPATH := $(LIBRARY)/common
CFLAGS := -O1 -fPIC -DZSTD_MULTITHREAD

all: libzstd.a libzstd.so
	@cksum $(sort $(parts:=.o)) $^
	@nm -D --defined-only libzstd.so | wc -l

%.o: %.c
	$(CC) $(CFLAGS) -c -o $@ $<

libzstd.a: $(parts:=.o)
	$(AR) crD $@ $^

libzstd.so: $(parts:=.o)
	$(CC) -shared -pthread -Wl,--build-id=none -o $@ $^
