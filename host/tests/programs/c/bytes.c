/* What a byte through a pipe and through a socket costs while more and more pages are held: a line each
   with mean and worst, in nanoseconds, which are instructions where those are counted. Arguments:
   levels, bytes at each. */
#include "say.h"
#include <sys/socket.h>

static void pass(int *ends, long bytes)
{
	char byte = 'x';
	while (bytes-- > 0) {
		MUST(write(ends[1], &byte, 1));
		MUST(read(ends[0], &byte, 1));
	}
}

static void measure(const char *name, int *ends, int levels, long bytes)
{
	double sum = 0, worst = 0;
	for (int level = 0; level < levels; level++) {
		pass(ends, 100);
		double start = now();
		pass(ends, bytes);
		double each = (now() - start) * 1e9 / bytes;
		sum += each;
		if (each > worst)
			worst = each;
		/* Another page is held from here on. */
		int held[2];
		MUST(pipe(held));
		MUST(write(held[1], name, 1));
	}
	say("%s %.0f %.0f", name, sum / levels, worst);
}

int main(int count, char **words)
{
	int levels = count > 1 ? atoi(words[1]) : 200, ends[2];
	long bytes = count > 2 ? atol(words[2]) : 500;
	MUST(pipe(ends));
	measure("pipe", ends, levels, bytes);
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	measure("socket", ends, levels, bytes);
	return 0;
}
