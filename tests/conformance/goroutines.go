// Goroutines, whose stacks move and grow, and which allocate from C as well.
package main

/*
#include <stdlib.h>
#include <string.h>
static long fill(int count) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
        unsigned char *block = malloc(16 + i % 500);
        memset(block, i & 0xff, 16 + i % 500);
        block = realloc(block, 600 + i % 100);
        sum += block[3];
        free(block);
    }
    return sum;
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

func deep(depth int) int {
	var frame [100]byte
	frame[depth%100] = 1
	if depth == 0 {
		text := C.CString("a string of C")
		defer C.free(unsafe.Pointer(text))
		return int(C.fill(50)) + int(C.strlen(text))
	}
	return deep(depth-1) + int(frame[depth%100])
}

func main() {
	os.Stdin.Read(make([]byte, 1))
	var wait sync.WaitGroup
	sums := make([]int, 200)
	for i := range sums {
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer func() {
				if recover() != nil {
					sums[i]++
				}
			}()
			for round := 0; round < 10; round++ {
				sums[i] += deep(10 * (i%20 + round))
				kept := make([][]byte, 20)
				for j := range kept {
					kept[j] = make([]byte, 100*j)
				}
				runtime.Gosched()
			}
			var nothing *int
			sums[i] += *nothing
		}()
	}
	wait.Wait()
	runtime.GC()
	total := 0
	for _, sum := range sums {
		total += sum
	}
	fmt.Println("sum", total)
	os.Exit(23)
}
