/* Takes memory until there is none. */
#include "say.h"

static void hog(int flags)
{
	for (;;) {
		char *p = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED) {
			say("mmap: %s", strerrorname_np(errno));
			_exit(55);
		}
		for (size_t i = 0; i < 4 << 20; i += PAGE)
			p[i] = 1;
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "self";
	if (!strcmp(how, "self"))
		hog(MAP_PRIVATE);
	if (!strcmp(how, "child")) {
		/* the one that takes it all is ended; its parent and its sibling live on */
		char *mine = malloc(10 << 20);
		memset(mine, 3, 10 << 20);
		pid_t sibling = MUST(fork());
		if (sibling == 0) {
			sleep_ms(100);
			pause();
		}
		for (int i = 0; i < 3; i++)
			IN_CHILD("hog", hog(MAP_PRIVATE));
		IN_CHILD("hog of shared memory", hog(MAP_SHARED));
		TRY(kill(sibling, 0));
		kill(sibling, SIGTERM);
		int status;
		waitpid(sibling, &status, 0);
		say_status("sibling", status);
		int kept = 1;
		for (size_t i = 0; i < 10 << 20; i += PAGE)
			kept &= mine[i] == 3;
		HOLDS(kept);
		return 0;
	}
	if (!strcmp(how, "files")) {
		/* a file system of memory says that it is full, or its writer is ended; then all of it can be had again */
		int ends = 0;
		for (int round = 0; round < 3; round++) {
			IN_CHILD("writer", {
				int fd = MUST(open("big", O_CREAT | O_RDWR | O_TRUNC, 0600));
				static char block[1 << 20];
				ssize_t n;
				while ((n = write(fd, block, sizeof block)) > 0)
					;
				_exit(n == -1 && (errno == ENOSPC || errno == ENOMEM) ? 0 : 1);
			});
			ends += unlink("big") == 0;
		}
		say("%d rounds", ends);
		return 0;
	}
	return 2;
}
