// A Go runtime in an archive: goroutines, channels, maps, garbage collection, panics, and a function that C calls.
package main

import "C"
import (
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
)

//export Work
func Work(n C.int) C.int {
	var group sync.WaitGroup
	results := make(chan int, int(n))
	for i := 0; i < int(n); i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			garbage := make([][]byte, 100)
			for k := range garbage {
				garbage[k] = make([]byte, 1000)
			}
			results <- i * i
		}(i)
	}
	group.Wait()
	close(results)
	runtime.GC()
	total, counts := 0, map[string]int{}
	for r := range results {
		total += r
		counts[fmt.Sprint(r%3)]++
	}
	keys := make([]string, 0)
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	fmt.Println(strings.Join(keys, " "), total)
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		var none []int
		fmt.Println(none[n])
	}()
	return C.int(total)
}

func main() {}
