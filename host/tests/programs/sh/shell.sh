# The shell itself: loops, functions, expansion, arithmetic, traps, background jobs.
for i in 1 2 3; do [ $i = 2 ] && continue; echo loop $i; done
i=0; while [ $i -lt 5 ]; do i=$((i + 1)); [ $i = 4 ] && break; done; echo $i
until [ $i -ge 10 ]; do i=$((i * 2)); done; echo $i
f() { local x=$1; [ $x -le 1 ] && echo 1 && return; echo $((x * $(f $((x - 1))))); }
f 10
case abc in a*) echo starts with a;; *) echo no;; esac
set -- one "two words" three; echo $# "$2"; shift; echo "$@"
v=path/to/file.tar.gz; echo ${v##*/} ${v%%.*} ${v%.gz} ${#v} ${u:-default} ${v:+set}
echo $(( 1 << 10 )) $(( 17 % 5 )) $(( 0x1f )) $(( 3 > 2 ? 7 : 8 ))
(cd /; pwd; exit 4); echo "subshell $?"
false || echo or; true && echo and; ! false; echo $?
x=$(sh -c 'echo from a shell; exit 9'); echo "$x $?"
sleep 0.1 & wait $!; echo "waited $?"
(exit 7) & wait $!; echo "child $?"
for n in 1 2 3 4 5 6 7 8; do (sleep 0.0$n; echo $n > done.$n) & done; wait; cat done.* | sort -n | tr '\n' ' '; echo
sleep 100 & pid=$!; kill $pid; wait $pid 2> /dev/null; echo "killed $?"
sleep 100 & pid=$!; kill -9 $pid; wait $pid 2> /dev/null; echo "killed $?"
sh -c 'kill -SEGV $$'; echo "status $?"
trap 'echo trapped' USR1; kill -USR1 $$; echo after
trap 'echo leaving' EXIT
sh -c 'trap "echo term; exit 5" TERM; kill $$; sleep 1'; echo "status $?"
mkfifo pipe; (echo through the fifo > pipe) & cat pipe; wait
echo a b c | (read x y; echo "$y" "$x")
IFS=:; set -- $(echo a:b:c); echo $2; unset IFS
read x < /proc/sys/kernel/ostype; echo $x
eval 'y=5'; echo $y; readonly y; (y=6) 2> /dev/null || echo readonly
command -v sh > /dev/null && echo found; type nothing 2> /dev/null || echo not found
nothing 2> /dev/null; echo "status $?"
./nothing 2> /dev/null; echo "status $?"
echo '#!/bin/sh
echo script $1 $0' > script; chmod +x script; ./script arg
echo 'exit 12' > plain; sh plain; echo "status $?"
umask 077; : > private; ls -l private | cut -c 1-10
set -e; (false; echo not reached) || echo stopped; set +e
echo pipes: $(seq 1 1000 | grep 7 | sed s/7/x/g | awk '{ n += length($0) } END { print n }' | cat | cat | cat)
timeout 1 sleep 10; echo "status $?"
env -i A=1 B=2 sh -c 'echo $A$B'; env -i /bin/busybox env
nice -n 5 sh -c 'echo nice'; nohup echo through 2> /dev/null
printf '%d\n' 0x10 010 7
test -f script -a -x script && test ! -d script && test script -nt /proc || echo tests
[ -t 0 ] || echo no terminal
time -p true 2>&1 | cut -d ' ' -f 1
exit 42
