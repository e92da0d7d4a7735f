package procrun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// linesOf returns stream, tag and text of each line of a log, without the times.
func linesOf(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		lines = append(lines, rest)
	}
	return lines
}

func TestLogKeepsLinesTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "logs", "0.log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	out, errs := log.stream("stdout"), log.stream("stderr")
	out.write([]byte("one\ntw"))
	errs.write([]byte("oops\n"))
	out.write([]byte("o\n\nlast"))
	out.flush()
	errs.flush()
	log.close()
	want := []string{"stdout F one", "stderr F oops", "stdout F two", "stdout F ", "stdout F last"}
	if got := linesOf(t, path); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLogCutsEndlessLinesIntoParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", maxLogLine+100)
	line := log.stream("stdout")
	for start := 0; start < len(long); start += 1000 {
		line.write([]byte(long[start:min(start+1000, len(long))]))
	}
	line.write([]byte("\n"))
	log.close()
	lines := linesOf(t, path)
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "stdout P ") || !strings.HasPrefix(lines[1], "stdout F ") {
		t.Fatalf("%d lines, the first two tags are wrong", len(lines))
	}
	if joined := strings.TrimPrefix(lines[0], "stdout P ") + strings.TrimPrefix(lines[1], "stdout F "); joined != long {
		t.Error("the parts do not add up to the line")
	}
}

func TestLogGoesOnInANewFileAfterARotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	log, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	line := log.stream("stdout")
	line.write([]byte("before\n"))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := log.reopen(); err != nil {
		t.Fatal(err)
	}
	line.write([]byte("after\n"))
	log.close()
	if got := linesOf(t, path); len(got) != 1 || got[0] != "stdout F after" {
		t.Errorf("the new file has %q", got)
	}
}
