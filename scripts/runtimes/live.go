// 300 MiB of slices, which are dropped. A little goes on being allocated.
package main

import (
	"fmt"
	"time"
)

func main() {
	live := [][]byte{}
	for number := 0; number < 300_000; number++ {
		piece := make([]byte, 1000)
		for at := range piece {
			piece[at] = 1
		}
		live = append(live, piece)
	}
	live = nil
	fmt.Println("freed")
	some := make([][]byte, 100)
	for turn := 0; turn < 100; turn++ {
		some[turn] = make([]byte, 10_000)
		time.Sleep(100 * time.Millisecond)
	}
}
