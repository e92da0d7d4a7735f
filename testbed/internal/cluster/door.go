package cluster

import (
	"io"
	"net"
	"time"

	"elbowroom.dev/testbed/internal/network"
)

// openDoor carries connections from the machine's 127.0.0.1 to the API server in the testbed's network. They stay
// encrypted from end to end.
func openDoor(door net.Listener) {
	for {
		outside, err := door.Accept()
		if err != nil {
			return // the listener is closed with the process only
		}
		go carry(outside)
	}
}

func carry(outside net.Conn) {
	defer outside.Close()
	within, err := net.DialTimeout("tcp", network.APIServer+":443", 5*time.Second)
	if err != nil {
		return // no API server: the client sees a closed connection and tries again
	}
	defer within.Close()
	over := make(chan struct{}, 2)
	for _, direction := range [][2]net.Conn{{outside, within}, {within, outside}} {
		go func() {
			_, _ = io.Copy(direction[0], direction[1])
			over <- struct{}{}
		}()
	}
	<-over
}
