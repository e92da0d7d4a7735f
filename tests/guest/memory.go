package main

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	pageSize     = 4096
	wordsPerPage = pageSize / 8
	pause        = 10 * time.Millisecond
)

// memory is a region in which every word is known: it follows from its place and from how often its page was written.
// Each page is compared word by word before it is written anew, so that a page that was lost, or that is older than it
// should be, shows within one round.
type memory struct {
	pages       [][wordsPerPage]uint64
	generations []uint64
	rate        atomic.Int64 // MB a second
	checked     atomic.Int64 // pages
	bad         atomic.Int64 // pages
}

func newMemory(size, rate int64) *memory {
	raw, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		fmt.Println("guest has no memory to dirty:", err)
		return &memory{}
	}
	m := &memory{
		pages:       unsafe.Slice((*[wordsPerPage]uint64)(unsafe.Pointer(&raw[0])), size/pageSize),
		generations: make([]uint64, size/pageSize),
	}
	for page := range m.pages {
		m.write(page)
	}
	m.rate.Store(rate)
	return m
}

func (m *memory) keepDirtying() {
	if len(m.pages) == 0 {
		return
	}
	next, last := 0, time.Now()
	for owed := 0.0; ; time.Sleep(pause) {
		now := time.Now()
		owed += min(now.Sub(last), 10*pause).Seconds() * float64(m.rate.Load()) * 1e6 / pageSize
		last = now
		for ; owed >= 1; owed-- {
			m.check(next)
			m.write(next)
			next = (next + 1) % len(m.pages)
		}
	}
}

func (m *memory) check(page int) {
	words := &m.pages[page]
	for i, seed := 0, m.seed(page); i < wordsPerPage; i++ {
		if words[i] != seed+uint64(i) {
			m.bad.Add(1)
			fmt.Printf("guest BAD page=%d word=%d has=%x wants=%x\n", page, i, words[i], seed+uint64(i))
			break
		}
	}
	m.checked.Add(1)
}

func (m *memory) write(page int) {
	m.generations[page]++
	words := &m.pages[page]
	for i, seed := 0, m.seed(page); i < wordsPerPage; i++ {
		words[i] = seed + uint64(i)
	}
}

func (m *memory) seed(page int) uint64 {
	return (uint64(page)<<32 ^ m.generations[page]) * 0x9e3779b97f4a7c15
}
