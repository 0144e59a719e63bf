/* Programs as exec finds them: by descriptors, in odd files. */
#include "say.h"
#include <elf.h>
#include <sys/auxv.h>

static char *own_environment[] = { NULL };

/* Executes what a descriptor stands for, and says how that ended. */
static void execute(const char *what, int fd, const char *path, int flags)
{
	char *arguments[] = { "program", "told", NULL };
	pid_t child = MUST(fork());
	if (child == 0) {
		syscall(SYS_execveat, fd, path, arguments, own_environment, flags);
		say("  %s", strerrorname_np(errno));
		_exit(99);
	}
	int status;
	MUST(waitpid(child, &status, 0));
	say_status(what, status);
}

static void descriptors(void)
{
	int self = MUST(open("/proc/self/exe", O_RDONLY));
	execute("read", self, "", AT_EMPTY_PATH);
	int place = MUST(open("/proc/self/exe", O_PATH));
	execute("place", place, "", AT_EMPTY_PATH);
	execute("place without the flag", place, "", 0);
	int closed = MUST(open("/proc/self/exe", O_PATH | O_CLOEXEC));
	execute("place that exec closes", closed, "", AT_EMPTY_PATH);
	int folder = MUST(open("/", O_PATH));
	execute("folder", folder, "", AT_EMPTY_PATH);
	execute("beneath a file", self, "x", 0);
	execute("no descriptor", 77, "", AT_EMPTY_PATH);
	MUST(symlink("/proc/self/exe", "/tmp/link_to_program"));
	int link = MUST(open("/tmp/link_to_program", O_PATH | O_NOFOLLOW));
	execute("link", link, "", AT_EMPTY_PATH);
	execute("link by its path", AT_FDCWD, "/tmp/link_to_program", AT_SYMLINK_NOFOLLOW);
	unlink("/tmp/link_to_program");
	int text = MUST(open("/tmp/no_program", O_RDWR | O_CREAT, 0644));
	execute("no right", text, "", AT_EMPTY_PATH);
	unlink("/tmp/no_program");
	/* a file that is open for writing does not run; once its program has ended, it can be opened for writing */
	char copy[65536];
	int to = MUST(open("/tmp/copy_of_program", O_WRONLY | O_CREAT | O_TRUNC, 0755));
	ssize_t n;
	MUST(lseek(self, 0, SEEK_SET));
	while ((n = MUST(read(self, copy, sizeof copy))) > 0)
		MUST(write(to, copy, n));
	int from = MUST(open("/tmp/copy_of_program", O_RDONLY));
	execute("open for writing", from, "", AT_EMPTY_PATH);
	close(to);
	execute("written", from, "", AT_EMPTY_PATH);
	DO(to = open("/tmp/copy_of_program", O_WRONLY));
	close(to);
	close(from);
	unlink("/tmp/copy_of_program");
}

/* Scripts that this program is the interpreter of. */
static void scripts(const char *self)
{
	char line[300];
	int length = snprintf(line, sizeof line, "#!%s script\n", self);
	int memory = MUST(memfd_create("script", 0));
	MUST(write(memory, line, length));
	execute("script in memory", memory, "", AT_EMPTY_PATH);
	int closed = MUST(memfd_create("script", MFD_CLOEXEC));
	MUST(write(closed, line, length));
	execute("script that exec closes", closed, "", AT_EMPTY_PATH);
	int file = MUST(open("/tmp/a_script", O_WRONLY | O_CREAT | O_TRUNC, 0755));
	MUST(write(file, line, length));
	execute("script open for writing", AT_FDCWD, "/tmp/a_script", 0);
	close(file);
	execute("script", AT_FDCWD, "/tmp/a_script", 0);
	int folder = MUST(open("/tmp", O_RDONLY));
	execute("script in a folder", folder, "a_script", 0);
	file = MUST(open("/tmp/a_script", O_RDONLY));
	unlink("/tmp/a_script");
	execute("script without a name", file, "", AT_EMPTY_PATH);
}

/* Lines that name an interpreter in odd ways. @ stands for the program's path, ~ for a NUL. */
static const char *const heads[] = {
	"#!@ heads", "#!@ heads\n", "#! \t@ \t heads \t\nmore\n", "#!@ heads two  words \n", "#!@ heads\r\n", "#!@\r\n", "#!@ heads~more\n",
	"#!@~ heads\n", "#!@ heads \t", "#!@ heads ~", "#!@ ", "#!@", "#!", "#! ", "#!\n", "#! \t\n@", "#!~", "#! ~\n", "#!\r\n", "#!@\fheads\n", "#", "", "\n",
	"#!@ heads\n~", "# !@\n", "#!heads\n", "#!@/ heads\n", "#!./ heads\n",
};

/* Executes a script that begins with `head`, filled with `fill` up to `length` bytes if it is shorter. */
static void run_head(const char *self, const char *head, int length, char fill)
{
	static char text[1000];
	int n = 0;
	for (const char *from = head; *from; from++)
		n += *from == '@' ? sprintf(text + n, "%s", self) : (text[n] = *from == '~' ? 0 : *from, 1);
	for (; n < length; n++)
		text[n] = fill;
	int fd = MUST(open("/tmp/head", O_WRONLY | O_CREAT | O_TRUNC, 0755));
	MUST(write(fd, text, n));
	close(fd);
	execute(head, AT_FDCWD, "/tmp/head", 0);
	unlink("/tmp/head");
}

static void odd_heads(const char *self)
{
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		run_head(self, heads[i], 0, 0);
	static const char fills[] = { ' ', '\t', 'x', 0, '\r', '\n' };
	static const char *const begins[] = { "#!", "#!@", "#!@ heads", "#!@ heads " };
	for (int length = 253; length <= 258; length++)
		for (size_t i = 0; i < sizeof fills; i++)
			for (size_t j = 0; j < sizeof begins / sizeof *begins; j++) {
				say("%d bytes, filled with %d", length, fills[i]);
				run_head(self, begins[j], length, fills[i]);
			}
}

/* Scripts that run each other. The last one names `last` as its interpreter. */
static void chains(const char *last)
{
	char path[32], line[300], what[32];
	for (int deep = 4; deep <= 7; deep++) {
		for (int at = 1; at <= deep; at++) {
			int length = at < deep ? snprintf(line, sizeof line, "#!/tmp/chain%d\n", at + 1)
				: snprintf(line, sizeof line, "#!%s heads\n", last);
			snprintf(path, sizeof path, "/tmp/chain%d", at);
			int fd = MUST(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755));
			MUST(write(fd, line, length));
			close(fd);
		}
		snprintf(what, sizeof what, "%d scripts", deep);
		execute(what, AT_FDCWD, "/tmp/chain1", 0);
	}
	for (int at = 1; at <= 7; at++) {
		snprintf(path, sizeof path, "/tmp/chain%d", at);
		unlink(path);
	}
}

/* Ends with 42. */
static const unsigned char code[] = { 0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 0x05 };

static void run_segments(const char *what, const Elf64_Phdr *headers, int count)
{
	static unsigned char image[2 * PAGE];
	Elf64_Ehdr header = {
		.e_ident = { 0x7f, 'E', 'L', 'F', 2, 1, 1 }, .e_type = ET_EXEC, .e_machine = EM_X86_64,
		.e_version = 1, .e_entry = 0x400800, .e_phoff = 64, .e_ehsize = 64, .e_phentsize = 56,
		.e_phnum = count, .e_shentsize = 64,
	};
	memset(image, 0, sizeof image);
	memcpy(image, &header, sizeof header);
	memcpy(image + 64, headers, count * sizeof *headers);
	memcpy(image + 0x800, code, sizeof code);
	int fd = MUST(open("/tmp/odd", O_WRONLY | O_CREAT | O_TRUNC, 0755));
	MUST(write(fd, image, sizeof image));
	close(fd);
	execute(what, AT_FDCWD, "/tmp/odd", 0);
	unlink("/tmp/odd");
}

#define LOAD(flags, offset, address, file_bytes, memory_bytes, alignment) \
	{ PT_LOAD, flags, offset, address, address, file_bytes, memory_bytes, alignment }
#define TEXT LOAD(5, 0, 0x400000, PAGE, PAGE, PAGE)
#define RUN(what, ...) do { Elf64_Phdr headers[] = { __VA_ARGS__ }; \
	run_segments(what, headers, sizeof headers / sizeof *headers); } while (0)

static void segments(void)
{
	RUN("one segment", TEXT);
	RUN("zeros alone, at another place of the page", TEXT, LOAD(6, 0x123, 0x500000, 0, 2 * PAGE, PAGE));
	RUN("zeros alone, not from a page's start", TEXT, LOAD(6, 0, 0x500040, 0, 2 * PAGE, PAGE));
	RUN("segments on each other", TEXT, LOAD(4, 0, 0x400000, PAGE, PAGE, PAGE), TEXT);
	RUN("segments not in order", TEXT, LOAD(6, PAGE, 0x300000, PAGE, PAGE, PAGE));
	RUN("an empty segment", TEXT, LOAD(6, 0, 0x500000, 0, 0, PAGE));
	RUN("an alignment that is none", TEXT, LOAD(6, PAGE, 0x500000, PAGE, PAGE, 3));
	RUN("longer than the file", LOAD(5, 0, 0x400000, 0x20000, 0x20000, PAGE));
	RUN("zeros behind the file's end", TEXT, LOAD(6, 16 * PAGE, 0x500000, PAGE + 0x800, 3 * PAGE, PAGE));
	RUN("headers that lie elsewhere", TEXT, { PT_PHDR, 4, 64, 1 << 30, 1 << 30, 112, 112, 8 });
}

int main(int count, char **arguments)
{
	if (count > 1 && !strcmp(arguments[1], "told"))
		return 7;
	if (count > 1 && !strcmp(arguments[1], "script")) {
		char name[16] = "";
		int fd = MUST(open("/proc/self/comm", O_RDONLY));
		name[MUST(read(fd, name, sizeof name - 1)) - 1] = 0;
		say("  %s, run as %s, called %s", arguments[2], (char *)getauxval(AT_EXECFN), name);
		return access(arguments[2], R_OK) ? 8 : 9;
	}
	if (count > 1 && !strncmp(arguments[1], "heads", 5)) {
		say("  %d: <%s> of %zu bytes, then %s", count, arguments[1], strlen(arguments[1]), arguments[2]);
		return 10;
	}
	if (count > 2 && !strcmp(arguments[count - 1], "told")) {
		say("  %d: <%s>", count, arguments[1]);
		return 11;
	}
	char self[256] = "";
	MUST(readlink("/proc/self/exe", self, sizeof self - 1));
	descriptors();
	scripts(self);
	odd_heads(self);
	chains(self);
	chains("/tmp/no_interpreter");
	segments();
	return 0;
}
