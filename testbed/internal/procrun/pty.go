package procrun

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// openPTY opens a terminal: the side that controls it, and the side that a program runs on.
func openPTY() (terminal, inner *os.File, err error) {
	terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	fd := int(terminal.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		terminal.Close()
		return nil, nil, fmt.Errorf("unlock a terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		inner, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		terminal.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return terminal, inner, nil
}

// followSize gives the terminal the size of the client's window, until done.
func followSize(terminal *os.File, sizes <-chan remotecommandserver.TerminalSize, done <-chan struct{}) {
	for {
		select {
		case size, open := <-sizes:
			if !open {
				return
			}
			_ = unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width}) // cosmetic
		case <-done:
			return
		}
	}
}
