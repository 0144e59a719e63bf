# File tools, archives, listings of the system.
mkdir -p a/b/c; echo one > a/1; echo two > a/b/2; ln -s ../1 a/b/link; ln a/1 a/hard
find a | sort; find a -type f -name '[0-9]' | sort; find a -type l
ls -1 a; ls -l a/b/link | sed 's/.* a/a/'; ls -ld a | cut -c 1-10
ls -l a/1 | awk '{ print $1, $2, $3, $4, $5 }'
cp -a a copy; diff -r a copy && echo same; readlink copy/b/link; cat copy/b/link
tar cf a.tar a; tar tf a.tar | sort; mkdir x; tar xf a.tar -C x; diff -r a x/a && echo same
seq 1 20000 > big; gzip -k big; ls big.gz; gunzip -c big.gz | cmp - big && echo same
tar czf a.tgz a big; tar tzf a.tgz | wc -l
bzip2 -k big && bunzip2 -c big.bz2 | md5sum
xz -d < /dev/null > /dev/null 2>&1; cpio --help > /dev/null 2>&1
find a | sort | cpio -o -H newc 2> /dev/null | cpio -t 2> /dev/null
mv a/b a/moved; rm a/1; ls -R a; rm -r copy x
touch -d '2001-02-03 04:05:06' dated; TZ=UTC stat -c '%n %s %a %F %Y' dated
TZ=UTC ls -l --full-time dated 2> /dev/null | awk '{ print $6, $7 }'
chmod 640 dated; stat -c %a dated; chmod u+x,g-r dated; stat -c %A dated
du -a a | wc -l
df . | wc -l
truncate -s 1M sparse; stat -c '%s %b' sparse; wc -c sparse
dd if=/dev/urandom of=random bs=1k count=64 2> /dev/null; cp random random2; cmp random random2 && echo same
sort random > /dev/null; sync; rm random random2
mktemp -d made.XXXXXX > name; test -d "$(cat name)" && echo made; rmdir "$(cat name)"
pwd -P > /dev/null; cd a; cd - > /dev/null; test -d a && echo back
date -u -d @1000000000 '+%F %T'; cal 2 2024
ps -o pid,comm 2> /dev/null | grep -q busybox && echo ps; ps | head -n 1
ps | grep -v PID | awk '{ print $1 }' | grep -qx $$ && echo this shell
free | awk '/Mem/ { print ($2 > 10000 && $4 > 1000 && $3 + $4 <= $2) ? "free" : $0 }'
free -m | head -n 1; free | wc -l
top -b -n 1 | head -n 4 | cut -c 1-4
top -b -n 1 | grep -c busybox | grep -qv '^0$' && echo top
uptime | grep -q 'load average' && echo uptime
cat /proc/loadavg | wc -w
uname -s -m; id -u; whoami; hostname | grep -q . && echo hostname
cat /proc/$$/stat | awk '{ print $2 }'
cat /proc/self/status | head -n 1; basename $(readlink /proc/self/exe)
# Not all that is there: the shell holds a pipe's end for a moment while it starts a pipeline.
for n in 0 1 2; do test -e /proc/$$/fd/$n && echo "fd $n"; done
cat /proc/$$/cmdline | tr '\0' ' ' | sed 's/ [^ ]*$//' | wc -w > /dev/null
mount | grep -c '^proc\|^sysfs\|proc on' | grep -qv '^0$' && echo mount
nproc | grep -q '^[0-9]' && echo nproc
test -c /dev/null && test -c /dev/zero && test -c /dev/full && test -c /dev/random && test -c /dev/urandom && test -c /dev/tty && echo devices
echo x > /dev/full; echo "status $?"
head -c 10 /dev/zero | od -An -c
cat /dev/null; wc -c < /dev/null
sysctl -n kernel.ostype
which sh > /dev/null && echo which
rm -rf ./*; ls
