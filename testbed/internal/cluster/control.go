package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ControlAddress is where a testbed's commands find it: a name in the kernel, not a file, so that none is left behind.
func ControlAddress(dir string) string { return "@elbowroom-testbed-" + ID(dir) }

// Order is what a command asks of a running testbed.
type Order struct {
	Verb   string
	Name   string `json:",omitempty"`
	CPU    string `json:",omitempty"`
	Memory string `json:",omitempty"`
	Folder string `json:",omitempty"`
}

// The verbs of an Order.
const (
	VerbStatus  = "status"
	VerbDown    = "down"
	VerbKill    = "kill"
	VerbRestart = "restart"
	VerbImage   = "image"
	NodeAdd     = "node add"
	NodeStop    = "node stop"
	NodeKill    = "node kill"
	NodeStart   = "node start"
	NodeUnplug  = "node unplug"
	NodePlug    = "node plug"
	NodeRemove  = "node remove"
)

// How long a command waits for the testbed. An order may stop and start a component, each with a limit of its own.
const (
	statusLimit = 10 * time.Second
	orderLimit  = startLimit + stopLimit + shutdownGrace + 10*time.Second
)

type answer struct {
	Status *Status `json:",omitempty"`
	Error  string  `json:",omitempty"`
}

// ErrNotRunning says that no testbed runs in the folder.
var ErrNotRunning = errors.New("no testbed is running")

// Send gives an order to the testbed in dir and waits until it is carried out.
func Send(ctx context.Context, dir string, order Order) (*Status, error) {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", ControlAddress(dir))
	}}}
	limit := orderLimit
	if order.Verb == VerbStatus {
		limit = statusLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the testbed in %s has not answered within %s", dir, limit))
	defer cancel()
	body, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://testbed/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	reply, err := client.Do(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w in %s", ErrNotRunning, dir)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("the testbed in %s ended before it answered: %w", dir, err)
	}
	defer reply.Body.Close()
	var result answer
	if err := json.NewDecoder(reply.Body).Decode(&result); err != nil {
		return nil, fmt.Errorf("the testbed in %s ended before it answered: %w", dir, err)
	}
	if result.Error != "" {
		return nil, errors.New(result.Error)
	}
	return result.Status, nil
}

func (s *Supervisor) serveControl(listener net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: 10 * time.Second}
	_ = server.Serve(sameUser{listener}) // ends with the process
}

func (s *Supervisor) answer(writer http.ResponseWriter, request *http.Request) {
	var order Order
	var result answer
	if err := json.NewDecoder(io.LimitReader(request.Body, 1<<20)).Decode(&order); err != nil {
		result.Error = err.Error()
	} else if order.Verb == VerbStatus {
		result.Status = s.status()
	} else if order.Verb == VerbDown {
		result.Status = &Status{PID: s.boot.ParentPID} // nothing that could have to wait for anything
	} else if err := s.obey(order); err != nil {
		result.Error = err.Error()
	}
	_ = json.NewEncoder(writer).Encode(result) // the asker may have gone
	if order.Verb == VerbDown {
		_ = http.NewResponseController(writer).Flush()
		s.endOnce.Do(func() { close(s.down) })
	}
}

// obey carries an order out even if the asker goes away in the middle: half a restart helps nobody.
func (s *Supervisor) obey(order Order) error {
	s.operations.Lock()
	defer s.operations.Unlock()
	ctx := context.Background()
	switch order.Verb {
	case VerbImage:
		return s.images.Map(order.Name, order.Folder)
	case VerbKill, VerbRestart:
		return s.replace(ctx, order)
	case NodeAdd:
		n, err := s.addNode(order.Name, cmp.Or(order.CPU, s.boot.CPU), cmp.Or(order.Memory, s.boot.Memory))
		if err != nil {
			return err
		}
		return s.switchOn(ctx, n)
	}
	n, err := s.node(order.Name)
	if err != nil {
		return err
	}
	switch order.Verb {
	case NodeStop:
		return s.stopNode(n)
	case NodeKill:
		return s.killNode(n)
	case NodeStart:
		return s.switchOn(ctx, n)
	case NodeRemove:
		return s.removeNode(ctx, n)
	case NodeUnplug:
		n.unplugged.Store(true)
		return n.network.Unplug()
	case NodePlug:
		n.unplugged.Store(false)
		return n.network.Plug()
	}
	return fmt.Errorf("%q is not an order", order.Verb)
}

// replace kills a component or restarts it. A node's name stands for its kubelet; its containers run on.
func (s *Supervisor) replace(ctx context.Context, order Order) error {
	part := s.components[order.Name]
	if part == nil {
		n, err := s.node(order.Name)
		if err != nil {
			return fmt.Errorf("there is no component %q; there are %v and the nodes' names, for their kubelets", order.Name, controlPlaneNames)
		}
		if !n.on.Load() {
			return fmt.Errorf("node %s: %w", n.name, errOff)
		}
		part = n.kubelet
	}
	if order.Verb == VerbKill {
		if part.running() == nil {
			return fmt.Errorf("%s is down already", order.Name)
		}
		part.stop(syscall.SIGKILL)
		return nil
	}
	part.stop(syscall.SIGTERM)
	return part.start(ctx)
}

// sameUser lets in only who started the testbed, and root: the socket's name has no file permissions to rely on.
type sameUser struct{ net.Listener }

func (l sameUser) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(connection); err == nil && (uid == 0 || uid == uint32(os.Getuid())) {
			return connection, nil
		}
		connection.Close()
	}
}

func peer(connection net.Conn) (uid uint32, err error) {
	unixConnection, isUnix := connection.(*net.UnixConn)
	if !isUnix {
		return 0, errors.New("not a unix socket")
	}
	raw, err := unixConnection.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		credentials, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(controlErr, err); err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}
