/* What the kernel shows as numbers, and its knobs. */
#include "say.h"

/* The sum of the numbers of a file in the lines that begin so. */
static inline long number(const char *path, const char *name)
{
	char line[256];
	long value = 0;
	FILE *file = fopen(path, "r");
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			value += atol(line + strlen(name));
	if (file)
		fclose(file);
	return value;
}

/* Writes to a knob; -1 and errno where it refuses. */
static inline int set_knob(const char *path, const char *value)
{
	int fd = MUST(open(path, O_WRONLY));
	int result = write(fd, value, strlen(value));
	int error = errno;
	close(fd);
	errno = error;
	return result < 0 ? -1 : 0;
}
