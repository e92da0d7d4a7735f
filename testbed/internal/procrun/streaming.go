package procrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// Exec, Attach and PortForward answer with an address at which the kubelet finds the stream.
func (r *Runtime) Exec(_ context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.streams.GetExec(request)
}

// Attach answers with the address of a stream.
func (r *Runtime) Attach(_ context.Context, request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return r.streams.GetAttach(request)
}

// PortForward answers with the address of a stream.
func (r *Runtime) PortForward(_ context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.streams.GetPortForward(request)
}

// streamRuntime is what the streaming server calls: kubectl exec, attach and port-forward.
type streamRuntime struct{ *Runtime }

func (r streamRuntime) Exec(ctx context.Context, id string, args []string, in io.Reader, out, errOut io.WriteCloser, tty bool, sizes <-chan remotecommandserver.TerminalSize) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	code, err := c.run(ctx, command{args: args, stdin: in, stdout: plain(out), stderr: plain(errOut), tty: tty, sizes: sizes})
	if err != nil {
		return err
	}
	if code != 0 {
		return utilexec.CodeExitError{Code: code, Err: fmt.Errorf("command terminated with exit code %d", code)}
	}
	return nil
}

func (r streamRuntime) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, _ bool, sizes <-chan remotecommandserver.TerminalSize) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	c.mutex.Lock()
	streams := c.streams
	c.mutex.Unlock()
	if streams == nil {
		return errors.New("the container has not been started")
	}
	if streams.terminal != nil && sizes != nil {
		go followSize(streams.terminal, sizes, streams.ended)
	}
	streams.attach(ctx.Done(), in, plain(out), plain(errOut))
	return nil
}

func (r streamRuntime) PortForward(ctx context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	s, _ := r.podOf(id)
	if s == nil || !s.ready() {
		return fmt.Errorf("pod sandbox %s is not ready on %s", id, r.Node)
	}
	var connection net.Conn
	err := s.network.Do(func() (err error) {
		connection, err = (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		return err
	})
	if err != nil {
		return err
	}
	defer connection.Close()
	go func() {
		_, _ = io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite() // the client has said all it wants; the pod may still answer
	}()
	_, err = io.Copy(stream, connection)
	return err
}

// plain keeps a nil stream nil: an interface around a nil pointer is not.
func plain(stream io.WriteCloser) io.Writer {
	if stream == nil {
		return nil
	}
	return stream
}
