// Some 300 MiB of objects and texts, which are dropped. A little goes on being allocated.
let live = [];
for (let number = 0; number < 1_400_000; number++)
	live.push({ number, text: "text " + number, parts: [number, number + 0.5] });
live = null;
console.log("freed");
let turns = 0;
const timer = setInterval(() => {
	const some = Array.from({ length: 10_000 }, (_, index) => "some " + index);
	if (some.length === 0 || ++turns === 100) clearInterval(timer);
}, 100);
