package procrun

import (
	"io"
	"os"
	"slices"
	"sync"
)

// containerStreams are the standard streams of a container: its output goes into the log and to whoever is attached.
type containerStreams struct {
	log      *logFile
	inner    [3]*os.File // the container's side; closed here once the container has them
	input    *os.File    // nil when the container takes no input
	terminal *os.File    // the controlling side of the container's terminal, if it has one
	once     bool        // the input ends with the first client
	copies   sync.WaitGroup

	mutex    sync.Mutex
	attached map[*attachment]struct{}
	ended    chan struct{}
}

// attachment is a client that sees the container's output. Chunks wait in a queue: a client that does not keep up loses
// its connection, and the container does not wait for it.
type attachment struct {
	stdout, stderr io.Writer
	queue          chan chunk
	gone           chan struct{} // closed when the client is no longer served
	leave          sync.Once
}

type chunk struct {
	to   io.Writer
	text []byte
}

const queuedChunks = 256

func (a *attachment) end() { a.leave.Do(func() { close(a.gone) }) }

// serve hands the queue on until the client leaves, fails or falls behind, or until the output is over.
func (a *attachment) serve(over <-chan struct{}) {
	defer a.end()
	for {
		select {
		case next := <-a.queue:
			if _, err := next.to.Write(next.text); err != nil {
				return
			}
		case <-a.gone:
			return
		case <-over:
			for len(a.queue) > 0 {
				next := <-a.queue
				if _, err := next.to.Write(next.text); err != nil {
					return
				}
			}
			return
		}
	}
}

func openStreams(logPath string, stdin, once, tty bool) (*containerStreams, error) {
	log, err := openLog(logPath)
	if err != nil {
		return nil, err
	}
	s := &containerStreams{log: log, once: once, attached: map[*attachment]struct{}{}, ended: make(chan struct{})}
	if tty {
		err = s.openTerminal(stdin)
	} else {
		err = s.openPipes(stdin)
	}
	if err != nil {
		log.close()
		return nil, err
	}
	return s, nil
}

func (s *containerStreams) openTerminal(stdin bool) error {
	terminal, inner, err := openPTY()
	if err != nil {
		return err
	}
	s.terminal, s.inner = terminal, [3]*os.File{inner, inner, inner}
	if stdin {
		s.input = terminal
	}
	s.copyOut(terminal, "stdout", func(a *attachment) io.Writer { return a.stdout })
	return nil
}

func (s *containerStreams) openPipes(stdin bool) error {
	stdout, stdoutInner, err := os.Pipe()
	if err != nil {
		return err
	}
	stderr, stderrInner, err := os.Pipe()
	if err != nil {
		return err
	}
	var stdinInner *os.File
	if stdin {
		stdinInner, s.input, err = os.Pipe()
	} else {
		stdinInner, err = os.Open(os.DevNull)
	}
	if err != nil {
		return err
	}
	s.inner = [3]*os.File{stdinInner, stdoutInner, stderrInner}
	s.copyOut(stdout, "stdout", func(a *attachment) io.Writer { return a.stdout })
	s.copyOut(stderr, "stderr", func(a *attachment) io.Writer { return a.stderr })
	return nil
}

func (s *containerStreams) copyOut(from *os.File, name string, side func(*attachment) io.Writer) {
	s.copies.Go(func() {
		defer from.Close()
		line := s.log.stream(name)
		defer line.flush()
		buffer := make([]byte, 16*1024)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				line.write(buffer[:n])
				s.toAttached(buffer[:n], side)
			}
			if err != nil { // the end; a terminal reports it as EIO
				return
			}
		}
	})
}

func (s *containerStreams) toAttached(text []byte, side func(*attachment) io.Writer) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for a := range s.attached {
		writer := side(a)
		if writer == nil {
			continue
		}
		select {
		case a.queue <- chunk{writer, slices.Clone(text)}:
		default:
			a.end()
		}
	}
}

// attach connects a client until it leaves, or the container ends.
func (s *containerStreams) attach(done <-chan struct{}, stdin io.Reader, stdout, stderr io.Writer) {
	a := &attachment{stdout: stdout, stderr: stderr, queue: make(chan chunk, queuedChunks), gone: make(chan struct{})}
	s.mutex.Lock()
	s.attached[a] = struct{}{}
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		delete(s.attached, a)
		s.mutex.Unlock()
	}()
	if stdin != nil && s.input != nil {
		go s.feed(a, stdin)
	}
	go func() {
		select {
		case <-done:
			a.end()
		case <-a.gone:
		}
	}()
	a.serve(s.ended)
}

// feed hands a client's input on. Its end is the end of the container's input, or of the visit where there is a terminal.
func (s *containerStreams) feed(a *attachment, stdin io.Reader) {
	_, _ = io.Copy(s.input, stdin) // ends with the client or with the container
	switch {
	case s.terminal != nil:
		a.end()
	case s.once:
		s.input.Close()
	}
}

func (s *containerStreams) closeInner() {
	for _, file := range s.inner {
		file.Close() // a terminal is there three times: the second close does nothing
	}
}

// drain waits until all output is in the log. The container's end has closed the other side of the pipes.
func (s *containerStreams) drain() {
	s.copies.Wait()
	if s.input != nil && s.terminal == nil {
		s.input.Close()
	}
	s.log.close()
	close(s.ended)
}
