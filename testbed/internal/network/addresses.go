package network

import (
	"errors"
	"sync"
)

// addressPool hands out the last byte of pod addresses, the longest unused first: a client that still remembers a dead
// pod's address should not find another pod there.
type addressPool struct {
	mutex sync.Mutex
	free  []int
}

const firstPodAddress, lastPodAddress = 2, 254

func newAddressPool() *addressPool {
	pool := &addressPool{}
	for number := firstPodAddress; number <= lastPodAddress; number++ {
		pool.free = append(pool.free, number)
	}
	return pool
}

func (p *addressPool) take() (int, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.free) == 0 {
		return 0, errors.New("no address is free")
	}
	number := p.free[0]
	p.free = p.free[1:]
	return number, nil
}

func (p *addressPool) giveBack(number int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.free = append(p.free, number)
}
