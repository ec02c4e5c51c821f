// Two goroutines with a counter each, on one line, which go to another thread now and then.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

type pair struct {
	first  atomic.Int64
	second atomic.Int64
}

var both = new(pair)

func count(counter *atomic.Int64, done *sync.WaitGroup) {
	defer done.Done()
	for begun := time.Now(); time.Since(begun) < 3*time.Second; {
		for i := 0; i < 20000; i++ {
			counter.Add(1)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func main() {
	runtime.GOMAXPROCS(2)
	var done sync.WaitGroup
	done.Add(2)
	go count(&both.first, &done)
	go count(&both.second, &done)
	done.Wait()
	if both.first.Load() == 0 || both.second.Load() == 0 {
		os.Exit(1)
	}
	fmt.Println("counted")
}
