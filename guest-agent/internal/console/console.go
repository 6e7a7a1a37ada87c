// Package console writes the agent's few log lines to the machine's console, the one place that the host can read
// when the machine dies.
package console

import (
	"os"

	"golang.org/x/sys/unix"
)

const prefix = "sandbar-agent: "

// Log writes one line made of parts to standard error, which is the console after Attach.
func Log(parts ...string) {
	line := make([]byte, 0, 120)
	line = append(line, prefix...)
	for _, part := range parts {
		line = append(line, part...)
	}
	_, _ = os.Stderr.Write(append(line, '\n')) // there is nowhere else to report to
}

// Attach makes the console the standard output and error of the process, so that a panic shows there too, and
// /dev/null its standard input.
func Attach() error {
	null, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	tty, err := unix.Open("/dev/console", unix.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	for target, source := range []int{null, tty, tty} {
		if source == target {
			continue
		}
		if err := unix.Dup3(source, target, 0); err != nil {
			return err
		}
	}
	for _, fd := range []int{null, tty} {
		if fd > 2 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
