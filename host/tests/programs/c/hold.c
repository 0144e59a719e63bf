/* Takes memory and gives it back when told to, by lines on stdin; answers each with a line.
 *
 * take MIB        touch that much more
 * free            unmap all of it
 * sparse          unmap every other page of it
 * write PATH TEXT into a file
 * show PATH       the first line of a file
 * find PATH WORD  the first line of a file that has the word
 * vmstat NAME     a counter
 * end
 */
#include "say.h"

static char *blocks[64];
static size_t sizes[64];
static int count;

int main(void)
{
	char line[300], path[100], text[100], found_line[300];
	while (fgets(line, sizeof line, stdin)) {
		size_t mib;
		if (sscanf(line, "take %zu", &mib) == 1) {
			size_t bytes = mib << 20;
			char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (p == MAP_FAILED || count == 64) {
				say("refused: %s", strerrorname_np(errno));
				continue;
			}
			madvise(p, bytes, MADV_NOHUGEPAGE);
			for (size_t i = 0; i < bytes; i += PAGE)
				p[i] = 1;
			blocks[count] = p;
			sizes[count++] = bytes;
			say("taken");
		} else if (!strncmp(line, "free", 4)) {
			while (count) {
				count--;
				munmap(blocks[count], sizes[count]);
			}
			say("freed");
		} else if (!strncmp(line, "sparse", 6)) {
			for (int b = 0; b < count; b++)
				for (size_t i = 0; i < sizes[b]; i += 2 * PAGE)
					madvise(blocks[b] + i, PAGE, MADV_DONTNEED);
			say("freed");
		} else if (sscanf(line, "write %99s %99s", path, text) == 2) {
			int fd = open(path, O_WRONLY);
			ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
			say(n == (ssize_t)strlen(text) ? "written" : "refused: %s", strerrorname_np(errno));
			close(fd);
		} else if (sscanf(line, "show %99s", path) == 1) {
			FILE *f = fopen(path, "r");
			if (!f || !fgets(text, sizeof text, f))
				strcpy(text, "nothing");
			strtok(text, "\n");
			say("%s", text);
			if (f)
				fclose(f);
		} else if (sscanf(line, "find %99s %99s", path, text) == 2) {
			FILE *f = fopen(path, "r");
			do {
				if (!f || !fgets(found_line, sizeof found_line, f)) {
					strcpy(found_line, "nothing");
					break;
				}
			} while (!strstr(found_line, text));
			strtok(found_line, "\n");
			say("%s", found_line);
			if (f)
				fclose(f);
		} else if (sscanf(line, "vmstat %99s", text) == 1) {
			char name[100];
			long value, found = -1;
			FILE *f = fopen("/proc/vmstat", "r");
			while (f && fscanf(f, "%99s %ld", name, &value) == 2)
				if (!strcmp(name, text))
					found = value;
			say("%ld", found);
			if (f)
				fclose(f);
		} else if (!strncmp(line, "end", 3)) {
			return 0;
		} else {
			say("what?");
		}
	}
	return 1;
}
