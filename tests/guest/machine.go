package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// bringUpNewCPUs does what udev does elsewhere: a vCPU that was plugged in is offline until somebody asks for it.
func bringUpNewCPUs() {
	for ; ; time.Sleep(100 * time.Millisecond) {
		switches, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/online")
		for _, path := range switches {
			if state, err := os.ReadFile(path); err == nil && string(state) == "0\n" {
				_ = os.WriteFile(path, []byte("1"), 0)
			}
		}
	}
}

// onlineCPUs counts what the kernel runs on, from a list such as "0-2,4".
func onlineCPUs() int {
	list, _ := os.ReadFile("/sys/devices/system/cpu/online")
	count := 0
	for _, part := range strings.Split(strings.TrimSpace(string(list)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		count += to - from + 1
	}
	return count
}

func totalMemory() int64 {
	info, _ := os.ReadFile("/proc/meminfo")
	for _, line := range strings.Split(string(info), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// obeyPowerButton turns the machine off when its button is pressed, as logind does elsewhere.
func obeyPowerButton() {
	const keyEvent, powerKey, eventSize = 1, 116, 24
	devices, _ := filepath.Glob("/dev/input/event*")
	for _, path := range devices {
		go func() {
			file, err := os.Open(path)
			if err != nil {
				return
			}
			for event := make([]byte, eventSize); ; {
				if n, err := file.Read(event); err != nil || n < eventSize {
					return
				}
				if binary.LittleEndian.Uint16(event[16:]) == keyEvent && binary.LittleEndian.Uint16(event[18:]) == powerKey {
					fmt.Println("guest powers off")
					syscall.Sync()
					_ = syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
				}
			}
		}()
	}
}
