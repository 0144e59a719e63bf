/* Seals of memfds and what mappings may do to them, before and after. */
#include "say.h"

#define READ PROT_READ
#define BOTH (PROT_READ | PROT_WRITE)

static char *map(int file, int rights, int sharing)
{
	char *at = mmap(0, 2 * PAGE, rights, sharing, file, 0);
	say("mmap(%d, %s) %s", rights, sharing == MAP_SHARED ? "shared" : "private",
	    at == MAP_FAILED ? strerrorname_np(errno) : "succeeds");
	return at;
}

static int make(void)
{
	int file = MUST(memfd_create("sealed", MFD_ALLOW_SEALING));
	MUST(ftruncate(file, 2 * PAGE));
	return file;
}

static void against_stores(void)
{
	int file = make();
	char *at = map(file, BOTH, MAP_SHARED);
	at[0] = 1;
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	/* Half of the mapping is enough to be in the way, and so is one that may be made writable. */
	TRY(munmap(at, PAGE));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(mprotect(at + PAGE, PAGE, READ));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(fcntl(file, F_GET_SEALS));
	TRY(munmap(at + PAGE, PAGE));
	char *copy = map(file, BOTH, MAP_PRIVATE);
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(fcntl(file, F_GET_SEALS));
	TRY(write(file, "x", 1));
	map(file, BOTH, MAP_SHARED);
	/* One that only reads may come, and stays so. */
	char *reader = map(file, READ, MAP_SHARED);
	TRY(mprotect(reader, PAGE, BOTH));
	copy[0] = 2;
	TRY(madvise(copy, PAGE, MADV_REMOVE));
	TRY(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
	TRY(ftruncate(file, 3 * PAGE));
	char byte = 9;
	TRY(pread(file, &byte, 1, 0));
	say("the file has %d, the copy %d", byte, copy[0]);
}

static void against_new_stores(void)
{
	int file = make();
	char *old = map(file, BOTH, MAP_SHARED);
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	old[0] = 7;
	map(file, BOTH, MAP_SHARED);
	char *new = map(file, READ, MAP_SHARED);
	say("the new mapping shows %d", new[0]);
	TRY(mprotect(new, PAGE, BOTH));
	TRY(write(file, "x", 1));
	TRY(madvise(old, PAGE, MADV_REMOVE));
	/* The old one may still store. */
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(munmap(old, 2 * PAGE));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
}

static void a_child_that_maps(void)
{
	int file = make(), pipes[2];
	char *at = map(file, BOTH, MAP_SHARED);
	MUST(pipe(pipes));
	pid_t child = MUST(fork());
	if (child == 0) {
		char byte;
		close(pipes[1]);
		read(pipes[0], &byte, 1);
		_exit(0);
	}
	TRY(munmap(at, 2 * PAGE));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	close(pipes[0]);
	close(pipes[1]);
	int status;
	MUST(waitpid(child, &status, 0));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
}

static void a_mapping_that_moves(void)
{
	int file = make();
	char *at = map(file, BOTH, MAP_SHARED);
	char *moved = mremap(at, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	HOLDS(moved != MAP_FAILED);
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(munmap(moved, 4 * PAGE));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
}

static void read_only_descriptors(void)
{
	int file = make();
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	int reader = MUST(open(path, O_RDONLY));
	char *at = map(reader, READ, MAP_SHARED);
	map(reader, BOTH, MAP_SHARED);
	TRY(fcntl(reader, F_ADD_SEALS, F_SEAL_WRITE));
	/* It never may store, so it is not in the way. */
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(mprotect(at, PAGE, BOTH));
}

static void the_rest(void)
{
	int file = make();
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	TRY(ftruncate(file, 0));
	TRY(ftruncate(file, 4 * PAGE));
	TRY(pwrite(file, "x", 1, 2 * PAGE));
	TRY(pwrite(file, "x", 1, 2 * PAGE - 1));
	/* What crosses the end: whole pages are written, the rest is not. */
	static char much[3 * PAGE];
	TRY(pwrite(file, much, 2, 2 * PAGE - 1));
	TRY(pwrite(file, much, 2 * PAGE, PAGE + 100));
	TRY(pwrite(file, much, 3 * PAGE, 0));
	TRY(pwrite(file, much, PAGE, 2 * PAGE - 100));
	int odd = make();
	TRY(ftruncate(odd, PAGE + 100));
	TRY(fcntl(odd, F_ADD_SEALS, F_SEAL_GROW));
	TRY(pwrite(odd, much, 2 * PAGE, 50));
	TRY(pwrite(odd, much, 101, PAGE));
	TRY(pwrite(odd, much, 100, PAGE));
	TRY(pwrite(odd, much, 0, 3 * PAGE));
	TRY(fcntl(file, F_ADD_SEALS, 0x10000));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_SEAL));
	TRY(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	TRY(fcntl(file, F_GET_SEALS));
	int plain = MUST(memfd_create("plain", 0));
	TRY(fcntl(plain, F_GET_SEALS));
	TRY(fcntl(plain, F_ADD_SEALS, F_SEAL_WRITE));
}

/* Who reads the list of mappings of another must not make a file look mapped. */
static void while_mappings_are_read(void)
{
	char maps[64];
	snprintf(maps, sizeof maps, "/proc/%d/maps", getpid());
	pid_t reader = MUST(fork());
	if (reader == 0) {
		static char text[65536];
		for (;;) {
			int file = MUST(open(maps, O_RDONLY));
			while (MUST(read(file, text, sizeof text)) > 0)
				;
			close(file);
		}
	}
	int refused = 0;
	for (int round = 0; round < 2000; round++) {
		int file = make();
		char *at = mmap(0, 2 * PAGE, BOTH, MAP_SHARED, file, 0);
		at[0] = 1;
		MUST(munmap(at, 2 * PAGE));
		refused += fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) != 0;
		close(file);
	}
	say("%d of 2000 refused", refused);
	MUST(kill(reader, SIGKILL));
	MUST(waitpid(reader, 0, 0));
}

int main(void)
{
	against_stores();
	against_new_stores();
	a_child_that_maps();
	a_mapping_that_moves();
	read_only_descriptors();
	the_rest();
	while_mappings_are_read();
	return 0;
}
