# Text tools, pipes, here-documents, redirections.
seq 1 200 | sed 's/^/line /' > lines
wc lines
head -n 3 lines; tail -n 2 lines
sort -r lines | head -n 5
sort -n -k 2 lines | md5sum
grep -c 7 lines; grep -n '5[05]$' lines; grep -v 1 lines | wc -l
awk '{ s += $2 } END { print NR, s }' lines
awk -F ' ' '$2 % 50 == 0 { printf "%s-%05d\n", $1, $2 }' lines
sed -n '10,12p;$p' lines
sed -e 's/line \(.\)/\1 enil/' -e '5q' lines
tr 'a-z' 'A-Z' < lines | cut -c 1-6 | uniq -c | sort -rn | head -n 4
cat <<END
here is $((6 * 7)) and $(echo nested "$(echo twice)")
	tab kept
END
cat <<-'END'
	no $expansion here
	END
cat lines lines | md5sum
md5sum lines; sha256sum lines; cksum lines
paste -d, lines lines | tail -n 1
printf '%s|%5d|%-5s|%x\n' word 42 left 255
echo one two three | { read a b; echo "$b then $a"; }
echo to stderr >&2
{ echo out; echo err >&2; } 2>&1 | sort
ls nothing-here 2> errors; echo "status $?"; wc -l < errors
dd if=/dev/zero bs=4096 count=100 2> /dev/null | wc -c
dd if=lines of=copy bs=100 2> /dev/null; cmp lines copy && echo same
echo changed >> copy; cmp lines copy; echo "status $?"
od -An -tx1 -N 16 lines
hexdump -C lines | head -n 2
split -l 50 lines part. && ls part.* && cat part.* | cmp - lines && echo whole
tee one two < lines | wc -l; cmp one two && echo same
xargs -n 3 echo < errors | head -n 1
seq 1 10 | xargs -n 4 echo args
yes | head -n 3
rev lines | head -n 1
fold -w 3 errors | head -n 2
expr 3 + 4 \* 5; expr length hello
factor 1234567890
basename /a/b/c.txt .txt; dirname /a/b/c
echo 'b a
c d' | while read x y; do echo "$y $x"; done
diff lines copy; echo "status $?"
printf 'a\nb\nc\n' > x; printf 'a\nB\nc\n' > y; diff x y
comm x y; join x y 2> /dev/null
base64 errors | base64 -d | cmp - errors && echo same
strings /bin/busybox | grep -c . | grep -q . && echo strings
exec 5> fifth; echo fifth >&5; exec 5>&-; cat fifth
exit 3
