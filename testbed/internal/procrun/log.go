package procrun

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLogLine is where a line is cut into parts, as in containerd.
const maxLogLine = 16 * 1024

// logFile is a container's log in the format that the kubelet reads: time, stream, F for a full line or P for a part, text.
type logFile struct {
	path  string
	mutex sync.Mutex
	file  *os.File
}

func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	log := &logFile{path: path}
	return log, log.reopen()
}

func (l *logFile) reopen() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open the container's log: %w", err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	return nil
}

func (l *logFile) close() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.file.Close()
}

func (l *logFile) append(stream, tag string, text []byte) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	// A full disk must not stop the container: the line is lost, as it is in containerd.
	_, _ = fmt.Fprintf(l.file, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, text)
}

// logLine collects one stream's output into lines.
type logLine struct {
	log    *logFile
	stream string
	text   []byte
}

func (l *logFile) stream(name string) *logLine { return &logLine{log: l, stream: name} }

func (l *logLine) write(chunk []byte) {
	for {
		end := bytes.IndexByte(chunk, '\n')
		if end < 0 {
			break
		}
		l.log.append(l.stream, "F", append(l.text, chunk[:end]...))
		l.text, chunk = l.text[:0], chunk[end+1:]
	}
	l.text = append(l.text, chunk...)
	for len(l.text) >= maxLogLine {
		l.log.append(l.stream, "P", l.text[:maxLogLine])
		l.text = append(l.text[:0], l.text[maxLogLine:]...)
	}
}

func (l *logLine) flush() {
	if len(l.text) > 0 {
		l.log.append(l.stream, "F", l.text)
	}
}
