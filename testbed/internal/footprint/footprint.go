// Package footprint keeps the testbed's many processes small.
package footprint

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Release gives back the pages of the program's own code and constants. The start of a Go program walks through its whole
// table of functions, and initialising ten programs' packages touches the rest of the binary's 100 MB. What this process
// needs of them comes back by itself, from the page cache that all share.
func Release() {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return // it is only about appearances
	}
	defer file.Close()
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	var start, end uintptr
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &mode); err == nil {
			if !strings.HasPrefix(mode, "r-") || !strings.HasSuffix(line, " "+executable) {
				start = 0
			}
			continue
		}
		// Only what has never been written: a page that the dynamic linker has changed would be lost.
		if start != 0 && strings.HasPrefix(line, "Private_Dirty:") && strings.HasSuffix(line, " 0 kB") {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED)
		}
	}
}
