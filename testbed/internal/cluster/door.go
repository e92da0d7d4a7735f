package cluster

import (
	"net"
	"time"

	"elbowroom.dev/testbed/internal/network"
	"elbowroom.dev/testbed/internal/services"
)

// openDoor carries connections from the machine's 127.0.0.1 to the API server in the testbed's network. They stay
// encrypted from end to end.
func openDoor(door net.Listener) {
	services.AcceptAll(door, carry)
}

func carry(outside *net.TCPConn) {
	within, err := net.DialTimeout("tcp", network.APIServer+":443", 5*time.Second)
	if err != nil {
		outside.Close() // no API server: the client sees a closed connection and tries again
		return
	}
	services.Splice(outside, within.(*net.TCPConn))
}
