/* Programs that name another to load them: what exec answers where that one is missing, cannot be run, or is none. */
#include "say.h"
#include <elf.h>

#define CODE 0x1000
#define BASE 0x10000000

/* Where programs that can be anywhere would lie by themselves. */
static uint64_t wanted;

/* exit(7) */
static const unsigned char ends[] = { 0xb8, 60, 0, 0, 0, 0xbf, 7, 0, 0, 0, 0x0f, 0x05 };

/* Writes a program of one page of code, which can be written to: Linux clears what is left of the last page of a loader.
   `interpreter` of `bytes` bytes, none if it is null. */
static void make(const char *path, int type, const char *interpreter, size_t bytes, const unsigned char *code, size_t code_bytes)
{
	static unsigned char file[CODE + PAGE];
	memset(file, 0, sizeof file);
	Elf64_Ehdr header = { .e_type = type, .e_machine = EM_X86_64, .e_version = 1, .e_phoff = 64, .e_ehsize = 64,
			      .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = interpreter ? 2 : 1 };
	uint64_t base = type == ET_EXEC ? BASE : wanted;
	memcpy(header.e_ident, "\177ELF\2\1\1", 7);
	header.e_entry = base + CODE;
	Elf64_Phdr load = { .p_type = PT_LOAD, .p_flags = PF_R | PF_W | PF_X, .p_vaddr = base,
			    .p_filesz = CODE + code_bytes, .p_memsz = CODE + code_bytes, .p_align = PAGE };
	Elf64_Phdr interp = { .p_type = PT_INTERP, .p_flags = PF_R, .p_offset = 512, .p_vaddr = base + 512, .p_filesz = bytes,
			      .p_memsz = bytes, .p_align = 1 };
	memcpy(file, &header, sizeof header);
	memcpy(file + 64, interpreter ? &interp : &load, sizeof load);
	memcpy(file + 64 + sizeof load, &load, sizeof load);
	if (interpreter)
		memcpy(file + 512, interpreter, strlen(interpreter) + 1);
	memcpy(file + CODE, code, code_bytes);
	int fd = MUST(open(path, O_CREAT | O_TRUNC | O_WRONLY, 0755));
	MUST(write(fd, file, CODE + code_bytes));
	close(fd);
}

static void run(const char *what, const char *path)
{
	int status = 0;
	pid_t child = MUST(fork());
	if (child == 0) {
		execl(path, path, (char *)0);
		say("%s: %s", what, strerrorname_np(errno));
		_exit(100);
	}
	MUST(waitpid(child, &status, 0));
	if (WIFEXITED(status))
		say("%s: ends with %d", what, WEXITSTATUS(status));
	else
		say("%s: dies of %d", what, WTERMSIG(status));
}

static void named(const char *what, const char *interpreter, size_t bytes)
{
	make("/tmp/program", ET_DYN, interpreter, bytes, ends, sizeof ends);
	run(what, "/tmp/program");
}

/* With the end of the text. */
#define NAMED(text) sizeof text

int main(void)
{
	static const unsigned char faults[] = { 0x0f, 0x0b };

	MUST(chdir("/tmp"));
	make("/tmp/alone", ET_DYN, 0, 0, ends, sizeof ends);
	run("without one", "/tmp/alone");
	/* Its code is that of the loader: the program itself would die. */
	make("/tmp/loader", ET_DYN, 0, 0, ends, sizeof ends);
	make("/tmp/program", ET_DYN, "/tmp/loader", NAMED("/tmp/loader"), faults, sizeof faults);
	run("a loader", "/tmp/program");
	make("/tmp/program", ET_EXEC, "/tmp/loader", NAMED("/tmp/loader"), faults, sizeof faults);
	run("a loader of a program at a place of its own", "/tmp/program");
	make("/tmp/fixed", ET_EXEC, 0, 0, ends, sizeof ends);
	make("/tmp/program", ET_DYN, "/tmp/fixed", NAMED("/tmp/fixed"), faults, sizeof faults);
	run("a loader at a place of its own", "/tmp/program");
	make("/tmp/program", ET_DYN, "loader", NAMED("loader"), faults, sizeof faults);
	run("a relative path", "/tmp/program");
	/* A loader's own is not asked for. */
	make("/tmp/second", ET_DYN, "/tmp/none", NAMED("/tmp/none"), ends, sizeof ends);
	named("a loader that names a third", "/tmp/second", NAMED("/tmp/second"));
	/* Wherever that is, they lie elsewhere. */
	wanted = 0x700000000000;
	make("/tmp/high", ET_DYN, 0, 0, ends, sizeof ends);
	run("a high one", "/tmp/high");
	named("a high one with a high loader", "/tmp/high", NAMED("/tmp/high"));
	wanted = 0;

	named("none there", "/tmp/none", NAMED("/tmp/none"));
	named("a folder", "/tmp", NAMED("/tmp"));
	named("below a file", "/tmp/loader/x", NAMED("/tmp/loader/x"));
	named("no end", "/tmp/loader", sizeof "/tmp/loader" - 1);
	named("an end too soon", "/tmp/loader", 200);
	named("nothing", "", 1);
	named("an empty name", "", 2);
	named("no bytes", "/tmp/loader", 0);
	named("beyond the file", "/tmp/loader", 4096);
	named("longer than a path", "/tmp/loader", 4097);
	MUST(chmod("/tmp/loader", 0644));
	named("it may not be run", "/tmp/loader", NAMED("/tmp/loader"));
	int fd = MUST(open("/tmp/text", O_CREAT | O_WRONLY, 0755));
	MUST(write(fd, "#!/tmp/alone\n", 13));
	named("it is written", "/tmp/text", NAMED("/tmp/text"));
	close(fd);
	named("a script", "/tmp/text", NAMED("/tmp/text"));
	MUST(truncate("/tmp/text", 100));
	named("a longer one", "/tmp/text", NAMED("/tmp/text"));
	MUST(truncate("/tmp/text", 0));
	named("an empty file", "/tmp/text", NAMED("/tmp/text"));
	return 0;
}
