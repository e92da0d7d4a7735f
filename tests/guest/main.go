// The program of the test guest. It makes visible from outside whether a move has kept the guest whole:
// it counts, keeps dirtying memory that it checks page by page, writes numbered records to a disk, and says on the console
// what it sees. How much of each comes from the kernel's command line, as guest.KEY=VALUE.
package main

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	options := readOptions("/proc/cmdline")
	memory := newMemory(options.number("working_set_mib", 16)<<20, options.number("dirty_mb_per_s", 0))
	go memory.keepDirtying()
	disk := &disk{}
	if path := options.text("disk", ""); path != "" {
		go disk.keepWriting(path)
	}
	if options.number("ignore_cpus", 0) == 0 {
		go bringUpNewCPUs()
	}
	go obeyPowerButton()
	var count atomic.Int64
	go serve(&count, memory)

	for tick := time.NewTicker(time.Duration(options.number("tick_ms", 20)) * time.Millisecond); ; <-tick.C {
		fmt.Printf("guest n=%d checked=%d bad=%d disk=%d cpus=%d mem_mib=%d\n",
			count.Add(1), memory.checked.Load(), memory.bad.Load(), disk.written.Load(), onlineCPUs(), totalMemory()>>20)
	}
}

// serve answers with the count, and lets a test steer the guest from outside.
func serve(count *atomic.Int64, memory *memory) {
	http.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "n=%d bad=%d\n", count.Load(), memory.bad.Load())
	})
	http.HandleFunc("POST /dirty", func(w http.ResponseWriter, r *http.Request) {
		rate, err := strconv.ParseInt(r.URL.Query().Get("mb_per_s"), 10, 64)
		if err != nil {
			http.Error(w, "mb_per_s has to be a number", http.StatusBadRequest)
			return
		}
		memory.rate.Store(rate)
	})
	http.HandleFunc("POST /panic", func(http.ResponseWriter, *http.Request) {
		_ = os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	})
	http.HandleFunc("POST /poweroff", func(http.ResponseWriter, *http.Request) {
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	})
	http.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) {
		_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	})
	if err := http.ListenAndServe(":8080", nil); err != nil {
		fmt.Println("guest has no HTTP server:", err)
	}
}

type options map[string]string

func readOptions(path string) options {
	found := options{}
	line, err := os.ReadFile(path)
	if err != nil {
		fmt.Println("guest cannot read its options:", err)
	}
	for _, word := range strings.Fields(string(line)) {
		if key, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(key, "guest.") {
			found[strings.TrimPrefix(key, "guest.")] = value
		}
	}
	return found
}

func (o options) text(key, otherwise string) string {
	if value, ok := o[key]; ok {
		return value
	}
	return otherwise
}

func (o options) number(key string, otherwise int64) int64 {
	if value, err := strconv.ParseInt(o[key], 10, 64); err == nil {
		return value
	}
	return otherwise
}
