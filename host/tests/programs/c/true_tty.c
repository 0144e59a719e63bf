/* What terminals answer: pseudo-terminals, lines and their editing, sessions and jobs, ends. */
#include "say.h"
#include "blocked.h"
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <termios.h>

#define SETTLE 120000

static int master, line;

/* Linux carries what is typed to the other side by a thread of its own. A poll that finds nothing
   to read waits for that; where something is there already, the rest has some time. */
static void settle(void)
{
	struct pollfd both[] = { { line, POLLIN, 0 }, { master, POLLIN, 0 } };
	poll(both, 2, 0);
	usleep(SETTLE);
	poll(both, 2, 0);
}

/* Bytes as text. */
static const char *shown(const char *bytes, int n)
{
	static char text[2][1200];
	static int which;
	char *to = text[which ^= 1], *begin = to;
	for (int i = 0; i < n && to - begin < 1100; i++) {
		unsigned char c = bytes[i];
		if (c == '\n')
			to += sprintf(to, "\\n");
		else if (c == '\r')
			to += sprintf(to, "\\r");
		else if (c < 32 || c > 126)
			to += sprintf(to, "\\%03o", c);
		else
			*to++ = c;
	}
	*to = 0;
	return begin;
}

static void type_bytes(const char *bytes, int n)
{
	int r = write(master, bytes, n);
	if (r != n)
		say("typing %d gives %d %s", n, r, strerrorname_np(errno));
	settle();
}

static void type(const char *text)
{
	type_bytes(text, strlen(text));
}

static int open_line(int flags)
{
	char name[64];
	if (ptsname_r(master, name, sizeof name))
		say("no name: %s", strerrorname_np(errno));
	return open(name, O_RDWR | flags);
}

static void fresh(void)
{
	master = MUST(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	MUST(grantpt(master));
	MUST(unlockpt(master));
	line = MUST(open_line(O_NOCTTY | O_CLOEXEC));
}

static void done(void)
{
	close(line);
	close(master);
}

/* Says what the far side sees. */
static void say_screen(const char *what)
{
	char bytes[4096];
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	errno = 0;
	int n = read(master, bytes, sizeof bytes);
	fcntl(master, F_SETFL, O_RDWR);
	if (n < 0)
		say("%s: screen %s", what, strerrorname_np(errno));
	else
		say("%s: screen %d \"%s\"", what, n, shown(bytes, n));
}

/* Says what can be read, line by line. */
static void say_lines(const char *what, int most)
{
	char bytes[5000];
	fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK);
	for (int i = 0; i < 8; i++) {
		errno = 0;
		int n = read(line, bytes, most);
		if (n < 0) {
			if (errno != EAGAIN || !i)
				say("%s: read %s", what, strerrorname_np(errno));
			break;
		}
		if (n > 200)
			say("%s: read %d, last %s", what, n, shown(bytes + n - 1, 1));
		else
			say("%s: read %d \"%s\"", what, n, shown(bytes, n));
		if (!n && i > 2)
			break;
	}
	fcntl(line, F_SETFL, O_RDWR);
}

static void say_poll(const char *what, int fd)
{
	struct pollfd p = { fd, POLLIN | POLLOUT | POLLPRI, 0 };
	int r = poll(&p, 1, 0);
	say("%s: poll %d, %#x", what, r, p.revents);
}

static void say_waiting(const char *what)
{
	int near = -1, far = -1, out = -1;
	int a = ioctl(line, FIONREAD, &near), b = ioctl(master, FIONREAD, &far), c = ioctl(line, TIOCOUTQ, &out);
	say("%s: waiting %d: %d, %d: %d, out %d: %d", what, a, near, b, far, c, out);
}

struct change { tcflag_t i_on, i_off, o_on, o_off, l_on, l_off; };

static void set(struct change c)
{
	struct termios t;
	MUST(tcgetattr(line, &t));
	t.c_iflag = (t.c_iflag | c.i_on) & ~c.i_off;
	t.c_oflag = (t.c_oflag | c.o_on) & ~c.o_off;
	t.c_lflag = (t.c_lflag | c.l_on) & ~c.l_off;
	MUST(tcsetattr(line, TCSANOW, &t));
}

static void set_character(int which, int value)
{
	struct termios t;
	MUST(tcgetattr(line, &t));
	t.c_cc[which] = value;
	MUST(tcsetattr(line, TCSANOW, &t));
}

static void opening(void)
{
	int number = -1, locked = -1, line2;
	struct stat s;
	master = MUST(open("/dev/ptmx", O_RDWR | O_NOCTTY));
	TRY(ioctl(master, TIOCGPTN, &number));
	HOLDS(number >= 0);
	TRY(ioctl(master, TIOCGPTLCK, &locked));
	say("locked %d", locked);
	TRY(open_line(O_NOCTTY));
	TRY(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY));
	TRY(unlockpt(master));
	TRY(ioctl(master, TIOCGPTLCK, &locked));
	say("locked %d", locked);
	DO(line = open_line(O_NOCTTY));
	DO(line2 = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
	TRY(fcntl(line2, F_GETFD));
	TRY(isatty(line));
	TRY(isatty(master));
	char name[64], other[64];
	TRY(ttyname_r(line, name, sizeof name));
	TRY(ttyname_r(line2, other, sizeof other));
	HOLDS(!strcmp(name, other));
	sprintf(other, "/dev/pts/%d", number);
	HOLDS(!strcmp(name, other));
	TRY(fstat(line, &s));
	say("mode %#o, device %d, block size %ld", s.st_mode & S_IFMT, major(s.st_rdev), (long)s.st_blksize);
	HOLDS((int)minor(s.st_rdev) == number);
	TRY(fstat(master, &s));
	say("mode %#o, device %d:%d", s.st_mode & S_IFMT, major(s.st_rdev), minor(s.st_rdev));
	TRY(fchmod(line, 0600));
	TRY(stat(name, &s));
	say("mode %#o", s.st_mode);
	TRY(lseek(line, 0, SEEK_SET));
	TRY(pread(line, name, 1, 0));
	TRY(ioctl(line, TIOCGPTN, &number));
	TRY(ioctl(line, TIOCSPTLCK, &number));
	TRY(ioctl(line, TIOCPKT, &number));
	TRY(ioctl(line, 0x54ff, 0));
	TRY(ioctl(master, 0x54ff, 0));
	TRY(ioctl(line, TIOCMGET, &number));
	TRY(ioctl(line, TIOCGETD, &number));
	say("discipline %d", number);
	number = 77;
	TRY(ioctl(line, TIOCSETD, &number));
	TRY(ioctl(line, TIOCEXCL));
	TRY(ioctl(line, TIOCGEXCL, &number));
	say("exclusive %d", number);
	TRY(ioctl(line, TIOCNXCL));
	TRY(ioctl(line, TCGETS, 1));
	TRY(ioctl(line, TIOCGWINSZ, 1));
	TRY(tcdrain(line));
	TRY(tcsendbreak(line, 0));
	TRY(tcflush(line, 77));
	TRY(tcflow(line, 77));
	struct winsize w = { 1, 2, 3, 4 }, v = {};
	TRY(ioctl(line, TIOCGWINSZ, &v));
	say("window %d %d %d %d", v.ws_row, v.ws_col, v.ws_xpixel, v.ws_ypixel);
	TRY(ioctl(master, TIOCSWINSZ, &w));
	TRY(ioctl(line, TIOCGWINSZ, &v));
	say("window %d %d %d %d", v.ws_row, v.ws_col, v.ws_xpixel, v.ws_ypixel);
	struct termios t;
	for (int i = 0; i < 2; i++) {
		TRY(tcgetattr(i ? master : line, &t));
		say("settings %#o %#o %#o %#o, line %d", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag, t.c_line);
		say("characters %s", shown((char *)t.c_cc, 19));
	}
	cfsetspeed(&t, B115200);
	t.c_cflag |= PARENB | CSTOPB;
	t.c_cflag &= ~CSIZE;
	TRY(ioctl(line, TCSETS, &t));
	TRY(tcgetattr(line, &t));
	say("settings %#o, speed %d", t.c_cflag, cfgetospeed(&t) == B115200);
	/* The structure before that one. */
	struct termio old;
	TRY(ioctl(line, TCGETA, &old));
	say("old settings %#o %#o %#o %#o, line %d", old.c_iflag, old.c_oflag, old.c_cflag, old.c_lflag, old.c_line);
	say("old characters %s", shown((char *)old.c_cc, NCC));
	old.c_iflag &= ~ICRNL, old.c_lflag &= ~ECHO, old.c_cc[VQUIT] = 1;
	TRY(ioctl(line, TCSETA, &old));
	old.c_cc[VMIN] = 7;
	TRY(ioctl(master, TCSETAW, &old));
	old.c_cc[VTIME] = 5;
	TRY(ioctl(line, TCSETAF, &old));
	TRY(tcgetattr(line, &t));
	say("settings %#o %#o %#o %#o", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag);
	say("characters %s", shown((char *)t.c_cc, 19));
	TRY(ioctl(line, TCGETA, 1));
	TRY(ioctl(line, TCSETA, 1));
	TRY(ioctl(line2, TCSETAF, 1));
	/* Settings that are held as they are. */
	struct termios held;
	TRY(ioctl(line, TIOCGLCKTRMIOS, &held));
	say("held %#o %#o, character %d", held.c_iflag, held.c_lflag, held.c_cc[VQUIT]);
	held.c_iflag = IXON, held.c_lflag = ISIG, held.c_cc[VQUIT] = 5;
	TRY(ioctl(master, TIOCSLCKTRMIOS, &held));
	TRY(tcgetattr(line, &t));
	t.c_iflag ^= IXON | ICRNL, t.c_lflag ^= ISIG | ECHO, t.c_cc[VQUIT] = 9, t.c_cc[VINTR] = 9;
	TRY(ioctl(line, TCSETSW, &t));
	TRY(tcgetattr(line, &t));
	say("settings %#o %#o %#o %#o", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag);
	say("characters %s", shown((char *)t.c_cc, 19));
	memset(&held, 0, sizeof held);
	TRY(ioctl(line, TIOCGLCKTRMIOS, &held));
	say("held %#o %#o, character %d", held.c_iflag, held.c_lflag, held.c_cc[VQUIT]);
	memset(&held, 0, sizeof held);
	TRY(ioctl(line, TIOCSLCKTRMIOS, &held));
	TRY(ioctl(line, TIOCGLCKTRMIOS, 1));
	TRY(ioctl(line, TIOCSLCKTRMIOS, 1));
	for (int on = 2; on >= 0; on -= 2) {
		int local = 7;
		TRY(ioctl(line, TIOCSSOFTCAR, &on));
		TRY(ioctl(master, TIOCGSOFTCAR, &local));
		TRY(tcgetattr(line, &t));
		say("local %d, settings %#o", local, t.c_cflag);
	}
	int none = open("/dev/null", O_RDWR);
	TRY(ioctl(none, TIOCGLCKTRMIOS, &held));
	TRY(ioctl(none, TCGETA, &old));
	TRY(ioctl(none, TCSETA, &old));
	close(none);
	close(line2);
	done();
	TRY(open(other, O_RDWR | O_NOCTTY));
	TRY(open("/dev/pts/00", O_RDWR | O_NOCTTY));
}

static void dialog(const char *what, struct change c, const char *typed)
{
	fresh();
	set(c);
	type(typed);
	say_waiting(what);
	say_lines(what, 300);
	say_screen(what);
	done();
}

static void lines(void)
{
	struct change usual = {};
	dialog("lines", usual, "one\rtwo\nthree");
	dialog("end of file", usual, "abc\004\004x\n");
	dialog("erase", usual, "abc\177\177\177\177d\001\177e\n");
	dialog("tab", usual, "a\tb\177\177c\td\t\177\n");
	dialog("words", usual, "ab cd-ef_g  \027x\027\027\027\027z\n");
	dialog("kill", usual, "abc\td\001\025e\n");
	dialog("literal", usual, "a\026\003b\026\026\026\n\n");
	dialog("reprint", usual, "ab\003c\022d\n");
	dialog("controls", usual, "\001\007\033[A\n");
	dialog("eighth bit", usual, "\303\244\177\n");
	dialog("utf8", (struct change){ .i_on = IUTF8 }, "a\303\244\303\266\177\177b\n\200\200\177\n");
	dialog("no echoe", (struct change){ .l_off = ECHOE }, "ab\177c\025d\n");
	dialog("no echok", (struct change){ .l_off = ECHOK | ECHOKE }, "ab\025d\n");
	dialog("no echoke", (struct change){ .l_off = ECHOKE }, "ab\025d\n");
	dialog("no echoctl", (struct change){ .l_off = ECHOCTL }, "a\001\177b\001\n");
	dialog("echoprt", (struct change){ .l_on = ECHOPRT, .l_off = 0 }, "abc\177\177d\177\177\177\n");
	dialog("echonl", (struct change){ .l_on = ECHONL, .l_off = ECHO }, "abc\177\n");
	dialog("no echo", (struct change){ .l_off = ECHO }, "ab\022c\n");
	dialog("no iexten", (struct change){ .l_off = IEXTEN }, "a b\027\022\026x\n");
	dialog("extproc", (struct change){ .l_on = EXTPROC }, "ab\177c\003\n");
	dialog("no icrnl", (struct change){ .i_off = ICRNL }, "a\rb\n");
	dialog("igncr", (struct change){ .i_on = IGNCR }, "a\rb\n");
	dialog("inlcr", (struct change){ .i_on = INLCR }, "a\nb\004");
	dialog("istrip", (struct change){ .i_on = ISTRIP }, "\341\342\n");
	dialog("iuclc", (struct change){ .i_on = IUCLC }, "AbC\n");
	dialog("parmrk", (struct change){ .i_on = PARMRK }, "a\377b\n");
	dialog("no onlcr", (struct change){ .o_off = ONLCR }, "ab\ncd\n");
	dialog("no opost", (struct change){ .o_off = OPOST }, "ab\ncd\r\t\177\n");
	dialog("raw", (struct change){ .l_off = ICANON | ISIG | ECHO | IEXTEN, .i_off = ICRNL | IXON }, "a\003\r\n\004\177\021\023");
	dialog("cbreak", (struct change){ .l_off = ICANON }, "a\177\004\n\001");
	dialog("signal keys", usual, "lost\nlost too\003kept\n");
	dialog("noflsh", (struct change){ .l_on = NOFLSH }, "kept\nkept \003\032\034too\n");
	dialog("no isig", (struct change){ .l_off = ISIG }, "a\003\032\034\n");
	fresh();
	set_character(VEOL, ';');
	set_character(VEOL2, ',');
	type("a;b,c\n");
	say_lines("further ends", 100);
	say_screen("further ends");
	type("abcdef\nabc\004def\n");
	say_lines("in parts", 3);
	type("abc");
	set((struct change){ .l_off = ICANON });
	say_lines("to bytes", 2);
	type("de\nf");
	set((struct change){ .l_on = ICANON });
	say_lines("to lines", 100);
	type("gone\n");
	struct termios t;
	tcgetattr(line, &t);
	TRY(tcsetattr(line, TCSAFLUSH, &t));
	say_lines("flushed", 100);
	type("gone\n");
	TRY(tcflush(line, TCIFLUSH));
	say_lines("flushed", 100);
	say_screen("flushed");
	done();
}

/* What waits for room in the line goes with a flush of the input, and stays with that of new settings. */
static void flushes(void)
{
	static char text[6000];
	struct termios t;
	for (int how = 0; how < 4; how++) {
		memset(text, 'a', sizeof text);
		fresh();
		set((struct change){ .l_off = ICANON | ECHO });
		type_bytes(text, sizeof text);
		say_waiting("typed");
		tcgetattr(line, &t);
		switch (how) {
		case 0: TRY(tcflush(line, TCIFLUSH)); break;
		case 1: TRY(tcflush(line, TCIOFLUSH)); break;
		case 2: TRY(tcflush(line, TCOFLUSH)); break;
		case 3: TRY(tcsetattr(line, TCSAFLUSH, &t)); break;
		}
		settle();
		say_waiting("flushed");
		type("later");
		say_waiting("typed again");
		done();
	}
}

static void long_lines(void)
{
	char text[5000];
	memset(text, 'a', sizeof text);
	fresh();
	set((struct change){ .l_off = ECHO });
	type_bytes(text, 5000);
	say_waiting("long line");
	type("b\n");
	say_waiting("long line");
	say_lines("long line", 5000);
	set((struct change){ .l_off = ICANON });
	type_bytes(text, 5000);
	say_waiting("many bytes");
	say_lines("many bytes", 5000);
	done();
}

static void output_one(const char *what, struct change c, const char *text)
{
	fresh();
	set(c);
	MUST(write(line, text, strlen(text)));
	settle();
	say_screen(what);
	done();
}

static void output(void)
{
	output_one("usual", (struct change){}, "a\tb\nc\rd\be\n");
	output_one("no opost", (struct change){ .o_off = OPOST }, "a\tb\nc\rd\n");
	output_one("no onlcr", (struct change){ .o_off = ONLCR }, "a\nb\n");
	output_one("xtabs", (struct change){ .o_on = XTABS }, "a\tb\t\tc\nabc\b\tx\001\ty\n");
	output_one("ocrnl", (struct change){ .o_on = OCRNL }, "a\rb\n");
	output_one("onocr", (struct change){ .o_on = ONOCR }, "\ra\r\rb\n\r");
	output_one("onlret", (struct change){ .o_on = ONLRET | XTABS, .o_off = ONLCR }, "ab\n\tc\n");
	output_one("no onlret", (struct change){ .o_on = XTABS, .o_off = ONLCR }, "ab\n\tc\n");
	output_one("olcuc", (struct change){ .o_on = OLCUC }, "aBc\344\n");
	output_one("utf8 xtabs", (struct change){ .i_on = IUTF8, .o_on = XTABS }, "\303\244\tx\n");
	output_one("xtabs without utf8", (struct change){ .o_on = XTABS }, "\303\244\tx\n");
	fresh();
	type("\023");
	fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK);
	TRY(write(line, "held", 4));
	say_poll("stopped", line);
	type("xy");
	say_screen("stopped");
	type("\021");
	say_screen("started");
	TRY(write(line, "free", 4));
	settle();
	say_screen("started");
	set((struct change){ .i_on = IXANY });
	type("\023");
	TRY(write(line, "held", 4));
	type("z");
	TRY(write(line, "free", 4));
	settle();
	say_screen("any");
	TRY(tcflow(line, TCOOFF));
	TRY(write(line, "held", 4));
	type("\021z");
	TRY(write(line, "held", 4));
	TRY(tcflow(line, TCOON));
	TRY(write(line, "free", 4));
	settle();
	say_screen("by calls");
	TRY(tcflow(line, TCIOFF));
	settle();
	say_screen("input off");
	TRY(tcflow(line, TCION));
	settle();
	say_screen("input on");
	type("\023");
	set((struct change){ .i_off = IXON });
	TRY(write(line, "free", 4));
	settle();
	say_screen("no ixon");
	TRY(ioctl(line, TIOCSTI, "q"));
	TRY(ioctl(line, TIOCSTI, "\n"));
	settle();
	say_lines("inserted", 100);
	say_screen("inserted");
	done();
}

/* What two write stays apart; a long write yields, and ends when a signal comes. */
static void long_writes(void)
{
	enum { LINE = 3000, LINES = 30 };
	static char bytes[LINE * LINES * 2];
	fresh();
	set((struct change){ .l_off = ECHO, .o_off = OPOST });
	for (int i = 0; i < 2; i++) {
		if (!MUST(fork())) {
			memset(bytes, 'a' + i, LINE);
			for (int n = 0; n < LINES; n++)
				MUST(write(line, bytes, LINE));
			_exit(0);
		}
	}
	int got = 0, torn = 0;
	while (got < (int)sizeof bytes)
		got += MUST(read(master, bytes + got, sizeof bytes - got));
	for (int i = 1; i < got; i++)
		torn += i % LINE && bytes[i] != bytes[i - 1];
	say("two writers: %d bytes, %d torn", got, torn);
	wait(NULL);
	wait(NULL);
	/* Bytes that are dropped: the write would go on for minutes. */
	enum { MUCH = 1 << 30 };
	char *much = MUST(mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
	pid_t pid = MUST(fork());
	if (!pid) {
		ssize_t r = write(master, much, MUCH);
		_exit(r == MUCH ? 1 : 2);
	}
	usleep(5 * SETTLE);
	MUST(kill(pid, SIGKILL));
	int status;
	MUST(waitpid(pid, &status, 0));
	say_status("a long writer", status);
	munmap(much, MUCH);
	done();
}

static long since(struct timespec *t)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - t->tv_sec) * 1000 + (now.tv_nsec - t->tv_nsec) / 1000000;
}

static void patience(void)
{
	char bytes[100];
	struct timespec t;
	fresh();
	set((struct change){ .l_off = ICANON | ECHO });
	set_character(VMIN, 0);
	set_character(VTIME, 0);
	TRY(read(line, bytes, 10));
	fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK);
	TRY(read(line, bytes, 10));
	fcntl(line, F_SETFL, O_RDWR);
	say_poll("none wanted", line);
	type("ab");
	TRY(read(line, bytes, 10));
	set_character(VTIME, 2);
	clock_gettime(CLOCK_MONOTONIC, &t);
	TRY(read(line, bytes, 10));
	HOLDS(since(&t) >= 190);
	set_character(VMIN, 3);
	set_character(VTIME, 0);
	type("ab");
	say_poll("two of three", line);
	type("c");
	say_poll("three of three", line);
	TRY(read(line, bytes, 10));
	set_character(VTIME, 1);
	type("de");
	TRY(read(line, bytes, 10));
	type("fghijk");
	TRY(read(line, bytes, 4));
	TRY(read(line, bytes, 10));
	set_character(VTIME, 0);
	if (!MUST(fork())) {
		usleep(100000);
		MUST(write(master, "l", 1));
		usleep(100000);
		MUST(write(master, "mn", 2));
		_exit(0);
	}
	TRY(read(line, bytes, 10));
	wait(NULL);
	TRY(read(line, bytes, 0));
	TRY(read(line, NULL, 0));
	type("xyz");
	TRY(syscall(SYS_read, line, 1, 3));
	done();
}

static void say_packet(const char *what)
{
	char bytes[200];
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	for (int i = 0; i < 4; i++) {
		errno = 0;
		int n = read(master, bytes, sizeof bytes);
		if (n < 0) {
			say("%s: packet %s", what, strerrorname_np(errno));
			break;
		}
		say("%s: packet %d \"%s\"", what, n, shown(bytes, n));
	}
	fcntl(master, F_SETFL, O_RDWR);
}

static void packets(void)
{
	int on = 1;
	fresh();
	TRY(ioctl(master, TIOCPKT, &on));
	on = 0;
	TRY(ioctl(master, TIOCGPKT, &on));
	say("packets %d", on);
	MUST(write(line, "abc\n", 4));
	settle();
	say_poll("text", master);
	say_packet("text");
	type("\023");
	say_poll("stopped", master);
	say_packet("stopped");
	type("\021");
	say_packet("started");
	type("abc\003");
	say_packet("interrupted");
	set_character(VSTOP, 1);
	say_packet("other stop");
	set_character(VSTOP, 023);
	say_packet("usual stop");
	set((struct change){ .l_on = EXTPROC });
	say_packet("extproc");
	set((struct change){ .l_off = EXTPROC });
	say_packet("no extproc");
	TRY(tcflush(line, TCIFLUSH));
	say_packet("flush in");
	TRY(tcflush(line, TCOFLUSH));
	say_packet("flush out");
	type("kept");
	say_packet("typed");
	close(line);
	settle();
	say_poll("closed", master);
	say_packet("closed");
	TRY(ioctl(master, TIOCGPKT, &on));
	say("packets %d", on);
	line = MUST(open_line(O_NOCTTY));
	MUST(write(line, "x", 1));
	settle();
	say_packet("opened again");
	on = 0;
	TRY(ioctl(master, TIOCPKT, &on));
	say_packet("none");
	done();
}

static volatile int seen[65];
static void note(int s)
{
	seen[s]++;
}

/* Much text goes through, both ways, and a reader or writer that waits goes on. */
static void flood(void)
{
	enum { TOTAL = 200000 };
	static char bytes[TOTAL];
	fresh();
	set((struct change){ .l_off = ICANON | ECHO | ISIG, .i_off = IXON | ICRNL, .o_off = OPOST });
	for (int way = 0; way < 2; way++) {
		int from = way ? line : master, to = way ? master : line;
		pid_t pid = MUST(fork());
		if (!pid) {
			for (int i = 0; i < TOTAL; i++)
				bytes[i] = i * 7 >> 3;
			for (int done = 0; done < TOTAL;)
				done += MUST(write(from, bytes + done, TOTAL - done));
			_exit(0);
		}
		int got = 0, wrong = 0;
		while (got < TOTAL) {
			int n = MUST(read(to, bytes + got, TOTAL - got));
			for (int i = got; i < got + n; i++)
				wrong += bytes[i] != (char)(i * 7 >> 3);
			got += n;
		}
		say("way %d: %d bytes, %d wrong", way, got, wrong);
		wait(NULL);
	}
	fcntl(line, F_SETFL, O_RDWR | O_NONBLOCK);
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	for (int way = 0; way < 2; way++) {
		int n, error, moved, total = 0;
		/* Until there is no room when all has been carried on either. */
		do {
			moved = 0;
			while ((n = write(way ? line : master, bytes, 500)) > 0) {
				total += n;
				moved = 1;
				usleep(2000);
			}
			error = errno;
			settle();
		} while (moved);
		say("full: %d %s, %s", n, strerrorname_np(error), total > 4095 && total < 30000 ? "in bounds" : "OUT OF BOUNDS");
		say_poll("full", way ? line : master);
	}
	done();
	fresh();
	struct sigaction act = { .sa_handler = note };
	sigaction(SIGUSR1, &act, NULL);
	pid_t parent = getpid();
	for (int i = 0; i < 3; i++) {
		if (!MUST(fork())) {
			until_in_call(parent, parent, SYS_read);
			kill(parent, SIGUSR1);
			_exit(0);
		}
		if (i == 1)
			type("abc");
		if (i == 2) {
			set((struct change){ .l_off = ICANON });
			set_character(VMIN, 9);
		}
		TRY(read(line, bytes, 20));
		wait(NULL);
	}
	signal(SIGUSR1, SIG_DFL);
	seen[SIGUSR1] = 0;
	done();
}

static void ends(void)
{
	char bytes[100];
	fresh();
	say_poll("fresh line", line);
	say_poll("fresh master", master);
	MUST(write(line, "last\n", 5));
	type("unread\n");
	close(line);
	settle();
	say_poll("closed line", master);
	TRY(read(master, bytes, 100));
	TRY(read(master, bytes, 100));
	TRY(write(master, "to closed\n", 10));
	line = open_line(O_NOCTTY);
	settle();
	say_poll("opened again", master);
	say_lines("opened again", 100);
	say_screen("opened again");
	struct termios t;
	TRY(close(master));
	say_poll("closed master", line);
	TRY(read(line, bytes, 100));
	TRY(write(line, "x", 1));
	TRY(tcgetattr(line, &t));
	TRY(ioctl(line, TIOCSPGRP, &(int){ 1 }));
	TRY(ioctl(line, FIONREAD, bytes));
	TRY(isatty(line));
	TRY(close(line));
	fresh();
	int p[2];
	MUST(pipe(p));
	pid_t reader = MUST(fork());
	if (!reader) {
		close(master);
		errno = 0;
		char c;
		int n = read(line, &c, 1);
		int e = errno;
		MUST(write(p[1], &n, 4));
		MUST(write(p[1], &e, 4));
		_exit(0);
	}
	until_in_call(reader, reader, SYS_read);
	close(master);
	int n = 0, e = 0;
	MUST(read(p[0], &n, 4));
	MUST(read(p[0], &e, 4));
	say("a reader at the end of the master: %d %d", n, e);
	wait(NULL);
	close(line);
	close(p[0]);
	close(p[1]);
}

/* The fields of /proc/self/stat about terminals. */
static void say_stat(const char *what)
{
	char text[1000];
	int fd = MUST(open("/proc/self/stat", O_RDONLY)), group, session, tty, tpgid;
	text[MUST(read(fd, text, sizeof text - 1))] = 0;
	close(fd);
	sscanf(strrchr(text, ')') + 3, "%*c %d %d %d %d", &group, &session, &tty, &tpgid);
	sscanf(strrchr(text, ')') + 2, "%*c %*d %d %d %d %d", &group, &session, &tty, &tpgid);
	say("%s: terminal of major %d, group in front %s", what, major(tty),
		tpgid == -1 ? "none" : tpgid == getpgrp() ? "own" : "other");
}

static void say_sid(const char *what, int fd)
{
	pid_t sid = -1, group = -1;
	errno = 0;
	int a = ioctl(fd, TIOCGSID, &sid), ea = errno, b = ioctl(fd, TIOCGPGRP, &group), eb = errno;
	say("%s: session %s, group %s", what,
		a ? strerrorname_np(ea) : sid == getsid(0) ? "own" : "other",
		b ? strerrorname_np(eb) : group == getpgrp() ? "own" : group ? "other" : "none");
}

static void sessions(void)
{
	fresh();
	TRY(open("/dev/tty", O_RDWR));
	say_stat("without");
	say_sid("line", line);
	say_sid("master", master);
	TRY(ioctl(line, TIOCSCTTY, 0));
	TRY(ioctl(line, TIOCNOTTY));
	TRY(tcsetpgrp(line, getpgrp()));
	IN_CHILD("a leader",
		MUST(setsid());
		TRY(tcsetpgrp(line, getpgrp()));
		int l = MUST(open_line(O_NOCTTY));
		say_stat("noctty");
		close(l);
		l = MUST(open_line(0));
		say_stat("opened");
		say_sid("line", line);
		say_sid("master", master);
		int tty;
		DO(tty = open("/dev/tty", O_RDWR));
		say_sid("tty", tty);
		char name[64];
		TRY(ttyname_r(tty, name, sizeof name));
		HOLDS(!strcmp(name, "/dev/tty"));
		TRY(ioctl(line, TIOCSCTTY, 0));
		IN_CHILD("a child",
			say_stat("inherited");
			TRY(setpgid(0, 0));
			say_stat("other group");
			TRY(ioctl(line, TIOCSCTTY, 0));
			TRY(ioctl(line, TIOCNOTTY));
			say_stat("given up");
			TRY(open("/dev/tty", O_RDWR));
			TRY(setsid()));
		TRY(tcsetpgrp(line, 1));
		TRY(tcsetpgrp(line, 4000000));
		TRY(tcsetpgrp(line, -1));
		pid_t p = MUST(fork());
		if (!p)
			for (;;)
				pause();
		TRY(tcsetpgrp(line, p));
		kill(p, SIGKILL);
		wait(NULL);
		TRY(tcsetpgrp(line, p));
		TRY(tcsetpgrp(line, getpgrp()));
		signal(SIGHUP, SIG_IGN);
		signal(SIGCONT, SIG_IGN);
		TRY(ioctl(line, TIOCNOTTY));
		say_stat("given up");
		say_sid("line", line);
		TRY(ioctl(line, TIOCSCTTY, 0));
		say_stat("taken");
		IN_CHILD("a thief",
			MUST(setsid());
			TRY(ioctl(line, TIOCSCTTY, 0));
			TRY(ioctl(line, TIOCSCTTY, 1));
			say_stat("stolen"));
		say_stat("bereft"));
	done();
}

static void say_seen(const char *what)
{
	char text[200] = "";
	for (int s = 1; s < 65; s++)
		if (seen[s]) {
			sprintf(text + strlen(text), " %d", s);
			seen[s] = 0;
		}
	say("%s: signals%s", what, *text ? text : " none");
}

static void say_wait(const char *what, pid_t pid)
{
	int status = 0;
	pid_t got = waitpid(pid, &status, WUNTRACED | WCONTINUED);
	if (got != pid)
		say("%s: wait %s", what, strerrorname_np(errno));
	else
		say_status(what, status);
}

/* What processes tell each other, so that they speak in turn: that another has said what comes
   first, that one is ready for what comes, and that a leader has ended. */
static volatile struct { int said, ready, ended; } *told;

/* Lets another, as the shell that a job goes on, say what comes first. */
static void wait_until_said(int s)
{
	(void)s;
	while (!told->said)
		usleep(1000);
}

static void wait_until_ready(void)
{
	while (!told->ready)
		usleep(1000);
}

static void wait_until_ended(void)
{
	while (!told->ended)
		usleep(1000);
}

/* A stopped job goes on, and the shell says so. */
static void go_on(const char *what, pid_t pid)
{
	told->said = 0;
	MUST(kill(-pid, SIGCONT));
	say_wait(what, pid);
	told->said = 1;
}

/* A child in a group of its own, in front or not. */
static pid_t job(int front, void (*body)(void))
{
	int p[2];
	MUST(pipe(p));
	pid_t pid = MUST(fork());
	if (!pid) {
		char c;
		close(p[1]);
		for (int s = 1; s < 32; s++)
			signal(s, SIG_DFL);
		signal(SIGCONT, wait_until_said);
		if (read(p[0], &c, 1)) { }
		close(p[0]);
		body();
		_exit(0);
	}
	setpgid(pid, pid);
	if (front)
		TRY(tcsetpgrp(line, pid));
	close(p[0]);
	close(p[1]);
	return pid;
}

static void reads(void)
{
	char bytes[100];
	int n = read(line, bytes, sizeof bytes);
	/* The signal's handler may run in another thread. */
	wait_until_said(0);
	say("a job reads %d \"%s\"", n, shown(bytes, n < 0 ? 0 : n));
}

static void writes(void)
{
	TRY(write(line, "job\n", 4));
}

static void sets(void)
{
	struct termios t;
	TRY(tcgetattr(line, &t));
	TRY(tcsetattr(line, TCSANOW, &t));
}

static void comes_to_front(void)
{
	TRY(tcsetpgrp(line, getpgrp()));
}

static void waits(void)
{
	for (;;)
		pause();
}

static void ignores(void)
{
	signal(SIGTTIN, SIG_IGN);
	signal(SIGTTOU, SIG_IGN);
	char c;
	TRY(read(line, &c, 1));
	sets();
	comes_to_front();
}

static void changes_size(void)
{
	signal(SIGWINCH, note);
	told->ready = 1;
	for (int i = 0; i < 15000 && !seen[SIGWINCH]; i++)
		usleep(20000);
	struct winsize w;
	wait_until_said(0);
	TRY(ioctl(line, TIOCGWINSZ, &w));
	say("rows %d", w.ws_row);
	say_seen("window");
}

static void *reads_apart(void *arg)
{
	reads();
	return arg;
}

/* Not the first thread reads: whichever is told of the signal, the call goes on after the stop. */
static void reads_in_a_thread(void)
{
	pthread_t t;
	pthread_create(&t, NULL, reads_apart, NULL);
	pthread_join(t, NULL);
}

static void shell(void)
{
	pid_t pid;
	MUST(setsid());
	line = MUST(open_line(0));
	signal(SIGTTOU, SIG_IGN);
	struct { const char *name; void (*body)(void); } jobs[] = {
		{ "a reader", reads }, { "a setter", sets }, { "a job for the front", comes_to_front },
		{ "a thread that reads", reads_in_a_thread },
	};
	for (int i = 0; i < 4; i++) {
		pid = job(0, jobs[i].body);
		say_wait(jobs[i].name, pid);
		type("line\n");
		TRY(tcsetpgrp(line, pid));
		go_on(jobs[i].name, pid);
		say_wait(jobs[i].name, pid);
		TRY(tcsetpgrp(line, getpgrp()));
	}
	tcflush(line, TCIFLUSH);
	pid = job(0, writes);
	say_wait("a writer", pid);
	set((struct change){ .l_on = TOSTOP });
	pid = job(0, writes);
	say_wait("a writer", pid);
	set((struct change){ .l_off = TOSTOP });
	go_on("a writer", pid);
	say_wait("a writer", pid);
	pid = job(0, ignores);
	say_wait("one who ignores", pid);
	TRY(tcsetpgrp(line, getpgrp()));
	const char *keys[] = { "\003", "\034", "\032" };
	for (int i = 0; i < 3; i++) {
		pid = job(1, waits);
		until_in_call(pid, pid, SYS_pause);
		type(keys[i]);
		say_wait("one who waits", pid);
		if (i == 2) {
			go_on("one who waits", pid);
			TRY(ioctl(master, TIOCSIG, SIGINT));
			say_wait("one who waits", pid);
		}
		TRY(tcsetpgrp(line, getpgrp()));
	}
	TRY(ioctl(master, TIOCSIG, SIGHUP));
	told->said = told->ready = 0;
	pid = job(1, changes_size);
	wait_until_ready();
	struct winsize w = { .ws_row = 33 };
	TRY(ioctl(master, TIOCSWINSZ, &w));
	told->said = 1;
	say_wait("one with a window", pid);
	TRY(tcsetpgrp(line, getpgrp()));
	/* A group that no process of the session could let go on. */
	pid = job(0, waits);
	MUST(kill(pid, SIGKILL));
	say_wait("a job", pid);
	set((struct change){ .l_on = TOSTOP });
	/* Open in the orphan until its end. */
	int orphan[2];
	MUST(pipe(orphan));
	told->said = 0;
	IN_CHILD("a grandparent",
		MUST(setpgid(0, 0));
		pid_t child = MUST(fork());
		if (!child) {
			for (int i = 0; i < 30000 && getppid() != 1; i++)
				usleep(10000);
			wait_until_said(0);
			for (int s = 1; s < 32; s++)
				signal(s, SIG_DFL);
			char c;
			TRY(read(line, &c, 1));
			TRY(write(line, "x", 1));
			TRY(tcsendbreak(line, 0));
			TRY(tcsetpgrp(line, getpgrp()));
			signal(SIGTSTP, SIG_DFL);
			raise(SIGTSTP);
			say("an orphan goes on");
			_exit(0);
		});
	told->said = 1;
	char c;
	close(orphan[1]);
	if (read(orphan[0], &c, 1)) { }
	close(orphan[0]);
}

static void jobs(void)
{
	fresh();
	IN_CHILD("a shell", shell());
	done();
}

static int pipe_to[2];

/* Waits for signals and says which. */
static void waits_for_signals(void)
{
	signal(SIGHUP, note);
	signal(SIGCONT, note);
	MUST(write(pipe_to[1], "x", 1));
	for (int i = 0; i < 30000 && !seen[SIGHUP]; i++)
		usleep(10000);
	wait_until_ended();
	say_seen("a job");
	say_stat("a job");
	MUST(write(pipe_to[1], "x", 1));
	_exit(0);
}

static void stops(void)
{
	signal(SIGHUP, note);
	signal(SIGCONT, note);
	raise(SIGSTOP);
	for (int i = 0; i < 30000 && !seen[SIGHUP]; i++)
		usleep(10000);
	wait_until_ended();
	say_seen("a stopped job");
	MUST(write(pipe_to[1], "x", 1));
	_exit(0);
}

static void hang_ups(void)
{
	char c, name[64];
	MUST(pipe(pipe_to));
	fresh();
	told->ended = 0;
	IN_CHILD("a leader with a job in front",
		MUST(setsid());
		line = MUST(open_line(0));
		signal(SIGTTOU, SIG_IGN);
		job(1, waits_for_signals);
		read(pipe_to[0], &c, 1));
	told->ended = 1;
	read(pipe_to[0], &c, 1);
	say_sid("after it", master);
	told->ended = 0;
	IN_CHILD("a leader with a stopped job",
		MUST(setsid());
		line = MUST(open_line(0));
		signal(SIGTTOU, SIG_IGN);
		pid_t p = job(0, stops);
		say_wait("a stopped job", p));
	told->ended = 1;
	read(pipe_to[0], &c, 1);
	say_sid("after it", master);
	told->said = told->ready = told->ended = 0;
	pid_t leader = MUST(fork());
	if (!leader) {
		MUST(setsid());
		line = MUST(open_line(0));
		close(master);
		signal(SIGHUP, note);
		signal(SIGCONT, note);
		signal(SIGTTOU, SIG_IGN);
		job(1, waits_for_signals);
		read(pipe_to[0], &c, 1);
		told->ready = 1;
		for (int i = 0; i < 30000 && !seen[SIGHUP]; i++)
			usleep(10000);
		wait_until_said(0);
		say_seen("a leader whose master is closed");
		say_stat("a leader whose master is closed");
		TRY(open("/dev/tty", O_RDWR));
		TRY(read(line, name, 1));
		_exit(0);
	}
	wait_until_ready();
	ptsname_r(master, name, sizeof name);
	close(line);
	close(master);
	TRY(access(name, F_OK));
	told->said = 1;
	say_wait("the leader", leader);
	told->ended = 1;
	read(pipe_to[0], &c, 1);
	fresh();
	leader = MUST(fork());
	if (!leader) {
		MUST(setsid());
		line = MUST(open_line(0));
		signal(SIGHUP, note);
		signal(SIGCONT, note);
		TRY(vhangup());
		for (int i = 0; i < 30000 && !(seen[SIGHUP] && seen[SIGCONT]); i++)
			usleep(10000);
		say_seen("vhangup");
		say_stat("vhangup");
		TRY(read(line, name, 1));
		TRY(write(line, "x", 1));
		say_poll("vhangup", line);
		say_poll("vhangup", master);
		line = MUST(open_line(0));
		say_stat("opened again");
		TRY(write(line, "x", 1));
		settle();
		say_screen("opened again");
		_exit(0);
	}
	say_wait("one who hangs up", leader);
	done();
}

int main(void)
{
	told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* On Linux it may not be mounted yet. */
	mkdir("/dev/pts", 0755);
	mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=0666");
	/* The first process of a guest may lead a session. */
	pid_t pid = MUST(fork());
	if (pid) {
		int status;
		MUST(waitpid(pid, &status, 0));
		say_status("all of it", status);
		return 0;
	}
	signal(SIGALRM, SIG_DFL);
	alarm(600);
	say("--- opening");
	opening();
	say("--- lines");
	lines();
	say("--- flushes");
	flushes();
	say("--- long lines");
	long_lines();
	say("--- output");
	output();
	say("--- long writes");
	long_writes();
	say("--- patience");
	patience();
	say("--- packets");
	packets();
	say("--- flood");
	flood();
	say("--- ends");
	ends();
	say("--- sessions");
	sessions();
	say("--- jobs");
	jobs();
	say("--- hang-ups");
	hang_ups();
	return 0;
}
