package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// disk writes records one after another, each into the next block and with its number; a record counts once the device
// has said that it is on the medium. Block N therefore holds record N, and every block up to the last one is written.
type disk struct {
	written atomic.Int64
}

func (d *disk) keepWriting(path string) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT|syscall.O_SYNC, 0)
	if err != nil {
		fmt.Println("guest has no disk:", err)
		return
	}
	size, err := file.Seek(0, 2)
	if err != nil {
		fmt.Println("guest has no disk:", err)
		return
	}
	block := alignedBlock()
	for n := int64(0); n < size/pageSize; n++ {
		binary.LittleEndian.PutUint64(block, uint64(n)+1)
		binary.LittleEndian.PutUint32(block[8:], crc32.ChecksumIEEE(block[:8]))
		if _, err := file.WriteAt(block, n*pageSize); err != nil {
			fmt.Println("guest cannot write to its disk:", err)
			return
		}
		d.written.Store(n + 1)
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println("guest has filled its disk")
}

// alignedBlock returns memory that O_DIRECT accepts.
func alignedBlock() []byte {
	raw := make([]byte, 2*pageSize)
	offset := pageSize - int(uintptr(unsafe.Pointer(&raw[0]))%pageSize)
	return raw[offset : offset+pageSize]
}
