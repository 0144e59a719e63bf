/* Runs a program while others have memory compacted without a pause: frames move under it.
 * Arguments: how many do that, the program, its arguments. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static long vmstat(const char *name)
{
	char line[128];
	long value = -1;
	size_t length = strlen(name);
	FILE *file = fopen("/proc/vmstat", "r");

	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, length) && line[length] == ' ')
			value = atol(line + length);
	if (file)
		fclose(file);
	return value;
}

/* Half of every few pages goes again, so there are always blocks in pieces. */
static void make_holes(char *memory, size_t bytes, unsigned turn)
{
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = (char)turn;
	for (size_t at = turn % 7 * 4096; at < bytes; at += 7 * 4096)
		madvise(memory + at, 5 * 4096 < bytes - at ? 5 * 4096 : bytes - at, MADV_DONTNEED);
}

static void compact(void)
{
	size_t bytes = 8 << 20;
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned turn = 0;; turn++) {
		if (memory != MAP_FAILED)
			make_holes(memory, bytes, turn);
		if (write(fd, "1", 1) != 1)
			perror("compact_memory");
	}
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1, status = 0;
	pid_t compactors[16];
	long before = vmstat("pgmigrate_success");

	if (argc < 3 || count < 0 || count > 16) {
		fprintf(stderr, "compacting: COUNT PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	for (int number = 0; number < count; number++)
		if ((compactors[number] = fork()) == 0)
			compact();
	pid_t program = fork();
	if (program == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	waitpid(program, &status, 0);
	for (int number = 0; number < count; number++) {
		kill(compactors[number], SIGKILL);
		waitpid(compactors[number], NULL, 0);
	}
	fprintf(stderr, "moved %ld frames\n", vmstat("pgmigrate_success") - before);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
